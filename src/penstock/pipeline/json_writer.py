"""Rows as lines of JSON, written so that every Arrow type reads back equal.

======================================  ==========================================================
Arrow type                              JSON
======================================  ==========================================================
null, bool, string                      null, true or false, string
integers                                number, with all digits; beyond 2^53 some readers round it
floats                                  shortest number that reads back equal; "NaN", "Infinity"
                                        and "-Infinity" as strings
decimals                                string, such as "1.20"
binary                                  string in Base64
date, timestamp, time                   string in ISO 8601 with all digits of the unit, UTC with Z
                                        where there is a time zone; outside of the years 1 to 9999
                                        the count of units since 1970 as a number
duration                                number of the column's unit
interval                                array of months, days, nanoseconds
list, struct                            array, object
map                                     array of pairs
dictionary, run-end encoded, extension  as the values that they stand for
======================================  ==========================================================

Unions are refused. JSON has fewer types than Arrow, so a reader needs the schema, too: see
`penstock.pipeline.json_reader`.
"""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.errors import InvalidValue

_TYPES = pa.types

#: Units in a second.
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

#: Seconds since 1970 of the years 1 to 9999.
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799
DAY_S = 86_400

_NON_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def encode_lines(table: pa.Table) -> bytes:
    r"""Write one JSON object a row, each on a line of its own.

    Examples
    --------
    >>> encode_lines(pa.table({"word": ["a"], "n": [1]}))
    b'{"word":"a","n":1}\n'
    """
    names = table.column_names
    if len(set(names)) != len(names):
        raise InvalidValue("columns", "json_lines", "of different names", names)
    if not table.num_rows:
        return b""
    parts: list[Any] = []
    for number, (name, column) in enumerate(zip(names, table.columns, strict=True)):
        lead = "{" if number == 0 else ","
        parts += [f"{lead}{json.dumps(name, ensure_ascii=False)}:", _texts(column)]
    if not parts:
        return b"{}\n" * int(table.num_rows)
    lines = pc.binary_join_element_wise(*parts, "}\n", "")
    text: bytes = b"".join(lines.cast(pa.binary()).to_pylist())
    return text


def check_type(kind: pa.DataType, owner: str) -> None:
    """Raise when a type cannot be written.

    Raises
    ------
    InvalidValue
    """
    if _TYPES.is_union(kind):
        raise InvalidValue("type", owner, "one that JSON can hold: no union", str(kind))


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the JSON text of each value."""
    kind = column.type
    if _TYPES.is_integer(kind) or _TYPES.is_boolean(kind):
        texts = column.cast(pa.string())
    elif _TYPES.is_string(kind) and not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        texts = pc.binary_join_element_wise('"', column, '"', "")
    elif _TYPES.is_float64(kind) and pc.all(pc.is_finite(column)).as_py() is not False:
        texts = column.cast(pa.string())
        texts = pc.if_else(pc.equal(texts, "-0"), "-0.0", texts)
    elif _TYPES.is_timestamp(kind) and _usual(column):
        utc = column.cast(pa.timestamp(kind.unit, "UTC")) if kind.tz else column
        moments = pc.replace_substring(utc.cast(pa.string()), " ", "T")
        texts = pc.binary_join_element_wise('"', moments, '"', "")
    else:
        chunks = [
            pa.array([_dumps(value) for value in _values(chunk, "json_lines")], pa.string())
            for chunk in column.chunks
        ]
        return pa.chunked_array(chunks, pa.string())
    return pc.fill_null(texts, "null")


def _usual(column: pa.ChunkedArray) -> bool:
    """Whether all timestamps have years that are written as such."""
    ends = pc.min_max(column.cast(pa.int64())).as_py()
    return all(v is None or _in_years(v, PER_SECOND[column.type.unit]) for v in ends.values())


def _in_years(count: int, per_second: int, scale_s: int = 1) -> bool:
    # Arrow does not read what is within a second of the first and the last nanosecond.
    fits = abs(count) < 2**63 - 2 * per_second
    return fits and _FIRST_S <= count * scale_s // per_second <= _LAST_S


#: Characters of a string that JSON has another spelling for.
_ESCAPED = '["\\\\\\x00-\\x1f]'


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _values(array: pa.Array, owner: str) -> list[Any]:
    """Return values that JSON can hold."""
    kind = array.type
    check_type(kind, owner)
    if isinstance(array, pa.ExtensionArray):
        return _values(array.storage, owner)
    if _TYPES.is_dictionary(kind):
        return _values(array.dictionary_decode(), owner)
    if _TYPES.is_run_end_encoded(kind):
        return _values(pc.run_end_decode(array), owner)
    if _TYPES.is_struct(kind):
        return _objects(array, owner)
    if _TYPES.is_map(kind) or is_list(kind):
        return _lists(array, owner)
    if _TYPES.is_floating(kind):
        return [_float(value) for value in array.cast(pa.float64()).to_pylist()]
    if _TYPES.is_decimal(kind):
        return each(str, array.to_pylist())
    if is_binary(kind):
        return each(lambda value: base64.b64encode(value).decode(), array.to_pylist())
    if _TYPES.is_date(kind) or _TYPES.is_timestamp(kind):
        return _moments(array)
    if _TYPES.is_time(kind):
        return list(array.cast(pa.string()).to_pylist())
    if _TYPES.is_duration(kind):
        return list(array.cast(pa.int64()).to_pylist())
    if _TYPES.is_interval(kind):
        return each(list, array.to_pylist())
    return list(array.to_pylist())


def each(change: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    """Change every value that is not None."""
    return [None if value is None else change(value) for value in values]


def _float(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return _NON_FINITE.get(value, "NaN")


def _objects(array: pa.StructArray, owner: str) -> list[Any]:
    names = [field.name for field in array.type]
    if len(set(names)) != len(names):
        raise InvalidValue("fields of a struct", owner, "of different names", names)
    columns = [_values(child, owner) for child in array.flatten()]
    valid = array.is_valid().to_pylist()
    rows = zip(*columns, strict=True) if columns else (() for _ in valid)
    return [
        dict(zip(names, row, strict=True)) if there else None
        for row, there in zip(rows, valid, strict=True)
    ]


def _lists(array: pa.Array, owner: str) -> list[Any]:
    if _TYPES.is_map(array.type):
        # Taken so that offsets begin at 0, whatever it was a slice of.
        array = array.take(pa.array(range(len(array)), pa.int64()))
        pairs = zip(_values(array.keys, owner), _values(array.items, owner), strict=True)
        items: list[Any] = [list(pair) for pair in pairs]
        offsets = array.offsets.to_pylist()
        lengths = [b - a for a, b in itertools.pairwise(offsets)]
        valid = array.is_valid().to_pylist()
        sizes = [n if there else None for n, there in zip(lengths, valid, strict=True)]
    else:
        items = _values(array.flatten(), owner)
        sizes = pc.list_value_length(array).to_pylist()
    found, start = [], 0
    for size in sizes:
        found.append(None if size is None else items[start : start + size])
        start += size or 0
    return found


def _moments(array: pa.Array) -> list[Any]:
    kind = array.type
    if _TYPES.is_timestamp(kind):
        second, counts = PER_SECOND[kind.unit], array.cast(pa.int64())
        texts = array.cast(pa.timestamp(kind.unit, "UTC") if kind.tz else kind).cast(pa.string())
        whole = 1
    else:
        is_days = _TYPES.is_date32(kind)
        counts = array.cast(pa.int32() if is_days else pa.int64())
        second, whole = (1, 1) if is_days else (1000, 1000 * DAY_S)
        days = counts if is_days else pc.divide(counts, whole).cast(pa.int32(), safe=False)
        texts = days.cast(pa.int32()).cast(pa.date32()).cast(pa.string())
        if is_days:
            return [
                _moment(n, text, 1, scale_s=DAY_S)
                for n, text in zip(counts.to_pylist(), texts.to_pylist(), strict=True)
            ]
    return [
        _moment(n, text, second) if n is None or n % whole == 0 else n
        for n, text in zip(counts.to_pylist(), texts.to_pylist(), strict=True)
    ]


def _moment(count: int | None, text: str, per_second: int, scale_s: int = 1) -> Any:
    if count is None:
        return None
    return text.replace(" ", "T") if _in_years(count, per_second, scale_s) else count


def is_binary(kind: pa.DataType) -> bool:
    """Whether values are bytes."""
    return bool(
        _TYPES.is_binary(kind)
        or _TYPES.is_large_binary(kind)
        or _TYPES.is_fixed_size_binary(kind)
        or _TYPES.is_binary_view(kind)
    )


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists of any kind."""
    return bool(
        _TYPES.is_list(kind)
        or _TYPES.is_large_list(kind)
        or _TYPES.is_fixed_size_list(kind)
        or _TYPES.is_list_view(kind)
        or _TYPES.is_large_list_view(kind)
    )
