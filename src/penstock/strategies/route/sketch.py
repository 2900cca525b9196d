"""Heavy hitters in bounded memory: Misra-Gries counters, a batch at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.common.arrays import IntArray, frozen_ints
from penstock.common.errors import InvalidValue
from penstock.common.key_hashing import HashArray, hash_keys

#: Counters kept unless told otherwise: what has a thousandth of the stream is then found.
CAPACITY = 1024


@dataclass(frozen=True, eq=False)
class Sketch:
    """Counts of the heaviest keys of a stream, never more than `capacity` of them.

    J. Misra, D. Gries: Finding repeated elements, 1982. A batch is merged in at once as two
    summaries are (P. K. Agarwal et al.: Mergeable summaries, PODS 2012): the counts are added, and
    where more than `capacity` keys are left, the count of the first one too many is taken off all
    of them and what falls to 0 goes. Each time that costs the stream at least ``capacity + 1``
    times as many tuples as it costs any one key, so with ``n`` tuples seen

    ``count <= true count <= count + spilled`` and ``spilled <= n / (capacity + 1)``.

    Every key with more than ``n / (capacity + 1)`` tuples is therefore in it. Sketches of several
    senders are merged with the same guarantee.

    Examples
    --------
    >>> seen = Sketch.of(["a"] * 50 + ["b"] * 30 + ["c", "d", "e"], capacity=2)
    >>> seen.total, seen.spilled, seen.counts.tolist()
    (83, 1, [49, 29])

    Parameters
    ----------
    capacity : int
    total : int
        Tuples seen.
    spilled : int
        What a count may be too low by.
    hashes, counts : array
        The keys that are counted, the heaviest first.
    """

    capacity: int = CAPACITY
    total: int = 0
    spilled: int = 0
    hashes: HashArray = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    counts: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise InvalidValue("capacity", "a sketch", "at least 1", self.capacity)

    @classmethod
    def of(cls, keys: Any, capacity: int = CAPACITY) -> Sketch:
        """Make a sketch of one batch."""
        return cls(capacity).updated(keys)

    def updated(self, keys: Any) -> Sketch:
        """Return the sketch with a batch of keys added; keys as `hash_keys` takes them."""
        return self.updated_hashes(hash_keys(keys))

    def updated_hashes(self, hashes: HashArray) -> Sketch:
        """Return the sketch with a batch of hashed keys added."""
        distinct, counts = np.unique(hashes, return_counts=True)
        batch = _reduced(self.capacity, distinct, counts.astype(np.int64), len(hashes), 0)
        return self.merged(batch)

    def merged(self, other: Sketch) -> Sketch:
        """Return the sketch of both streams, with this one's capacity."""
        both, number = np.unique(np.concatenate((self.hashes, other.hashes)), return_inverse=True)
        sums = np.zeros(len(both), dtype=np.int64)
        np.add.at(sums, number, np.concatenate((self.counts, other.counts)))
        total, spilled = self.total + other.total, self.spilled + other.spilled
        return _reduced(self.capacity, both, sums, total, spilled)

    def estimates(self) -> Mapping[int, int]:
        """Return the counted keys' hashes with their counts, which are never too high."""
        return dict(zip(self.hashes.tolist(), self.counts.tolist(), strict=True))

    def above(self, share: float) -> tuple[int, ...]:
        """Hashes of keys that surely have more than this share of the stream."""
        return tuple(self.hashes[self.counts > share * self.total].tolist())


def _reduced(
    capacity: int, hashes: HashArray, counts: IntArray, total: int, spilled: int
) -> Sketch:
    """Make a sketch of counted keys that may be too many."""
    if len(counts) > capacity:
        at = len(counts) - capacity - 1
        excess = int(np.partition(counts, at)[at])
        kept = counts > excess
        hashes, counts, spilled = hashes[kept], counts[kept] - excess, spilled + excess
    order = np.lexsort((hashes, -counts))
    held = hashes[order]
    held.setflags(write=False)
    return Sketch(capacity, total, spilled, held, frozen_ints(counts[order]))
