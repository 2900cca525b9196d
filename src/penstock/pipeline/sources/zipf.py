"""Zipf's law: the key of rank `r` is drawn in proportion to `1 / r**coefficient`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from penstock.common.arrays import FloatArray, IntArray
from penstock.model import InvalidValue

#: Entries of the guide table for each key, and at most.
GUIDE_PER_KEY, GUIDE_MOST = 16, 1 << 20

#: Uniform numbers that are looked up at a time, so that the working arrays stay in the cache.
BLOCK = 1 << 14


@dataclass(frozen=True)
class Zipf:
    """Ranks by Zipf's law, counted from 0.

    Examples
    --------
    >>> law = Zipf(keys=3, coefficient=1.0)
    >>> law.probabilities.round(3).tolist()
    [0.545, 0.273, 0.182]
    >>> law.ranks(np.array([0.0, 0.54, 0.55, 0.99])).tolist()
    [0, 0, 1, 2]

    Parameters
    ----------
    keys : int
        Number of keys.
    coefficient : float
        From 0.0, where all keys are alike, to 2.0, where the first gets most.
    """

    keys: int
    coefficient: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.keys, bool) or not isinstance(self.keys, int) or self.keys < 1:
            raise InvalidValue("keys", "Zipf", "a whole number of at least 1", self.keys)
        number = isinstance(self.coefficient, (int, float)) and not isinstance(
            self.coefficient, bool
        )
        if not number or not 0.0 <= self.coefficient <= 2.0:
            raise InvalidValue("coefficient", "Zipf", "a number from 0 to 2", self.coefficient)

    @property
    def probabilities(self) -> FloatArray:
        """Probability of each rank."""
        return np.diff(_tables(self.keys, float(self.coefficient))[0], prepend=0.0)

    def ranks(self, uniform: FloatArray) -> IntArray:
        """Turn uniform numbers from 0 to 1 into ranks: the inverse of the distribution."""
        if self.coefficient == 0.0:
            return np.minimum((uniform * self.keys).astype(np.int64), self.keys - 1)
        ends, guide, settled = _tables(self.keys, float(self.coefficient))
        ranks = np.empty(len(uniform), dtype=np.int64)
        for low in range(0, len(uniform), BLOCK):
            block = uniform[low : low + BLOCK]
            cell = (block * len(settled)).astype(np.int64)
            found = guide[cell]
            # Only cells in which one key ends and another begins need a search.
            open_ = np.flatnonzero(~settled[cell])
            found[open_] = np.searchsorted(ends, block[open_], side="right")
            ranks[low : low + BLOCK] = found
        return np.minimum(ranks, self.keys - 1)


@lru_cache(maxsize=8)
def _tables(
    keys: int, coefficient: float
) -> tuple[FloatArray, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Where the share of each key ends; the key at each cell of a grid; if it fills the cell."""
    ends = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -coefficient)
    ends /= ends[-1]
    cells = min(keys * GUIDE_PER_KEY, GUIDE_MOST)
    guide = np.searchsorted(ends, np.arange(cells + 1) / cells, side="right").astype(np.int64)
    return ends, guide[:-1], guide[:-1] == guide[1:]
