"""Rows written as JSON read back equal, whatever their types are."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.errors import InvalidValue
from penstock.pipeline.json_reader import decode_lines
from penstock.pipeline.json_writer import encode_lines


def whole(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high)


UNITS = ("s", "ms", "us", "ns")
DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def by_count(kind: pa.DataType, counts: st.SearchStrategy[int]) -> Any:
    """Arrays of a type that is made from counts."""
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    lists = st.lists(st.none() | counts, max_size=8)
    return lists.map(lambda values: pa.array(values, width).cast(kind))


def of(kind: pa.DataType, values: st.SearchStrategy[Any]) -> Any:
    return st.lists(st.none() | values, max_size=8).map(lambda found: pa.array(found, kind))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    bound = 10**precision - 1
    return st.integers(-bound, bound).map(lambda n: Decimal(n).scaleb(-scale, None))


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
floats = st.floats(allow_nan=True, allow_infinity=True)
leaf = st.integers(-(2**63), 2**63 - 1)
item = st.fixed_dictionaries({"a": st.none() | leaf, "b": st.none() | text})
intervals = st.tuples(whole(32), whole(32), whole(64)).map(pa.MonthDayNano)
pairs = st.dictionaries(text, leaf, max_size=3).map(lambda found: list(found.items()))
many = st.none() | st.lists(st.binary(max_size=3), max_size=2)
nested = st.lists(st.fixed_dictionaries({"x": many, "y": st.none() | item}), max_size=2)
ITEM = pa.struct({"a": pa.int64(), "b": pa.string()})

ARRAYS: dict[str, Any] = {
    "null": st.integers(0, 8).map(lambda n: pa.nulls(n)),
    "bool": of(pa.bool_(), st.booleans()),
    **{f"int{b}": of(getattr(pa, f"int{b}")(), whole(b)) for b in (8, 16, 32, 64)},
    **{f"uint{b}": of(getattr(pa, f"uint{b}")(), whole(b, False)) for b in (8, 16, 32, 64)},
    "float64": of(pa.float64(), floats),
    "float32": of(pa.float32(), st.floats(width=32)),
    "float16": of(pa.float64(), st.floats(width=16)).map(lambda a: a.cast(pa.float16())),
    "decimal32": of(pa.decimal32(7, 2), decimals(7, 2)),
    "decimal64": of(pa.decimal64(15, 4), decimals(15, 4)),
    "decimal128": of(pa.decimal128(20, 3), decimals(20, 3)),
    "decimal256": of(pa.decimal256(40, 9), st.integers(-(10**27), 10**27).map(Decimal)),
    "string": of(pa.string(), text),
    "large_string": of(pa.large_string(), text),
    "string_view": of(pa.string_view(), text),
    "binary": of(pa.binary(), st.binary(max_size=9)),
    "large_binary": of(pa.large_binary(), st.binary(max_size=9)),
    "binary_view": of(pa.binary_view(), st.binary(max_size=9)),
    "fixed_binary": of(pa.binary(3), st.binary(min_size=3, max_size=3)),
    "date32": by_count(pa.date32(), whole(32)),
    "date64": by_count(pa.date64(), st.integers(-(10**9), 10**9).map(lambda d: d * 86_400_000)),
    **{f"timestamp-{u}": by_count(pa.timestamp(u), whole(64)) for u in UNITS},
    **{f"utc-{u}": by_count(pa.timestamp(u, "UTC"), whole(60)) for u in UNITS},
    "zoned": by_count(pa.timestamp("us", "Europe/Berlin"), whole(50)),
    "recent": by_count(pa.timestamp("us"), st.integers(-(2**50), 2**52)),
    **{f"time32-{u}": by_count(pa.time32(u), st.integers(0, DAY[u] - 1)) for u in ("s", "ms")},
    **{f"time64-{u}": by_count(pa.time64(u), st.integers(0, DAY[u] - 1)) for u in ("us", "ns")},
    **{f"duration-{u}": by_count(pa.duration(u), whole(64)) for u in UNITS},
    "interval": of(pa.month_day_nano_interval(), intervals),
    "list": of(pa.list_(pa.float64()), st.lists(st.none() | floats, max_size=3)),
    "large_list": of(pa.large_list(pa.string()), st.lists(st.none() | text, max_size=3)),
    "list_view": of(pa.list_view(pa.int64()), st.lists(leaf, max_size=3)),
    "fixed_list": of(pa.list_(pa.int64(), 2), st.lists(st.none() | leaf, min_size=2, max_size=2)),
    "struct": of(ITEM, item),
    "map": of(pa.map_(pa.string(), pa.int64()), pairs),
    "nested": of(pa.list_(pa.struct({"x": pa.list_(pa.binary()), "y": ITEM})), nested),
    "large_list_view": of(pa.large_list_view(ITEM), st.lists(st.none() | item, max_size=2)),
    "dictionary": of(pa.string(), text).map(lambda a: a.dictionary_encode()),
    "run_end": of(pa.int64(), leaf).map(lambda a: pa.compute.run_end_encode(a)),
    "uuid": of(pa.uuid(), st.uuids(allow_nil=True).map(lambda u: u.bytes)),
}


def same(one: pa.Array, other: pa.Array) -> bool:
    """Compare to the bit: NaN is equal to itself, and -0.0 is not 0.0."""
    if pa.types.is_dictionary(one.type):
        # Which values a dictionary has that no row uses is no matter.
        return bool(one.type == other.type) and one.to_pylist() == other.to_pylist()
    if pa.types.is_floating(one.type):
        left, right = (a.cast(pa.float64()).to_pylist() for a in (one, other))
        return list(map(repr, left)) == list(map(repr, right)) and one.type == other.type
    return bool(one.equals(other)) or (one.type == other.type and str(one) == str(other))


@pytest.mark.parametrize("kind", ARRAYS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_type_reads_back_equal(kind: str, data: st.DataObject) -> None:
    array = data.draw(ARRAYS[kind])
    rows = pa.table({"x": array, "n": pa.array(range(len(array)), pa.int64())})
    encoded = encode_lines(rows)
    for line in encoded.splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    back = decode_lines(encoded, rows.schema)
    assert back.schema == rows.schema
    assert same(back.column("x").combine_chunks(), rows.column("x").combine_chunks())
    if len(array) > 2:
        part = rows.slice(1)
        again = decode_lines(encode_lines(part), rows.schema)
        assert same(again.column("x").combine_chunks(), part.column("x").combine_chunks())


def test_what_was_seen_to_go_wrong() -> None:
    rows = pa.table(
        {
            "big": pa.array([2**53 + 1, None]),
            "small": [1e-15, math.inf],
            "moment": pa.array([1_700_000_000_123_456, None], pa.timestamp("us")),
            "took": pa.array([1, None], pa.duration("us")),
            "bytes": [b"\xff\x00", None],
        }
    )
    encoded = encode_lines(rows)
    assert json.loads(encoded.splitlines()[0]) == {
        "big": 2**53 + 1,
        "small": 1e-15,
        "moment": "2023-11-14T22:13:20.123456",
        "took": 1,
        "bytes": "/wA=",
    }
    assert decode_lines(encoded, rows.schema).equals(rows)


def test_rows_without_columns_are_lines_too() -> None:
    rows = pa.table({"a": [1, 2]}).select([])
    assert encode_lines(rows) == b"{}\n{}\n"
    assert encode_lines(pa.table({"a": pa.array([], pa.int64())})) == b""


def test_names_that_json_would_merge_and_unions_are_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InvalidValue, match="of different names"):
        encode_lines(twice)
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])
    with pytest.raises(InvalidValue, match="no union"):
        encode_lines(pa.table({"u": union}))
