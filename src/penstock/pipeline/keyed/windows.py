"""Windows over event time: which of them hold a row, and when the last has closed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.arrays import IntArray
from penstock.model import InvalidValue

#: Microseconds of the units of a length, and of a timestamp's.
_UNITS_US = {
    "us": 1,
    "ms": 1000,
    "s": 10**6,
    "min": 60 * 10**6,
    "h": 3600 * 10**6,
    "d": 86400 * 10**6,
}
_PER_UNIT = {"s": 10**6, "ms": 1000, "us": 1}

#: Emit a window once, when it closes, or its new values in every batch that changes it.
EMIT = ("closed", "changes")

#: Late rows are dropped and counted; or counted, and sent on by the step ``<name>-late``.
LATE = ("drop", "side-output")


def microseconds(value: float | str, parameter: str, owner: str, *, signed: bool = False) -> int:
    """Read a length of time: seconds, or a number and a unit; a text with a sign if `signed`.

    Examples
    --------
    >>> microseconds(1.5, "size", "a window"), microseconds("10 min", "size", "a window")
    (1500000, 600000000)
    """
    allowed = "seconds, or a number with one of " + ", ".join(_UNITS_US)
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*([a-z]+)\s*", value)
        if match is None or match[2] not in _UNITS_US or (match[1][0] == "-" and not signed):
            raise InvalidValue(parameter, owner, allowed, value)
        return round(float(match[1]) * _UNITS_US[match[2]])
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
        raise InvalidValue(parameter, owner, allowed, value)
    return round(value * 10**6)


@dataclass(frozen=True)
class Window:
    """Windows of one length that begin at regular times, counted from 1970.

    Parameters
    ----------
    column : str
        Event time of a row: a timestamp, or int64 microseconds.
    size_us, slide_us : int
        Length of a window, and time from the start of one to the start of the next.
    lateness_us : int
        How much older than the newest row a row may be before its windows close.
    late : str
        One of `LATE`.
    emit : str
        One of `EMIT`.
    """

    column: str
    size_us: int
    slide_us: int
    lateness_us: int = 0
    late: str = "drop"
    emit: str = "closed"

    def __post_init__(self) -> None:
        if self.size_us < 1:
            raise InvalidValue("size", "a window", "a positive time", f"{self.size_us} us")
        if not 1 <= self.slide_us <= self.size_us:
            allowed = f"positive and at most the size of {self.size_us} us"
            raise InvalidValue("slide", "a window", allowed, f"{self.slide_us} us")
        if self.lateness_us < 0:
            raise InvalidValue("lateness", "a window", "at least 0", f"{self.lateness_us} us")
        for parameter, value, choices in (("late", self.late, LATE), ("emit", self.emit, EMIT)):
            if value not in choices:
                raise InvalidValue(parameter, "a window", "one of " + ", ".join(choices), value)

    def spread(self, times_us: IntArray) -> tuple[IntArray, IntArray]:
        """Rows and starts of all windows that hold them.

        Examples
        --------
        >>> rows, starts = Window("t", size_us=10, slide_us=5).spread(np.array([3, 12]))
        >>> list(zip(rows.tolist(), starts.tolist()))
        [(0, 0), (1, 10), (0, -5), (1, 5)]
        """
        latest = times_us // self.slide_us * self.slide_us
        copies = -(-self.size_us // self.slide_us)
        starts = latest[None, :] - self.slide_us * np.arange(copies)[:, None]
        held = starts + self.size_us > times_us[None, :]
        return np.nonzero(held)[1], starts[held]

    def earliest(self, times_us: IntArray) -> IntArray:
        """Start of the first window that holds each time."""
        return -((self.size_us - 1 - times_us) // self.slide_us) * self.slide_us

    @property
    def pane_us(self) -> int:
        """Longest time that no window cuts in two."""
        return math.gcd(self.size_us, self.slide_us)

    def closed(self, watermark_us: int) -> int:
        """Count, from 1970, the windows that have closed."""
        return (watermark_us - self.size_us) // self.slide_us


@dataclass(frozen=True)
class Session:
    """Windows that end when nothing came for a while; see `session`.

    Parameters
    ----------
    column : str
        Event time of a row: a timestamp, or int64 microseconds.
    gap_us : int
        How long nothing of a key comes after the last row of a session.
    lateness_us, late
        As in `Window`.
    """

    column: str
    gap_us: int
    lateness_us: int = 0
    late: str = "drop"

    def __post_init__(self) -> None:
        if self.gap_us < 1:
            raise InvalidValue("gap", "a session", "a positive time", f"{self.gap_us} us")
        if self.lateness_us < 0:
            raise InvalidValue("lateness", "a session", "at least 0", f"{self.lateness_us} us")
        if self.late not in LATE:
            raise InvalidValue("late", "a session", "one of " + ", ".join(LATE), self.late)


def session(
    column: str, gap: float | str, *, lateness: float | str = 0.0, late: str = "drop"
) -> Session:
    """Windows of a key that end when nothing of the key came for `gap`.

    A session is emitted once, when it closes.

    Parameters
    ----------
    column : str
        Event time: a timestamp, or int64 microseconds.
    gap : float or str
        Seconds, or a number with a unit such as ``"10 s"`` or ``"5 min"``.
    lateness, late
        As in `tumbling`.
    """
    return Session(
        column,
        microseconds(gap, "gap", "a session"),
        microseconds(lateness, "lateness", "a session"),
        late,
    )


def tumbling(
    column: str,
    size: float | str,
    *,
    lateness: float | str = 0.0,
    late: str = "drop",
    emit: str = "closed",
) -> Window:
    """Windows that follow each other: every row is in one.

    Parameters
    ----------
    column : str
        Event time: a timestamp, or int64 microseconds.
    size : float or str
        Seconds, or a number with a unit such as ``"10 s"`` or ``"5 min"``.
    lateness : float or str
        How much older than the newest row a row may be before its windows close.
    late : str
        ``drop`` counts late rows; ``side-output`` also sends them on as the step ``<name>-late``.
    emit : str
        ``closed`` emits a window once, when it closes; ``changes`` emits its new values in every
        batch that changes it.
    """
    return sliding(column, size, size, lateness=lateness, late=late, emit=emit)


def sliding(
    column: str,
    size: float | str,
    slide: float | str,
    *,
    lateness: float | str = 0.0,
    late: str = "drop",
    emit: str = "closed",
) -> Window:
    """Windows that begin every `slide` and overlap: a row is in about ``size / slide`` of them.

    The other parameters are those of `tumbling`.
    """
    return Window(
        column,
        microseconds(size, "size", "a window"),
        microseconds(slide, "slide", "a window"),
        microseconds(lateness, "lateness", "a window"),
        late,
        emit,
    )


def event_times(column: Any) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Return times in microseconds, and which are missing."""
    kind = column.type
    if not (pa.types.is_timestamp(kind) or kind == pa.int64()):
        allowed = "a column of timestamps or of int64 microseconds"
        raise InvalidValue("column", "a window", allowed, str(kind))
    missing = np.asarray(column.is_null())
    numbers = np.asarray(column.cast(pa.int64()).fill_null(0), dtype=np.int64)
    if pa.types.is_timestamp(kind):
        numbers = numbers // 1000 if kind.unit == "ns" else numbers * _PER_UNIT[kind.unit]
    return numbers, missing


def as_times(times_us: IntArray, kind: pa.DataType) -> pa.Array:
    """Return microseconds as timestamps, if the event times are timestamps."""
    made = pa.array(times_us, pa.int64())
    return made.cast(pa.timestamp("us", kind.tz)) if pa.types.is_timestamp(kind) else made
