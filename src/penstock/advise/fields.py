"""Take values out of records that may lack them, or hold something else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

Record = Mapping[str, Any]


def number(record: Record, name: str, otherwise: float = 0.0) -> float:
    """Read a finite number, also one that is written as text.

    Examples
    --------
    >>> number({"a": "12"}, "a"), number({"a": None}, "a"), number({}, "a", -1)
    (12.0, 0.0, -1)
    """
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return otherwise
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return otherwise
    return found if math.isfinite(found) else otherwise


def whole(record: Record, name: str, otherwise: int = 0) -> int:
    """Read a whole number."""
    return int(number(record, name, otherwise))


def text(record: Record, name: str) -> str:
    """Read text; empty when there is none."""
    value = record.get(name)
    return value if isinstance(value, str) else ""


def inner(record: Record, *names: str) -> Record:
    """Read a record inside records; an empty one when it is not there."""
    for name in names:
        value = record.get(name)
        if not isinstance(value, Mapping):
            return {}
        record = value
    return record


def items(record: Record, name: str) -> Iterator[Record]:
    """Read the records of a list; whatever else is in it is left out."""
    value = record.get(name)
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, Mapping))


def figures(record: Record, name: str) -> dict[str, float]:
    """Read a record of numbers; those that are none are left out."""
    found = inner(record, name)
    return {key: number(found, key) for key in found if number(found, key, math.inf) < math.inf}


def time_ms(value: object) -> float | None:
    """Read a time of the calendar: milliseconds, or ISO 8601 as Spark writes it.

    Examples
    --------
    >>> time_ms("1970-01-01T00:00:01.500Z"), time_ms("1970-01-01T00:00:02.000GMT"), time_ms(7)
    (1500.0, 2000.0, 7.0)
    >>> time_ms("yesterday") is None
    True
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    plain = value.removesuffix("Z").removesuffix("GMT")
    for form in ("%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S"):
        try:
            found = datetime.strptime(plain, form).replace(tzinfo=timezone.utc)
        except (ValueError, OverflowError):
            continue
        return found.timestamp() * 1e3
    return None
