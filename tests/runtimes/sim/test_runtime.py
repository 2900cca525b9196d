"""The simulator as a runtime: observing, changing plans, nodes that come and go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.runtimes.sim.graphs import FREE, placed, runtime, single, words

from penstock.control.runtime import ActionFailed, Runtime
from penstock.files import FileError
from penstock.model import Cluster, InvalidValue, NotAllowed, TierCosts
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.sim import (
    CostProfile,
    KeySpace,
    SimRuntime,
    Workload,
    load_costs,
    parse_fault,
    simulate,
)
from penstock.runtimes.sim.recovery import move_seconds
from penstock.strategies import strategies


def test_it_is_a_runtime() -> None:
    run: Runtime = runtime(words(), Cluster.of(3), [i % 3 for i in range(12)], 1000)
    assert run.topology.name == "words"
    assert run.observe().measurements is None


def test_what_is_measured_is_what_flows() -> None:
    run = runtime(words(), Cluster.of(3), [i % 3 for i in range(12)], 1000, keys=KeySpace(500, 1.0))
    before = run.fluid.queue.copy()
    run.advance(5)
    seen = run.observe()
    again = run.observe()
    assert seen.now_s == 5.0
    assert seen.batch == 4
    assert seen.throughput_per_s == pytest.approx(1000)
    assert seen.arriving_per_s == pytest.approx(1000)
    assert set(seen.latency_ms) == {"p50", "p95", "p99"}
    found = seen.measurements
    assert found is not None
    assert again.measurements is not None
    assert found.source_rates == {"lines": pytest.approx(1000)}
    assert found.tuples_per_s["count"].sum() == pytest.approx(5000)
    assert found.cpu_cores["split"].sum() == pytest.approx(0.1)
    assert found.rates["split", "count"].sum() == pytest.approx(5000)
    assert np.ptp(found.tuples_per_s["count"]) > 0
    assert before.shape == run.fluid.queue.shape


def test_demand_is_measured_beyond_capacity() -> None:
    run = runtime(single(1000), Cluster.of(1, cpu_cores=1), [0, 0], 3000)
    run.advance(10)
    found = run.observe().measurements
    assert found is not None
    assert found.cpu_cores["work"][0] == pytest.approx(3.0)
    assert found.nodes["node-0"].cpu == pytest.approx(3.0)


def test_only_what_moves_pauses() -> None:
    cluster = Cluster.of(3)
    topology = words(state_mb=1500.0)
    home = [i % 3 for i in range(12)]
    run = runtime(topology, cluster, home, 1000)
    run.advance(5)
    applied = run.apply(placed(topology, cluster, [*home[:-1], 0]))
    # 250 MB at 125 MB/s.
    assert applied.seconds == pytest.approx(2.0)
    assert applied.state_bytes == 250_000_000
    run.advance(1)
    assert run.moments[-1].halted == 1
    assert run.moments[-1].moved == 1
    run.advance(3)
    assert run.moments[-1].halted == 0
    assert run.moments[-1].output_per_s >= 5000


def test_moves_share_links() -> None:
    bandwidth = np.full(3, 100.0)
    state = np.array([100.0, 100.0])
    alone = move_seconds(state, np.array([0, 1]), np.array([2, 0]), bandwidth, FREE)
    shared = move_seconds(state, np.array([0, 1]), np.array([2, 2]), bandwidth, FREE)
    assert alone.tolist() == [1.0, 1.0]
    assert shared.tolist() == [2.0, 2.0]


def test_a_lost_node_is_seen_until_it_is_noticed() -> None:
    fault = parse_fault("kill-node@t=5:node=node-1")
    cluster = Cluster.of(3)
    costs = CostProfile.bare(detect_s=3.0)
    run = runtime(words(), cluster, [i % 3 for i in range(12)], 100, faults=[fault], costs=costs)
    run.advance(6)
    assert "node-1" in run.observe().cluster.index
    with pytest.raises(ActionFailed, match="node-1"):
        run.apply(placed(words(), cluster, [1] * 12))
    run.advance(4)
    assert "node-1" not in run.observe().cluster.index


def test_nodes_come_after_a_while_and_go_at_once() -> None:
    costs = CostProfile.bare(arrival_s=5.0)
    run = runtime(single(), Cluster.of(2), [0, 0], 100, costs=costs)
    run.request_nodes(4)
    run.request_nodes(4)
    run.advance(4)
    assert len(run.observe().cluster) == 2
    run.advance(3)
    assert len(run.observe().cluster) == 4
    with pytest.raises(ActionFailed, match="holds instances"):
        run.release_nodes(("node-0",))
    with pytest.raises(ActionFailed, match="not there"):
        run.release_nodes(("node-9",))
    run.release_nodes(("node-1", "new-0"))
    assert run.observe().cluster.names == ("node-0", "new-1")


def test_a_strategy_recovers_from_a_lost_node() -> None:
    run = simulate(
        words(),
        Cluster.of(4, cpu_cores=2, processes=2),
        strategies.make("penstock"),
        Workload({"lines": Profile.constant(3000)}),
        seconds=90,
        faults=[parse_fault("kill-node@t=20")],
    )
    assert any(not event.decision for event in run.events)
    assert run.plans >= 1
    assert run.moments[-1].output_per_s == pytest.approx(15_000, rel=0.01)
    assert run.moments[-1].halted == 0


def test_added_nodes_can_be_used() -> None:
    run = simulate(
        words(),
        Cluster.of(1, cpu_cores=2, processes=2),
        strategies.make("penstock"),
        Workload({"lines": Profile.constant(6000)}),
        seconds=60,
        faults=[parse_fault("add-node@t=20:count=3")],
    )
    assert run.moments[15].output_per_s < 25_100
    assert run.runtime.plan.after.nodes_used > 1
    assert run.moments[-1].output_per_s >= 30_000


def test_a_workload_must_feed_every_source() -> None:
    cluster = Cluster.of(1)
    with pytest.raises(NotAllowed, match="no rate for source"):
        SimRuntime(single(), cluster, placed(single(), cluster, [0, 0]), Workload({}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kill-node",
        "kill-node@60",
        "kill-node@t=soon",
        "kill-node@t=-1",
        "kill-node@t=1:factor=0.5",
        "slow-node@t=1:factor=0",
        "add-node@t=1:count=half",
        "explode@t=1",
    ],
)
def test_faults_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue):
        parse_fault(text)


@pytest.mark.parametrize(
    "text",
    [
        "kill-node@t=60",
        "slow-node@t=60:node=node-1,factor=0.25",
        "heal-node@t=90:node=node-1",
        "add-node@t=60:count=2",
    ],
)
def test_faults_print_as_they_are_read(text: str) -> None:
    assert str(parse_fault(text)) == text


def test_a_fault_needs_a_node_that_exists() -> None:
    with pytest.raises(InvalidValue, match="node of the cluster"):
        runtime(single(), Cluster.of(1), [0, 0], 1, faults=[parse_fault("kill-node@t=1:node=x")])


def test_costs_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    costs = CostProfile(
        cpu_us_per_tuple={"split": 3.5},
        hop_us=TierCosts(1, 2, 3),
        batch_s=0.5,
        task_ms=20,
        state="both",
        data=3,
        parity=2,
    )
    costs.save(tmp_path / "costs.json")
    assert load_costs(tmp_path / "costs.json") == costs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("queue: 0\n", "queue"),
        ("task_ms: 5\n", "without a batch interval"),
        ("hop_us: {across: 1, in_node: 5}\n", "ascending"),
        ("hop_us: {over: 1}\n", "over"),
        ("batch: 1\n", "did you mean"),
        ("state: somewhere\n", "peers, checkpoint, both"),
        ("data: 1.5\n", "whole number"),
        ("data: 0\n", "at least 1"),
        ("cpu_us_per_tuple: {split: fast}\n", "split"),
    ],
)
def test_costs_that_make_no_sense_are_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "costs.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=said):
        load_costs(file)


def test_measured_costs_replace_declared_ones() -> None:
    costs = CostProfile.bare(cpu_us_per_tuple={"work": 2000.0})
    run = runtime(single(1000), Cluster.of(1), [0, 0], 5000, costs=costs)
    run.advance(30)
    assert run.moments[-1].output_per_s == pytest.approx(500, rel=1e-6)
