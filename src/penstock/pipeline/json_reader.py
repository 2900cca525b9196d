"""Reads lines of JSON back into the Arrow rows that they were written from.

How each type is written is told in `penstock.pipeline.json_writer`.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.json_writer import (
    DAY_S,
    PER_SECOND,
    check_type,
    each,
    is_binary,
    is_list,
)

_TYPES = pa.types


def decode_lines(data: bytes, schema: pa.Schema) -> pa.Table:
    """Read back what `encode_lines` wrote.

    Examples
    --------
    >>> from penstock.pipeline.json_writer import encode_lines
    >>> rows = pa.table({"word": ["a"], "n": [2**60]})
    >>> decode_lines(encode_lines(rows), rows.schema).equals(rows)
    True
    """
    rows = [json.loads(line) for line in data.split(b"\n") if line]
    arrays = [
        _array([row.get(field.name) for row in rows], field.type, f"column {field.name!r}")
        for field in schema
    ]
    if not arrays:
        return pa.table({})
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], kind: pa.DataType, owner: str) -> pa.Array:
    """Make an array of what `_values` returned."""
    check_type(kind, owner)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _array(values, kind.storage_type, owner))
    if _TYPES.is_dictionary(kind):
        return _array(values, kind.value_type, owner).dictionary_encode().cast(kind)
    if _TYPES.is_run_end_encoded(kind):
        return pc.run_end_encode(_array(values, kind.value_type, owner), kind.run_end_type)
    if _TYPES.is_struct(kind):
        children = [
            _array([None if v is None else v.get(f.name) for v in values], f.type, owner)
            for f in kind
        ]
        mask = pa.array([value is None for value in values], pa.bool_())
        if not children:
            return pa.array([None if v is None else {} for v in values], kind)
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if _TYPES.is_map(kind) or is_list(kind):
        return _list_array(values, kind, owner)
    if _TYPES.is_floating(kind):
        return pa.array(each(float, values), pa.float64()).cast(kind)
    if _TYPES.is_decimal(kind):
        return pa.array(each(Decimal, values), kind)
    if is_binary(kind):
        return pa.array(each(base64.b64decode, values), kind)
    if _TYPES.is_timestamp(kind) or _TYPES.is_date(kind):
        return _moment_array(values, kind)
    if _TYPES.is_time(kind):
        width = pa.int32() if _TYPES.is_time32(kind) else pa.int64()
        return pa.array([_time(value, kind.unit) for value in values], width).cast(kind)
    if _TYPES.is_duration(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if _TYPES.is_interval(kind):
        return pa.array(each(lambda value: pa.MonthDayNano(value), values), kind)
    return pa.array(values, kind)


def _list_array(values: Sequence[Any], kind: pa.DataType, owner: str) -> pa.Array:
    items = [item for value in values if value is not None for item in value]
    if _TYPES.is_map(kind):
        keys = _array([item[0] for item in items], kind.key_type, owner)
        content = _array([item[1] for item in items], kind.item_type, owner)
        offsets, total = [], 0
        for value in values:
            offsets.append(None if value is None else total)
            total += len(value or ())
        starts = pa.array([*offsets, total], pa.int32())
        return pa.MapArray.from_arrays(starts, keys, content, kind)
    if _TYPES.is_fixed_size_list(kind):
        absent = [None] * kind.list_size
        padded = [item for value in values for item in (absent if value is None else value)]
        mask = pa.array([value is None for value in values], pa.bool_())
        flat = _array(padded, kind.value_type, owner)
        return pa.FixedSizeListArray.from_arrays(flat, type=kind, mask=mask)
    sizes = [len(value or ()) for value in values]
    starts = pa.array([0, *itertools.accumulate(sizes)], pa.int64())
    mask = pa.array([value is None for value in values], pa.bool_())
    flat = _array(items, kind.value_type, owner)
    if _TYPES.is_list_view(kind) or _TYPES.is_large_list_view(kind):
        small = _TYPES.is_list_view(kind)
        view, width = (
            (pa.ListViewArray, pa.int32()) if small else (pa.LargeListViewArray, pa.int64())
        )
        offsets = starts.slice(0, len(sizes)).cast(width)
        return view.from_arrays(offsets, pa.array(sizes, width), flat, type=kind, mask=mask)
    plain = pa.large_list(kind.value_field)
    return pa.LargeListArray.from_arrays(starts, flat, type=plain, mask=mask).cast(kind)


def _moment_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    texts = pa.array([value if isinstance(value, str) else None for value in values], pa.string())
    if _TYPES.is_date(kind):
        days = texts.cast(pa.date32())
        counts = days.cast(pa.int32()).cast(pa.int64())
        if _TYPES.is_date64(kind):
            counts = pc.multiply(counts, 1000 * DAY_S)
    else:
        counts = texts.cast(pa.timestamp(kind.unit, "UTC") if kind.tz else kind).cast(pa.int64())
    whole = [
        value if isinstance(value, int) else count
        for value, count in zip(values, counts.to_pylist(), strict=True)
    ]
    width = pa.int32() if _TYPES.is_date32(kind) else pa.int64()
    return pa.array(whole, width).cast(kind)


def _time(text: str | None, unit: str) -> int | None:
    if text is None:
        return None
    clock, _, fraction = text.partition(".")
    hours, minutes, seconds = map(int, clock.split(":"))
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    total = hours * 3600 + minutes * 60 + seconds
    return total * PER_SECOND[unit] + (int(fraction.ljust(digits, "0")) if digits else 0)
