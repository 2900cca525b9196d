from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.arrays import FloatArray
from penstock.model import (
    Cluster,
    Edge,
    Grouping,
    Kind,
    Measurements,
    Operator,
    Topology,
    evaluate,
    expand,
    violations,
)
from penstock.model.expand import DERIVED_RATE_PER_S
from penstock.strategies import Request
from penstock.testing.generate import placements, requests

EVEN = [12.5, 12.5, 12.5, 12.5]
SKEWED = (0.7, 0.1, 0.1, 0.1)


@pytest.mark.parametrize(
    ("grouping", "shares", "row"),
    [
        (Grouping.SHUFFLE, None, EVEN),
        (Grouping.NONE, None, EVEN),
        (Grouping.LOCAL_OR_SHUFFLE, None, EVEN),
        (Grouping.PARTIAL_KEY, None, EVEN),
        (Grouping.FIELDS, None, EVEN),
        (Grouping.FIELDS, SKEWED, [35, 5, 5, 5]),
        (Grouping.DIRECT, SKEWED, [35, 5, 5, 5]),
        (Grouping.CUSTOM, SKEWED, [35, 5, 5, 5]),
        (Grouping.ALL, None, [50, 50, 50, 50]),
        (Grouping.GLOBAL, None, [50, 0, 0, 0]),
    ],
)
def test_each_grouping_by_hand(
    grouping: Grouping, shares: tuple[float, ...] | None, row: list[float]
) -> None:
    topology = Topology(
        "t",
        (Operator("a", Kind.SOURCE, 2, rate_per_s=100), Operator("b", parallelism=4)),
        (Edge("a", "b", grouping, shares),),
    )
    graph = expand(topology)
    np.testing.assert_allclose(graph.rates().toarray()[:2, 2:], [row, row])
    np.testing.assert_allclose(graph.rate_in, [50, 50, *(2 * rate for rate in row)])
    assert graph.total_rate == pytest.approx(2 * sum(row))


def test_selectivity_and_demands_by_hand() -> None:
    topology = Topology(
        "t",
        (
            Operator("a", Kind.SOURCE, rate_per_s=50, selectivity=2),
            Operator("b", parallelism=2, cpu_us_per_tuple=1000, cpu_pct=50, selectivity=3),
            Operator("c", Kind.STATEFUL, 4, mem_mb=10, state_mb=80, io_bytes_per_tuple=1e6),
        ),
        (Edge("a", "b"), Edge("b", "c", Grouping.FIELDS)),
    )
    graph = expand(topology)
    # A source's rate is what it reads; it emits twice as much.
    np.testing.assert_allclose(graph.rate_in, [50, 50, 50, 75, 75, 75, 75])
    np.testing.assert_allclose(graph.cpu_cores, [0, 0.55, 0.55, 0, 0, 0, 0])
    np.testing.assert_allclose(graph.mem_mb, [0, 0, 0, 30, 30, 30, 30])
    np.testing.assert_allclose(graph.state_mb, [0, 0, 0, 20, 20, 20, 20])
    np.testing.assert_allclose(graph.io_mb_s, [0, 0, 0, 75, 75, 75, 75])
    assert graph.label(4) == "c[1]"
    assert graph.span("c") == slice(3, 7)
    assert graph.operator_of.tolist() == [0, 1, 1, 2, 2, 2, 2]


def test_a_source_whose_rate_nobody_knows_emits_the_derived_one() -> None:
    graph = expand(Topology("t", (Operator("a", Kind.SOURCE, 3),)))
    assert graph.rate_in.tolist() == [DERIVED_RATE_PER_S] * 3


def test_what_was_measured_replaces_what_was_derived() -> None:
    topology = Topology(
        "t",
        (
            Operator("a", Kind.SOURCE, 2, rate_per_s=100),
            Operator("b", parallelism=2, cpu_us_per_tuple=9),
            Operator("c", parallelism=2, cpu_us_per_tuple=9),
        ),
        (Edge("a", "b"), Edge("b", "c"), Edge("a", "c")),
    )
    matrix = np.array([[30.0, 0.0], [10.0, 2.0]])
    graph = expand(
        topology,
        Measurements(
            source_rates={"a": 60.0},
            rates={("a", "b"): matrix, ("a", "c"): np.ones((3, 3))},
            cpu_cores={"b": np.array([0.5, 0.25]), "c": np.ones(7)},
        ),
    )
    rates = graph.rates().toarray()
    np.testing.assert_allclose(rates[:2, 2:4], matrix)
    # b passes on the 40 and 2 that it got; a -> c is derived, as its matrix has another shape.
    np.testing.assert_allclose(rates[2:4, 4:], [[20, 20], [1, 1]])
    np.testing.assert_allclose(rates[:2, 4:], [[15, 15], [15, 15]])
    np.testing.assert_allclose(graph.rate_in, [30, 30, 40, 2, 51, 51])
    np.testing.assert_allclose(graph.cpu_cores, [0, 0, 0.5, 0.25, 51 * 9e-6, 51 * 9e-6])


def test_source_instances_measured_one_by_one() -> None:
    topology = Topology("t", (Operator("a", Kind.SOURCE, 2, rate_per_s=100),))
    each = {"a": np.array([5.0, 1.0])}
    assert expand(topology, Measurements(tuples_per_s=each)).rate_in.tolist() == [5, 1]
    stale = {"a": np.ones(3)}
    assert expand(topology, Measurements(tuples_per_s=stale)).rate_in.tolist() == [50, 50]


@pytest.mark.parametrize("edges", [(Edge("a", "b"), Edge("a", "b")), (Edge("a", "b"),) * 2])
def test_a_measured_matrix_counts_once_for_parallel_edges(edges: tuple[Edge, ...]) -> None:
    topology = Topology("t", (Operator("a", Kind.SOURCE, rate_per_s=1), Operator("b")), edges)
    measured = Measurements(rates={("a", "b"): np.array([[8.0]])})
    assert expand(topology).total_rate == 2.0
    assert expand(topology, measured).total_rate == 8.0
    assert expand(topology, measured).rate_in.tolist() == [1.0, 8.0]


def test_an_edge_that_closes_a_cycle_carries_but_does_not_feed() -> None:
    topology = Topology(
        "t",
        (Operator("s", Kind.SOURCE, rate_per_s=10), Operator("a"), Operator("b", selectivity=2)),
        (Edge("s", "a"), Edge("a", "b"), Edge("b", "a")),
        relaxed=True,
    )
    graph = expand(topology)
    assert graph.rate_in.tolist() == [10, 10, 10]
    assert graph.rates().toarray().tolist() == [[0, 10, 0], [0, 0, 10], [0, 20, 0]]


def naive_rates(topology: Topology, measured: Measurements) -> tuple[FloatArray, FloatArray]:
    """Expand pair by pair, by recursion from the sinks."""
    closing = {id(edge) for edge in topology.feedback}
    number: dict[tuple[str, int], int] = {}
    for operator in topology.operators:
        for k in range(operator.parallelism):
            number[operator.name, k] = len(number)
    seen: dict[str, list[float]] = {}

    def received(name: str) -> list[float]:
        if name not in seen:
            operator = topology[name]
            count = operator.parallelism
            if operator.kind is Kind.SOURCE:
                each = measured.tuples_per_s.get(name)
                total = measured.source_rates.get(name, operator.rate_per_s)
                total = 1000.0 * count if total is None else total
                seen[name] = [total / count] * count if each is None else each.tolist()
            else:
                seen[name] = [0.0] * count
                for position, edge in enumerate(topology.edges):
                    if edge.target == name and id(edge) not in closing:
                        for row in pairs(position):
                            seen[name] = [a + b for a, b in zip(seen[name], row, strict=True)]
        return seen[name]

    def pairs(position: int) -> list[list[float]]:
        edge = topology.edges[position]
        source, count = topology[edge.source], topology[edge.target].parallelism
        matrix = measured.rates.get((edge.source, edge.target))
        if matrix is not None:
            earlier = topology.edges[:position]
            if any((e.source, e.target) == (edge.source, edge.target) for e in earlier):
                return [[0.0] * count for _ in range(source.parallelism)]
            return [[float(rate) for rate in row] for row in matrix]
        rows = []
        for rate in received(edge.source):
            row = []
            for k in range(count):
                if edge.grouping is Grouping.ALL:
                    part = 1.0
                elif edge.grouping is Grouping.GLOBAL:
                    part = 1.0 if k == 0 else 0.0
                else:
                    part = edge.shares[k] if edge.shares else 1.0 / count
                row.append(rate * source.selectivity * part)
            rows.append(row)
        return rows

    dense = np.zeros((len(number), len(number)))
    for position, edge in enumerate(topology.edges):
        for k, row in enumerate(pairs(position)):
            for m, rate in enumerate(row):
                dense[number[edge.source, k], number[edge.target, m]] += rate
    incoming = np.array([rate for o in topology.operators for rate in received(o.name)])
    return dense, incoming


@given(requests(cyclic=None))
def test_expansion_equals_the_naive_one(request: Request) -> None:
    dense, incoming = naive_rates(request.topology, request.measurements or Measurements())
    np.testing.assert_allclose(request.graph.rates().toarray(), dense, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(request.graph.rate_in, incoming, rtol=1e-9, atol=1e-9)
    assert request.graph.total_rate == pytest.approx(dense.sum())


@given(requests(cyclic=None), st.integers(1, 4), st.data())
def test_traffic_of_groups_equals_the_naive_one(
    request: Request, count: int, data: st.DataObject
) -> None:
    graph = request.graph
    n = len(graph)
    groups = np.array(
        data.draw(st.lists(st.integers(0, count - 1), min_size=n, max_size=n)), dtype=np.int64
    )
    dense = graph.rates().toarray()
    between, affinity, cut = np.zeros((count, count)), np.zeros((n, count)), 0.0
    for i in range(n):
        for j in range(n):
            between[groups[i], groups[j]] += dense[i, j]
            cut += dense[i, j] if groups[i] != groups[j] else 0.0
            if i != j:
                affinity[i, groups[j]] += dense[i, j]
                affinity[j, groups[i]] += dense[i, j]
    np.testing.assert_allclose(graph.between(groups, count), between, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(
        graph.internal(groups, count), between.diagonal(), rtol=1e-9, atol=1e-6
    )
    np.testing.assert_allclose(graph.affinity(groups, count), affinity, rtol=1e-9, atol=1e-6)
    assert graph.cut(groups, count) == pytest.approx(cut, abs=1e-6)
    both = dense + dense.T
    np.fill_diagonal(both, 0.0)
    np.testing.assert_allclose(graph.adjacency().toarray(), both, rtol=1e-9, atol=1e-6)


@given(requests(cyclic=None), st.data())
def test_instances_of_a_class_are_interchangeable(request: Request, data: st.DataObject) -> None:
    graph, cluster = request.graph, request.cluster
    node_of, process_of = data.draw(placements(request))
    same = [
        (i, j) for i in range(len(graph)) for j in range(i) if graph.classes[i] == graph.classes[j]
    ]
    if not same:
        return
    i, j = data.draw(st.sampled_from(same))
    swapped, process = node_of.copy(), process_of.copy()
    swapped[[i, j]], process[[i, j]] = node_of[[j, i]], process_of[[j, i]]
    before = evaluate(graph, cluster, node_of, process_of).to_dict()
    after = evaluate(graph, cluster, swapped, process).to_dict()
    assert (before.pop("latency_ms") or 0) == pytest.approx(after.pop("latency_ms") or 0)
    for name, value in before.items():
        assert after[name] == pytest.approx(value, rel=1e-9, abs=1e-6), name


def test_classes_by_hand() -> None:
    topology = Topology(
        "t",
        (
            Operator("a", Kind.SOURCE, 3),
            Operator("b", parallelism=3),
            Operator("c", parallelism=2),
        ),
        (Edge("a", "b", Grouping.FIELDS, (0.6, 0.2, 0.2)), Edge("b", "c", Grouping.GLOBAL)),
    )
    a, b, c = np.split(expand(topology).classes, [3, 6])
    assert len(set(a)) == 1
    assert b[0] != b[1] == b[2]
    assert c[0] != c[1]
    assert not set(a) & set(b) | set(b) & set(c)
    measured = Measurements(rates={("a", "b"): np.ones((3, 3))})
    assert len(set(expand(topology, measured).classes[:6])) == 6


def test_shares_on_an_edge_that_feeds_nothing_tell_instances_apart() -> None:
    topology = Topology(
        "t",
        (Operator("s", Kind.SOURCE), Operator("a", parallelism=2)),
        (Edge("s", "a"), Edge("a", "a", Grouping.FIELDS, (0.6, 0.4))),
        relaxed=True,
    )
    graph = expand(topology)
    assert graph.rate_in[1] == graph.rate_in[2]
    assert graph.classes[1] != graph.classes[2]


def test_no_array_of_pairs_is_made_for_tens_of_thousands_of_instances() -> None:
    names = [f"o{i}" for i in range(10)]
    operators = [Operator(names[0], Kind.SOURCE, 2500, rate_per_s=1e5)]
    operators += [Operator(name, parallelism=2500, cpu_us_per_tuple=5) for name in names[1:]]
    groupings = list(Grouping)
    edges = [Edge(a, b, groupings[i]) for i, (a, b) in enumerate(pairwise(names))]
    edges.append(Edge("o5", "o5"))
    topology = Topology("large", tuple(operators), tuple(edges), relaxed=True)
    cluster = Cluster.of(50, processes=2, slots=250)
    tracemalloc.start()
    try:
        graph = expand(topology)
        node_of = np.arange(len(graph)) % 50
        process_of = np.arange(len(graph)) // 50 % 2
        evaluate(graph, cluster, node_of, process_of)
        violations(graph, cluster, node_of, process_of)
        graph.between(node_of, 50)
        graph.cut(node_of, 50)
        graph.affinity(node_of, 50)
        assert len(np.unique(graph.classes)) < 30
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(graph) == 25_000
    assert peak_bytes < 50e6  # one array of the pairs of one edge would have 50 MB
