"""What makes large plans quick keeps what small ones are held to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.arrays import IntArray
from penstock.model import Cluster, Edge, Grouping, Kind, Node, NodeUse, Operator, Topology, expand
from penstock.model.instances import InstanceGraph
from penstock.model.sizing import sized_for
from penstock.planning import ask, request
from penstock.strategies.loads import max_load
from penstock.strategies.partition import portfolio as shaking
from penstock.strategies.partition import refine as refining
from penstock.strategies.partition.class_state import FEW_CLASSES, ClassState
from penstock.strategies.partition.refine import refine
from penstock.strategies.place.close_packing import pack_closely
from penstock.strategies.place.longest_first import MANY, longest_first


def pipelines(count: int, each: int, seed: int = 0, loop: bool = False) -> Topology:
    """Make chains of three operators that hardly know one another."""
    rng = np.random.default_rng(seed)
    operators: list[Operator] = []
    edges: list[Edge] = []
    for p in range(count):
        for step in range(3):
            kind = Kind.STATELESS if step else Kind.SOURCE
            cpu, mem = float(rng.integers(5, 80)), float(rng.integers(64, 1024))
            size = float(rng.integers(1, 5000))
            made = Operator(f"p{p}-{step}", kind, each, cpu_pct=cpu, mem_mb=mem, tuple_bytes=size)
            operators.append(made)
            if step:
                edges.append(Edge(f"p{p}-{step - 1}", f"p{p}-{step}"))
        if p:
            edges.append(Edge(f"p{p - 1}-2", f"p{p}-1", Grouping.GLOBAL))
    if loop:
        edges.append(Edge("p0-1", "p0-1"))
    return Topology("pipelines", tuple(operators), tuple(edges), relaxed=loop)


def even(graph: InstanceGraph, cluster: Cluster) -> IntArray:
    """Longest first as it reads: all nodes are looked at for each instance."""
    demand = np.stack([graph.cpu_cores, graph.mem_mb, graph.io_mb_s])
    capacity = np.stack([cluster.cpu_cores, cluster.mem_mb, cluster.io_mb_s])
    weight = (demand / capacity.sum(axis=1, keepdims=True)).max(axis=0)
    room = cluster.processes * cluster.slots
    node_of = np.zeros(len(graph), dtype=np.int64)
    use, held = np.zeros_like(capacity), np.zeros(len(cluster))
    for instance in np.argsort(-weight, kind="stable").tolist():
        after = use + demand[:, instance, None] * (1.0 / capacity)
        busiest = after.max(axis=0) + np.where(held >= room, 1e6, 0.0)
        node = int(np.lexsort((held, busiest))[0])
        node_of[instance] = node
        use[:, node] = after[:, node]
        held[node] += 1
    return node_of


@given(st.integers(0, 999), st.integers(1, 4), st.integers(MANY - 2, MANY + 20))
@settings(max_examples=20, deadline=None)
def test_many_alike_stand_where_one_by_one_they_would(seed: int, count: int, each: int) -> None:
    graph = expand(pipelines(count, each, seed))
    for cluster in (sized_for(graph, 7), Cluster.of(9, cpu_cores=4, mem_mb=9000, slots=3)):
        assert np.array_equal(longest_first(graph, cluster), even(graph, cluster))


@pytest.mark.parametrize("count", [3, FEW_CLASSES // 3 + 2])
@pytest.mark.parametrize("link", [1e-3, 1e6])
def test_a_move_of_several_is_the_same_as_one_after_the_other(count: int, link: float) -> None:
    graph = expand(pipelines(count, 5, loop=True))
    cluster = Cluster(tuple(Node(f"n{i}", cpu_cores=9, bandwidth_mb_s=link) for i in range(4)))
    start = np.random.default_rng(1).integers(4, size=len(graph))
    once = ClassState(graph, cluster, start, 1.0, real=True)
    several = ClassState(graph, cluster, start, 1.0, real=True)
    rng = np.random.default_rng(2)
    for _ in range(40):
        what = int(rng.integers(once.classes))
        origin, target = (int(node) for node in rng.permutation(4)[:2])
        held = int(once.counts[what, origin])
        for _ in range(held):
            once.move(what, origin, target)
        if held:
            several.move(what, origin, target, held)
    fresh = ClassState(graph, cluster, several.node_of(start), 1.0, real=True)
    for state in (once, several):
        assert np.array_equal(state.counts, fresh.counts)
        assert np.allclose(state.pull, fresh.pull)
        assert np.allclose(state.load, fresh.load)
        assert state.internal == pytest.approx(fresh.internal)
        if fresh.links is not None and state.links is not None:
            assert np.allclose(state.links.inside, fresh.links.inside)
            assert np.allclose(state.links.both, fresh.links.both)


@given(st.integers(0, 999), st.booleans(), st.booleans())
@settings(max_examples=15, deadline=None)
def test_a_sweep_lowers_the_cut_and_keeps_the_limits(seed: int, keep: bool, loop: bool) -> None:
    graph = expand(pipelines(6, 6, seed, loop))
    cluster = sized_for(graph, 5)
    start = longest_first(graph, cluster)
    limit = max_load(graph, cluster, start) + 0.1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refining, "TABLE_CELLS", 0)
        swept = refine(graph, cluster, start, limit, keep_all=keep)
    assert graph.cut(swept, 5) < graph.cut(start, 5)
    assert max_load(graph, cluster, swept) <= limit * (1 + 1e-6)
    if keep:
        assert len(np.unique(swept)) == 5


@given(st.integers(0, 999), st.integers(1, 9), st.floats(0.3, 1.0))
@settings(max_examples=25, deadline=None)
def test_packing_closely_keeps_every_limit(seed: int, nodes: int, limit: float) -> None:
    graph = expand(pipelines(4, 4, seed))
    cluster = sized_for(graph, nodes)
    packed = pack_closely(graph, cluster, limit)
    if packed is None:
        return
    use = NodeUse.of(graph, cluster, packed)
    assert use.busiest_inside(cluster).max() <= limit * (1 + 1e-6)
    assert (use.instances <= cluster.processes * cluster.slots).all()


def test_packing_closely_keeps_pipelines_together() -> None:
    graph = expand(pipelines(12, 8))
    cluster = sized_for(graph, 12)
    packed = pack_closely(graph, cluster, 1.0)
    assert packed is not None
    assert graph.cut(packed, 12) < 0.6 * graph.cut(longest_first(graph, cluster), 12)


def test_tight_limits_on_a_large_graph_cut_no_more_than_metis() -> None:
    """340,000 pairs of instances, of which METIS was not asked; the cut was ten times its own."""
    base = request(pipelines(10, 130), 10, exact_nodes=True)
    ours, metis = ask(base, "penstock").plan, ask(base, "metis").plan
    assert ours is not None
    assert metis is not None
    assert ours.feasible
    assert ours.after.max_node_load <= max(metis.after.max_node_load, 1.0) + 1e-6
    assert ours.after.cut_share <= 1.1 * metis.after.cut_share + 1e-9


def test_a_search_ends_where_nothing_can_move() -> None:
    """As many instances as nodes, all of which must be used: no throw is possible."""
    base = request(pipelines(1, 3), 9, exact_nodes=True)
    graph, cluster = base.graph, base.cluster
    state = ClassState(graph, cluster, np.arange(9), 1.0)
    shaking.shake(state, np.random.default_rng(0), 0.1, keep_all=True)
    assert 0.1 <= state.work_s < 0.2
