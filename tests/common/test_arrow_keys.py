"""Keys of every Arrow type: hashes, normal forms and equality agree with each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.arrow_keys import check_key_type, decoded, equal_keys, normal, normal_keys
from penstock.common.errors import NotAllowed
from penstock.common.key_hashing import hash_keys
from penstock.testing.tables import KEYS, array, columns, comparable


@pytest.mark.parametrize("name", KEYS)
@settings(max_examples=20)
@given(st.data())
def test_hashes_and_equality_agree(name: str, data: Any) -> None:
    kind, pool = KEYS[name]
    size = data.draw(st.integers(1, 12))
    one, other = (data.draw(columns(kind, pool, size)) for _ in range(2))
    expected = [
        comparable(a) == comparable(b)
        for a, b in zip(one.to_pylist(), other.to_pylist(), strict=True)
    ]
    assert (hash_keys(one) == hash_keys(other)).tolist() == expected
    assert equal_keys(normal(one), normal(other)).tolist() == expected
    start = data.draw(st.integers(0, size))
    assert hash_keys(one.slice(start)).tolist() == hash_keys(one)[start:].tolist()
    assert (
        equal_keys(normal(one.slice(start)), normal(other.slice(start))).tolist()
        == expected[start:]
    )
    chunked = pa.chunked_array([one.slice(0, start), one.slice(start)])
    assert hash_keys(chunked).tolist() == hash_keys(one).tolist()
    assert hash_keys(normal(chunked)).tolist() == hash_keys(one).tolist()
    assert [comparable(v) for v in normal(one).to_pylist()] == [
        comparable(v) for v in one.to_pylist()
    ]


def test_half_floats_intervals_runs_and_extensions_are_keys() -> None:
    half = pa.array(np.array([0.0, -0.0, np.nan], np.float16))
    assert len(np.unique(hash_keys(half))) == 2
    assert equal_keys(normal(half).slice(0, 2), normal(half).slice(1, 2)).tolist() == [True, False]
    spans = pa.array([pa.MonthDayNano([1, 2, 3]), pa.MonthDayNano([1, 2, 4]), None])
    assert len(np.unique(hash_keys(spans))) == 3
    assert equal_keys(spans, spans).all()
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", None])
    assert hash_keys(runs).tolist() == hash_keys(["a", "a", None]).tolist()
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"x" * 16, b"y" * 16], pa.binary(16)))
    assert hash_keys(ids).tolist() == hash_keys(["x" * 16, "y" * 16]).tolist()


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int64()),
        pa.struct([("m", pa.map_(pa.string(), pa.int64()))]),
        pa.list_(pa.map_(pa.string(), pa.int64())),
        pa.dense_union([pa.field("a", pa.int64()), pa.field("b", pa.string())]),
    ],
)
def test_types_without_equality_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(NotAllowed, match="'k' of type"):
        check_key_type(kind, "k", "step 'count'")


def test_a_missing_column_is_named() -> None:
    with pytest.raises(NotAllowed, match="not one column of the rows; they have a, b"):
        normal_keys(pa.table({"a": [1], "b": [2]}), ("k",))


def test_views_and_runs_are_decoded_wherever_they_stand() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([2], [7])
    rows = pa.table(
        {
            "view": array(["a", None], pa.string_view()),
            "inside": pa.array([{"v": b"x"}, None], pa.struct([("v", pa.binary_view())])),
            "runs": runs,
            "n": [1, 2],
        }
    )
    plain = decoded(rows)
    assert plain.take([1, 0]).to_pylist() == rows.to_pylist()[::-1]
    assert decoded(plain) is plain
