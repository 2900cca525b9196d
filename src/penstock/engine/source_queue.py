"""The bounded queue in front of a pipeline: how much of a source a batch may take (Sra fig. 5)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model import InvalidValue
from penstock.pipeline.steps import Source

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
        if self.queue < 1:
            raise InvalidValue("queue", "a source", "a whole number of at least 1", self.queue)
        if self.when_full not in POLICIES:
            allowed = "one of " + ", ".join(POLICIES)
            raise InvalidValue("when_full", "a source", allowed, self.when_full)

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
