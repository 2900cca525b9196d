"""The bounded queue in front of a pipeline: how much of a source a batch may take (Sra fig. 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.model import InvalidValue
from penstock.pipeline.steps import PARTITION, Offsets, PartitionedSource, Source

#: What happens when the queue is full: the source waits, or the newest tuples are dropped.
POLICIES = ("wait", "drop")

#: Tuples that may wait, by default. A micro-batch takes all of them, so it must be able to.
QUEUE = 500_000


@dataclass(eq=False)
class SourceQueue:
    """A source, how much of it batches have taken, and how much was dropped.

    Parameters
    ----------
    source : Source
    queue : int
        Tuples that may wait.
    when_full : str
        ``wait``: nothing is lost, the source waits; ``drop``: tuples that do not fit are dropped,
        newest first, and counted.
    taken : int
        Position up to which batches have taken it.
    dropped : int
        Tuples that were dropped so far.
    waiting : int
        Tuples that were left when a batch last took some.
    """

    source: Source
    queue: int = QUEUE
    when_full: str = "wait"
    taken: int = 0
    dropped: int = 0
    waiting: int = 0

    def __post_init__(self) -> None:
        _check(self.queue, self.when_full)

    def resume(self, cuts: Sequence[tuple[int, int]]) -> None:
        """Count ranges as taken: a batch that was begun and not committed has them."""
        self.taken = max(self.taken, cuts[-1][1])

    @property
    def ended(self) -> bool:
        """Whether everything was taken and nothing more comes."""
        return self.source.end is not None and self.taken >= self.source.end

    def take(self, elapsed_s: float) -> tuple[tuple[int, int], ...]:
        """Take what waits after so many seconds of the stream, as ranges of positions."""
        reached = self.source.available(elapsed_s)
        if self.source.end is not None:
            reached = min(reached, self.source.end)
        start = self.taken
        if reached <= start:
            self.waiting = 0
            return ()
        stop = min(reached, start + self.queue)
        self.taken = stop
        if self.when_full == "drop" and reached > stop:
            self.dropped += reached - stop
            self.taken = reached
        self.waiting = reached - self.taken
        return ((start, stop),)


@dataclass(eq=False)
class PartitionedQueue:
    """A source with several partitions, and how much of each batches have taken.

    Parameters
    ----------
    source : PartitionedSource
    queue, when_full
        As in `SourceQueue`; a batch takes at most `queue` offsets of all partitions together, and
        as evenly as they are filled.
    reached : dict of int to int
        Offset up to which batches have taken each partition.
    dropped : int
        Offsets that were passed over so far, because they did not fit or were deleted.
    waiting : int
        Offsets that were left when a batch last took some.
    """

    source: PartitionedSource
    queue: int = QUEUE
    when_full: str = "wait"
    reached: dict[int, int] = field(default_factory=dict)
    dropped: int = 0
    waiting: int = 0
    _offsets: Offsets | None = field(default=None, init=False)
    _ends: Mapping[int, int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        _check(self.queue, self.when_full)

    def resume(self, cuts: Sequence[tuple[int, int]]) -> None:
        """Count ranges as taken: a batch that was begun and not committed has them."""
        for start, stop in cuts:
            partition = start // PARTITION
            self.reached[partition] = stop - partition * PARTITION

    @property
    def ended(self) -> bool:
        """Whether everything was taken and nothing more comes."""
        ends = self._ends
        return ends is not None and all(self.reached.get(p, 0) >= at for p, at in ends.items())

    def take(self, elapsed_s: float) -> tuple[tuple[int, int], ...]:
        """Take what waits, as a range of positions for each partition that has some.

        A partition that is seen for the first time has a range even if it is empty, so that the
        commit log knows where it began.
        """
        if self._offsets is None:
            self._offsets = self.source.offsets()
        there = self._offsets.look(self.reached)
        if self.source.until is not None:
            if self._ends is None:
                self._ends = {number: end for number, (_, end) in there.items()}
            ends = self._ends
            there = {p: (at, max(at, min(end, ends.get(p, 0)))) for p, (at, end) in there.items()}
        shares = even_shares({p: end - at for p, (at, end) in there.items()}, self.queue)
        cuts: list[tuple[int, int]] = []
        self.waiting = 0
        for number, (start, end) in there.items():
            base, stop = number * PARTITION, start + shares[number]
            self.dropped += max(0, start - self.reached.get(number, start))
            if stop > start or number not in self.reached:
                cuts.append((base + start, base + stop))
            dropped = end - stop if self.when_full == "drop" else 0
            self.dropped += dropped
            self.reached[number] = stop + dropped
            self.waiting += end - self.reached[number]
        return tuple(cuts)


def even_shares(available: Mapping[int, int], most: int) -> dict[int, int]:
    """Share `most` out evenly: nobody gets more than is available, or less than another could give.

    Examples
    --------
    >>> even_shares({0: 2, 1: 50, 2: 9}, 20)
    {0: 2, 1: 9, 2: 9}
    >>> even_shares({0: 2, 1: 50}, 100)
    {0: 2, 1: 50}
    """
    shares: dict[int, int] = {}
    left, waiting = most, len(available)
    for name in sorted(available, key=lambda one: available[one]):
        shares[name] = min(available[name], left // waiting)
        left, waiting = left - shares[name], waiting - 1
    return {name: shares[name] for name in available}


def queue_of(
    source: Source | PartitionedSource, queue: int, when_full: str, reached: Sequence[int]
) -> SourceQueue | PartitionedQueue:
    """Make the queue of a source that goes on at the positions that were `reached` before."""
    if isinstance(source, PartitionedSource):
        known = dict(divmod(at, PARTITION) for at in reached)
        return PartitionedQueue(source, queue, when_full, known)
    return SourceQueue(source, queue, when_full, reached[0] if reached else 0)


def _check(queue: int, when_full: str) -> None:
    if queue < 1:
        raise InvalidValue("queue", "a source", "a whole number of at least 1", queue)
    if when_full not in POLICIES:
        allowed = "one of " + ", ".join(POLICIES)
        raise InvalidValue("when_full", "a source", allowed, when_full)
