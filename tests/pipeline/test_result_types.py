"""Types of results follow the columns, for every function; what does not fit is an error."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import functions as F
from penstock.engine.errors import StepFailed
from penstock.pipeline import Memory, Pipeline, Rows
from penstock.pipeline.keyed.aggregates import Aggregate
from penstock.runtimes.local import run_locally
from penstock.testing.tables import KEYS, SCALARS, array, comparable


def aggregated(values: pa.Array, cuts: list[int], **columns: Aggregate) -> tuple[pa.Schema, Any]:
    """The last row that is emitted of one key, with its types."""
    out = Memory()
    rows = pa.table({"k": [1] * len(values), "v": values, "o": range(len(values))})
    pipeline = (
        Pipeline("p")
        .source("rows", Rows(rows))
        .aggregate("all", by="k", parallelism=2, reduce=columns)
        .sink("out", out)
    )
    run_locally(pipeline, cuts)
    table = out.table()
    return table.schema, table.slice(table.num_rows - 1).to_pylist()[0]


@pytest.mark.parametrize(
    ("values", "kind", "total"),
    [
        (pa.array([1, None, 127], pa.int8()), pa.int64(), 128),
        (pa.array([1, None, 2**32 - 1], pa.uint32()), pa.int64(), 2**32),
        (pa.array([1, None, 2**63], pa.uint64()), pa.uint64(), 2**63 + 1),
        (pa.array([4.72, None, 0.25], pa.float64()), pa.float64(), 4.97),
        (pa.array([0.5, None, 0.25], pa.float32()), pa.float64(), 0.75),
        (pa.array([Decimal("1.50"), None] * 2, pa.decimal128(5, 2)), pa.decimal128(15, 2), 3),
        (pa.array([Decimal("1.50"), None] * 2, pa.decimal32(5, 2)), pa.decimal128(15, 2), 3),
        (pa.array([Decimal("1.50"), None] * 2, pa.decimal256(50, 2)), pa.decimal256(60, 2), 3),
        (
            pa.array([5, None, 7], pa.duration("ms")),
            pa.duration("ms"),
            datetime.timedelta(milliseconds=12),
        ),
        (pa.array([None, None, None], pa.int32()), pa.int64(), None),
        (pa.array([None, None, None], pa.null()), pa.null(), None),
    ],
)
def test_a_sum_has_the_type_that_spark_gives_it(values: Any, kind: Any, total: Any) -> None:
    schema, row = aggregated(values, [1, 2], t=F.sum("v"), n=F.count())
    assert schema.field("t").type == kind
    assert (row["t"], row["n"]) == (total, len(values))


@pytest.mark.parametrize(
    ("values", "kind", "mean"),
    [
        (pa.array([1, None, 2], pa.int8()), pa.float64(), 1.5),
        (pa.array([2**62] * 4, pa.int64()), pa.float64(), 2.0**62),
        (pa.array([4.72, None, 4.72], pa.float64()), pa.float64(), 4.72),
        (
            pa.array([Decimal("1.00"), Decimal("0.00"), Decimal("0.00")], pa.decimal128(5, 2)),
            pa.decimal128(9, 6),
            Decimal("0.333333"),
        ),
        (
            pa.array([Decimal(1), Decimal(2)], pa.decimal128(38, 0)),
            pa.decimal128(38, 4),
            Decimal("1.5"),
        ),
        (
            pa.array([Decimal("0.1"), Decimal("0.2")], pa.decimal256(50, 1)),
            pa.decimal256(54, 5),
            Decimal("0.15"),
        ),
        (pa.array([1, 2], pa.duration("s")), pa.duration("s"), datetime.timedelta(seconds=2)),
        (pa.array([None, None], pa.float32()), pa.float64(), None),
        (pa.array([None, None], pa.decimal128(5, 2)), pa.decimal128(9, 6), None),
    ],
)
def test_an_average_has_the_type_that_spark_gives_it(values: Any, kind: Any, mean: Any) -> None:
    schema, row = aggregated(values, [1], m=F.avg("v"))
    assert schema.field("m").type == kind
    assert row["m"] == mean


@pytest.mark.parametrize("kind", SCALARS, ids=str)
def test_extremes_first_and_last_keep_any_type(kind: pa.DataType) -> None:
    pool: list[Any] = array(list(SCALARS[kind]), kind).to_pylist()
    values = array([None, *pool, None], kind)
    columns = {"first": F.first("v"), "last": F.last("v"), "latest": F.last("v", "o")}
    ordered = not (pa.types.is_decimal(kind) and kind.bit_width < 128)
    if ordered:
        columns |= {"low": F.min("v"), "high": F.max("v")}
    schema, row = aggregated(values, [2, 3], **columns)

    def place(value: Any) -> Any:
        return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)

    wanted = {"first": pool[0], "last": pool[-1], "latest": pool[-1]}
    if ordered:
        wanted |= {"low": min(pool, key=place), "high": max(pool, key=place)}
    plain = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)
    for name, value in wanted.items():
        assert schema.field(name).type == plain
        assert comparable(row[name]) == comparable(value)


@pytest.mark.parametrize("name", ["struct", "list", "dictionary", "list of lists", "null"])
def test_first_and_last_keep_what_is_nested(name: str) -> None:
    kind, pool = KEYS[name]
    _, row = aggregated(
        array([*pool, None], kind),
        [1],
        f=F.first("v"),
        early=F.first("v", "o"),
        late=F.last("v", "o"),
    )
    assert comparable(row["f"]) == comparable(row["early"]) == comparable(pool[0])
    assert comparable(row["late"]) == comparable(pool[-1])


def test_of_equal_ones_the_same_list_counts_however_they_are_cut() -> None:
    values = pa.array([[1], [2], [3], [4]])
    rows = pa.table({"k": [1] * 4, "v": values, "o": [0] * 4})
    found = set()
    for cuts in ([], [1], [2], [1, 2, 3]):
        out = Memory()
        pipeline = (
            Pipeline("p").source("rows", Rows(rows)).aggregate("a", by="k", v=F.last("v", "o"))
        )
        run_locally(pipeline.sink("out", out), cuts)
        found.add(str(out.table().to_pylist()[-1]["v"]))
    assert len(found) == 1


@pytest.mark.parametrize("cuts", [[], [1], [1, 2]])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([2**63 - 1, 1], pa.int64()),
        pa.array([-(2**63), -1], pa.int64()),
        pa.array([2**64 - 1, 1], pa.uint64()),
        pa.array([Decimal(9 * 10**37)] * 2, pa.decimal128(38, 0)),
    ],
)
def test_a_sum_that_does_not_fit_is_an_error(values: pa.Array, cuts: list[int]) -> None:
    with pytest.raises(StepFailed, match=r"sum\('v'\) does not fit the type"):
        aggregated(values, cuts, t=F.sum("v"))


def test_an_average_that_does_not_fit_is_an_error() -> None:
    values = pa.array([Decimal(10**30)], pa.decimal128(38, 6))
    with pytest.raises(StepFailed, match=r"does not fit the type decimal128\(38, 10\)"):
        aggregated(values, [], m=F.avg("v"))


def test_sums_in_between_may_be_large_and_a_wider_type_has_room() -> None:
    values = pa.array([2**63 - 1, 1, -5], pa.int64())
    assert aggregated(values, [], t=F.sum("v"))[1]["t"] == 2**63 - 5
    wide = aggregated(values, [1], t=F.sum("v", pa.decimal128(38, 0)))[1]["t"]
    assert wide == 2**63 - 5


def test_nan_is_the_largest_and_does_not_hide_numbers() -> None:
    values = pa.array([1.0, math.nan, -2.0])
    for cuts in ([], [1, 2]):
        _, row = aggregated(values, cuts, low=F.min("v"), high=F.max("v"), best=F.top(2, "v"))
        assert row["low"] == -2.0
        assert math.isnan(row["high"])
        assert comparable(row["best"]) == comparable([{"v": math.nan}, {"v": 1.0}])


@pytest.mark.parametrize(
    ("values", "made", "said"),
    [
        (pa.array([True]), F.sum("v"), r"sum\('v'\) needs numbers"),
        (pa.array(["a"]), F.avg("v"), r"avg\('v'\) needs numbers"),
        (pa.array([[1]]), F.max("v"), r"max\('v'\) needs values that have an order"),
        (pa.array([1]), F.last("v", "none"), "the column 'none' is aggregated"),
        (pa.array([[1]]), F.top(1, "v"), "top ranks rows by 'v'"),
        (pa.array([[1]]), F.last("o", "v"), "the column 'v' orders 'o'"),
    ],
)
def test_what_has_no_sum_or_order_is_refused_with_a_sentence(
    values: pa.Array, made: Aggregate, said: str
) -> None:
    with pytest.raises(StepFailed, match=said):
        aggregated(values, [], x=made)


def test_columns_that_change_their_type_are_refused_with_a_sentence() -> None:
    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        kind = pa.int64() if batch.column("v")[0].as_py() == 0 else pa.string()
        return pa.record_batch({"k": batch.column("k"), "v": batch.column("v").cast(kind)})

    pipeline = (
        Pipeline("p")
        .source("rows", Rows(pa.table({"k": [1, 1], "v": [0, 1]})))
        .map("change", change)
        .aggregate("low", by="k", v=F.min("v"))
        .sink("out", Memory())
    )
    with pytest.raises(StepFailed, match="other types than those that the state was made of"):
        run_locally(pipeline, [1])


def test_a_column_of_nulls_takes_the_type_that_comes_later() -> None:
    def change(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.column("v")[0].as_py() == 0:
            return pa.record_batch({"k": batch.column("k"), "v": pa.nulls(batch.num_rows)})
        return batch

    out = Memory()
    pipeline = (
        Pipeline("p")
        .source("rows", Rows(pa.table({"k": [1, 1, 1], "v": [0, 1, 2]})))
        .map("change", change)
        .aggregate("all", by="k", s=F.sum("v"), m=F.avg("v"), low=F.min("v"), last=F.last("v"))
        .sink("out", out)
    )
    run_locally(pipeline, [1, 2])
    rows = out.table().to_pylist()
    assert rows[0] == {"k": 1, "s": None, "m": None, "low": None, "last": None}
    assert rows[-1] == {"k": 1, "s": 3, "m": 1.5, "low": 1, "last": 2}
    assert np.array_equal([row["s"] for row in rows[1:]], [1, 3])
