"""Which runs make up a state: each holds what changed over a span of versions.

The state of version v is the chain of runs that ends there (`penstock.state.backup.catalog.chain`).
Numbers of versions are used once: an attempt that failed leaves runs that no chain reaches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from penstock.model import PenstockError

#: So many runs of about one length are merged into one that is as much longer.
FAN = 8


class StateLost(PenstockError):
    """State that should be there is not; nothing is started without it."""


@dataclass(frozen=True, order=True)
class Segment:
    """Versions that a run covers, both ends included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    @property
    def whole(self) -> bool:
        """Whether it holds all that there was."""
        return self.first == 0


#: Runs that were copied ahead of a move, and their bytes.
Copied = tuple[tuple[Segment, int], ...]


def to_merge(known: tuple[Segment, ...]) -> int:
    """Say how many of a chain's newest runs the next one is merged with.

    So a row is written again a few times, and a chain has some tens of runs at the most.

    Examples
    --------
    >>> to_merge(tuple(Segment(v, v) for v in range(7, 0, -1)) + (Segment(0, 0),))
    7
    """
    lengths = [run.last - run.first + 1 for run in known if not run.whole]
    count, limit = 0, FAN
    while True:
        short = next((i for i, n in enumerate(lengths) if n >= limit), len(lengths))
        # Those counted so far will be one run together with the new one.
        if short - count + 1 < FAN:
            return count
        count, limit = short, limit * FAN


def outdated(runs: Iterable[Segment], committed: int, needed: Collection[Segment]) -> set[Segment]:
    """Find the runs that neither the committed version nor a later one needs.

    That one covers another does not say so: it may be of an attempt that was never committed.

    Parameters
    ----------
    committed : int
        The version that a batch may be started from again.
    needed : collection of Segment
        The runs that it is made of.

    Examples
    --------
    >>> runs = [Segment(0, 2), Segment(3, 4), Segment(0, 3), Segment(5, 5)]
    >>> outdated(runs, 4, [Segment(3, 4), Segment(0, 2)])
    {Segment(first=0, last=3)}
    """
    return {run for run in runs if run.last <= committed and run not in needed}
