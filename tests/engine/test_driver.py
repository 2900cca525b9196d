"""Batches on any backend: nothing lost, nothing twice, whatever stops them and wherever."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import functions as F
from penstock.engine.backend import NO_SENDERS, StateSenders
from penstock.engine.batch import BatchSpec
from penstock.engine.driver.driver import Driver
from penstock.engine.driver.progress import WRITTEN
from penstock.engine.errors import StepFailed
from penstock.engine.job_graph import JobGraph
from penstock.engine.source_queue import SourceQueue
from penstock.model import Cluster, Grouping, InvalidValue, NotAllowed, Plan
from penstock.pipeline import Link, Memory, Pipeline, Rows, json_lines, parquet
from penstock.runtimes.local import LocalBackend, run_locally, run_to_end
from penstock.state.store import clear_cache
from penstock.strategies import Request, strategies

DATA = pa.table({"k": [f"w{i % 7}" for i in range(100)], "v": list(range(100))})
SUMS = {f"w{r}": sum(v for v in range(100) if v % 7 == r) for r in range(7)}


def counting(sink: Any, parallelism: int = 2) -> Pipeline:
    return (
        Pipeline("sums")
        .source("rows", Rows(DATA), parallelism=2)
        .map("same", lambda batch: batch)
        .aggregate("sum", by="k", n=F.count(), t=F.sum("v"), parallelism=parallelism)
        .sink("out", sink)
    )


def plan_for(job_graph: JobGraph, **parallelism: int) -> Plan:
    topology = job_graph.topology(2).with_parallelism(parallelism)
    made = strategies.make("penstock").plan(Request(topology, Cluster.of(2, slots=100)))
    assert isinstance(made, Plan)
    return made


def totals(sink: Memory) -> dict[str, int]:
    return {row["k"]: row["t"] for row in sink.latest("k").to_pylist()}


@given(st.lists(st.integers(1, 99), max_size=6))
def test_the_result_does_not_depend_on_the_cuts(cuts: list[int]) -> None:
    sink = Memory()
    run_locally(counting(sink), cuts)
    assert totals(sink) == SUMS


class Crash(Exception):
    """Stands for a driver that dies."""


def backend_in(root: Path) -> LocalBackend:
    return LocalBackend(root / "nodes", Cluster.of(2).names)


class Crashing(LocalBackend):
    """A backend that dies before or after it has run a batch."""

    def __init__(self, root: Path, at: int, after: bool) -> None:
        super().__init__(root / "nodes", Cluster.of(2).names)
        self.at, self.after = at, after

    def run(
        self, job_graph: JobGraph, spec: BatchSpec, senders: StateSenders = NO_SENDERS
    ) -> Iterable[bytes]:
        if spec.batch_id == self.at and not self.after:
            raise Crash
        frames = list(super().run(job_graph, spec, senders))
        if spec.batch_id == self.at:
            raise Crash
        return frames


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("remembered", [True, False])
def test_a_killed_driver_goes_on_where_it_was(
    tmp_path: Path, at: int, after: bool, remembered: bool
) -> None:
    sink = Memory()
    job_graph = JobGraph.of(counting(sink))
    plan, cuts = plan_for(job_graph), [20, 40, 60, 80]
    driver = Driver(job_graph, Crashing(tmp_path, at, after), tmp_path, plan)
    with pytest.raises(Crash):
        run_to_end(driver, cuts)
    if not remembered:
        clear_cache()
    again = Driver(job_graph, backend_in(tmp_path), tmp_path, plan)
    assert again.next_batch == at
    run_to_end(again, cuts)
    assert totals(sink) == SUMS
    assert sorted(sink.batches) == [0, 1, 2, 3, 4]


def test_what_an_attempt_with_more_instances_left_is_not_committed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    job_graph = JobGraph.of(counting(parquet(out)))
    backend = Crashing(tmp_path, 0, after=True)
    driver = Driver(job_graph, backend, tmp_path, plan_for(job_graph, sum=7))
    ranges = {"rows": ((0, 100),)}
    with pytest.raises(Crash):
        driver.run_batch(ranges)
    backend.at = -1
    driver.adopt(plan_for(job_graph, sum=2))
    driver.run_batch(ranges)
    found = pq.read_table(out / "batch=000000000000").to_pylist()
    assert sorted(row["k"] for row in found) == sorted(SUMS)


@pytest.mark.parametrize("what", ["format", "hashing"])
def test_a_checkpoint_of_another_release_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    job_graph = JobGraph.of(counting(Memory()))
    plan = plan_for(job_graph)
    run_to_end(Driver(job_graph, backend_in(tmp_path), tmp_path, plan), [50])
    monkeypatch.setitem(cast(dict[str, int], WRITTEN), what, 99)
    with pytest.raises(NotAllowed, match=rf"another release of Penstock \(its {what} is \d"):
        Driver(job_graph, backend_in(tmp_path), tmp_path, plan)


def test_a_crash_between_sink_and_commit_log_repeats_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    job_graph = JobGraph.of(counting(parquet(out)))
    plan = plan_for(job_graph)
    driver = Driver(job_graph, backend_in(tmp_path), tmp_path, plan)
    commit = type(driver.progress.commit_log).commit
    calls = []

    def dies(self: Any, batch_id: int, entry: dict[str, Any]) -> None:
        calls.append(batch_id)
        if len(calls) == 3:
            raise Crash
        commit(self, batch_id, entry)

    monkeypatch.setattr(type(driver.progress.commit_log), "commit", dies)
    with pytest.raises(Crash):
        run_to_end(driver, [30, 60])
    run_to_end(Driver(job_graph, backend_in(tmp_path), tmp_path, plan), [30, 60])
    import pyarrow.dataset as ds

    rows = ds.dataset(out, partitioning="hive").to_table().to_pylist()
    last: dict[str, tuple[int, int]] = {}
    for row in rows:
        last[row["k"]] = max(last.get(row["k"], (-1, 0)), (int(row["batch"]), row["t"]))
    assert {k: t for k, (_, t) in last.items()} == SUMS
    assert Counter((row["batch"], row["k"]) for row in rows).most_common(1)[0][1] == 1
    assert not (out / "_staging").exists() or not list((out / "_staging").iterdir())


@pytest.mark.parametrize("remembered", [True, False])
def test_parallelism_changes_while_it_runs(tmp_path: Path, remembered: bool) -> None:
    sink = Memory()
    job_graph = JobGraph.of(counting(sink, parallelism=4))
    driver = Driver(job_graph, backend_in(tmp_path), tmp_path, plan_for(job_graph, sum=4))
    position = 0
    for step, instances in enumerate((4, 4, 7, 7, 3, 3, 5)):
        following = plan_for(job_graph, sum=instances)
        driver.adopt(following)
        if not remembered:
            clear_cache()
        driver.run_batch({"rows": ((position, position + 10 + step),)})
        position += 10 + step
    driver.run_batch({"rows": ((position, 100),)})
    assert totals(sink) == SUMS
    again = Driver(job_graph, backend_in(tmp_path), tmp_path, plan_for(job_graph, sum=5))
    assert len(again.handles["sum"].instances) == 5


def test_split_keys_are_refused_while_nothing_merges_them(tmp_path: Path) -> None:
    job_graph = JobGraph.of(counting(Memory()))
    plan = plan_for(job_graph)
    table = replace(plan.routing["sum"], split={1: (0, 1)})
    with pytest.raises(NotAllowed, match="which merges no split keys"):
        Driver(job_graph, backend_in(tmp_path), tmp_path, replace(plan, routing={"sum": table}))


def test_files_hold_every_batch_once(tmp_path: Path) -> None:
    out = tmp_path / "lines"
    pipeline = (
        Pipeline("copy").source("rows", Rows(DATA), parallelism=3).sink("out", json_lines(out))
    )
    run_locally(pipeline, [10, 50])
    lines = [line for file in out.rglob("*.jsonl") for line in file.read_text().splitlines()]
    assert len(lines) == 100
    assert len(set(lines)) == 100


# ---- groupings


def arrivals(grouping: str | Link, **options: Any) -> list[set[int]]:
    """Values that each instance of a step got, told by the step itself."""
    sink = Memory()
    calls = itertools.count()

    def tell(batch: pa.RecordBatch) -> pa.RecordBatch:
        call = next(calls)
        return pa.record_batch({"v": batch.column("v"), "call": pa.array([call] * len(batch))})

    pipeline = Pipeline("g").source("rows", Rows(DATA), parallelism=2)
    if isinstance(grouping, Link):
        pipeline = pipeline.map("tell", tell, after=grouping, parallelism=3)
    else:
        pipeline = pipeline.map("tell", tell, grouping=grouping, parallelism=3, **options)
    results = run_locally(pipeline.sink("out", sink), nodes=3)
    stats = [s for s in results[0].stats if s.vertex == "tell"]
    assert sum(s.rows_in for s in stats) == sink.table().num_rows
    by_call: dict[int, set[int]] = {}
    for row in sink.table().to_pylist():
        by_call.setdefault(row["call"], set()).add(row["v"])
    return list(by_call.values())


def test_every_grouping_delivers() -> None:
    everything = set(range(100))
    for grouping in ("shuffle", "none", "local-or-shuffle"):
        got = arrivals(grouping, chain=False)
        assert set().union(*got) == everything
    assert arrivals("global") == [everything]
    assert all(values == everything for values in arrivals("all"))
    keyed = arrivals("fields", by="k")
    assert set().union(*keyed) == everything
    for residue in range(7):
        same = {v for v in everything if v % 7 == residue}
        assert sum(bool(values & same) for values in keyed) == 1
    two = arrivals("partial-key", by="k")
    assert set().union(*two) == everything
    custom = arrivals(
        Link(
            "rows",
            Grouping.CUSTOM,
            choose=lambda batch, n: np.asarray(batch.column("v")) % n,
        )
    )
    assert {frozenset(v % 3 for v in values) for values in custom} == {
        frozenset({0}),
        frozenset({1}),
        frozenset({2}),
    }


def test_direct_grouping_follows_the_column_and_refuses_others() -> None:
    sink = Memory()
    source = Rows(pa.table({"to": [0, 2, 2, 1], "v": [1, 2, 3, 4]}))
    pipeline = (
        Pipeline("d")
        .source("rows", source, parallelism=1)
        .map("take", lambda b: b, grouping="direct", by="to", parallelism=3)
        .sink("out", sink)
    )
    results = run_locally(pipeline)
    took = {s.instance: s.rows_in for s in results[0].stats if s.vertex == "take"}
    assert took == {0: 1, 1: 1, 2: 2}
    too_far = Rows(pa.table({"to": [5], "v": [1]}))
    bad = (
        Pipeline("d")
        .source("rows", too_far, parallelism=1)
        .map("take", lambda b: b, grouping="direct", by="to", parallelism=3)
        .sink("out", Memory())
    )
    with pytest.raises(StepFailed, match="from 0 to 2"):
        run_locally(bad)


def test_a_diamond_with_a_long_edge() -> None:
    sink = Memory()
    pipeline = (
        Pipeline("diamond")
        .source("rows", Rows(DATA), parallelism=2)
        .map("left", lambda b: b, parallelism=3)
        .map("right", lambda b: b, after="rows", parallelism=2)
        .map("far", lambda b: b, after="left", parallelism=2)
        .aggregate("sum", by="k", t=F.sum("v"), after=["far", "right", "rows"], parallelism=2)
        .sink("out", sink)
    )
    run_locally(pipeline, [33, 66], nodes=3)
    assert totals(sink) == {k: 3 * t for k, t in SUMS.items()}


def test_a_step_hears_where_its_batch_comes_from() -> None:
    sink = Memory()
    pipeline = (
        Pipeline("two")
        .source("a", Rows(pa.table({"x": [1]})), parallelism=1)
        .source("b", Rows(pa.table({"y": [2, 3]})), parallelism=1)
        .map(
            "both",
            lambda batch, origin: pa.record_batch({"from": [origin], "n": [batch.num_rows]}),
            after=["a", "b"],
            parallelism=1,
        )
        .sink("out", sink)
    )
    run_locally(pipeline)
    got = sorted((row["from"], row["n"]) for row in sink.table().to_pylist())
    assert got == [("a", 1), ("b", 2)]


# ---- errors


def poison(batch: pa.RecordBatch) -> pa.RecordBatch:
    if 13 in batch.column("v").to_pylist():
        raise ValueError("thirteen")
    return batch


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (poison, "ValueError: thirteen"),
        (lambda batch: 5, "must return a pyarrow.RecordBatch"),
        (lambda batch: batch.select(["nothing"]), "nothing"),
    ],
)
def test_an_error_names_step_instance_batch_and_sample(function: Any, told: str) -> None:
    sink = Memory()
    pipeline = (
        Pipeline("e").source("rows", Rows(DATA), parallelism=1).map("bad", function).sink("o", sink)
    )
    with pytest.raises(StepFailed, match=told) as caught:
        run_locally(pipeline)
    assert (caught.value.step, caught.value.instance, caught.value.batch_id) == ("bad", 0, 0)
    assert "'v': 0" in str(caught.value)
    assert not sink.batches


def test_different_columns_from_one_step_are_an_error() -> None:
    def wavering(batch: pa.RecordBatch) -> pa.RecordBatch:
        first = batch.column("v")[0].as_py() < 50
        return batch.select(["v"]) if first else batch.rename_columns(["a", "b"])

    pipeline = (
        Pipeline("w")
        .source("rows", Rows(DATA), parallelism=2)
        .map("wavering", wavering)
        .map("next", lambda b: b, parallelism=1)
        .sink("out", Memory())
    )
    with pytest.raises(StepFailed, match="different columns"):
        run_locally(pipeline)


def test_a_failed_batch_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    sink = Memory()
    fuse = {"blown": False}

    def once(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 55 in batch.column("v").to_pylist() and not fuse["blown"]:
            fuse["blown"] = True
            raise RuntimeError("once")
        return batch

    pipeline = (
        Pipeline("f")
        .source("rows", Rows(DATA), parallelism=2)
        .map("once", once)
        .aggregate("sum", by="k", t=F.sum("v"), parallelism=2)
        .sink("out", sink)
    )
    job_graph = JobGraph.of(pipeline)
    plan = plan_for(job_graph)
    driver = Driver(job_graph, backend_in(tmp_path), tmp_path, plan)
    with pytest.raises(StepFailed):
        run_to_end(driver, [50])
    assert sorted(sink.batches) == [0]
    run_to_end(Driver(job_graph, backend_in(tmp_path), tmp_path, plan), [50])
    assert totals(sink) == SUMS


def test_skipping_leaves_out_the_rows_that_fail_and_no_others() -> None:
    sink = Memory()
    pipeline = (
        Pipeline("s").source("rows", Rows(DATA), parallelism=2).map("bad", poison).sink("o", sink)
    )
    results = run_locally(pipeline, on_error="skip")
    assert sorted(sink.table().column("v").to_pylist()) == [v for v in range(100) if v != 13]
    assert results[0].skipped == 1
    error = next(s.first_error for s in results[0].stats if s.first_error)
    assert error.step == "bad"
    assert "'v': 13" in error.sample


def test_what_a_pipeline_refuses() -> None:
    empty = Pipeline("p")
    with pytest.raises(NotAllowed, match="begin pipeline 'p' with a source"):
        empty.map("m", poison)
    one = empty.source("s", Rows(DATA))
    with pytest.raises(NotAllowed, match="has a step 's' already"):
        one.source("s", Rows(DATA))
    with pytest.raises(NotAllowed, match="'t', which is no step; the steps are s"):
        one.map("m", poison, after="t")
    with pytest.raises(InvalidValue, match="one of shuffle"):
        one.map("m", poison, grouping="guess")
    with pytest.raises(InvalidValue, match="a column for fields"):
        one.map("m", poison, grouping="fields")
    with pytest.raises(InvalidValue, match="at least 1"):
        one.map("m", poison, parallelism=0)
    with pytest.raises(NotAllowed, match="has no sink; end it with"):
        JobGraph.of(one)
    with pytest.raises(NotAllowed, match="nothing to aggregate"):
        one.aggregate("k", by="k")
    with pytest.raises(NotAllowed, match="which is a sink"):
        one.sink("o", Memory()).map("m", poison)
    with pytest.raises(InvalidValue, match="one of stop, skip"):
        run_locally(one.sink("o", Memory()), on_error="ignore")


# ---- the queue


class Steady:
    schema = DATA.schema
    stamp = None
    end = 1000

    def available(self, elapsed_s: float) -> int:
        return int(elapsed_s * 100)

    def read(self, start: int, stop: int) -> pa.Table:
        return DATA


def test_a_full_queue_holds_the_source_up() -> None:
    source_queue = SourceQueue(Steady(), queue=50)
    assert source_queue.take(1.0) == ((0, 50),)
    assert source_queue.waiting == 50
    assert source_queue.take(1.2) == ((50, 100),)
    assert source_queue.take(1.3) == ((100, 130),)
    assert (source_queue.waiting, source_queue.dropped) == (0, 0)
    assert source_queue.take(1.3) == ()
    for _ in range(30):
        source_queue.take(100.0)
    assert source_queue.ended
    assert source_queue.taken == 1000


def test_a_full_queue_drops_the_newest_and_counts_them() -> None:
    source_queue = SourceQueue(Steady(), queue=50, when_full="drop")
    assert source_queue.take(1.0) == ((0, 50),)
    assert source_queue.dropped == 50
    assert source_queue.take(1.3) == ((100, 130),)
    with pytest.raises(InvalidValue, match="one of wait, drop"):
        SourceQueue(Steady(), when_full="panic")
