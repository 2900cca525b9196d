"""Which rows of two sides belong together: by the number of their key, and by a bound on time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.common.arrays import BoolArray, IntArray

#: Pairs that are made at a time.
MOST_PAIRS = 1_000_000


@dataclass(frozen=True, eq=False)
class SideRows:
    """The rows of one side, as far as matching looks at them.

    Parameters
    ----------
    key : array
        Number of each row's key.
    time_us : array
        Its event time.
    timeless : array
        Whether it has none: then it matches nothing that is bound by time.
    """

    key: IntArray
    time_us: IntArray
    timeless: BoolArray


@dataclass(frozen=True)
class Bound:
    """How far the time of a row may be from that of the row that looks for it; None is any."""

    lower_us: int | None
    upper_us: int | None

    def reversed(self) -> Bound:
        """Return the same bound, seen from the other side."""
        lower = None if self.upper_us is None else -self.upper_us
        return Bound(lower, None if self.lower_us is None else -self.lower_us)


def pairs(
    looking: SideRows, found: SideRows, bound: Bound | None, most: int = MOST_PAIRS
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield positions of rows that belong together, about `most` at a time.

    The rows that are looked through are sorted by key and time, so that the matches of a row are
    one range of them: the work is by the number of rows and of matches, not of rows with equal
    keys.

    Examples
    --------
    >>> def rows(keys, times):
    ...     return SideRows(np.array(keys), np.array(times), np.zeros(len(keys), bool))
    >>> [(a, b)] = pairs(rows([0, 1], [5, 5]), rows([1, 0, 0], [5, 9, 4]), Bound(0, 4))
    >>> list(zip(a.tolist(), b.tolist()))
    [(0, 1), (1, 0)]
    """
    order, low, high = _ranges(looking, found, bound)
    counts = high - low
    ends = np.cumsum(counts)
    start = 0
    while start < len(counts):
        done = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, done + most, side="right")))
        part = counts[start:stop]
        total = int(part.sum())
        if total:
            one = np.repeat(np.arange(start, stop), part)
            first = np.repeat(low[start:stop] - (np.cumsum(part) - part), part)
            yield one, order[first + np.arange(total)]
        start = stop


def _ranges(
    looking: SideRows, found: SideRows, bound: Bound | None
) -> tuple[IntArray, IntArray, IntArray]:
    """Return an order of the rows that are found, and the range of each row's matches in it."""
    if bound is None:
        order = np.argsort(found.key, kind="stable")
        keys = found.key[order]
        low = np.searchsorted(keys, looking.key, side="left")
        return order, low, np.searchsorted(keys, looking.key, side="right")
    timed = np.flatnonzero(~found.timeless)
    order = timed[np.lexsort((found.time_us[timed], found.key[timed]))]
    times = np.sort(found.time_us[timed])
    width = len(times) + 1
    # A row's place among all times stands for its time: key and place fit into one number.
    place = found.key[order] * width + np.searchsorted(times, found.time_us[order], side="left")
    own = looking.key * width
    low = np.searchsorted(place, own, side="left")
    high = np.searchsorted(place, own + width, side="left")
    if bound.lower_us is not None:
        first = np.searchsorted(times, looking.time_us + bound.lower_us, side="left")
        low = np.searchsorted(place, own + first, side="left")
    if bound.upper_us is not None:
        last = np.searchsorted(times, looking.time_us + bound.upper_us, side="right")
        high = np.searchsorted(place, own + last, side="left")
    high = np.where(looking.timeless, low, np.maximum(low, high))
    return order, low, high
