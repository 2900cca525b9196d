"""Joins as they are built and run locally: columns, refused keywords, tables that are refreshed."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.driver.driver import Driver
from penstock.engine.errors import StepFailed
from penstock.engine.job_graph import JobGraph
from penstock.model import Cluster, InvalidValue, NotAllowed, Plan
from penstock.pipeline import Memory, Pipeline, Rows, between, static
from penstock.pipeline.keyed.pairs import Bound, SideRows, pairs
from penstock.runtimes.local import LocalBackend, run_locally
from penstock.strategies import Request, strategies

LEFT = pa.table({"k": [1, 2, 2], "t": [1, 2, 3], "x": ["a", "b", "c"]})
RIGHT = pa.table({"id": [2, 1, 3], "t": [2, 1, 3], "x": ["d", "e", "f"]})


def start() -> Pipeline:
    return Pipeline("p").source("left", Rows(LEFT)).source("right", Rows(RIGHT))


def rows_of(made: Pipeline, cuts: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    sink = Memory()
    run_locally(made.sink("out", sink), cuts)
    found: list[dict[str, Any]] = sink.table().to_pylist()
    return sorted(found, key=str)


def test_names_of_columns() -> None:
    found = rows_of(start().join("j", "right", after="left", on={"k": "id"}), (1,))
    assert found == [
        {"k": 1, "t": 1, "x": "a", "id": 1, "t_right": 1, "x_right": "e"},
        {"k": 2, "t": 2, "x": "b", "id": 2, "t_right": 2, "x_right": "d"},
        {"k": 2, "t": 3, "x": "c", "id": 2, "t_right": 2, "x_right": "d"},
    ]
    both = rows_of(start().join("j", "right", after="left", on="t", suffix="_r"))
    assert list(both[0]) == ["t", "k", "x", "id", "x_r"]


def test_a_stream_with_itself() -> None:
    made = Pipeline("p").source("left", Rows(LEFT)).join("j", "left", on="k")
    assert len(rows_of(made, (1, 2))) == 5


rows = st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9)), max_size=12)


@given(rows, rows, st.integers(-9, 9) | st.none(), st.integers(-9, 9) | st.none())
def test_pairs(
    left: list[tuple[int, int]], right: list[tuple[int, int]], low: int | None, high: int | None
) -> None:
    def side(found: list[tuple[int, int]]) -> SideRows:
        array = np.array(found, dtype=np.int64).reshape(-1, 2)
        return SideRows(array[:, 0], array[:, 1], array[:, 1] == 5)

    def near(a: int, b: int) -> bool:
        timed = 5 not in (a, b)
        return timed and (low is None or b >= a + low) and (high is None or b <= a + high)

    made = pairs(side(left), side(right), Bound(low, high), most=3)
    found = [pair for one, other in made for pair in zip(one.tolist(), other.tolist(), strict=True)]
    wanted = [
        (i, j)
        for i, (k, a) in enumerate(left)
        for j, (m, b) in enumerate(right)
        if k == m and near(a, b)
    ]
    assert sorted(found) == sorted(wanted)


MS = 1000
timed = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(1, 60) | st.none()), max_size=8
)
Timed = list[tuple[str | None, int | None]]


def by_hand(
    batches: list[tuple[Timed, Timed]], low: int, high: int, late: int, how: str
) -> list[tuple[Any, ...]]:
    """All pairs of rows that are not late, and rows of outer sides that are over without one."""
    outer = {"inner": (), "left": (0,), "right": (1,), "full": (0, 1)}[how]
    rows: list[list[list[Any]]] = [[], []]
    highest, before, now = [0, 0], 0, 0
    for batch in batches:
        for side, found in enumerate(batch):
            kept = [(k, t) for k, t in found if k is not None or side in outer]
            for number, (k, t) in enumerate(found):
                if (k, t) in kept and (t is None or t > before):
                    rows[side].append([k, t, number, False])
            highest[side] = max([highest[side], *(t for _, t in kept if t is not None)])
        before, now = now, max(now, min(highest) - late)
    # Batches without data follow as long as the watermark moves.
    made = list[tuple[Any, ...]]()
    for one in rows[0]:
        for other in rows[1]:
            if None in (one[0], one[1], other[1]) or one[0] != other[0]:
                continue
            if one[1] + low <= other[1] <= one[1] + high:
                made.append((one[0], one[1], other[1]))
                one[3] = other[3] = True
    for side in outer:
        limit = now - high if side == 0 else now + low
        for k, t, _, met in rows[side]:
            if not met and t is not None and t < limit:
                made.append((k, t, None) if side == 0 else (k, None, t))
    return sorted(made, key=str)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(timed, timed), min_size=1, max_size=5),
    st.sampled_from([(0, 5), (-3, 3), (2, 4)]),
    st.sampled_from([0, 4]),
    st.sampled_from(["inner", "left", "right", "full"]),
)
def test_all_kinds_as_by_hand(
    batches: list[tuple[Timed, Timed]], bound: tuple[int, int], late: int, how: str
) -> None:
    names, sink = ("left", "right"), Memory()
    made, ends = Pipeline("p"), {name: [0] for name in names}
    for side, name in enumerate(names):
        found = [row for batch in batches for row in batch[side]]
        times = pa.array([None if t is None else t * MS for _, t in found], pa.int64())
        keys = pa.array([k for k, _ in found], pa.string())
        made = made.source(name, Rows(pa.table({"k": keys, name[0]: times})), parallelism=1)
        for batch in batches:
            ends[name].append(ends[name][-1] + len(batch[side]))
    low, high = (f"{limit} ms" for limit in bound)
    time = between("l", "r", low, high, lateness=f"{late} ms")
    made = made.join("j", "right", after="left", on="k", how=how, time=time).sink("out", sink)
    with tempfile.TemporaryDirectory() as root:
        driver = driver_of(made, Path(root))
        for number in range(len(batches)):
            cuts = {name: (at[number], at[number + 1]) for name, at in ends.items()}
            driver.run_batch({name: (cut,) for name, cut in cuts.items() if cut[1] > cut[0]})
        while driver.watermark_moved:
            driver.run_batch({})
        driver.close()
    emitted = [
        tuple(v // MS if isinstance(v, int) else v for v in (row["k"], row["l"], row["r"]))
        for row in sink.table().to_pylist()
    ]
    assert sorted(emitted, key=str) == by_hand(batches, *bound, late, how)


def driver_of(made: Pipeline, root: Path) -> Driver:
    job_graph, cluster = JobGraph.of(made), Cluster.of(2)
    plan = strategies.make("even").plan(Request(job_graph.topology(2), cluster))
    assert isinstance(plan, Plan)
    return Driver(job_graph, LocalBackend(root / "nodes", cluster.names), root, plan)


def test_state_goes_when_it_is_over() -> None:
    """Many rows of one key: the state holds those that can still be met."""
    size = 2000
    table = pa.table({"k": ["a"] * size, "t": np.arange(1, size + 1) * 1_000_000})
    made = (
        Pipeline("p")
        .source("left", Rows(table))
        .source("right", Rows(table))
        .join("j", "right", after="left", on="k", time=between("t", "t", 0, "10 s"))
    )
    sink = Memory()
    results = run_locally(made.sink("out", sink), range(100, size, 100))
    assert sink.table().num_rows == sum(min(11, size - i) for i in range(size))
    sizes = [s.saved.size_bytes for r in results for s in r.stats if s.saved is not None]
    assert max(sizes) < 40_000


def test_a_table_that_is_loaded_again() -> None:
    tables = [RIGHT, pa.table({"id": [1], "t": [9], "x": ["new"]})]

    def load() -> pa.Table:
        return tables.pop(0) if len(tables) > 1 else tables[0]

    once = Pipeline("p").source("left", Rows(LEFT)).join("j", static(load), on={"k": "id"})
    assert [row["x_right"] for row in rows_of(once, (1, 2))] == ["e", "d", "d"]
    often = static(load, refresh="1 us")
    again = Pipeline("p").source("left", Rows(LEFT)).join("j", often, on={"k": "id"})
    assert [row["x_right"] for row in rows_of(again, (1, 2))] == ["new"]


NEAR = between("t", "t", 0, 1)
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "how": (lambda: start().join("j", "right", on="t", how="outer"), "one of inner, left, right"),
    "on": (lambda: start().join("j", "right", after="left", on="k"), "'k', which 'right' does not"),
    "time": (lambda: start().join("j", "right", on="t", time=3), "made by between"),  # type: ignore[arg-type]
    "column": (
        lambda: start().join("j", "right", on="t", time=between("s", "t", 0, 1)),
        "bound by the time 's', which its left side does not have",
    ),
    "unbound": (lambda: start().join("j", "right", on="t", how="left"), "bound it"),
    "half bound": (
        lambda: start().join("j", "right", on="t", how="full", time=between("t", "t", 0)),
        r"upper=\.\.\.",
    ),
    "unknown columns": (
        lambda: (
            start()
            .map("m", lambda batch: batch)
            .join("j", "m", after="left", on="t", how="left", time=NEAR)
        ),
        "put a step with a schema before it",
    ),
    "step": (lambda: start().join("j", "rigth", on="t"), "did you mean 'right'"),
    "table": (lambda: start().join("j", RIGHT, on="k"), "'k', which the table lacks"),
    "full table": (lambda: start().join("j", RIGHT, on="t", how="full"), "inner or left with a"),
    "timed table": (lambda: start().join("j", RIGHT, on="t", time=NEAR), "has no event time"),
    "bounds": (lambda: between("t", "t", "5 s", "-5 s"), "at least the lower one"),
    "lateness": (lambda: between("t", "t", lateness=-1), "parameter lateness of a time bound"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what: str) -> None:
    build, message = REFUSED[what]
    with pytest.raises((InvalidValue, NotAllowed), match=message):
        build()


def test_keys_of_different_types() -> None:
    other = pa.table({"k": ["1"], "t": [1]})
    made = Pipeline("p").source("left", Rows(LEFT)).source("right", Rows(other))
    with pytest.raises(Exception, match="keys of different types, int64 on the left and string"):
        rows_of(made.join("j", "right", after="left", on="k"))


@pytest.mark.parametrize("kind", [pa.float64(), pa.string(), pa.decimal128(9, 2)])
def test_keys_that_cannot_meet_those_of_a_table_are_refused(kind: pa.DataType) -> None:
    names = pa.table({"k": pa.array([1, 2], pa.int8()).cast(kind), "name": ["one", "two"]})
    made = Pipeline("p").source("left", Rows(LEFT)).join("j", names, on="k", how="left")
    with pytest.raises(StepFailed, match=f"int64 in 'k' of the stream and {re.escape(str(kind))}"):
        rows_of(made)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.null()])
def test_keys_of_like_types_meet_those_of_a_table(kind: pa.DataType) -> None:
    keys = pa.nulls(2) if kind == pa.null() else pa.array([1, 2], kind)
    names = pa.table({"k": keys, "name": ["one", "two"]})
    found = rows_of(Pipeline("p").source("left", Rows(LEFT)).join("j", names, on="k", how="left"))
    wanted = [None] * 3 if kind == pa.null() else ["one", "two", "two"]
    assert sorted(str(row["name"]) for row in found) == list(map(str, wanted))
