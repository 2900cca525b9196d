"""Ts-Stream: Laplacian, spectral groups, eq. 9 and 10, Alg. 2, its trigger, the whole strategy."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from penstock.common.arrays import FloatArray
from penstock.model import (
    Cluster,
    Edge,
    Grouping,
    InstanceGraph,
    Keep,
    Kind,
    Measurements,
    Node,
    Operator,
    Plan,
    Reason,
    Topology,
    Utilisation,
    expand,
)
from penstock.strategies import Request, make_plan
from penstock.strategies.partition import spectral
from penstock.strategies.partition.spectral import Laplacian, Spectral, embedding, fill_shares
from penstock.strategies.place.fewest_nodes import FewestNodes
from penstock.strategies.trigger.latency_or_idle import LatencyOrIdle, fewest
from penstock.strategies.ts import TsStream, subgraphs
from penstock.testing.partitioner_checks import equal, streams
from penstock.testing.scenarios import every_grouping, wordcount

Pairs = dict[tuple[int, int], float]


def weighted(count: int, pairs: Pairs, cpu_cores: list[float] | None = None) -> InstanceGraph:
    """Make a graph of single instances with the given rates."""
    names = [f"v{i}" for i in range(count)]
    operators = (Operator("v0", Kind.SOURCE), *(Operator(name) for name in names[1:]))
    edges = tuple(Edge(names[i], names[j]) for i, j in pairs)
    topology = Topology("weighted", operators, edges, relaxed=True)
    cores = cpu_cores or [0.0] * count
    measured = Measurements(
        rates={(names[i], names[j]): np.array([[rate]]) for (i, j), rate in pairs.items()},
        cpu_cores={name: np.array([c]) for name, c in zip(names, cores, strict=True)},
    )
    return expand(topology, measured)


def cliques(sizes: list[int], inside: float = 10.0, bridge: float = 1.0) -> InstanceGraph:
    """Make cliques in a row, one light edge from each to the next; instances are dealt in turn."""
    clique_of = [c for c, size in enumerate(sizes) for _ in range(size)]
    # Members of a clique are not neighbours by number, so that numbering does not help.
    order = sorted(range(len(clique_of)), key=lambda i: (i * 7) % len(clique_of))
    label = {i: clique_of[rank] for rank, i in enumerate(order)}
    pairs: Pairs = {}
    for i in range(len(label)):
        for j in range(max(i + 1, 1), len(label)):
            if label[i] == label[j]:
                pairs[i, j] = inside
    for c in range(len(sizes) - 1):
        i = next(v for v in label if label[v] == c)
        j = next(v for v in label if label[v] == c + 1)
        pairs[min(i, j), max(i, j)] = bridge
    return weighted(len(label), pairs)


def cut(graph: InstanceGraph, groups: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> float:
    return graph.cut(groups, int(groups.max()) + 1)


def dense_laplacian(graph: InstanceGraph) -> FloatArray:
    adjacency = graph.adjacency().toarray()
    return np.asarray(np.diag(adjacency.sum(axis=1)) - adjacency)


class TestLaplacian:
    def test_by_hand(self) -> None:
        graph = weighted(3, {(0, 1): 2.0, (1, 2): 3.0})
        expected = [[2.0, -2.0, 0.0], [-2.0, 5.0, -3.0], [0.0, -3.0, 3.0]]
        np.testing.assert_allclose(Laplacian(graph).apply(np.eye(3)), expected)

    @pytest.mark.parametrize("topology", [wordcount(4), every_grouping(), streams(3)])
    def test_is_degree_minus_adjacency(self, topology: Topology) -> None:
        graph = expand(topology)
        np.testing.assert_allclose(
            Laplacian(graph).apply(np.eye(len(graph))), dense_laplacian(graph), atol=1e-9
        )

    def test_loops_do_not_count(self) -> None:
        operators = (Operator("in", Kind.SOURCE, 2), Operator("a", parallelism=3))
        edges = (Edge("in", "a"), Edge("a", "a", Grouping.FIELDS, (0.5, 0.3, 0.2)))
        graph = expand(Topology("loop", operators, edges, relaxed=True))
        np.testing.assert_allclose(
            Laplacian(graph).apply(np.eye(5)), dense_laplacian(graph), atol=1e-9
        )


class TestEmbedding:
    @pytest.mark.parametrize("topology", [wordcount(4), every_grouping(), streams(3, 5)])
    def test_is_the_smallest_eigenvectors(self, topology: Topology) -> None:
        graph = expand(topology)
        laplacian, k = dense_laplacian(graph), 6
        rows = embedding(graph, k, np.random.default_rng(0))
        values = np.diagonal(rows.T @ laplacian @ rows)
        joined = np.flatnonzero(laplacian.any(axis=1))
        smallest = np.linalg.eigvalsh(laplacian[np.ix_(joined, joined)])[:k]
        np.testing.assert_allclose(values, smallest, atol=1e-6)
        np.testing.assert_allclose(laplacian @ rows, rows * values, atol=1e-6)
        np.testing.assert_allclose(rows.T @ rows, np.eye(k), atol=1e-9)

    def test_all_of_them_are_a_basis(self) -> None:
        graph = expand(streams(2, 4))
        rows = embedding(graph, len(graph), np.random.default_rng(0))
        np.testing.assert_allclose(rows.T @ rows, np.eye(len(graph)), atol=1e-9)

    def test_instances_without_traffic_have_no_say(self) -> None:
        graph = weighted(4, {(0, 1): 5.0})
        rows = embedding(graph, 2, np.random.default_rng(0))
        np.testing.assert_allclose(rows[2:], 0.0)
        assert rows[0, 1] * rows[1, 1] < 0


class TestSpectral:
    @pytest.mark.parametrize("seed", range(3))
    def test_splits_two_cliques(self, seed: int) -> None:
        graph = cliques([6, 6])
        groups = Spectral().partition(graph, np.ones(12), equal(2), np.random.default_rng(seed))
        assert cut(graph, groups) == pytest.approx(1.0)

    def test_splits_three_cliques(self) -> None:
        graph = cliques([5, 5, 5])
        groups = Spectral().partition(graph, np.ones(15), equal(3), np.random.default_rng(0))
        assert cut(graph, groups) == pytest.approx(2.0)

    def test_sparse_solver_splits_two_cliques(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spectral, "DENSE_CLASSES", 0)
        graph = cliques([10, 10])
        groups = Spectral().partition(graph, np.ones(20), equal(2), np.random.default_rng(0))
        assert cut(graph, groups) == pytest.approx(1.0)

    def test_unequal_shares_follow_the_cliques(self) -> None:
        graph = cliques([8, 4])
        shares = np.array([1 / 3, 2 / 3])
        groups = Spectral().partition(graph, np.ones(12), shares, np.random.default_rng(0))
        assert np.bincount(groups).tolist() == [4, 8]

    def test_nearest_group_until_it_is_full(self) -> None:
        distance = np.array([[0.0, 9.0], [0.0, 8.0], [0.0, 7.0], [5.0, 1.0]])
        late = np.zeros(4, dtype=bool)
        groups = fill_shares(distance, np.ones(4), np.array([0.75, 0.25]), late)
        assert groups.tolist() == [0, 0, 0, 1]


class TestFewestNodes:
    #: a - b 10, b - c 5, c - d 8, a - d 1.
    EDGES: ClassVar[Pairs] = {(0, 1): 10.0, (1, 2): 5.0, (2, 3): 8.0, (0, 3): 1.0}

    def homes(
        self, cpu: list[float], nodes: list[float], alpha: float = 0.7
    ) -> tuple[list[int], tuple[Reason, ...]]:
        graph = weighted(4, self.EDGES, cpu)
        cluster = Cluster(tuple(Node(f"n{i}", cpu_cores=c) for i, c in enumerate(nodes)))
        placed = FewestNodes(alpha=alpha).place(
            graph, np.arange(4), 4, cluster, None, np.random.default_rng(0)
        )
        return placed.node_of.tolist(), placed.reasons

    def test_by_hand(self) -> None:
        # 0.7 * 2.2 = 1.54 holds three: a and b by the heaviest edge, c by 5 against 1 for d.
        homes, _ = self.homes([0.5, 0.5, 0.5, 0.5], [1.0, 2.2])
        assert homes == [1, 1, 1, 0]

    def test_passes_over_what_does_not_fit(self) -> None:
        homes, _ = self.homes([0.5, 0.5, 0.9, 0.5], [1.3, 2.2])
        assert homes == [1, 1, 0, 1]

    def test_edges_to_all_that_is_there_add_up(self) -> None:
        # With a and b there, c has 4 and d has 3 + 2: d goes along, though its edges are lighter.
        pairs: Pairs = {(0, 1): 10.0, (1, 2): 4.0, (0, 3): 3.0, (1, 3): 2.0}
        graph = weighted(4, pairs, [0.5] * 4)
        cluster = Cluster((Node("big", cpu_cores=2.2), Node("small", cpu_cores=1.0)))
        placer = FewestNodes()
        placed = placer.place(graph, np.arange(4), 4, cluster, None, np.random.default_rng(0))
        assert placed.node_of.tolist() == [0, 0, 1, 0]

    def test_alpha_of_the_free_cpu(self) -> None:
        # Eq. 10: 0.35 + 0.35 is 0.7 of a core, 0.36 + 0.35 is more.
        assert len(set(self.homes([0.35, 0.35, 0.0, 0.0], [1.0, 1.0])[0])) == 1
        assert len(set(self.homes([0.36, 0.35, 0.0, 0.0], [1.0, 1.0])[0])) == 2
        assert len(set(self.homes([0.36, 0.35, 0.0, 0.0], [1.0, 1.0], alpha=0.8)[0])) == 1

    def test_fills_to_the_brim_and_says_so(self) -> None:
        homes, reasons = self.homes([0.5, 0.5, 0.4, 0.4], [1.0, 1.0])
        assert sorted(np.bincount(homes, weights=[0.5, 0.5, 0.4, 0.4])) == pytest.approx([0.9, 0.9])
        assert any("did not fit under 0.7" in reason.text for reason in reasons)

    def test_nowhere_is_reported(self) -> None:
        _, reasons = self.homes([3.0, 0.1, 0.1, 0.1], [1.0, 1.0])
        assert any("fit on no node" in reason.text for reason in reasons)

    def test_memory_is_a_limit_too(self) -> None:
        graph = replace(weighted(4, self.EDGES), mem_mb=np.array([60.0, 60.0, 60.0, 40.0]))
        cluster = Cluster(tuple(Node(f"n{i}", mem_mb=100.0) for i in range(3)))
        placer = FewestNodes()
        placed = placer.place(graph, np.arange(4), 4, cluster, None, np.random.default_rng(0))
        # The heaviest pair that fits is c and d.
        assert placed.node_of[2] == placed.node_of[3]
        assert len(set(placed.node_of.tolist())) == 3

    def test_of_equal_nodes_those_awake_come_first(self) -> None:
        graph = weighted(4, self.EDGES, [0.1] * 4)
        topology, cluster = graph.topology, Cluster.of(3)
        twos = np.full(4, 2)
        running = make_plan(Request(topology, cluster), "x", twos, 0 * twos, [Reason("there")])
        placed = FewestNodes().place(
            graph, np.arange(4), 4, cluster, running, np.random.default_rng(0)
        )
        assert placed.node_of.tolist() == [2, 2, 2, 2]


def stream(rate_per_s: float) -> Topology:
    """Make a stream that takes one core for every 1000 tuples/s: half in each operator."""
    return Topology(
        "stream",
        (
            Operator("in", Kind.SOURCE, 10, cpu_us_per_tuple=500, rate_per_s=rate_per_s),
            Operator("out", parallelism=10, cpu_us_per_tuple=500),
        ),
        (Edge("in", "out"),),
    )


def on(nodes: int, request: Request) -> Plan:
    """Deal the instances over the first nodes."""
    node_of = np.arange(len(request.graph)) % nodes
    return make_plan(request, "dealt", node_of, 0 * node_of, [Reason("dealt")])


class TestTrigger:
    CLUSTER = Cluster.of(4, cpu_cores=1.0)

    def check(self, rate_per_s: float, count: int, measured: Measurements | None = None) -> bool:
        request = Request(stream(rate_per_s), self.CLUSTER)
        asked = replace(request, running=on(count, request), measurements=measured)
        return LatencyOrIdle().check(asked).fires

    def test_fires_without_a_plan(self) -> None:
        assert LatencyOrIdle().check(Request(stream(100), self.CLUSTER)).fires

    def test_latency(self) -> None:
        # 1.2 cores on two nodes: neither idle nor overloaded.
        assert not self.check(1200, 2)
        request = Request(stream(1200), self.CLUSTER)
        windows = tuple(Measurements(latency_ms=ms) for ms in (700.0, 500.0, 900.0))
        asked = replace(request, running=on(2, request), recent=windows)

        def fires(now_ms: float, **settings: float) -> bool:
            now = replace(asked, measurements=Measurements(latency_ms=now_ms))
            return LatencyOrIdle(**settings).check(now).fires

        # Twice the lowest that this plan had, whatever a batch takes.
        assert not fires(1000.0)
        assert fires(1001.0)
        assert not fires(1001.0, latency_rise=0)
        assert fires(801.0, latency_ms=800)
        # With nothing to compare it to, no latency is high.
        alone = replace(asked, recent=(), measurements=Measurements(latency_ms=9e9))
        assert not LatencyOrIdle().check(alone).fires

    def test_too_little_left(self) -> None:
        assert not self.check(1880, 2)
        assert self.check(1920, 2)

    def test_measured_use_counts(self) -> None:
        assert self.check(1200, 2, Measurements(nodes={"node-1": Utilisation(cpu=0.96)}))
        assert not self.check(1200, 2, Measurements(nodes={"node-1": Utilisation(cpu=0.94)}))

    def test_idle_nodes_that_are_not_needed(self) -> None:
        # 0.9 cores on two nodes are 0.45 each; one node holds 0.7, grown by a quarter 0.56.
        assert not self.check(900, 2)
        assert not self.check(570, 2)
        assert self.check(550, 2)
        # Loads of 0.55 are not idle, whatever fewer nodes could hold.
        assert not self.check(1650, 3)

    def test_idle_nodes_want_a_plan_with_fewer(self) -> None:
        request = Request(stream(400), self.CLUSTER)
        asked = replace(request, running=on(3, request))
        assert LatencyOrIdle().check(asked, on(2, request)).fires
        assert not LatencyOrIdle().check(asked, on(3, request)).fires

    def test_bound_on_the_nodes(self) -> None:
        request = Request(stream(1400), Cluster((Node("a", 1.0), Node("b", 1.0), Node("c", 3.0))))
        assert fewest(request, 0.7, 1.0) == 1
        assert fewest(request, 0.7, 1.5) == 1
        assert fewest(request, 0.7, 1.6) == 2
        assert fewest(request, 0.7, 9.0) == 3


class TestStrategy:
    def test_number_of_subgraphs(self) -> None:
        # Eq. 9, rounded up.
        assert [subgraphs(n, 4) for n in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]

    def test_uses_the_fewest_nodes(self) -> None:
        plan = TsStream().plan(Request(stream(1300), Cluster.of(8, cpu_cores=1.0)))
        assert isinstance(plan, Plan)
        assert plan.after.nodes_used == 2
        assert plan.after.max_node_load <= 0.7
        assert len(plan.active) == 2

    def test_keeps_its_plan_when_nothing_changed(self) -> None:
        request = Request(stream(1300), Cluster.of(8, cpu_cores=1.0))
        running = TsStream().plan(request)
        assert isinstance(running, Plan)
        answer = TsStream().plan(replace(request, running=running))
        assert isinstance(answer, Keep)

    def test_follows_the_rate(self) -> None:
        cluster = Cluster.of(12, cpu_cores=1.0)
        running: Plan | None = None
        made: list[tuple[float, int]] = []
        for turn, rate in enumerate((2000, 1850, 2180, 1900, 4000, 4200, 3700, 2000, 2150, 1850)):
            request = Request(
                stream(rate), cluster, running=running, rng=np.random.default_rng(turn)
            )
            answer = TsStream().plan(request)
            if isinstance(answer, Plan):
                made.append((rate, answer.after.nodes_used))
                assert answer.feasible
                running = answer
        assert [rate for rate, _ in made] == [2000, 4000, 2000]
        assert made[1][1] > made[0][1] >= made[2][1]

    def test_replaces_for_latency_only_by_something_better(self) -> None:
        request = Request(
            streams(4, 6),
            Cluster.of(4),
            Measurements(latency_ms=5000.0),
            recent=(Measurements(latency_ms=1000.0),),
            exact_nodes=True,
        )
        answer = TsStream().plan(replace(request, running=on(4, request)))
        assert isinstance(answer, Plan)
        assert answer.before is not None
        assert answer.after.across_per_s < answer.before.across_per_s
        assert "latency" in answer.reasons[0].text

    def test_subgraphs_have_more_than_one_instance_where_a_node_holds_more(self) -> None:
        """A node of one core holds four instances of 0.17 cores: four processes have one each."""
        topology = Topology("t", (Operator("a", Kind.SOURCE, 8, cpu_pct=17),))
        plan = TsStream().plan(Request(topology, Cluster.of(4, cpu_cores=1.0)))
        assert isinstance(plan, Plan)
        figures = [r.figures["subgraphs"] for r in plan.reasons if "subgraphs" in r.figures]
        assert figures == [4]
