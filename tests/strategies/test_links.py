"""Links are a capacity, and streams that prefer local targets cost what they really cost."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import (
    Cluster,
    Edge,
    Grouping,
    Kind,
    Node,
    Operator,
    Plan,
    Topology,
    evaluate,
    expand,
    violations,
)
from penstock.model.links import across_mb_s, link_mb_s
from penstock.planning import plan
from penstock.strategies.partition.class_state import ClassState


def chain(local: bool = False, tuple_bytes: float = 100.0, rate: float = 10_000.0) -> Topology:
    grouping = Grouping.LOCAL_OR_SHUFFLE if local else Grouping.SHUFFLE
    return Topology(
        "chain",
        (
            Operator("in", Kind.SOURCE, 4, cpu_pct=40, rate_per_s=rate, tuple_bytes=tuple_bytes),
            Operator("work", parallelism=4, cpu_pct=40, tuple_bytes=10.0),
            Operator("out", parallelism=4, cpu_pct=40),
        ),
        (Edge("in", "work", grouping), Edge("work", "out", grouping)),
    )


def nodes(count: int, link: float, processes: int = 1, cores: float = 2.0) -> Cluster:
    return Cluster(
        tuple(
            Node(f"n{i}", cpu_cores=cores, bandwidth_mb_s=link, processes=processes)
            for i in range(count)
        )
    )


def made(topology: Topology, cluster: Cluster, name: str = "penstock") -> Plan:
    answer = plan(topology, cluster, name)
    assert isinstance(answer, Plan)
    return answer


def test_a_link_that_carries_too_much_is_a_broken_limit() -> None:
    topology, cluster = chain(tuple_bytes=10_000.0), nodes(3, link=12.5)
    graph, apart = expand(topology), np.array([0] * 4 + [1] * 4 + [2] * 4)
    found = violations(graph, cluster, apart, np.zeros(12, dtype=np.int64))
    assert {v.resource for v in found} == {"link"}
    assert "needs 100 MB/s of link, has 12.5" in str(found[0])


def test_heavy_tuples_stay_where_light_ones_cross() -> None:
    # All of `in` and `work` fit on one node, so only light tuples need to cross.
    heavy = made(chain(tuple_bytes=10_000.0), nodes(4, link=12.5, cores=4.0))
    assert heavy.feasible
    assert heavy.after.max_node_load <= 1.0
    assert heavy.after.across_mb_s < 12.5


def test_local_or_shuffle_is_searched_as_what_it_is() -> None:
    for processes in (1, 2):
        cluster = nodes(4, link=125.0, processes=processes)
        ours = made(chain(local=True), cluster)
        even = made(chain(local=True), cluster, "even")
        assert ours.after.cut_share <= even.after.cut_share + 1e-9
        assert ours.after.cut_share == 0.0


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 5), st.booleans())
def test_links_and_local_flows_follow_every_move(seed: int, count: int, local: bool) -> None:
    rng = np.random.default_rng(seed)
    graph = expand(chain(local, tuple_bytes=float(rng.integers(1, 20_000))))
    cluster = nodes(count, link=1.0)
    node_of = rng.integers(count, size=len(graph))
    state = ClassState(graph, cluster, node_of, 1.0, real=True)
    for _ in range(10):
        cells = np.flatnonzero(state.counts)
        what, origin = divmod(int(rng.choice(cells)), count)
        target = int(rng.integers(count))
        if target == origin:
            continue
        before = state.internal
        gain = state.won()[what, target] - state.lost()[what, origin] + state.own[what]
        state.move(what, origin, target)
        assert np.isclose(state.internal - before, gain)
    there = state.node_of(node_of)
    cost = evaluate(graph, cluster, there, np.zeros(len(graph), dtype=np.int64))
    assert np.isclose(graph.crossing(there, count), cost.across_per_s)
    if not local and state.links is not None:
        use = np.maximum(*link_mb_s(graph, there, count))
        assert np.allclose(state.links.both.max(axis=0) - state.links.inside, use)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([2.0, 8.0, 50.0]), st.booleans())
def test_plans_keep_their_limits_or_say_so(seed: int, link: float, local: bool) -> None:
    rng = np.random.default_rng(seed)
    topology = chain(local, tuple_bytes=float(rng.integers(10, 2000)))
    cluster = nodes(int(rng.integers(4, 8)), link)
    first, second = made(topology, cluster), made(topology, cluster)
    assert first == second
    graph = expand(topology)
    use = np.maximum(*link_mb_s(graph, first.node_of, len(cluster)))
    named = {v.where for v in first.infeasible if v.resource == "link"}
    assert named == {f"node 'n{i}'" for i in np.flatnonzero(use > link * (1 + 1e-9) + 1e-9)}
    assert np.isclose(first.after.across_mb_s, across_mb_s(graph, first.node_of))
