"""Random numbers by position: number `i` of a seed is the same however a range is cut.

A generator with a state must be run from its start to get to a position. These are hashes of the
position instead, so any worker can make any part of a stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.common.arrays import FloatArray, IntArray
from penstock.common.key_hashing import HashArray, mix


@dataclass(frozen=True, eq=False)
class Draws:
    """Random numbers for a range of positions.

    Examples
    --------
    >>> whole, part = Draws(7, 0, 5), Draws(7, 3, 5)
    >>> bool((whole.uniform("price")[3:] == part.uniform("price")).all())
    True

    Parameters
    ----------
    seed : int
    start, stop : int
        Positions; there is one number, or one row of numbers, for each.
    """

    seed: int
    start: int
    stop: int

    @property
    def positions(self) -> IntArray:
        """The positions themselves."""
        return np.arange(self.start, self.stop, dtype=np.int64)

    def bits(self, what: str, width: int = 1) -> HashArray:
        """Draw 64 random bits, `width` times for each position, in one row.

        Parameters
        ----------
        what : str
            Name of what is drawn: different names give independent numbers.
        width : int
            Numbers for each position.
        """
        numbers = np.arange(self.start * width, self.stop * width, dtype=np.uint64)
        return mix(numbers ^ stream(self.seed, what))

    def uniform(self, what: str, width: int = 1) -> FloatArray:
        """Draw numbers from 0 up to, and without, 1."""
        high = self.bits(what, width) >> np.uint64(11)
        return high.astype(np.float64) * 2.0**-53

    def below(self, what: str, limit: int, width: int = 1) -> IntArray:
        """Draw whole numbers from 0 up to, and without, `limit`."""
        drawn = (self.uniform(what, width) * limit).astype(np.int64)
        return np.minimum(drawn, limit - 1)


def stream(seed: int, what: str) -> np.uint64:
    """Key of an independent stream of numbers."""
    name = np.frombuffer(what.encode(), dtype=np.uint8).astype(np.uint64)
    key = np.array([seed % 2**64], dtype=np.uint64)
    for letter in name:
        key = mix(key ^ letter)
    return np.uint64(mix(key)[0])


def uniform_of(seed: int, what: str, values: npt.NDArray[np.int64]) -> FloatArray:
    """Draw a number from 0 up to 1 for each value; equal values get equal numbers.

    For what belongs to a key and not to a position, such as the size of a drive.
    """
    bits = mix(values.view(np.uint64) ^ stream(seed, what))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def shuffled(seed: int, what: str, count: int) -> npt.NDArray[np.int64]:
    """Whole numbers below `count` in a random order."""
    return np.argsort(Draws(seed, 0, count).bits(what), kind="stable")
