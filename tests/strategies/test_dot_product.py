"""Packing on the fewest nodes: nothing over a limit, nothing left out, near the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Cluster, Kind, Node, NodeUse, Operator, Topology, expand
from penstock.model.instances import InstanceGraph
from penstock.strategies import Request
from penstock.strategies.penstock import Penstock
from penstock.strategies.place.dot_product import pack
from penstock.strategies.scale.head_room import fewest_nodes

operators = st.lists(
    st.tuples(st.integers(1, 9), st.floats(0, 99), st.floats(0, 3000)), min_size=1, max_size=6
)
capacities = st.lists(
    st.tuples(st.floats(0.5, 8), st.floats(500, 9000), st.integers(1, 20)), min_size=1, max_size=30
)


def graph_of(sizes: list[tuple[int, float, float]]) -> InstanceGraph:
    made = (
        Operator(f"o{i}", Kind.SOURCE, count, cpu_pct=cpu, mem_mb=mem)
        for i, (count, cpu, mem) in enumerate(sizes)
    )
    return expand(Topology("t", tuple(made)))


def cluster_of(sizes: list[tuple[float, float, int]]) -> Cluster:
    return Cluster(
        tuple(
            Node(f"n{i}", cpu_cores=cpu, mem_mb=mem, slots=slots)
            for i, (cpu, mem, slots) in enumerate(sizes)
        )
    )


@given(operators, capacities, st.floats(0.2, 1.0))
def test_a_packing_keeps_every_limit(
    sizes: list[tuple[int, float, float]], nodes: list[tuple[float, float, int]], limit: float
) -> None:
    graph, cluster = graph_of(sizes), cluster_of(nodes)
    for found in (pack(graph, cluster, limit), fewest_nodes(graph, cluster, limit)):
        if found is None:
            continue
        use = NodeUse.of(graph, cluster, found.node_of)
        assert use.busiest(cluster).max() <= limit * (1 + 1e-6)
        assert (use.instances <= cluster.processes * cluster.slots).all()
        assert found.nodes.tolist() == np.unique(found.node_of).tolist()
        assert (found.nodes[found.start] == found.node_of).all()


def test_small_and_large_share_nodes() -> None:
    """Thirds and two thirds fill nodes exactly; by size alone two thirds would stand alone."""
    graph = graph_of([(6, 33.3, 100), (6, 66.6, 100)])
    found = pack(graph, Cluster.of(12, cpu_cores=1.0), 1.0)
    assert found is not None
    assert len(found.nodes) == 6


def test_each_kind_of_node_takes_what_suits_it() -> None:
    """What needs CPU fits two on a node with many cores, what needs memory three on the other."""
    graph = graph_of([(8, 99, 100), (9, 10, 2600)])
    mixed = cluster_of([(2.0, 1000, 64), (1.0, 8000, 64)] * 8)
    found = fewest_nodes(graph, mixed, 1.0)
    assert found is not None
    assert len(found.nodes) == 7


def test_preferred_nodes_come_first() -> None:
    graph = graph_of([(4, 50, 100)])
    found = pack(graph, Cluster.of(6, cpu_cores=1.0), 1.0, np.array([3, 5]))
    assert found is not None
    assert found.nodes.tolist() == [3, 5]


def test_what_fits_nowhere_is_said() -> None:
    assert pack(graph_of([(1, 99, 100)]), Cluster.of(3, cpu_cores=0.5), 1.0) is None


def test_limits_rise_in_steps() -> None:
    """Instances of 0.84 of a node fit under no load of 0.8, and need no load of 1.0."""
    topology = Topology("t", (Operator("a", Kind.SOURCE, 3, cpu_pct=84),))
    plan = Penstock().plan(Request(topology, Cluster.of(5, cpu_cores=1.0)))
    assert plan.reasons[0].figures["limit"] == pytest.approx(0.85)
