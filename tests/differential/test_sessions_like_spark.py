"""Sessions over the same files, a file a batch: equal to Spark's session windows, to the row."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from penstock import functions as F
from penstock.pipeline import session
from penstock.testing.differential import SEED, Sides, examples, require_equal

START = datetime.datetime(2024, 3, 31, 0, 59, 50, tzinfo=datetime.timezone.utc)
Row = tuple[Any, Any, Any]
SQL = """
    select k, session_window.start as window_start, session_window.end as window_end,
           count(*) as n, sum(v) as t, min(v) as low, avg(v) as m
    from rows group by k, session_window(t, '{gap} seconds')
"""


def table(rows: list[Row]) -> pa.Table:
    times = [None if s is None else START + datetime.timedelta(milliseconds=s) for _, s, _ in rows]
    return pa.table(
        {
            "k": pa.array([k for k, _, _ in rows], pa.string()),
            "t": pa.array(times, pa.timestamp("us", "UTC")),
            "v": pa.array([v for _, _, v in rows], pa.int64()),
        }
    )


def compare(spark: Any, folder: Path, batches: list[list[Row]], gap: int, late: int) -> int:
    """Compare both sides, and return how many rows came out."""
    sides = Sides(spark, folder, [table(rows) for rows in batches])
    columns = {"n": F.count(), "t": F.sum("v"), "low": F.min("v"), "m": F.avg("v")}
    window = session("t", gap, lateness=late)
    found = sides.rows(lambda rows: rows.aggregate("s", by="k", reduce=columns, window=window))
    wanted = sides.stream(SQL.format(gap=gap), time="t", lateness=f"{late} seconds", mode="append")
    sides.close()
    require_equal(found, wanted)
    return wanted.total()


#: Sessions that meet exactly, that a late row joins into one, that come after their end.
BATCHES: list[list[Row]] = [
    [("a", 0, 1), ("a", 5_000, 2), ("a", 10_001, 3), (None, 1, None), ("b", 20_000, 4)],
    [("a", 14_000, 5), ("b", 12_000, 6), ("b", 16_000, 7), ("a", None, 8)],
    [("a", 7_000, 9), ("b", 30_000, 1), ("c", 24_999, 2)],
    [],
    [("a", 22_000, 3), ("b", 60_000, 4), ("c", 28_000, 5), ("c", 26_000, 6)],
    [("a", 1_000, 7), ("b", 61_000, 8), ("a", 200_000, None)],
    [("b", 64_000, 9)],
]


@pytest.mark.parametrize(("gap", "late"), [(5, 0), (5, 10), (1, 3)])
def test_sessions_that_meet_and_rows_that_come_late(
    spark: Any, tmp_path: Path, gap: int, late: int
) -> None:
    assert compare(spark, tmp_path, BATCHES, gap, late) > 3


offsets = st.one_of(st.integers(-30_000, 10_000), st.sampled_from([0, 1, 5_000, 10_000, -10_000]))
row = st.tuples(
    st.sampled_from(["a", "a", "b", "日本", None]), offsets | st.none(), st.integers(-9, 9)
)
drawn_batches = st.lists(
    st.tuples(st.sampled_from([0, 1_000, 10_000, 3_600_000]), st.lists(row, max_size=12)),
    min_size=1,
    max_size=6,
)


@examples(3)
@seed(SEED)
@given(drawn_batches, st.sampled_from([0, 5, 20]), st.sampled_from([2, 10]))
def test_any_batches(spark: Any, tmp_path_factory: Any, drawn: Any, late: int, gap: int) -> None:
    base, batches = 60_000, []
    for step, rows in drawn:
        base += step
        batches.append([(k, None if t is None else base + t, v) for k, t, v in rows])
    compare(spark, tmp_path_factory.mktemp("sessions"), batches, gap, late)
