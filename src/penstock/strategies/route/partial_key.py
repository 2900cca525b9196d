"""Partial key grouping: the lighter of two hashed choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.common.key_hashing import BLOCK, HashArray, modulo
from penstock.common.parameters import param
from penstock.strategies.route import Destination, KeyRouter, register


@register
@dataclass(frozen=True)
class PartialKey(KeyRouter):
    """Send every tuple to the lighter of its key's two instances (PKG).

    M. A. U. Nasir et al.: The power of both choices, ICDE 2015. A key is in at most two places, and
    a merge must follow. The two are always different ones here, where two independent hashes would
    now and then agree.

    The paper's sender counts every tuple before it looks at the next. Here a batch is routed in
    rounds: all tuples of a round see the loads at its start, and are counted at its end. Batches of
    up to `rounds` tuples are routed exactly as in the paper; in larger ones the loads that a choice
    rests on are up to ``1 / rounds`` of the batch old, so that an instance may get that much more
    than it would have. A key that comes several times in a round goes one way in it, and perhaps
    the other in the next.

    Examples
    --------
    >>> PartialKey().route(["hot"] * 6, Destination(3)).tolist()
    [1, 0, 1, 0, 1, 0]
    """

    name: ClassVar[str] = "partial-key"
    summary: ClassVar[str] = "the lighter of two hashed choices; needs a merge"
    origin: ClassVar[str] = "Nasir et al., ICDE 2015"
    choices: ClassVar[int | None] = 2

    rounds: int = param(
        256,
        "Rounds in which a batch is routed: more balance better and take longer.",
        least=1,
        most=1_000_000,
        unit="rounds",
    )

    def route_hashes(self, hashes: HashArray, to: Destination) -> IntArray:
        """Give every hash an instance; see `Router.route_hashes`."""
        if to.instances == 1:
            return np.zeros(len(hashes), dtype=np.int64)
        loads = np.zeros(to.instances) if to.loads is None else np.array(to.loads, dtype=float)
        step = max(1, -(-len(hashes) // self.rounds))
        block = step * max(1, BLOCK // step)
        instance = np.empty(len(hashes), dtype=np.int64)
        for low in range(0, len(hashes), block):
            first, second = two_choices(hashes[low : low + block], to.instances)
            for start in range(0, len(first), step):
                a, b = first[start : start + step], second[start : start + step]
                chosen = _lighter(a, b, loads)
                loads += np.bincount(chosen, minlength=to.instances)
                instance[low + start : low + start + step] = chosen
        return instance


def two_choices(hashes: HashArray, instances: int) -> tuple[IntArray, IntArray]:
    """Name the two instances of each key; they differ when there are two to choose from."""
    first = modulo(hashes, instances)
    if instances == 1:
        return first, first
    # The upper half of a mixed hash knows nothing of what the whole of it leaves.
    second = modulo(hashes >> np.uint64(32), instances - 1)
    second += first
    second += 1
    second -= instances * (second >= instances)
    return first, second


def _lighter(first: IntArray, second: IntArray, loads: FloatArray) -> IntArray:
    return np.where(loads[second] < loads[first], second, first)
