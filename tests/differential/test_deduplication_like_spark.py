"""First rows of keys over the same files, a file a batch: equal to Spark's queries, to the row."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from penstock.testing.differential import SEED, Sides, examples, require_equal

START = datetime.datetime(2024, 3, 31, 0, 59, 50, tzinfo=datetime.timezone.utc)
Row = tuple[Any, Any, Any]


def table(rows: list[Row]) -> pa.Table:
    times = [None if s is None else START + datetime.timedelta(milliseconds=s) for _, s, _ in rows]
    return pa.table(
        {
            "k": pa.array([k for k, _, _ in rows], pa.string()),
            "t": pa.array(times, pa.timestamp("us", "UTC")),
            "v": pa.array([v for _, _, v in rows], pa.int64()),
        }
    )


def compare(spark: Any, folder: Path, batches: list[list[Row]], kind: str, late: int) -> int:
    """Compare both sides, and return how many rows came out."""
    sides = Sides(spark, folder, [table(rows) for rows in batches])
    rows, delay = sides.reader("rows"), f"{late} seconds"
    options: dict[str, Any]
    if kind == "for good":
        query, options = rows.dropDuplicates(["k"]), {"by": "k"}
    elif kind == "within":
        query = rows.withWatermark("t", delay).dropDuplicatesWithinWatermark(["k"])
        options = {"by": "k", "time": "t", "within": late}
    else:
        query = rows.withWatermark("t", delay).dropDuplicates(["k", "t"])
        options = {"by": ["k", "t"], "time": "t", "lateness": late}
    wanted = sides.run(query, "append")
    found = sides.rows(lambda made: made.deduplicate("d", **options))
    sides.close()
    require_equal(found, wanted)
    return wanted.total()


#: Keys that come again in the same batch, soon, late, and after they were forgotten.
BATCHES: list[list[Row]] = [
    [("a", 0, 1), ("a", 100, 2), (None, 1, 3), ("b", 5_000, 4)],
    [("a", 200, 5), (None, 8_000, 6), ("b", 40_000, 7)],
    [("a", 31_000, 8), ("c", None, 9), ("b", 41_000, 1)],
    [],
    [("a", 90_000, 2), ("c", 91_000, 3), ("b", 1_000, 4)],
    [("a", 90_000, 5), ("c", None, 6), (None, 92_000, 7)],
    [("a", 101_000, 8), ("b", 102_000, 9)],
    [("a", 90_000, 8), ("b", 102_000, 9)],
]


@pytest.mark.parametrize("kind", ["for good", "within", "with the time"])
def test_keys_that_come_again(spark: Any, tmp_path: Path, kind: str) -> None:
    assert compare(spark, tmp_path, BATCHES, kind, 10) > 3


offsets = st.one_of(st.integers(-30_000, 10_000), st.sampled_from([0, 1, 5_000, -10_000]))
keys = st.sampled_from(["a", "a", "b", "日本", None])
row = st.tuples(keys, offsets, st.integers(0, 9))
drawn_batches = st.lists(
    st.tuples(st.sampled_from([0, 1_000, 10_000, 25_000]), st.lists(row, max_size=10)),
    min_size=1,
    max_size=6,
)


@examples(3)
@seed(SEED)
@given(drawn_batches, st.sampled_from([0, 5, 20]))
def test_any_batches(spark: Any, tmp_path_factory: Any, drawn: Any, late: int) -> None:
    base, batches = 60_000, []
    for step, rows in drawn:
        base += step
        batches.append([(k, base + t, v) for k, t, v in rows])
    compare(spark, tmp_path_factory.mktemp("first"), batches, "within", late)
