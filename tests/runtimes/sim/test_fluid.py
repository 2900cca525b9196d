"""What flows: nothing is lost, nothing exceeds a capacity, and equal seeds give equal runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.runtimes.sim.graphs import FREE, placed, runtime, single, words

from penstock.model import Cluster, Edge, Grouping, Kind, Operator, TierCosts, Topology
from penstock.runtimes.sim import CostProfile, KeySpace, SimRuntime, parse_fault, simulate
from penstock.runtimes.sim.fluid import fair
from penstock.strategies import strategies


@st.composite
def diamonds(draw: st.DrawFn) -> Topology:
    """A fan-out and a join with any parallelism, selectivity, cost and grouping."""
    counts = draw(st.lists(st.integers(1, 5), min_size=5, max_size=5))
    selectivities = draw(st.lists(st.sampled_from([0.0, 0.1, 1.0, 2.5]), min_size=5, max_size=5))
    cpu = draw(st.lists(st.sampled_from([0.0, 50.0, 900.0]), min_size=5, max_size=5))
    groupings = draw(
        st.lists(
            st.sampled_from([g for g in Grouping if g is not Grouping.CUSTOM]),
            min_size=5,
            max_size=5,
        )
    )
    names = ["in", "left", "right", "join", "out"]
    kinds = [Kind.SOURCE, Kind.STATELESS, Kind.STATELESS, Kind.STATEFUL, Kind.STATELESS]
    operators = tuple(
        Operator(n, k, c, cpu_us_per_tuple=u, selectivity=s)
        for n, k, c, u, s in zip(names, kinds, counts, cpu, selectivities, strict=True)
    )
    pairs = [("in", "left"), ("in", "right"), ("left", "join"), ("right", "join"), ("join", "out")]
    edges = tuple(Edge(a, b, g) for (a, b), g in zip(pairs, groupings, strict=True))
    return Topology("diamond", operators, edges)


def balance(run: SimRuntime) -> None:
    """What came to each operator was processed, waits, or was dropped; edges lose nothing."""
    totals = run.totals()
    rest = totals["arrived"] - totals["processed"] - totals["queued"] - totals["dropped"]
    assert np.abs(rest).max() <= 1e-9 * max(totals["arrived"].max(), 1.0)
    assert (run.fluid.queue >= 0).all()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(
    topology=diamonds(),
    drop=st.booleans(),
    rate=st.sampled_from(["200", "5000", "steps:8000x4,100x4", "square:0,6000/4"]),
    zipf=st.sampled_from([0.0, 1.0, 1.6]),
    queue=st.sampled_from([1.0, 50.0, 5000.0]),
    seed=st.integers(0, 5),
)
def test_nothing_is_lost(
    topology: Topology, drop: bool, rate: str, zipf: float, queue: float, seed: int
) -> None:
    cluster = Cluster.of(3, cpu_cores=1.5, processes=2)
    rng = np.random.default_rng(seed)
    count = sum(topology.parallelism.values())
    run = runtime(
        topology,
        cluster,
        rng.integers(0, 3, count).tolist(),
        rate,
        keys=KeySpace(200, zipf),
        costs=CostProfile(queue=queue, source_queue=2 * queue),
        drop=drop,
        seed=seed,
    )
    run.advance(6)
    run.apply(placed(topology, cluster, rng.integers(0, 3, count).tolist()))
    run.advance(6)
    balance(run)
    if not drop:
        assert run.totals()["dropped"].sum() == 0
    assert (run.fluid.queue <= run.fluid.room * (1 + 1e-9) + 1e-9).all()
    # What an edge carries is what its sender emitted, and its targets together received it.
    wiring = run.fluid.wiring
    for e, edge in enumerate(topology.edges):
        sender = wiring.span(topology.index[edge.source])
        sent = run.fluid.processed[sender].sum() * topology[edge.source].selectivity
        assert run.fluid.emitted[e] == pytest.approx(sent, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("strategy", ["even", "penstock", "sra"])
def test_nothing_is_lost_when_nodes_are(strategy: str) -> None:
    from penstock.pipeline.sources.rates import Profile
    from penstock.runtimes.sim import Workload

    run = simulate(
        words(),
        Cluster.of(5, cpu_cores=2, processes=2),
        strategies.make(strategy),
        Workload({"lines": Profile.parse("steps:2000x20,6000x20")}, KeySpace(1000, 1.0)),
        seconds=60,
        faults=[parse_fault("kill-node@t=25"), parse_fault("slow-node@t=40:factor=0.3")],
    )
    balance(run.runtime)
    assert run.runtime.totals()["arrived"][0] == 2000 * 20 + 6000 * 40


def test_equal_seeds_give_equal_runs_bit_for_bit() -> None:
    def once(seed: int) -> SimRuntime:
        run = runtime(
            words(),
            Cluster.of(3),
            [i % 3 for i in range(12)],
            4000,
            keys=KeySpace(500, 1.2),
            costs=CostProfile(),
            seed=seed,
            faults=[parse_fault("slow-node@t=5:node=node-1")],
        )
        run.advance(15)
        return run

    first, second, third = once(3), once(3), once(4)
    assert first.fluid.queue.tobytes() == second.fluid.queue.tobytes()
    drawn = [np.concatenate([m.latency_ms for m in run.moments]) for run in (first, second, third)]
    assert drawn[0].tobytes() == drawn[1].tobytes()
    assert drawn[0].tobytes() != drawn[2].tobytes()


@pytest.mark.parametrize("rate", [300, 900, 1500, 4000])
def test_throughput_saturates_at_the_capacity_of_a_thread(rate: float) -> None:
    run = runtime(single(cpu_us=1000), Cluster.of(1, cpu_cores=4), [0, 0], rate)
    run.advance(60)
    done = run.moments[-1].output_per_s
    assert done == pytest.approx(min(rate, 1000), rel=1e-6)


def test_throughput_saturates_at_the_capacity_of_a_node() -> None:
    run = runtime(single(1000, parallelism=4), Cluster.of(1, cpu_cores=2), [0] * 5, 5000)
    run.advance(60)
    assert run.moments[-1].output_per_s == pytest.approx(2000, rel=1e-6)
    assert run.moments[-1].cpu_use == pytest.approx(1.0)


def test_a_full_node_works_all_the_time() -> None:
    run = runtime(words(), Cluster.of(1, cpu_cores=2), [0] * 12, 6000)
    run.advance(90)
    # A line takes 0.4 ms: threads that wait for room leave their CPU to the others.
    assert run.moments[-1].output_per_s == pytest.approx(5 * 5000, rel=0.01)


def test_a_backlog_is_worked_off_by_nodes_that_can() -> None:
    """Threads that could do more than reaches them must not take CPU from those that are late."""
    topology = words(lines=4, split=4, count=8)
    home = [0, 0, 0, 0, 1, 1, 2, 2, *[1, 1, 1, 1, 1, 1, 2, 2]]
    run = runtime(
        topology, Cluster.of(3, cpu_cores=2), home, "steps:20000x10,5000x80", keys=KeySpace(500)
    )
    run.advance(10)
    behind = run.fluid.queue[:4].sum()
    assert behind > 50_000
    run.advance(80)
    # Node 1 needs 0.75 of its cores at 5000 lines a second.
    assert run.fluid.queue[:4].sum() < behind - 50_000


def test_a_slow_node_is_slow_by_its_factor() -> None:
    fault = parse_fault("slow-node@t=10:node=node-0,factor=0.25")
    run = runtime(single(1000), Cluster.of(1), [0, 0], 5000, faults=[fault])
    run.advance(60)
    assert run.moments[5].output_per_s == pytest.approx(1000, rel=1e-6)
    assert run.moments[-1].output_per_s == pytest.approx(250, rel=1e-6)


def test_links_bound_what_crosses_nodes() -> None:
    topology = Topology(
        "wide",
        (Operator("read", Kind.SOURCE, tuple_bytes=1e6), Operator("work")),
        (Edge("read", "work"),),
    )
    apart = runtime(topology, Cluster.of(2), [0, 1], 1000)
    together = runtime(topology, Cluster.of(2), [0, 0], 1000)
    for run in (apart, together):
        run.advance(30)
    # 125 MB/s and tuples of 1 MB.
    assert apart.moments[-1].output_per_s == pytest.approx(125, rel=1e-6)
    assert together.moments[-1].output_per_s == pytest.approx(1000, rel=1e-6)


def test_back_pressure_holds_and_dropping_drops() -> None:
    topology, cluster = single(1000), Cluster.of(1)
    held = runtime(topology, cluster, [0, 0], 3000)
    dropping = runtime(topology, cluster, [0, 0], 3000, drop=True)
    for run in (held, dropping):
        run.advance(30)
        balance(run)
    assert held.totals()["dropped"].sum() == 0
    assert held.fluid.queue[0] == pytest.approx(30 * 2000 - 5000, rel=1e-6)
    assert dropping.totals()["dropped"][1] == pytest.approx(30 * 2000 - 5000, rel=1e-6)
    assert held.moments[-1].output_per_s == pytest.approx(dropping.moments[-1].output_per_s)


def test_across_nodes_costs_cpu_at_both_ends() -> None:
    costs = CostProfile(hop_cpu_us=TierCosts(0, 0, 500), hop_us=FREE.hop_us)
    together = runtime(single(500), Cluster.of(2), [0, 0], 9000, costs=costs)
    apart = runtime(single(500), Cluster.of(2), [0, 1], 9000, costs=costs)
    for run in (together, apart):
        run.advance(30)
    assert together.moments[-1].output_per_s == pytest.approx(2000, rel=1e-6)
    assert apart.moments[-1].output_per_s == pytest.approx(1000, rel=1e-6)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 10)), min_size=1, max_size=30),
    st.lists(st.floats(0, 20), min_size=4, max_size=4),
)
def test_fair_shares_are_fair(members: list[tuple[int, float]], supply: list[float]) -> None:
    group = np.array([g for g, _ in members])
    demand = np.array([d for _, d in members])
    got = fair(demand, group, np.array(supply))
    assert (got <= demand + 1e-12).all()
    assert (got >= 0).all()
    for g in np.unique(group):
        mine, asked = got[group == g], demand[group == g]
        assert mine.sum() == pytest.approx(min(asked.sum(), supply[g]), abs=1e-9)
        hungry = mine < asked - 1e-9
        if hungry.any():
            assert mine[hungry].min() >= mine.max() - 1e-9
