"""How numbers, times and words are written in the report."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone

#: Characters that neither HTML nor XML may hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: What stands for a figure that was not measured.
UNKNOWN = "\u2013"


def escape(value: object) -> str:
    """Make any text fit for the page, between tags and in an attribute.

    Examples
    --------
    >>> escape('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(_FORBIDDEN.sub("\ufffd", str(value)))


def number(value: float | None) -> str:
    """Write a figure in at most four characters and a factor.

    Examples
    --------
    >>> number(0), number(0.034), number(12.5), number(1234), number(45_600_000)
    ('0', '0.034', '12.5', '1.23k', '45.6M')
    """
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    for factor, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        # 999.9 would be written as 1000: it belongs to the next factor.
        if abs(value) >= factor * 0.9995:
            return f"{value / factor:.3g}{suffix}"
    return f"{value:.3g}"


def whole(value: int | None) -> str:
    """Write a count in full, with thin gaps.

    Examples
    --------
    >>> whole(1234567)
    '1,234,567'
    """
    return UNKNOWN if value is None else f"{value:,}"


def share(value: float | None) -> str:
    """Write a fraction in percent; only what is complete is 100 %.

    Examples
    --------
    >>> share(1.0), share(0.99996), share(0.1234), share(0.0)
    ('100 %', '99.99 %', '12.3 %', '0 %')
    """
    if value is None:
        return UNKNOWN
    percent = value * 100.0
    if 99.95 <= percent < 100.0:
        return f"{math.floor(percent * 100) / 100:.2f} %"
    return f"{percent:.3g} %"


def data_size(value: float | None) -> str:
    """Write bytes.

    Examples
    --------
    >>> data_size(512), data_size(45_600_000)
    ('512 B', '45.6 MB')
    """
    if value is None:
        return UNKNOWN
    text = number(value)
    return f"{text[:-1]} {text[-1]}B" if text[-1].isalpha() else f"{text} B"


def milliseconds(value: float | None) -> str:
    """Write a time that may be short or long.

    Examples
    --------
    >>> milliseconds(0.25), milliseconds(340.0), milliseconds(12_300.0)
    ('0.25 ms', '340 ms', '12.3 s')
    """
    if value is None:
        return UNKNOWN
    return f"{value:.3g} ms" if value < 999.5 else f"{number(value / 1000.0)} s"


def clock(seconds: float) -> str:
    """Write a time since the start.

    Examples
    --------
    >>> clock(0), clock(75), clock(3661), clock(-5)
    ('0:00', '1:15', '1:01:01', '-0:05')
    """
    sign = "-" if seconds <= -0.5 else ""
    minutes, rest = divmod(round(abs(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}:{minutes:02}:{rest:02}" if hours else f"{sign}{minutes}:{rest:02}"


def moment(at_s: float) -> str:
    """Write a time of the calendar.

    Examples
    --------
    >>> moment(0)
    '1970-01-01 00:00:00 UTC'
    """
    try:
        return datetime.fromtimestamp(at_s, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{at_s:g} s"


def ticks(high: float, most: int = 5) -> list[float]:
    """Round values from 0 that reach at least `high`, at most `most` and one.

    Examples
    --------
    >>> ticks(87)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    >>> ticks(0)
    [0.0, 1.0]
    """
    if high <= 0:
        return [0.0, 1.0]
    rough = high / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * power >= rough * (1 - 1e-9))
    return [i * step for i in range(math.ceil(high / step * (1 - 1e-9)) + 1)]


def time_ticks(end_s: float, most: int = 6) -> list[float]:
    """Round times from 0 within `end_s`.

    Examples
    --------
    >>> time_ticks(95)
    [0, 20, 40, 60, 80]
    """
    steps = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400]
    step = next((s for s in steps if end_s / s <= most), 0)
    if not step:
        step = 86400 * math.ceil(end_s / 86400 / most)
    return [float(i * step) if i * step % 1 else i * step for i in range(int(end_s / step) + 1)]


def ranges(numbers: Sequence[int]) -> str:
    """Write ascending numbers in few characters.

    Examples
    --------
    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
