"""Simulated state lies where the engine would put it, and comes back from there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.runtimes.sim.graphs import placed, runtime, words

from penstock.control.runtime import ActionFailed
from penstock.engine.state.handles import InstanceState, StateHandle
from penstock.engine.state.registry import StateRegistry
from penstock.model import Cluster, Node, Plan, Topology
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.local import LocalBackend
from penstock.runtimes.sim import CostProfile, SimRuntime, Workload, parse_fault, simulate
from penstock.runtimes.sim.backup import Fragments, node_of
from penstock.runtimes.sim.recovery import Fetch, fetch_seconds
from penstock.state.backup.catalog import FragmentedSegment
from penstock.state.backup.recovery import Unrecoverable, plan_recovery
from penstock.state.config import StateConfig
from penstock.state.versions import StateLost
from penstock.strategies import strategies

#: 2 + 4 + 6 instances, of which the last six, `count`, have 100 MB each.
TOPOLOGY = words(state_mb=600.0)
NODES = 6
HOMES = [i % NODES for i in range(12)]


def registry(
    topology: Topology, plan: Plan, state_config: StateConfig, root: Path
) -> StateRegistry:
    """Make the book that a run of the engine keeps, with one version saved by all."""
    held = {
        o.name: StateHandle(
            (), (), None, [InstanceState() for _ in range(plan.parallelism[o.name])]
        )
        for o in topology.operators
        if o.state_mb
    }
    backend = LocalBackend(root, list(plan.nodes))
    return StateRegistry(topology.name, backend, state_config, held)


def mode(state: str = "peers", data: int = 3, parity: int = 1) -> CostProfile:
    return CostProfile.bare(detect_s=1.0, state=state, data=data, parity=parity, decode_mb_s=1e9)


def lossy(
    costs: CostProfile, dead: list[str], at_s: float = 5.0, cluster: Cluster | None = None
) -> SimRuntime:
    faults = [parse_fault(f"kill-node@t={at_s:g}:node={name}") for name in dead]
    there = cluster or Cluster.of(NODES)
    return runtime(TOPOLOGY, there, HOMES, 100, costs=costs, faults=faults)


def backup_nodes(run: SimRuntime, index: int) -> list[str]:
    return [node_of(place) for place in run.fragments.blocks["count", index].backup_nodes]


def moved_off(run: SimRuntime, dead: list[str]) -> Plan:
    """Put what the dead nodes had on the living ones in turn."""
    cluster = run.observe().cluster
    live = [name for name in cluster.names if name not in dead]
    old = [run.plan.nodes[i] for i in run.plan.node_of.tolist()]
    names = [name if name in live else live[i % len(live)] for i, name in enumerate(old)]
    return placed(TOPOLOGY, cluster, [cluster.index[name] for name in names])


@pytest.mark.parametrize(("nodes", "data", "parity"), [(12, 7, 3), (6, 3, 1), (4, 7, 1), (2, 7, 1)])
def test_the_spread_is_that_of_the_engine(
    nodes: int, data: int, parity: int, tmp_path: Path
) -> None:
    cluster = Cluster.of(nodes)
    plan = placed(TOPOLOGY, cluster, [i % nodes for i in range(12)])
    state_config = StateConfig("peers", data=data, parity=parity)
    real = (
        registry(TOPOLOGY, plan, state_config, tmp_path)
        .assign_backup(plan, synchronous=True)
        .fragment_placements
    )
    simulated = Fragments(TOPOLOGY, state_config)
    simulated.settle(plan, cluster.names)
    found = [simulated.blocks["count", i] for i in range(6)]
    assert [(b.r, b.c, b.backup_nodes) for b in found] == [
        (one.r, one.c, one.backup_nodes) for one in real["count"]
    ]
    assert {b.size_bytes for b in found} == {100_000_000}


@pytest.mark.parametrize("event", ["a keeper is lost", "moves to a keeper", "nothing"])
def test_it_is_spread_anew_when_the_engine_would(event: str, tmp_path: Path) -> None:
    cluster, state_config = Cluster.of(NODES), StateConfig("peers", data=3, parity=1)
    plan = placed(TOPOLOGY, cluster, HOMES)
    simulated = Fragments(TOPOLOGY, state_config)
    simulated.settle(plan, cluster.names)
    before = dict(simulated.blocks)
    book = registry(TOPOLOGY, plan, state_config, tmp_path)
    for (name, index), block in before.items():
        book.catalog.add(block)
        book.handles[name].instances[index] = InstanceState(version=0, executor="x", backed_up=0)
    nodes = list(cluster.names)
    if event == "a keeper is lost":
        nodes.remove("node-0")
        assert isinstance(book.backend, LocalBackend)
        book.backend.nodes.remove("node-0")
    elif event == "moves to a keeper":
        plan = placed(TOPOLOGY, cluster, [(home + 1) % NODES for home in HOMES])
    kept = book.assign_backup(plan, synchronous=True)
    simulated.settle(plan, nodes)
    # What is lost itself cannot save anything; the engine brings it elsewhere first.
    lost = {("count", i) for i, home in enumerate(HOMES[6:]) if f"node-{home}" not in nodes}
    assert {key for key in before if simulated.blocks[key] != before[key]} == kept.snapshots - lost
    assert bool(kept.snapshots) == (event != "nothing")
    for name, index in kept.snapshots - lost:
        block, wanted = simulated.blocks[name, index], kept.fragment_placements[name][index]
        assert (block.r, block.c, block.backup_nodes) == (wanted.r, wanted.c, wanted.backup_nodes)


def test_recovery_reads_from_those_that_have_it() -> None:
    run = lossy(mode(), ["node-0"])
    have = set(backup_nodes(run, 0))
    run.advance(7)
    senders = run.fragments.recovery("count", 0, run.observe().cluster.names, "node-1").by_sender()
    assert {node_of(place) for place in senders} <= have
    assert sum(map(len, senders.values())) == 3
    assert run.apply(moved_off(run, ["node-0"])).state_bytes == 100_000_000


def test_a_slow_link_counts_only_where_a_fragment_lies() -> None:
    have = backup_nodes(lossy(mode(parity=0), ["node-0"]), 0)
    target, bystander = sorted({f"node-{i}" for i in range(1, NODES)} - set(have))

    def pause(slow: str) -> float:
        names = [f"node-{i}" for i in range(NODES)]
        nodes = tuple(Node(n, bandwidth_mb_s=1.0 if n == slow else 100.0) for n in names)
        run = lossy(mode(parity=0), ["node-0"], cluster=Cluster(nodes))
        run.advance(7)
        there = run.observe().cluster
        homes = [there.index[f"node-{home}" if home else target] for home in HOMES]
        return run.apply(placed(TOPOLOGY, there, homes)).seconds

    # 100 MB received at 100 MB/s; or a third of it sent at 1 MB/s.
    assert pause("") == pytest.approx(1.0)
    assert pause(bystander) == pytest.approx(1.0)
    assert pause(have[0]) == pytest.approx(100 / 3)


@pytest.mark.parametrize("parity", [0, 1, 2])
@pytest.mark.parametrize("state", ["peers", "both", "checkpoint"])
def test_more_lost_than_check_is_lost(parity: int, state: str) -> None:
    job_graph = lossy(mode(parity=parity), ["node-0"])
    have = backup_nodes(job_graph, 0)
    assert len(have) == 3 + parity
    for more in (parity, parity + 1):
        dead = ["node-0", *have[:more]]
        run = lossy(mode(state, parity=parity), dead)
        run.advance(7)
        plan = moved_off(run, dead)
        before = run.plan
        if state == "peers" and more > parity:
            # A run on Spark ends with the same error.
            with pytest.raises(StateLost, match=r"count\[0\]: words/count/0/0-0 has 2 of"):
                run.apply(plan)
            assert run.plan is before
            continue
        applied = run.apply(plan)
        assert applied.seconds > 0
        run.advance(30)
        assert run.moments[-1].halted == 0
        if state != "checkpoint":
            assert len(backup_nodes(run, 0)) > 0
            assert not {*dead, run.plan.placement["count"][0].node} & set(backup_nodes(run, 0))


def test_the_engine_cannot_rebuild_it_either() -> None:
    run = lossy(mode(parity=1), ["node-0"])
    block = run.fragments.blocks["count", 0]
    alive = [f"{name}/0" for name in run.observe().cluster.names if name != "node-0"]
    left = [place for place in alive if place not in block.backup_nodes[:2]]
    with pytest.raises(Unrecoverable, match="has 2 of 4 fragments left and needs 3"):
        plan_recovery([block], left, left[0])


def test_losses_one_after_the_other_are_survived() -> None:
    first = backup_nodes(lossy(mode(parity=0), ["node-0"]), 0)[0]
    faults = [parse_fault(f"kill-node@t=5:node={first}"), parse_fault("kill-node@t=9:node=node-0")]
    cluster = Cluster.of(NODES)
    run = runtime(TOPOLOGY, cluster, HOMES, 100, costs=mode(parity=0), faults=faults)
    run.advance(7)
    assert first not in backup_nodes(run, 0)
    run.apply(moved_off(run, [first]))
    run.advance(4)
    assert run.apply(moved_off(run, [first, "node-0"])).seconds > 0


def test_a_node_that_goes_hands_over_what_it_keeps() -> None:
    home = [0] * 12
    faults = [parse_fault("kill-node@t=50:node=node-0")]
    run = runtime(TOPOLOGY, Cluster.of(NODES), home, 100, costs=mode(), faults=faults)
    gone = backup_nodes(run, 0)[0]
    with pytest.raises(ActionFailed, match="holds instances"):
        run.release_nodes(("node-0",))
    run.release_nodes((gone,))
    for index in range(6):
        assert gone not in backup_nodes(run, index)
        assert len(backup_nodes(run, index)) == 4


def test_a_simulation_ends_when_state_is_lost() -> None:
    def go(costs: CostProfile) -> float:
        run = simulate(
            words(),
            Cluster.of(4, cpu_cores=2, processes=2),
            strategies.make("even"),
            Workload({"lines": Profile.constant(300)}),
            seconds=60,
            costs=costs,
            faults=[parse_fault(f"kill-node@t=20:node=node-{i}") for i in range(3)],
        )
        return run.moments[-1].output_per_s

    with pytest.raises(StateLost, match="fragments left"):
        go(mode())
    assert go(mode("both")) == pytest.approx(1500, rel=0.01)


def test_peers_bring_state_back_faster_than_one_place() -> None:
    bandwidth, costs = np.full(4, 100.0), CostProfile.bare(decode_mb_s=1000.0)
    peers = [Fetch(90.0, t, {n: 30.0 for n in range(4) if n != t}) for t in range(3)]
    found = fetch_seconds(peers, bandwidth, costs)
    assert found == pytest.approx([0.99] * 3)
    checkpoint = fetch_seconds([Fetch(90.0, t, None) for t in range(3)], bandwidth, costs)
    assert checkpoint == pytest.approx([2.7] * 3)
    assert fetch_seconds([Fetch(90.0, 0, {})], bandwidth, costs) == pytest.approx([0.09])


def test_without_a_loss_in_the_script_nothing_is_laid_out() -> None:
    run = runtime(TOPOLOGY, Cluster.of(NODES), HOMES, 100)
    blocks: dict[tuple[str, int], FragmentedSegment] = dict(run.fragments.blocks)
    assert blocks == {}
