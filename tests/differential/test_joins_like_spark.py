"""Joins of two streams over the same files, one of each a batch: equal to Spark's, to the row."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, seed
from hypothesis import strategies as st

from penstock.pipeline import between
from penstock.testing.differential import SEED, Sides, examples, require_equal

START = datetime.datetime(2024, 3, 31, 0, 59, 50, tzinfo=datetime.timezone.utc)

Row = tuple[Any, Any, Any]


def table(rows: list[Row], names: tuple[str, str, str]) -> pa.Table:
    times = [None if s is None else START + datetime.timedelta(milliseconds=s) for _, s, _ in rows]
    key, time, value = names
    return pa.table(
        {
            key: pa.array([k for k, _, _ in rows], pa.string()),
            time: pa.array(times, pa.timestamp("us", "UTC")),
            value: pa.array([v for _, _, v in rows], pa.int64()),
        }
    )


LEFT, RIGHT = ("k", "shown", "v"), ("id", "clicked", "w")
CONDITION = """l.k = r.id and r.clicked >= l.shown + interval {low} seconds
    and r.clicked <= l.shown + interval {high} seconds"""


def compare(
    spark: Any,
    folder: Path,
    batches: list[tuple[list[Row], list[Row]]],
    *,
    bound: tuple[int, int] | None = (-5, 10),
    lateness: tuple[int, int] = (0, 0),
    how: str = "inner",
    where: tuple[str, pc.Expression] | None = None,
) -> int:
    """Compare both sides, and return how many rows came out."""
    if how == "full":
        # Spark's full join of streams takes two nulls for equal keys, which SQL does not.
        batches = [(left, [row for row in right if row[0] is not None]) for left, right in batches]
    sides = Sides(
        spark,
        folder,
        [table(left, LEFT) for left, _ in batches],
        clicks=[table(right, RIGHT) for _, right in batches],
    )
    time = None
    left, right = sides.reader("rows"), sides.reader("clicks")
    condition = "l.k = r.id"
    if bound is not None:
        time = between("shown", "clicked", *bound, lateness=lateness)
        left = left.withWatermark("shown", f"{lateness[0]} seconds")
        right = right.withWatermark("clicked", f"{lateness[1]} seconds")
        condition = CONDITION.format(low=bound[0], high=bound[1])
    if where is not None:
        condition += f" and {where[0]}"
    left.createOrReplaceTempView("l")
    right.createOrReplaceTempView("r")
    kind = {"inner": "join"}.get(how, f"{how} outer join")
    wanted = sides.run(spark.sql(f"select * from l {kind} r on {condition}"), "append")
    found = sides.rows(
        lambda rows: rows.join(
            "j",
            "clicks",
            after="rows",
            on={"k": "id"},
            how=how,
            time=time,
            where=None if where is None else where[1],
        )
    )
    sides.close()
    require_equal(found, wanted)
    return wanted.total()


#: Rows that are late by one watermark and not by the other, duplicates, nulls, empty batches.
BATCHES: list[tuple[list[Row], list[Row]]] = [
    ([("a", 0, 1), ("a", 0, 1), (None, 1, 2)], [("a", 3_000, 1), (None, 2, 2), ("b", 0, 3)]),
    ([("b", 90_000, 3)], []),
    ([], [("b", 95_000, 4), ("a", 4_000, 5)]),
    ([("a", 1_000, 5), ("a", 94_000, 6)], [("a", 5_000, 6), ("a", 99_000, 6), ("a", 99_000, 6)]),
    ([], []),
    ([("a", 85_000, 7), ("b", None, 7), ("c", 200_000, 8)], [("c", 205_000, 8), ("c", None, 9)]),
    ([("a", 199_000, 9), ("c", 201_000, 9)], [("a", 202_000, 9), ("c", 190_000, 1)]),
]


@pytest.mark.parametrize("bound", [(-5, 10), (0, 0), (5, 10), (-10, -5), None])
def test_late_rows_duplicates_nulls_and_empty_batches(
    spark: Any, tmp_path: Path, bound: tuple[int, int] | None
) -> None:
    assert compare(spark, tmp_path, BATCHES, bound=bound) > 0 or bound in ((0, 0), (-10, -5))


@pytest.mark.parametrize("how", ["left", "right", "full"])
@pytest.mark.parametrize("bound", [(-5, 10), (0, 0)])
def test_outer_joins(spark: Any, tmp_path: Path, how: str, bound: tuple[int, int]) -> None:
    assert compare(spark, tmp_path, BATCHES, bound=bound, how=how) > 0


def test_a_condition_besides(spark: Any, tmp_path: Path) -> None:
    found = compare(spark, tmp_path, BATCHES, where=("v < w", pc.field("v") < pc.field("w")))
    assert found > 0


offsets = st.one_of(st.integers(-30_000, 10_000), st.sampled_from([0, 1, 5_000, 10_000, -10_000]))
keys = st.sampled_from(["a", "a", "b", "日本", None])
row = st.tuples(keys, offsets | st.none(), st.integers(0, 3) | st.none())
rows = st.lists(row, max_size=10)
drawn_batches = st.lists(
    st.tuples(st.sampled_from([0, 1_000, 10_000, 25_000, 3_600_000]), rows, rows),
    min_size=1,
    max_size=6,
)


def moved(drawn: list[tuple[int, list[Row], list[Row]]]) -> list[tuple[list[Row], list[Row]]]:
    """Batches that each begin some time after the one before."""
    base, batches = 60_000, []
    for step, *sides in drawn:
        base += step
        left, right = (
            [(k, None if t is None else base + t, v) for k, t, v in side] for side in sides
        )
        batches.append((left, right))
    return batches


@pytest.mark.parametrize("how", ["inner", "left", "full"])
@examples(2)
@seed(SEED)
@given(
    drawn_batches,
    st.sampled_from([(-5, 10), (0, 20), (-3600, 5)]),
    st.sampled_from([(0, 0), (20, 5), (0, 30)]),
)
def test_any_batches(
    spark: Any,
    tmp_path_factory: Any,
    how: str,
    drawn: Any,
    bound: tuple[int, int],
    lateness: tuple[int, int],
) -> None:
    folder = tmp_path_factory.mktemp("join")
    compare(spark, folder, moved(drawn), bound=bound, lateness=lateness, how=how)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_join_with_a_table(spark: Any, tmp_path: Path, how: str) -> None:
    batches = [table(left, LEFT) for left, _ in BATCHES]
    names = table([row for _, right in BATCHES for row in right], RIGHT)
    sides = Sides(spark, tmp_path, batches, names=[names])
    condition = pc.field("v") <= pc.field("w")
    on = "l.k = r.id and l.v <= r.w"
    wanted = sides.query(f"select * from rows l {how} join names r on {on}")
    del sides.streams["names"]
    found = sides.rows(lambda rows: rows.join("j", names, on={"k": "id"}, how=how, where=condition))
    sides.close()
    require_equal(found, wanted)
    assert wanted.total() > 3
