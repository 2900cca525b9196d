"""Split keys: worked on in several places, merged in one, with the results of one place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Cluster, Grouping, InvalidValue, Kind, Measurements, Plan
from penstock.pipeline import Link, Memory, Pipeline, Rows, count, last, mean, top, total
from penstock.pipeline.deal import deal
from penstock.pipeline.driver import Driver
from penstock.pipeline.layout import Layout
from penstock.pipeline.local import LocalBackend, run_locally, run_to_end
from penstock.pipeline.notes import HOT_KEPT, Notes
from penstock.state.keyed import key_hashes
from penstock.strategies import Request, strategies
from penstock.strategies.route.heavy import heaviest
from penstock.strategies.route.skew import routed

KEYS = ["hot"] * 60 + [f"k{i % 5}" for i in range(40)]
DATA = pa.table({"k": [KEYS[i * 37 % 100] for i in range(100)], "v": list(range(100))})
HOT = int(key_hashes(pa.table({"k": ["hot"]}), ("k",))[0])
REDUCE = {"n": count(), "t": total("v"), "m": mean("v"), "best": top(3, "v")}


def pipeline(sink: Memory, **options: Any) -> Pipeline:
    return (
        Pipeline("p")
        .source("rows", Rows(DATA), parallelism=2)
        .keyed("sum", by="k", reduce=REDUCE, parallelism=3, **options)
        .sink("out", sink)
    )


def found(sink: Memory) -> list[dict[str, Any]]:
    return sorted(sink.latest("k").to_pylist(), key=lambda row: str(row["k"]))


def whole() -> list[dict[str, Any]]:
    sink = Memory()
    run_locally(pipeline(sink))
    return found(sink)


WHOLE = whole()


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["fields", "partial-key", "hot-key"]),
    st.lists(st.integers(1, 99), max_size=4),
    st.booleans(),
)
def test_results_are_those_of_whole_keys(grouping: str, cuts: list[int], worked: bool) -> None:
    sink = Memory()
    work = (lambda batch: batch) if worked else None
    split = pipeline(sink, split=True, grouping=grouping, work=work, merge_parallelism=2)
    assert [step.name for step in split.steps] == ["rows", "sum-parts", "sum", "out"]
    run_locally(split, cuts)
    assert found(sink) == WHOLE


def test_a_routing_table_splits_keys(tmp_path: Path) -> None:
    sink = Memory()
    layout = Layout.of(pipeline(sink, split=True))
    topology = layout.topology(2)
    assert [(o.name, o.kind, o.splittable) for o in topology.operators] == [
        ("rows", Kind.SOURCE, False),
        ("sum-parts", Kind.STATELESS, True),
        ("sum", Kind.STATEFUL, False),
    ]
    plan = strategies.make("penstock").plan(Request(topology, Cluster.of(2, slots=100)))
    assert isinstance(plan, Plan)
    table = plan.routing["sum-parts"]
    assert set(plan.routing) == {"sum-parts", "sum"}

    def busiest(plan: Plan, where: str) -> int:
        driver = Driver(
            layout, LocalBackend(tmp_path / "nodes", plan.nodes), tmp_path / where, plan
        )
        (result,) = run_to_end(driver)
        return max(s.rows_in for s in result.stats if s.vertex == "sum-parts")

    assert busiest(plan, "whole") >= 60
    split = {**plan.routing, "sum-parts": replace(table, split={HOT: (0, 1, 2)})}
    assert busiest(replace(plan, routing=split), "split") < 60
    assert found(sink) == WHOLE


def test_the_planner_splits_what_was_measured_hot() -> None:
    notes = Notes()
    topology = Layout.of(pipeline(Memory(), split=True)).topology(2)
    tables, _ = routed(topology, None, None, chi=0.3, partitions=8)
    notes.hashes(
        "sum-parts",
        Link("rows", Grouping.FIELDS, ("k",)),
        DATA,
        tables["sum-parts"],
        3,
        single=True,
    )
    hot = {key: float(n) for key, n in notes.stats()["hot_keys"]["sum-parts"].items()}
    assert hot[HOT] == 60.0
    rates = {"sum-parts": notes.partitions["sum-parts"].astype(float)}
    measured = Measurements(partition_rates=rates, hot_keys={"sum-parts": hot})
    plan = strategies.make("penstock").plan(Request(topology, Cluster.of(2, slots=100)))
    assert isinstance(plan, Plan)
    plan = replace(plan, routing=tables)
    after, reasons = routed(topology, measured, plan, chi=0.3, partitions=8)
    assert set(after["sum-parts"].split) == {HOT}
    assert reasons


def test_split_keys_begin_elsewhere_in_every_batch() -> None:
    table = pa.table({"k": ["hot"]})
    link = Link("rows", Grouping.FIELDS, ("k",))
    layout = Layout.of(pipeline(Memory(), split=True))
    tables, _ = routed(layout.topology(2), None, None, chi=0.3, partitions=8)
    split = replace(tables["sum-parts"], split={HOT: (0, 1, 2)})
    reached = {next(deal(table, link, 3, table_of=split, turn=turn))[0] for turn in range(3)}
    assert reached == {0, 1, 2}


def test_hot_key_grouping_spreads_only_hot_keys() -> None:
    link = Link("rows", Grouping.HOT_KEY, ("k",))
    parts = dict(deal(DATA, link, 3, table_of=None, turn=0))
    hot = [part.column("k").to_pylist().count("hot") for part in parts.values()]
    # All hot keys together are dealt in turn.
    assert min(hot) >= 15
    small = pa.table({"k": [f"k{i}" for i in range(50)]})
    homes: dict[str, int] = {}
    for instance, part in deal(small, link, 3, table_of=None, turn=0):
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
    notes = Notes()
    for _ in range(2):
        notes.hashes("x", link, many, None, 20, single=True)
        notes.hashes("y", link, many, None, 20, single=False)
        notes.hashes("z", link, many, None, 1, single=True)
    told = notes.stats()["hot_keys"]
    assert set(told) == {"x"}
    assert len(told["x"]) == HOT_KEPT
    assert set(told["x"].values()) == {6}


def test_the_engine_tells_hot_keys() -> None:
    (result,) = run_locally(pipeline(Memory(), split=True))
    told = [s.hot_keys["sum-parts"] for s in result.stats if "sum-parts" in s.hot_keys]
    assert sum(hot[HOT] for hot in told) == 60


def test_what_splitting_refuses() -> None:
    with pytest.raises(InvalidValue, match="do not go by arrival"):
        Pipeline("p").source("rows", Rows(DATA)).keyed(
            "s", by="k", reduce={"v": last("v")}, split=True
        )
    with pytest.raises(InvalidValue, match="one of fields, hot-key, partial-key, with split"):
        pipeline(Memory(), split=True, grouping="shuffle")
    with pytest.raises(InvalidValue, match="without split"):
        pipeline(Memory(), grouping="hot-key")
