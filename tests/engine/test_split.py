"""Split keys: worked on in several places, merged in one, with the results of one place."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import functions as F
from penstock.apps.api import latest
from penstock.common.key_hashing import key_hashes
from penstock.engine.driver.driver import Driver
from penstock.engine.driver.fingerprint import PipelineChanged
from penstock.engine.errors import StepFailed
from penstock.engine.job_graph import JobGraph
from penstock.engine.migration.increments import increment
from penstock.engine.task.exchange import distribute
from penstock.engine.task.metrics import MAX_HOT_KEYS, TaskMetrics
from penstock.model import Cluster, Grouping, InvalidValue, Kind, Measurements, NotAllowed, Plan
from penstock.pipeline import Link, Memory, Pipeline, Rows, Split, parquet, tumbling
from penstock.runtimes.local import LocalBackend, run_locally, run_to_end
from penstock.state.config import StateConfig
from penstock.strategies import Request, strategies
from penstock.strategies.route.heavy import heaviest
from penstock.strategies.route.skew import routed
from penstock.strategies.route.two_tier import TwoTier, resize

KEYS = ["hot"] * 60 + [f"k{i % 5}" for i in range(40)]
DATA = pa.table({"k": [KEYS[i * 37 % 100] for i in range(100)], "v": list(range(100))})
HOT = int(key_hashes(pa.table({"k": ["hot"]}), ("k",))[0])
REDUCE = {"n": F.count(), "t": F.sum("v"), "m": F.avg("v"), "best": F.top(3, "v")}


def pipeline(sink: Memory, **options: Any) -> Pipeline:
    return (
        Pipeline("p")
        .source("rows", Rows(DATA), parallelism=2)
        .aggregate("sum", by="k", reduce=REDUCE, parallelism=3, **options)
        .sink("out", sink)
    )


def found(sink: Memory) -> list[dict[str, Any]]:
    return sorted(sink.latest("k").to_pylist(), key=lambda row: str(row["k"]))


def whole() -> list[dict[str, Any]]:
    sink = Memory()
    run_locally(pipeline(sink))
    return found(sink)


WHOLE = whole()


def looked_at(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["fields", "partial-key", "hot-key"]),
    st.lists(st.integers(1, 99), max_size=4),
    st.booleans(),
)
def test_results_are_those_of_whole_keys(grouping: str, cuts: list[int], worked: bool) -> None:
    sink = Memory()
    work = looked_at if worked else None
    split = pipeline(sink, split=Split(grouping, merge_parallelism=2), work=work)
    assert [step.name for step in split.steps] == ["rows", "sum-parts", "sum", "out"]
    run_locally(split, cuts)
    assert found(sink) == WHOLE


def test_keys_are_merged_by_a_layer_only_where_they_must_be() -> None:
    def vertices(made: Pipeline) -> list[tuple[str, Kind, bool]]:
        return [(v.name, v.kind, v.splittable) for v in JobGraph.of(made).vertices]

    source, sink = ("rows", Kind.SOURCE, False), Memory()
    shared = [source, ("sum", Kind.STATEFUL, True)]
    merged = [source, ("sum-parts", Kind.STATELESS, True), ("sum", Kind.STATEFUL, False)]
    assert vertices(pipeline(sink, split=True, work=looked_at)) == shared
    assert vertices(pipeline(sink, split=True)) == shared
    for grouping in ("partial-key", "hot-key"):
        assert vertices(pipeline(sink, split=Split(grouping))) == merged
    windows = pipeline(sink, split=True, window=tumbling("v", "10 s"))
    assert vertices(windows) == merged
    further = pipeline(sink, split=True).map("more", looked_at, after="sum").sink("o", Memory())
    assert [name for name, *_ in vertices(further)] == ["rows", "sum-parts", "sum+more"]


def planned(job_graph: JobGraph, instances: int = 3, nodes: int = 3) -> Plan:
    topology = job_graph.topology(2)
    if "sum" in {o.name for o in topology.operators}:
        topology = topology.with_parallelism({"sum": instances})
    plan = strategies.make("even").plan(Request(topology, Cluster.of(nodes, slots=100)))
    assert isinstance(plan, Plan)
    return plan


def split_plan(job_graph: JobGraph, keys: dict[str, tuple[int, ...]], instances: int = 3) -> Plan:
    table = replace(
        TwoTier(8).table(instances),
        split={int(key_hashes(pa.table({"k": [key]}), ("k",))[0]): to for key, to in keys.items()},
    )
    return replace(planned(job_graph, instances), routing={"sum": table})


def run_of(
    tmp_path: Path, job_graph: JobGraph, plan: Plan, state_config: StateConfig | None = None
) -> Driver:
    backend = LocalBackend(tmp_path / "nodes", plan.nodes)
    return Driver(job_graph, backend, tmp_path / "run", plan, state_config=state_config)


def test_a_routing_table_splits_keys(tmp_path: Path) -> None:
    sink = Memory()
    job_graph = JobGraph.of(pipeline(sink, split=True, work=looked_at))
    plan = strategies.make("penstock").plan(
        Request(job_graph.topology(2), Cluster.of(2, slots=100))
    )
    assert isinstance(plan, Plan)
    assert set(plan.routing) == {"sum"}

    def busiest(plan: Plan, where: str) -> int:
        (result,) = run_to_end(run_of(tmp_path / where, job_graph, plan))
        return max(s.rows_in for s in result.stats if s.vertex == "sum")

    assert busiest(plan, "whole") >= 60
    split = {"sum": replace(plan.routing["sum"], split={HOT: (0, 1, 2)})}
    assert busiest(replace(plan, routing=split), "split") < 60
    assert found(sink) == WHOLE


#: A plan for each batch: instances, and the ways of the hot key and of another one.
ways = st.sets(st.integers(0, 2), min_size=2).map(lambda to: tuple(sorted(to)))
plans = st.tuples(st.integers(2, 4), st.none() | ways, st.none() | ways)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 99), plans), min_size=1, max_size=6, unique_by=lambda p: p[0]
    ),
    st.sampled_from(["peers", "checkpoint", "both"]),
    st.booleans(),
    st.sets(st.integers(0, 5)),
)
def test_keys_may_be_split_and_whole_and_moved_between_batches(
    steps: list[tuple[int, tuple[int, Any, Any]]],
    mode: str,
    inband: bool,
    restarts: set[int],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sink, state_config = Memory(), StateConfig(mode=mode, data=1, parity=1)
        job_graph = JobGraph.of(pipeline(sink, split=True, work=looked_at))
        driver = run_of(Path(folder), job_graph, split_plan(job_graph, {}), state_config)
        ends = sorted(cut for cut, _ in steps)
        start = 0
        for number, (cut, (_, (count, hot, other))) in enumerate(zip(ends, steps, strict=True)):
            keys = {"hot": hot, "k1": other}
            wanted = {
                key: tuple(i for i in to if i < count) for key, to in keys.items() if to is not None
            }
            made = split_plan(job_graph, {k: to for k, to in wanted.items() if len(to) > 1}, count)
            if number in restarts and mode != "peers":
                root = Path(folder) / "run"
                driver = Driver(job_graph, driver.backend, root, made, state_config=state_config)
            else:
                driver.adopt(made, inband=inband)
            driver.run_batch({"rows": ((start, cut),)})
            expected = DATA.slice(0, cut).group_by("k").aggregate([("v", "sum"), ("v", "count")])
            got = {row["k"]: (row["t"], row["n"]) for row in sink.latest("k").to_pylist()}
            assert got == {row["k"]: (row["v_sum"], row["v_count"]) for row in expected.to_pylist()}
            touched = sorted(set(DATA.slice(start, cut - start).column("k").to_pylist()))
            assert sorted(sink.batches[number].column("k").to_pylist()) == touched
            start = cut
        driver.run_batch({"rows": ((start, 100),)})
        assert found(sink) == WHOLE


def test_shares_outlive_a_failed_attempt_and_a_lost_home(tmp_path: Path) -> None:
    sink, fail = Memory(), tmp_path / "fail"

    def now_and_then(batch: pa.RecordBatch) -> pa.RecordBatch:
        if fail.exists():
            raise ValueError("no")
        return batch

    job_graph = JobGraph.of(pipeline(sink, split=True, work=now_and_then))
    plan = split_plan(job_graph, {"hot": (0, 1, 2)})
    driver = run_of(tmp_path, job_graph, plan, StateConfig(mode="peers", data=1, parity=1))
    driver.run_batch({"rows": ((0, 50),)})
    assert set(driver.progress.shares) == {"sum"}
    before = driver.progress.shares
    fail.touch()
    with pytest.raises(StepFailed):
        driver.run_batch({"rows": ((50, 80),)})
    fail.unlink()
    assert driver.progress.shares is before
    assert isinstance(driver.backend, LocalBackend)
    home = plan.routing["sum"].partitions[HOT % len(plan.routing["sum"].partitions)]
    lost = plan.placement["sum"][home].node
    driver.backend.lose(lost)
    gone = plan.nodes.index(lost)
    homes = np.where(plan.node_of == gone, (gone + 1) % len(plan.nodes), plan.node_of)
    driver.adopt(replace(plan, node_of=homes, active=()))
    driver.run_batch({"rows": ((50, 100),)})
    assert found(sink) == WHOLE


def test_a_portion_splits_keys_over_the_instances_that_it_has(tmp_path: Path) -> None:
    """One step shrinks while a split one grows: what is split is of the plan that is in charge."""
    made = (
        pipeline(Memory(), split=True, work=looked_at)
        .aggregate("more", by="k", n=F.count(), after="rows")
        .sink("o", Memory())
    )
    job_graph = JobGraph.of(made)

    def plan(instances: int, more: int, ways: tuple[int, ...]) -> Plan:
        topology = job_graph.topology(2).with_parallelism({"sum": instances, "more": more})
        first = strategies.make("even").plan(Request(topology, Cluster.of(3, slots=100)))
        assert isinstance(first, Plan)
        table = replace(resize(TwoTier(8).table(2), instances), split={HOT: ways})
        other = resize(TwoTier(8).table(3), more)
        return replace(first, routing={"sum": table, "more": other})

    driver = run_of(
        tmp_path, job_graph, plan(2, 3, (0, 1)), StateConfig(mode="peers", data=1, parity=1)
    )
    driver.run_batch({"rows": ((0, 50),)})
    part = increment(
        plan(3, 2, (0, 1, 2)),
        driver.plan,
        {n: (driver.plan.routing[n], plan(3, 2, (0, 1, 2)).routing[n]) for n in ("sum", "more")},
        {"sum": [10**9] * 2, "more": [10**9] * 3},
    )
    assert part.parallelism["sum"] == 2
    assert dict(part.routing["sum"].split) == {HOT: (0, 1)}
    driver.adopt(part, inband=True)
    driver.run_batch({"rows": ((50, 100),)})


def test_files_hold_every_key_of_a_batch_once(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = (
        Pipeline("p")
        .source("rows", Rows(DATA), parallelism=2)
        .aggregate("sum", by="k", reduce=REDUCE, work=looked_at, split=True, parallelism=3)
        .sink("out", parquet(out))
    )
    job_graph = JobGraph.of(made)
    driver = run_of(tmp_path, job_graph, split_plan(job_graph, {"hot": (0, 1, 2), "k1": (0, 2)}))
    (result,) = run_to_end(driver)
    rows = pq.read_table(out).drop_columns(["batch"]).to_pylist()
    assert sorted(rows, key=lambda row: str(row["k"])) == WHOLE
    assert result.rows_to_sinks == {"out": len(WHOLE)}


def by_number(batch: pa.RecordBatch, origin: str) -> pa.RecordBatch:
    return pa.record_batch({"k": batch.column(0), "v": batch.column(1)})


def test_what_a_home_could_not_be_told_of_is_merged_by_a_layer() -> None:
    """By other columns than the key, from several steps, or with work that asks which of them."""
    source = Pipeline("p").source("rows", Rows(DATA), parallelism=2)
    two = source.source("other", Rows(DATA.rename_columns(["kk", "vv"])), parallelism=1)
    pairs: dict[str, Any] = {
        "by": ("k", "v"),
        "n": F.count(),
        "split": True,
        "parallelism": 3,
    }
    links = [Link("rows", Grouping.FIELDS, ("k",)), Link("other", Grouping.FIELDS, ("kk",))]
    once: dict[str, Any] = {"by": "k", "n": F.count(), "split": True, "parallelism": 3}
    for made, rows in (
        (source.aggregate("sum", after=Link("rows", Grouping.FIELDS, ("k",)), **pairs), 100),
        (two.aggregate("sum", after=links, work=by_number, **once), 6),
        (source.aggregate("sum", work=by_number, **once), 6),
    ):
        sink = Memory()
        whole = made.sink("out", sink)
        assert len(JobGraph.of(whole).layers) == 3
        run_locally(whole, [40])
        by = made["sum"].keyed
        assert by is not None
        got = latest(sink.table(), by.by)
        assert (got.num_rows, sum(got.column("n").to_pylist()) % 100) == (rows, 0)


def picky(rows: pa.Table) -> pa.Table:
    if "k3" in rows.column("k").to_pylist():
        raise ValueError("k3")
    return rows


@pytest.mark.parametrize("keys", [{}, {"hot": (0, 1, 2)}])
def test_rows_that_are_left_out_are_not_counted_twice(
    tmp_path: Path, keys: dict[str, tuple[int, ...]]
) -> None:
    def made(batch: pa.RecordBatch) -> pa.Table:
        rows = pa.Table.from_batches([batch]).group_by("k").aggregate([("v", "count")])
        return rows.rename_columns(["k", "n"])

    def merge(parts: pa.Table) -> pa.Table:
        assert parts.num_rows
        return parts.group_by("k").aggregate([("n", "sum")]).rename_columns(["k", "n"])

    reduce = F.custom(made, merge, pa.schema([("n", pa.int64())]), finish=picky)
    sink = Memory()
    job_graph = JobGraph.of(
        Pipeline("p")
        .source("rows", Rows(DATA), parallelism=2)
        .aggregate("sum", by="k", reduce=reduce, work=looked_at, split=True, parallelism=3)
        .sink("out", sink)
    )
    plan = split_plan(job_graph, keys)
    backend = LocalBackend(tmp_path / "nodes", plan.nodes)
    driver = Driver(job_graph, backend, tmp_path / "run", plan, on_error="skip")
    results = run_to_end(driver, [30, 60])
    assert sum(result.skipped for result in results) == KEYS.count("k3")
    got = {row["k"]: row["n"] for row in sink.latest("k").to_pylist()}
    assert got == {k: KEYS.count(k) for k in set(KEYS) - {"k3"}}


def test_what_fails_while_shares_are_merged_names_its_step(tmp_path: Path) -> None:
    rows = pa.table({"k": ["hot"] * 60, "v": [4] * 60})
    job_graph = JobGraph.of(
        Pipeline("p")
        .source("rows", Rows(rows), parallelism=1)
        .aggregate("sum", by="k", t=F.sum("v", pa.int8()), work=looked_at, split=True)
        .sink("out", Memory())
    )
    driver = run_of(tmp_path, job_graph, split_plan(job_graph, {"hot": (0, 1, 2)}))
    driver.run_batch({"rows": ((0, 30),)})
    with pytest.raises(StepFailed, match="while split keys were merged"):
        driver.run_batch({"rows": ((30, 33),)})
    assert driver.batch == 0


@pytest.mark.parametrize("now", [{}, {"split": False}, {"split": Split("hot-key")}])
def test_shares_come_home_after_a_restart_with_another_pipeline(
    tmp_path: Path, now: dict[str, Any]
) -> None:
    sink = Memory()
    job_graph = JobGraph.of(pipeline(sink, split=True, work=looked_at))
    driver = run_of(tmp_path, job_graph, split_plan(job_graph, {"hot": (0, 1, 2)}))
    driver.run_batch({"rows": ((0, 50),)})
    assert driver.progress.shares
    again = JobGraph.of(pipeline(sink, work=looked_at, **(now or {"split": True})))
    driver = run_of(tmp_path, again, planned(again))
    run_to_end(driver)
    assert found(sink) == WHOLE


def test_shares_that_nobody_can_merge_are_refused(tmp_path: Path) -> None:
    job_graph = JobGraph.of(pipeline(Memory(), split=True, work=looked_at))
    run_of(tmp_path, job_graph, split_plan(job_graph, {"hot": (0, 1, 2)})).run_batch(
        {"rows": ((0, 50),)}
    )
    other = JobGraph.of(
        Pipeline("p")
        .source("rows", Rows(DATA), parallelism=2)
        .stateful("sum", by="k", update=lambda rows, state: (None, None), state=pa.schema([]))
        .sink("out", Memory())
    )
    with pytest.raises(PipelineChanged, match="'sum' had the state"):
        run_of(tmp_path, other, planned(other))


def test_the_planner_splits_what_was_measured_hot() -> None:
    metrics = TaskMetrics()
    topology = JobGraph.of(pipeline(Memory(), split=True)).topology(2)
    tables, _ = routed(topology, None, None, chi=0.3, partitions=8)
    metrics.hashes(
        "sum",
        Link("rows", Grouping.FIELDS, ("k",)),
        DATA,
        tables["sum"],
        3,
        single=True,
    )
    hot = {key: float(n) for key, n in metrics.hot_keys()["sum"].items()}
    assert hot[HOT] == 60.0
    rates = {"sum": metrics.partitions["sum"].astype(float)}
    measured = Measurements(partition_rates=rates, hot_keys={"sum": hot})
    plan = strategies.make("penstock").plan(Request(topology, Cluster.of(2, slots=100)))
    assert isinstance(plan, Plan)
    plan = replace(plan, routing=tables)
    after, reasons = routed(topology, measured, plan, chi=0.3, partitions=8)
    assert set(after["sum"].split) == {HOT}
    assert reasons


def test_split_keys_begin_elsewhere_in_every_batch() -> None:
    table = pa.table({"k": ["hot"]})
    link = Link("rows", Grouping.FIELDS, ("k",))
    job_graph = JobGraph.of(pipeline(Memory(), split=True))
    tables, _ = routed(job_graph.topology(2), None, None, chi=0.3, partitions=8)
    split = replace(tables["sum"], split={HOT: (0, 1, 2)})
    reached = {next(distribute(table, link, 3, routing=split, turn=turn))[0] for turn in range(3)}
    assert reached == {0, 1, 2}


def test_hot_key_grouping_spreads_only_hot_keys() -> None:
    link = Link("rows", Grouping.HOT_KEY, ("k",))
    parts = dict(distribute(DATA, link, 3, routing=None, turn=0))
    hot = [part.column("k").to_pylist().count("hot") for part in parts.values()]
    # All hot keys together are dealt in turn.
    assert min(hot) >= 15
    small = pa.table({"k": [f"k{i}" for i in range(50)]})
    homes: dict[str, int] = {}
    for instance, part in distribute(small, link, 3, routing=None, turn=0):
        homes |= dict.fromkeys(part.column("k").to_pylist(), instance)
    hashes = key_hashes(small, ("k",))
    assert [homes[f"k{i}"] for i in range(50)] == (hashes % np.uint64(3)).tolist()


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=200),
    st.floats(0, 1),
    st.integers(1, 5),
)
def test_the_heaviest_keys_are_counted_exactly(keys: list[int], share: float, most: int) -> None:
    got, counts = heaviest(np.array(keys, dtype=np.uint64), share, most)
    wanted = sorted({k: keys.count(k) for k in keys}.items(), key=lambda pair: (-pair[1], pair[0]))
    heavy = [(k, n) for k, n in wanted if n > share * len(keys)][:most]
    assert list(zip(got.tolist(), counts.tolist(), strict=True)) == heavy


def test_only_few_hot_keys_are_told_and_none_of_what_was_reduced() -> None:
    link = Link("rows", Grouping.FIELDS, ("k",))
    many = pa.table({"k": np.repeat(np.arange(100), 3)})
    metrics = TaskMetrics()
    for _ in range(2):
        metrics.hashes("x", link, many, None, 20, single=True)
        metrics.hashes("y", link, many, None, 20, single=False)
        metrics.hashes("z", link, many, None, 1, single=True)
    told = metrics.hot_keys()
    assert set(told) == {"x"}
    assert len(told["x"]) == MAX_HOT_KEYS
    assert set(told["x"].values()) == {6}


def test_the_engine_tells_hot_keys() -> None:
    (result,) = run_locally(pipeline(Memory(), split=True, work=looked_at))
    told = [s.hot_keys["sum"] for s in result.stats if "sum" in s.hot_keys]
    assert sum(hot[HOT] for hot in told) == 60


def test_what_splitting_refuses() -> None:
    with pytest.raises(NotAllowed, match="order of arrival"):
        Pipeline("p").source("rows", Rows(DATA)).aggregate("s", by="k", v=F.last("v"), split=True)
    with pytest.raises(InvalidValue, match="one of fields, hot-key, partial-key"):
        pipeline(Memory(), split=Split("shuffle"))
    with pytest.raises(NotAllowed, match=r"split=Split\('hot-key'\)"):
        pipeline(Memory(), after=Link("rows", "hot-key", "k"))
