"""Hypothesis strategies for tables with columns of all Arrow types, and their rows to compare.

Values come from small pools, so that keys repeat: ends of ranges, nulls, NaN and -0.0, text of many
scripts, long text.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

try:
    from hypothesis import strategies as st
except ImportError as missing:  # pragma: no cover
    raise ImportError(
        "penstock.testing.tables needs hypothesis; install it with: pip install hypothesis"
    ) from missing

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

_TEXT = ("", "a", "ab", "Ä", "日本語", "👩‍👩‍👧", "a\x00b", " ", "x" * 300, "ab ")
_FLOATS = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -2.25, 1e30)
_DAY = datetime.date(2024, 2, 29)
_TIME = datetime.datetime(2024, 2, 29, 23, 59, 59, 999_000)
_UTC = datetime.timezone.utc


def _whole(bits: int, signed: bool) -> tuple[int, ...]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return (low, high, 0, 1, 7)


#: A type, and the pool that its values come from.
SCALARS: Mapping[pa.DataType, tuple[Any, ...]] = {
    **{t: _whole(t.bit_width, True) for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{t: _whole(t.bit_width, False) for t in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    pa.float32(): (*_FLOATS, 0.1),
    pa.float64(): (*_FLOATS, 0.1, 5e-324, 1.7976931348623157e308),
    pa.bool_(): (True, False),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), _TEXT),
    **dict.fromkeys(
        (pa.binary(), pa.large_binary(), pa.binary_view()),
        (b"", b"a", b"\xff\xfe", b"a\x00", b"y" * 200),
    ),
    pa.binary(3): (b"abc", b"\x00\x00\x00", b"xyz"),
    **{
        t: (Decimal("0.00"), Decimal("-1.50"), Decimal("99.99"))
        for t in (pa.decimal32(5, 2), pa.decimal64(12, 2))
    },
    **{
        t: (Decimal("0.00"), Decimal("-1.50"), Decimal("12345678901234567.89"))
        for t in (pa.decimal128(20, 2), pa.decimal256(50, 2))
    },
    **{t: (_DAY, datetime.date(1969, 12, 31)) for t in (pa.date32(), pa.date64())},
    pa.time32("s"): (datetime.time(0), datetime.time(23, 59, 59)),
    pa.time32("ms"): (datetime.time(0), datetime.time(23, 59, 59, 999_000)),
    pa.time64("us"): (datetime.time(0), datetime.time(23, 59, 59, 999_999)),
    pa.time64("ns"): (datetime.time(0), datetime.time(23, 59, 59, 999_999)),
    **{
        pa.timestamp(unit): (_TIME.replace(microsecond=0), datetime.datetime(1969, 12, 31, 23))
        for unit in ("s", "ms", "us", "ns")
    },
    pa.timestamp("us", "UTC"): (
        _TIME.replace(tzinfo=_UTC),
        datetime.datetime(1970, 1, 1, tzinfo=_UTC),
    ),
    pa.timestamp("us", "America/New_York"): (_TIME.replace(tzinfo=_UTC),),
    **{
        pa.duration(unit): (datetime.timedelta(0), datetime.timedelta(days=-1, seconds=3))
        for unit in ("s", "ms", "us", "ns")
    },
}


def encodings() -> dict[str, tuple[pa.DataType, tuple[Any, ...]]]:
    """Types that are made of others, by name, with a pool each."""
    pair = pa.struct([("f", pa.float64()), ("s", pa.string())])
    pairs = (
        {"f": 0.0, "s": "a"},
        {"f": -0.0, "s": "a"},
        {"f": math.nan, "s": None},
        {"f": None, "s": None},
    )
    lists: tuple[Any, ...] = ([], [1], [1, None], [None], [1, 1], [2, 1])
    return {
        "dictionary": (pa.dictionary(pa.int32(), pa.string()), _TEXT),
        "dictionary of floats": (pa.dictionary(pa.int8(), pa.float64()), _FLOATS),
        "struct": (pair, pairs),
        "struct of one": (pa.struct([("a", pa.int8())]), ({"a": None}, {"a": 1})),
        "list": (pa.list_(pa.int32()), lists),
        "large list": (pa.large_list(pa.int32()), lists),
        "list view": (pa.list_view(pa.int32()), lists),
        "list of two": (pa.list_(pa.float32(), 2), ([0.0, math.nan], [-0.0, math.nan], [1, None])),
        "list of structs": (pa.list_(pair), ([], list(pairs), [pairs[1]], [pairs[0]])),
        "list of lists": (
            pa.list_(pa.list_(pa.string())),
            ([], [[]], [None], [["a"], []], [["a"]]),
        ),
        "null": (pa.null(), (None,)),
    }


#: Every type that can be a key, by name, with a pool of values.
KEYS: Mapping[str, tuple[pa.DataType, tuple[Any, ...]]] = {
    **{str(kind): (kind, pool) for kind, pool in SCALARS.items()},
    **encodings(),
}


@st.composite
def columns(draw: DrawFn, kind: pa.DataType, pool: tuple[Any, ...], size: int) -> pa.Array:
    """Draw a column of one type: values of the pool, one of them more often, and nulls."""
    favoured = draw(st.sampled_from(pool))
    values = st.one_of(st.just(favoured), st.none(), st.sampled_from(pool))
    return array(draw(st.lists(values, min_size=size, max_size=size)), kind)


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Make an array of any type of this module."""
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def comparable(value: Any) -> Hashable:
    """Return a value as it compares as a key: NaN is NaN, -0.0 is 0.0, lists are hashable."""
    if isinstance(value, (float, np.floating)):
        return "NaN" if math.isnan(value) else float(value) + 0.0
    if isinstance(value, (list, tuple)):
        return tuple(comparable(item) for item in value)
    if isinstance(value, Mapping):
        return tuple((name, comparable(item)) for name, item in value.items())
    if isinstance(value, bytearray):
        return bytes(value)
    known: Hashable = value
    return known


def row_counts(
    rows: Iterable[Mapping[str, Any]], change: Callable[[Any], Hashable] = comparable
) -> Counter[Hashable]:
    """Rows as a multiset that does not depend on their order."""
    return Counter(tuple((name, change(row[name])) for name in sorted(row)) for row in rows)
