"""Windows over the same files, a file a batch: equal to Spark's streaming queries, to the row."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from penstock import functions as F
from penstock.pipeline import sliding, tumbling
from penstock.testing.differential import SEED, Sides, examples, require_equal

START = datetime.datetime(2024, 3, 31, 0, 59, 50, tzinfo=datetime.timezone.utc)
SQL = """
    select k, window.start as window_start, window.end as window_end,
           count(*) as n, sum(v) as t, min(s) as low, avg(v) as m
    from rows group by k, window(t, '{size}', '{slide}')
"""


def table(rows: list[tuple[Any, int | None, Any]]) -> pa.Table:
    times = [None if s is None else START + datetime.timedelta(milliseconds=s) for _, s, _ in rows]
    return pa.table(
        {
            "k": pa.array([k for k, _, _ in rows], pa.string()),
            "t": pa.array(times, pa.timestamp("us", "UTC")),
            "v": pa.array([v for _, _, v in rows], pa.int64()),
            "s": pa.array([None if v is None else str(v) for _, _, v in rows], pa.string()),
        }
    )


#: Times go forward from batch to batch, by a second or by an hour, with rows that come late.
offsets = st.one_of(st.integers(-30_000, 10_000), st.sampled_from([0, 1, 9_999, 10_000, -10_000]))
keys = st.sampled_from(["a", "a", "b", "日本", None])
row = st.tuples(keys, offsets | st.none(), st.integers(-9, 9) | st.none())
batches = st.lists(
    st.tuples(st.sampled_from([0, 1_000, 10_000, 25_000, 3_600_000]), st.lists(row, max_size=12)),
    min_size=1,
    max_size=6,
)


def moved(drawn: list[tuple[int, list[tuple[Any, int | None, Any]]]]) -> list[pa.Table]:
    """Tables of batches that each begin some time after the one before."""
    base, tables = 60_000, []
    for step, rows in drawn:
        base += step
        tables.append(table([(k, None if t is None else base + t, v) for k, t, v in rows]))
    return tables


def compare(
    spark: Any, folder: Path, tables: list[pa.Table], size: int, slide: int, late: int, mode: str
) -> int:
    """Compare both sides, and return how many rows came out."""
    sides = Sides(spark, folder, tables)
    emit = "closed" if mode == "append" else "changes"
    options = {"lateness": f"{late} s", "emit": emit}
    window = tumbling("t", size, **options)
    if slide != size:
        window = sliding("t", size, slide, **options)
    columns = {"n": F.count(), "t": F.sum("v"), "low": F.min("s"), "m": F.avg("v")}
    found = sides.rows(lambda rows: rows.aggregate("w", by="k", reduce=columns, window=window))
    sql = SQL.format(size=f"{size} seconds", slide=f"{slide} seconds")
    wanted = sides.stream(sql, time="t", lateness=f"{late} seconds", mode=mode)
    sides.close()
    require_equal(found, wanted)
    return wanted.total()


@pytest.mark.parametrize("mode", ["append", "update"])
@pytest.mark.parametrize("shape", [(10, 10), (10, 5), (10, 3)])
def test_rows_that_come_late_and_windows_that_close_at_the_end(
    spark: Any, tmp_path: Path, shape: tuple[int, int], mode: str
) -> None:
    """A row may be late by the watermark of this batch and in time by that of the one before."""
    tables = [
        table([("a", 5_000, 1), ("a", 100_000, 2)]),
        table([("a", 6_000, 3), ("a", 101_000, 4), (None, 7_000, None)]),
        table([("a", 7_000, 5)]),
        table([]),
        table([("a", 8_000, 6), ("b", 300_000, 7), ("b", None, 8)]),
    ]
    assert compare(spark, tmp_path, tables, *shape, 0, mode) > 0


@pytest.mark.parametrize(("shape", "mode"), [((10, 10), "append"), ((10, 4), "update")])
@examples(3)
@seed(SEED)
@given(batches, st.sampled_from([0, 5, 20]))
def test_any_batches(
    spark: Any, tmp_path_factory: Any, shape: tuple[int, int], mode: str, drawn: Any, late: int
) -> None:
    compare(spark, tmp_path_factory.mktemp("rows"), moved(drawn), *shape, late, mode)


def test_rows_before_1970_are_late_as_they_are_in_spark(spark: Any, tmp_path: Path) -> None:
    def at(*seconds: int) -> pa.Table:
        times = pa.array([s * 10**6 for s in seconds]).cast(pa.timestamp("us", "UTC"))
        count = len(seconds)
        return pa.table({"k": ["a"] * count, "t": times, "v": [1] * count, "s": ["x"] * count})

    tables = [at(-100, 5), at(-50, 3), at(100)]
    assert compare(spark, tmp_path, tables, 10, 10, 0, "append") == 1
