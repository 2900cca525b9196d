"""Reducers against plain Python, however the stream is cut, and what keyed functions may return."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import functions as F
from penstock.engine.errors import StepFailed
from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline import Link, Memory, Pipeline, Rows, Split
from penstock.pipeline.keyed.reduce import CustomUpdate, Reduce, WorkThenReduce
from penstock.pipeline.keyed.update import outcome
from penstock.runtimes.local import run_locally

ALL = {
    "n": F.count(),
    "again": F.count(),
    "sum": F.sum("v"),
    "low": F.min("v"),
    "high": F.max("v"),
    "mean": F.avg("v"),
    "last": F.last("v"),
    "first": F.first("v"),
    "latest": F.last("v", "o"),
    "earliest": F.first("v", "o"),
    "best": F.top(2, "v", keep={"o": pa.int64()}),
}

Row = tuple[str, int | None, int | None]
rows = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.none() | st.integers(-5, 5),
        st.none() | st.integers(0, 4),
    ),
    min_size=1,
    max_size=40,
)


def table(tuples: list[Row]) -> pa.Table:
    k, v, o = zip(*tuples, strict=True)
    return pa.table({"k": k, "v": pa.array(v, pa.int64()), "o": pa.array(o, pa.int64())})


def plain(tuples: list[Row]) -> dict[str, dict[str, Any]]:
    found = {}
    for key in {k for k, _, _ in tuples}:
        values = [v for k, v, _ in tuples if k == key and v is not None]
        pairs = [(o, v) for k, v, o in tuples if k == key and v is not None and o is not None]
        size = sum(k == key for k, _, _ in tuples)
        # Nulls come last among equal values, as in a sort.
        ranked = sorted(
            ((v, o) for k, v, o in tuples if k == key and v is not None),
            key=lambda row: (-row[0], row[1] is None, row[1] or 0),
        )
        found[key] = {
            "k": key,
            "n": size,
            "again": size,
            "sum": sum(values) if values else None,
            "low": min(values, default=None),
            "high": max(values, default=None),
            "mean": sum(values) / len(values) if values else None,
            "last": values[-1] if values else None,
            "first": values[0] if values else None,
            "latest": max(pairs)[1] if pairs else None,
            "earliest": min(pairs)[1] if pairs else None,
            "best": [{"v": v, "o": o} for v, o in ranked[:2]],
        }
    return found


def results(pipeline: Pipeline, cuts: list[int] | None = None, **options: Any) -> dict[str, Any]:
    run_locally(pipeline, cuts or [], **options)
    sink = pipeline["out"].sink
    assert isinstance(sink, Memory)
    return {row["k"]: row for row in sink.latest("k").to_pylist()}


@settings(max_examples=60)
@given(rows, st.lists(st.integers(1, 39), max_size=4), st.integers(1, 3), st.integers(1, 3))
def test_reducers_give_what_plain_python_gives(
    tuples: list[Row], cuts: list[int], senders: int, receivers: int
) -> None:
    pipeline = (
        Pipeline("p")
        .source("rows", Rows(table(tuples)), parallelism=senders)
        .aggregate("all", by="k", reduce=ALL, parallelism=receivers)
        .sink("out", Memory())
    )
    assert results(pipeline, cuts) == plain(tuples)


@given(rows, st.lists(st.integers(1, 39), max_size=5), st.randoms(use_true_random=False))
def test_parts_merge_in_any_grouping(tuples: list[Row], cuts: list[int], random: Any) -> None:
    columns = {name: made for name, made in ALL.items() if not made.ordered}
    reduce = Reduce(("k",), tuple(columns.items()))
    whole = table(tuples)
    bounds = [0, *sorted({c for c in cuts if c < len(tuples)}), len(tuples)]
    parts = [
        reduce.partial(whole.slice(a, b - a).combine_chunks().to_batches()[0])
        for a, b in itertools.pairwise(bounds)
    ]
    while len(parts) > 1:
        random.shuffle(parts)
        parts = [reduce.merged(pa.concat_tables(parts[:2])), *parts[2:]]
    wanted = plain(tuples)
    for row in reduce.finished(parts[0]).to_pylist():
        assert row == {name: wanted[row["k"]][name] for name in ("k", *columns)}


def test_types_follow_the_columns_unless_one_is_given() -> None:
    data = pa.table({"k": ["a", "a"], "x": [1.5, 0.5], "s": ["p", "q"]})
    reduce = {
        "m": F.avg("x"),
        "s": F.last("s", "x"),
        "t": F.top(1, "x", keep=["s"]),
    }
    source = Pipeline("p").source("rows", Rows(data))
    found = results(source.aggregate("all", by="k", reduce=reduce).sink("out", Memory()))
    assert found["a"] == {"k": "a", "m": 1.0, "s": "p", "t": [{"x": 1.5, "s": "p"}]}
    wrong = source.aggregate("all", by="k", x=F.sum("x", pa.int64())).sink("out", Memory())
    with pytest.raises(StepFailed, match="truncated"):
        run_locally(wrong)


def spans(make_wrong: bool = False) -> Any:
    def make(batch: pa.RecordBatch) -> pa.Table:
        made = pa.table({"k": batch["k"], "low": batch["v"], "high": batch["v"]})
        return made.drop_columns("high") if make_wrong else made

    def merge(parts: pa.Table) -> pa.Table:
        merged = parts.group_by("k").aggregate([("low", "min"), ("high", "max")])
        return merged.rename_columns(["k", "low", "high"])

    def finish(rows: pa.Table) -> pa.Table:
        return pa.table({"k": rows["k"], "span": pc.subtract(rows["high"], rows["low"])})

    schema = pa.schema([("low", pa.int64()), ("high", pa.int64())])
    return F.custom(make, merge, schema, finish=finish)


def test_a_merge_of_the_users_own() -> None:
    data = pa.table({"k": list("abab"), "v": [1, 5, 4, 5]})
    source = Pipeline("p").source("rows", Rows(data))
    found = results(source.aggregate("s", by="k", reduce=spans()).sink("out", Memory()), [1, 3])
    assert {k: row["span"] for k, row in found.items()} == {"a": 3, "b": 0}
    with pytest.raises(
        StepFailed,
        match="'make' of an aggregation must return a table with the columns k, low, high",
    ):
        results(source.aggregate("s", by="k", reduce=spans(True)).sink("out", Memory()))
    doubled = F.custom(
        lambda b: pa.Table.from_batches([b]), lambda t: t, pa.schema([("v", "int64")])
    )
    with pytest.raises(StepFailed, match="one row for each key; it returned 2 rows for"):
        results(source.aggregate("s", by="k", reduce=doubled).sink("out", Memory()))
    empty = replace(spans(), finish=lambda rows: None)
    with pytest.raises(StepFailed, match="'finish' of an aggregation must return a table or a"):
        results(source.aggregate("s", by="k", reduce=empty).sink("out", Memory()))


def test_work_is_done_where_tuples_arrive() -> None:
    sizes: list[int] = []

    def work(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(batch.num_rows)
        return batch.filter(pc.field("v") > 1)

    data = pa.table({"k": ["a"] * 6, "v": [1, 1, 2, 3, 1, 1]})
    pipeline = (
        Pipeline("p")
        .source("rows", Rows(data), parallelism=1)
        .aggregate("n", by="k", n=F.count(), work=work, parallelism=1)
        .sink("out", Memory())
    )
    assert results(pipeline, [4])["a"]["n"] == 2
    assert sizes == [4, 2]


def test_work_must_leave_the_key() -> None:
    reduce = Reduce(("k",), (("n", F.count()),))
    worked = WorkThenReduce(reduce, lambda batch: pa.record_batch({"k": ["z"]}))
    empty = pa.table({"k": pa.array([], pa.string()), "n": pa.array([], pa.int64())})
    with pytest.raises(NotAllowed, match=r"made the key .*z"):
        worked.update(pa.table({"k": ["a"]}), empty)


KEYED = CustomUpdate(("k",), pa.schema([("n", pa.int64())]), lambda rows, state: None)
ONE = pa.table({"k": ["a"], "n": pa.array([1], pa.int32())})


def test_what_an_update_may_return() -> None:
    emit, changed, removed = outcome(KEYED, (None, ONE))
    assert (emit, removed) == (None, None)
    assert changed is not None
    assert changed.schema.field("n").type == pa.int64()
    assert outcome(KEYED, (ONE, None, pa.table({"k": ["b"], "more": [1]}))).removed == pa.table(
        {"k": ["b"]}
    )
    assert outcome(KEYED, (None, ONE.slice(0, 0), None)) == (None, None, None)


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (None, r"must return \(emit, changed\).*NoneType"),
        ((ONE,), "a tuple of 1"),
        ((5, ONE), "returns as emit must be a table"),
        ((None, pa.table({"k": ["a"]})), r"returns as changed must have the columns k, n"),
        ((None, pa.table({"k": ["a"], "n": [1], "m": [1]})), "returns as changed"),
        ((None, None, pa.table({"n": [1]})), "returns as removed"),
        ((None, ONE, pa.table({"k": ["b", "a"]})), "the key {'k': 'a'} both as changed"),
    ],
)
def test_what_an_update_may_not_return(returned: Any, told: str) -> None:
    with pytest.raises(NotAllowed, match=told):
        outcome(KEYED, returned)


def test_what_a_reduce_refuses() -> None:
    source = Pipeline("p").source("rows", Rows(ONE))
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "nothing to aggregate"),
        ({"k": F.count()}, "'k' is a column of the key"),
        ({"n": "sum"}, "made by penstock.functions, such as F.count\\(\\); got 'sum'"),
        ({"m": F.avg("n"), "m__sum": F.sum("n")}, "two columns called 'm__sum'"),
        ({"reduce": 5}, "a mapping of columns, or made by penstock.functions.custom"),
        ({"reduce": spans(), "n": F.count()}, "into one of the two"),
        ({"n": F.count(), "split": Split(merge_parallelism=0)}, "at least 1"),
        ({"n": F.count(), "split": 3}, "true, false or a Split"),
        ({"n": F.count(), "after": Link("rows", "partial-key", "k")}, "would divide its state"),
    ]
    for options, told in cases:
        with pytest.raises(NotAllowed, match=told):
            source.aggregate("s", by="k", **options)
    with pytest.raises(InvalidValue, match=r"a pyarrow\.Schema"):
        source.stateful("s", by="k", update=outcome, state=5)
    with pytest.raises(InvalidValue, match="a function"):
        source.stateful("s", by="k", update=5, state=KEYED.state)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="at least 1"):
        F.top(0, "v")
    with pytest.raises(NotAllowed, match="leave it out of 'keep'"):
        F.top(1, "v", keep={"v": pa.int64()})
