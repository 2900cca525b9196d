"""Batches as an Arrow table, for analysis with whatever reads Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from penstock.common.errors import PenstockError
from penstock.store.records import BatchRecord, json_text

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {"int": "int64", "float": "float64", "float | None": "float64", "str": "string"}

#: Percentiles of the latency, each a column of its own.
PERCENTILES = (50, 95, 99)


def batches_table(batches: Sequence[BatchRecord]) -> pa.Table:
    """Make a table with one row for each batch.

    Columns are the fields of `BatchRecord`, mappings as JSON text, and for the latency
    ``latency_p50_ms``, ``latency_p95_ms``, ``latency_p99_ms``, ``latency_max_ms``.

    Raises
    ------
    PenstockError
        When pyarrow is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise PenstockError("an Arrow table needs pyarrow: pip install pyarrow") from None
    columns: dict[str, Any] = {}
    for f in fields(BatchRecord):
        values = [getattr(b, f.name) for b in batches]
        if f.name in ("lit", "figures"):
            columns[f.name] = pa.array([json_text(v) for v in values], pa.string())
        elif f.name != "latency":
            columns[f.name] = pa.array(values, pa.type_for_alias(_TYPES[str(f.type)]))
    for p in PERCENTILES:
        found = [b.latency.percentile(p) for b in batches]
        columns[f"latency_p{p}_ms"] = pa.array(found, pa.float64())
    columns["latency_max_ms"] = pa.array([b.latency.max_ms for b in batches], pa.float64())
    return pa.table(columns)
