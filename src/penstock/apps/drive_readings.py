"""Readings of drives: which of them are right, which show an event, and what they add up to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.apps.backblaze import SMART

#: Events of a reading, and the columns that show them. A drive is hot from `HOT_C` on.
EVENTS = ("failed", "reallocated", "reported", "timeouts", "hot", "pending", "uncorrectable")
COLUMNS = ("failure", *(name for name in SMART if name != "smart_9_raw"))
HOT_C = 45

#: Its lowest byte is the temperature; some drives keep extremes in the others.
TEMPERATURE = "smart_194_raw"

#: Raw values are cut off here, below which decimals are exact.
LARGEST_RAW = 2.0**53

STORAGE = pa.schema(
    [
        ("model", pa.string()),
        ("window_start", pa.date32()),
        ("readings", pa.int64()),
        ("failures", pa.int64()),
        ("events", pa.int64()),
        ("failures_per_year", pa.float64()),
        ("mean_temperature", pa.float64()),
    ]
)

ALERTS = pa.schema(
    [
        ("serial_number", pa.string()),
        ("model", pa.string()),
        ("failed", pa.bool_()),
        ("kinds", pa.int64()),
        ("events", pa.int64()),
        ("first_day", pa.date32()),
        ("last_day", pa.date32()),
    ]
)


def valid(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Drop readings that cannot be right, and make whole numbers of what is used."""
    fine = pc.and_(
        pc.greater(batch.column("capacity_bytes"), 0),
        pc.and_(
            pc.greater_equal(batch.column("failure"), 0), pc.less_equal(batch.column("failure"), 1)
        ),
    )
    for name in ("date", "serial_number", "model", "smart_9_raw"):
        fine = pc.and_(fine, batch.column(name).is_valid())
    kept = batch.filter(fine)
    raw = [_whole_numbers(kept.column(name), name) for name in COLUMNS]
    return pa.record_batch(
        [kept.column("serial_number"), kept.column("model"), kept.column("date"), *raw],
        names=[
            "serial_number",
            "model",
            "date",
            "failed",
            *EVENTS[1:4],
            "temperature",
            *EVENTS[5:],
        ],
    )


def detect(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Keep the readings with an event, as zeros and ones."""
    flags = {
        name: pc.greater_equal(batch.column("temperature"), HOT_C)
        if name == "hot"
        else pc.greater(batch.column(name), 0)
        for name in EVENTS
    }
    some = None
    for flag in flags.values():
        some = flag if some is None else pc.or_(some, flag)
    kept = batch.select(["serial_number", "model", "date"])
    columns = [*kept.columns, *(flag.cast(pa.int64()) for flag in flags.values())]
    made = pa.record_batch(columns, names=[*kept.schema.names, *flags])
    return made.filter(some)


def statistics(batch: pa.RecordBatch) -> pa.RecordBatch | None:
    """Turn sums into rates and means, for windows with readings."""
    batch = batch.filter(pc.greater(batch.column("readings"), 0))
    readings = batch.column("readings").cast(pa.float64())
    per_year = pc.divide(pc.multiply(batch.column("failures").cast(pa.float64()), 365.0), readings)
    mean = pc.divide(batch.column("temperature").cast(pa.float64()), readings)
    columns = [batch.column(name) for name in STORAGE.names[:5]]
    return pa.record_batch([*columns, per_year, mean], schema=STORAGE)


def _whole_numbers(column: pa.Array, name: str) -> pa.Array:
    values = np.asarray(column.cast(pa.float64()).fill_null(0))
    whole = np.clip(np.nan_to_num(values), 0, LARGEST_RAW).astype(np.int64)
    return pa.array(whole % 256 if name == TEMPERATURE else whole)


def _whole(value: float | None) -> int:
    return int(min(max(value or 0, 0), LARGEST_RAW))


def temperature(row: Mapping[str, Any]) -> int:
    """Degrees of a reading, for checking."""
    return _whole(row[TEMPERATURE]) % 256


def is_valid(row: Mapping[str, Any]) -> bool:
    """Whether `valid` keeps a reading, for checking."""
    named = all(row[name] is not None for name in ("date", "serial_number", "model", "smart_9_raw"))
    return named and (row["capacity_bytes"] or 0) > 0 and row["failure"] in (0, 1)


def events(row: Mapping[str, Any]) -> set[str]:
    """Events that `detect` finds in a reading, for checking."""
    found = set()
    for event, column in zip(EVENTS, COLUMNS, strict=True):
        if temperature(row) >= HOT_C if event == "hot" else _whole(row[column]) > 0:
            found.add(event)
    return found
