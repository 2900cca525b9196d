"""Versions of state and the segments that they are made of.

A segment holds the rows that changed over a span of versions; one that begins at version 0 holds
all rows. The state at a version is a chain of segments without a gap, the newest first. Every
attempt at a batch saves under a version number that was never used before, so what a failed attempt
wrote is never part of the chain of a committed version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock.common.errors import PenstockError

#: This many segments of about one length are merged into one that is as many times longer.
FAN = 8


class StateLost(PenstockError):
    """Saved state is missing or damaged. No instance starts with less state than it had.

    Parameters
    ----------
    message : str
    owner : tuple of (str, int), optional
        Operator and instance, where it is the state of a single one that a task tried to load.
    """

    def __init__(self, message: str, owner: tuple[str, int] | None = None) -> None:
        super().__init__(message, owner)
        self.message, self.owner = message, owner

    def __str__(self) -> str:
        return self.message


class ChainBroken(PenstockError):
    """The state at a version cannot be loaded because a segment is missing.

    Parameters
    ----------
    version : int
        The version that was asked for.
    missing : int
        The version that no segment ends at.
    """

    def __init__(self, version: int, missing: int) -> None:
        super().__init__(version, missing)
        self.version, self.missing = version, missing

    def __str__(self) -> str:
        return (
            f"the state at version {self.version} is incomplete: "
            f"no segment ends at version {self.missing}"
        )


class Versioned(Protocol):
    """Anything that covers a span of versions, both ends included."""

    @property
    def first(self) -> int:
        """First version."""

    @property
    def last(self) -> int:
        """Last version."""


SegmentT = TypeVar("SegmentT", bound=Versioned)


@dataclass(frozen=True, order=True)
class Segment:
    """The versions that a segment covers, both ends included."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    @property
    def whole(self) -> bool:
        """Whether the segment holds all rows, not only those that changed."""
        return self.first == 0


#: Segments that were pre-copied, each with its size in bytes.
Copied = tuple[tuple[Segment, int], ...]


def chain(segments: Iterable[SegmentT], version: int) -> tuple[SegmentT, ...]:
    """Choose the segments that make up the state at a version, the newest first.

    The newest segment ends at the version and reaches back as far as possible, the next one ends
    right before that begins, and so on down to version 0. Segments that lead to a gap are ignored.

    Examples
    --------
    >>> parts = [Segment(0, 0), Segment(1, 1), Segment(2, 2), Segment(0, 2), Segment(3, 3)]
    >>> print(*chain(parts, 3))
    3-3 0-2

    Raises
    ------
    ChainBroken
        When a segment is missing. The chain of version -1, before the first, is empty.
    """
    ordered = sorted(segments, key=lambda segment: (segment.last, segment.first))
    complete: dict[int, SegmentT] = {}
    longest: dict[int, SegmentT] = {}
    for segment in ordered:
        longest.setdefault(segment.last, segment)
        if segment.first == 0 or segment.first - 1 in complete:
            complete.setdefault(segment.last, segment)
    found: list[SegmentT] = []
    at = version
    while at >= 0:
        if at not in complete:
            raise ChainBroken(version, _gap(longest, at))
        found.append(complete[at])
        at = complete[at].first - 1
    return tuple(found)


def _gap(longest: dict[int, SegmentT], at: int) -> int:
    while at in longest:
        at = longest[at].first - 1
    return at


def outdated(
    segments: Iterable[Segment], committed: int, needed: Collection[Segment]
) -> set[Segment]:
    """Find the segments that neither the committed version nor a later one needs.

    A segment that another one covers is not outdated for that reason alone: the longer one may be
    of an attempt that was never committed.

    Parameters
    ----------
    committed : int
        The version that a batch may be started from again.
    needed : collection of Segment
        The chain of that version.

    Examples
    --------
    >>> parts = [Segment(0, 2), Segment(3, 4), Segment(0, 3), Segment(5, 5)]
    >>> outdated(parts, 4, [Segment(3, 4), Segment(0, 2)])
    {Segment(first=0, last=3)}
    """
    return {part for part in segments if part.last <= committed and part not in needed}


def removable(segments: Collection[Segment], committed: int) -> set[Segment]:
    """Find the segments of a folder that may be removed once a version is committed.

    While the committed version is not complete there, no segment may be removed.
    """
    try:
        return outdated(segments, committed, chain(segments, committed))
    except ChainBroken:
        return set()


def to_merge(newest_first: tuple[Segment, ...]) -> int:
    """Return how many of the newest segments of a chain the next one is merged with.

    With this rule every row is rewritten a few times only, and a chain has some tens of segments at
    most.

    Examples
    --------
    >>> to_merge(tuple(Segment(v, v) for v in range(7, 0, -1)) + (Segment(0, 0),))
    7
    """
    lengths = [part.last - part.first + 1 for part in newest_first if not part.whole]
    count, limit = 0, FAN
    while True:
        short = next((i for i, n in enumerate(lengths) if n >= limit), len(lengths))
        # The segments counted so far become one segment together with the new one.
        if short - count + 1 < FAN:
            return count
        count, limit = short, limit * FAN
