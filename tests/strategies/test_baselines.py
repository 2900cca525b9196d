"""Worked examples of the strategies that others are compared with."""

from __future__ import annotations

import itertools

import numpy as np
import pymetis
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.arrays import FloatArray, IntArray
from penstock.model import (
    Cluster,
    Edge,
    Grouping,
    InstanceGraph,
    InvalidValue,
    Keep,
    Kind,
    Measurements,
    Node,
    Operator,
    Plan,
    Refused,
    Topology,
    evaluate,
    expand,
    violations,
)
from penstock.strategies import Request, strategies
from penstock.strategies.partition.metis import Metis, call_metis
from penstock.strategies.place.ant_colony import Colony
from penstock.strategies.place.assignment_problem import Problem
from penstock.strategies.place.branch_and_bound import search
from penstock.strategies.place.breadth_first import breadth_first, task_order
from penstock.strategies.place.heavy_pairs import pack_pairs, strongest_pairs
from penstock.strategies.place.spread import rates_of, use_all
from penstock.strategies.rstorm import network_distance, reference_node
from penstock.strategies.spark import executor_cores

BASELINES = ("even", "metis", "optimal", "rstorm", "sp-ant", "spark")


def chain(*parallelism: int, rate_per_s: float = 100.0, cpu_pct: float = 10.0) -> Topology:
    operators = tuple(
        Operator(f"o{i}", Kind.SOURCE, count, rate_per_s=rate_per_s, cpu_pct=cpu_pct)
        if i == 0
        else Operator(f"o{i}", parallelism=count, cpu_pct=cpu_pct)
        for i, count in enumerate(parallelism)
    )
    edges = tuple(Edge(f"o{i}", f"o{i + 1}") for i in range(len(parallelism) - 1))
    return Topology("chain", operators, edges)


def measured(rates: FloatArray) -> Measurements:
    return Measurements(rates={("o0", "o1"): rates})


def planned(name: str, request: Request, **parameters: float) -> Plan:
    plan = strategies.make(name, **parameters).plan(request)
    assert isinstance(plan, Plan)
    return plan


class TestEven:
    def test_deals_first_slots_of_all_nodes_before_second_ones(self) -> None:
        cluster = Cluster((Node("a", processes=2), Node("b", processes=1)))
        plan = planned("even", Request(chain(5), cluster))
        assert [str(spot) for spot in plan.placement["o0"]] == ["a/0", "b/0", "a/1", "a/0", "b/0"]

    def test_keeps_a_plan_that_it_would_make_again(self) -> None:
        request = Request(chain(2, 3), Cluster.of(2))
        again = Request(request.topology, request.cluster, running=planned("even", request))
        assert isinstance(strategies.make("even").plan(again), Keep)


class TestSpark:
    def test_shares_the_cores_of_a_node_between_its_executors(self) -> None:
        nodes = (Node("a", cpu_cores=5, processes=2), Node("b", cpu_cores=0.5), Node("c", 0))
        assert executor_cores(Cluster(nodes)).tolist() == [2, 2, 1, 0]

    def test_each_stage_takes_a_core_of_every_executor_before_a_second(self) -> None:
        topology = chain(3, 6)
        plan = planned("spark", Request(topology, Cluster.of(3, cpu_cores=2)))
        assert sorted(plan.node_of[:3].tolist()) == [0, 1, 2]
        assert sorted(plan.node_of[3:6].tolist()) == [0, 1, 2]
        assert sorted(plan.node_of[6:].tolist()) == [0, 1, 2]
        assert not plan.pinned

    def test_a_full_cluster_is_offered_again_in_waves(self) -> None:
        plan = planned("spark", Request(chain(10), Cluster.of(2, cpu_cores=1)))
        assert np.bincount(plan.node_of).tolist() == [5, 5]
        assert plan.reasons[0].figures["waves"] == 5

    def test_another_seed_deals_otherwise(self) -> None:
        topology, cluster = chain(20, 20), Cluster.of(10)
        first, second = (
            planned("spark", Request(topology, cluster, rng=np.random.default_rng(seed)))
            for seed in (1, 2)
        )
        assert first.node_of.tolist() != second.node_of.tolist()


class TestRStorm:
    def test_tasks_come_breadth_first_and_one_operator_at_a_time(self) -> None:
        operators = (
            Operator("sink"),
            Operator("left", parallelism=2),
            Operator("source", Kind.SOURCE),
            Operator("right", parallelism=3),
        )
        edges = (Edge("source", "left"), Edge("source", "right"), Edge("left", "sink"))
        topology = Topology("t", operators, edges)
        assert breadth_first(topology) == ("source", "left", "right", "sink")
        graph = expand(topology)
        labels = [graph.label(i) for i in task_order(graph).tolist()]
        assert labels == [
            "source[0]",
            "left[0]",
            "right[0]",
            "sink[0]",
            "left[1]",
            "right[1]",
            "right[2]",
        ]

    def test_reference_is_the_richest_node_of_the_richest_rack(self) -> None:
        nodes = (
            Node("giant", cpu_cores=8, mem_mb=8000, rack="lonely"),
            Node("a", cpu_cores=4, mem_mb=6000, rack="pair"),
            Node("b", cpu_cores=6, mem_mb=6000, rack="pair"),
        )
        cluster = Cluster(nodes)
        assert reference_node(cluster) == 2
        assert network_distance(cluster, 2).tolist() == [1.0, 0.5, 0.0]

    def test_what_the_reference_cannot_hold_goes_to_the_nearer_rack(self) -> None:
        nodes = (
            Node("far", cpu_cores=4, mem_mb=1000, rack="other"),
            Node("near", cpu_cores=4, mem_mb=1000, rack="home"),
            Node("reference", cpu_cores=4.5, mem_mb=1000, rack="home"),
        )
        topology = Topology(
            "t", (Operator("a", Kind.SOURCE, 3, cpu_pct=10, mem_mb=500, rate_per_s=1),)
        )
        plan = planned("rstorm", Request(topology, Cluster(nodes)))
        assert [spot.node for spot in plan.placement["a"]] == ["reference", "reference", "near"]

    def test_memory_is_hard_and_cpu_is_soft(self) -> None:
        nodes = (Node("small", cpu_cores=16, mem_mb=100), Node("slow", cpu_cores=1, mem_mb=1000))
        operator = Operator("a", Kind.SOURCE, 2, cpu_pct=100, mem_mb=400, rate_per_s=1)
        plan = planned("rstorm", Request(Topology("t", (operator,)), Cluster(nodes)))
        assert {spot.node for spot in plan.placement["a"]} == {"slow"}
        assert [violation.resource for violation in plan.infeasible] == ["CPU"]
        assert any("soft" in str(reason) for reason in plan.reasons)

    def test_reports_memory_that_no_node_has(self) -> None:
        operator = Operator("a", Kind.SOURCE, mem_mb=400, rate_per_s=1)
        cluster = Cluster((Node("x", mem_mb=100), Node("y", mem_mb=300)))
        plan = planned("rstorm", Request(Topology("t", (operator,)), cluster))
        assert plan.placement["a"][0].node == "y"
        assert not plan.feasible


class TestMetis:
    def cliques(self) -> tuple[Topology, Measurements]:
        """Two sets of two senders and two receivers each, joined by one thin pair."""
        rates = np.zeros((4, 4))
        rates[:2, :2] = rates[2:, 2:] = 50.0
        rates[1, 2] = 1.0
        return chain(4, 4), measured(rates)

    def test_cuts_two_cliques_where_they_are_joined(self) -> None:
        topology, measurements = self.cliques()
        plan = planned("metis", Request(topology, Cluster.of(2), measurements))
        assert plan.after.across_per_s == pytest.approx(1.0)
        assert plan.after.nodes_used == 2

    def test_parts_follow_the_capacities_and_skip_nodes_without_any(self) -> None:
        nodes = (
            Node("large", cpu_cores=9, mem_mb=9000),
            Node("none", mem_mb=0),
            Node("small", cpu_cores=3, mem_mb=3000),
        )
        operators = tuple(
            Operator(o.name, o.kind, o.parallelism, cpu_pct=10, mem_mb=10, rate_per_s=o.rate_per_s)
            for o in chain(40, 40).operators
        )
        topology = Topology("t", operators, (Edge("o0", "o1"),))
        plan = planned("metis", Request(topology, Cluster(nodes)))
        held = np.bincount(plan.node_of, minlength=3)
        assert held[1] == 0
        assert held[0] == pytest.approx(60, abs=3)

    def test_asymmetric_adjacency_is_refused_before_the_library_crashes(self) -> None:
        one_way = sp.csr_array(np.array([[0.0, 3.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
        with pytest.raises(InvalidValue, match=r"symmetric, got '3 from 0 to 1 but 0 back'"):
            call_metis(one_way, np.ones(3), np.full(2, 0.5), pymetis.Options(seed=1))
        uneven = sp.csr_array(np.array([[0.0, 3.0], [2.0, 0.0]]))
        with pytest.raises(InvalidValue, match="symmetric"):
            call_metis(uneven, np.ones(2), np.full(2, 0.5), pymetis.Options(seed=1))

    @settings(max_examples=60, deadline=None)
    @given(
        sources=st.integers(1, 12),
        targets=st.integers(1, 12),
        groups=st.integers(1, 30),
        rate=st.sampled_from([0.0, 1e-6, 1.0, 1e9]),
        seed=st.integers(0, 2**32),
    )
    def test_no_group_is_empty_and_nothing_is_printed(
        self, sources: int, targets: int, groups: int, rate: float, seed: int
    ) -> None:
        graph = expand(chain(sources, targets, rate_per_s=rate))
        rng = np.random.default_rng(seed)
        shares = rng.dirichlet(np.ones(groups)) + 1e-4
        weights = rng.integers(0, 3, len(graph)).astype(np.float64)
        group_of = Metis().partition(graph, weights, shares / shares.sum(), rng)
        assert group_of.shape == (len(graph),)
        assert len(np.unique(group_of)) == min(groups, len(graph))
        assert group_of.max() < groups

    def test_prints_nothing_when_parts_are_many(self, capfd: pytest.CaptureFixture[str]) -> None:
        graph = expand(chain(7, 9, 3))
        for groups in range(2, 19):
            shares = np.arange(1.0, groups + 1) ** 3
            Metis().partition(
                graph, graph.cpu_cores, shares / shares.sum(), np.random.default_rng(0)
            )
        assert capfd.readouterr().out == ""

    def test_many_instances_a_part_go_to_the_k_way_scheme(self) -> None:
        graph = expand(chain(200, 200))
        group_of = Metis().partition(
            graph, graph.cpu_cores, np.full(10, 0.1), np.random.default_rng(0)
        )
        assert np.bincount(group_of).max() <= 1.03 * 40 + 1

    def test_bisection_can_be_asked_for(self) -> None:
        graph = expand(chain(200, 200))
        group_of = Metis(scheme="bisection").partition(
            graph, graph.cpu_cores, np.full(10, 0.1), np.random.default_rng(0)
        )
        assert len(np.unique(group_of)) == 10
        with pytest.raises(InvalidValue, match="one of advised, bisection"):
            Metis(scheme="guess")


class TestSpAnt:
    def test_packs_the_heaviest_pair_together(self) -> None:
        rates = np.array([[1.0, 2.0, 1.0], [2.0, 1.0, 90.0], [1.0, 1.0, 2.0]])
        request = Request(chain(3, 3), Cluster.of(3, slots=2), measured(rates))
        plan = planned("sp-ant", request)
        assert plan.node_of[1] == plan.node_of[5]
        fixed, pairs = pack_pairs(request.graph, request.cluster, heavy=0.2, packed=0.5)
        assert pairs == 1
        assert (fixed >= 0).tolist() == [False, True, False, False, False, True]

    def test_packing_leaves_half_of_each_node_free(self) -> None:
        graph = expand(chain(10, 10, cpu_pct=50))
        cluster = Cluster.of(3, cpu_cores=4)
        fixed, pairs = pack_pairs(graph, cluster, heavy=1.0, packed=0.5)
        held = np.bincount(fixed[fixed >= 0], minlength=3)
        assert held.tolist() == [4, 4, 4]
        assert pairs == 6

    def test_strongest_pairs_join_large_with_large(self) -> None:
        operators = (Operator("o0", Kind.SOURCE, 2, rate_per_s=10), Operator("o1", parallelism=3))
        skewed = Edge("o0", "o1", Grouping.FIELDS, (0.1, 0.3, 0.6))
        graph = expand(
            Topology("t", operators, (skewed,)),
            Measurements(tuples_per_s={"o0": np.array([1.0, 9.0])}),
        )
        first, second, rate = strongest_pairs(graph)
        assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(1, 4), (0, 3), (1, 2)]
        assert rate == pytest.approx([5.4, 0.3, 0.9])

    def test_ants_never_end_worse_than_they_began(self) -> None:
        topology = chain(6, 12, 6, rate_per_s=1000, cpu_pct=30)
        plan = planned("sp-ant", Request(topology, Cluster.of(4)))
        figures = plan.reasons[1].figures
        assert figures["cost"] <= figures["first_cost"]
        assert plan.feasible

    def test_cost_of_an_ant_counts_what_crosses_nodes(self) -> None:
        graph, cluster = expand(chain(2, 2, cpu_pct=0.0)), Cluster.of(2)
        fixed = np.array([0, 1, 0, 1])
        for matrix in (None, np.full((2, 2), 25.0)):
            if matrix is not None:
                graph = expand(chain(2, 2, cpu_pct=0.0), measured(matrix))
            colony = Colony(graph, cluster, fixed, np.arange(4), ants=1, alpha=1, beta=1)
            assert colony.forage(1, 0.1, np.random.default_rng(0)).cost == pytest.approx(0.5)

    def test_sight_follows_measured_rates_like_derived_ones(self) -> None:
        topology, cluster = chain(3, 4, 2), Cluster.of(3, slots=4)
        derived = expand(topology)
        same = expand(
            topology,
            Measurements(
                rates={(f.edge.source, f.edge.target): f.pairs.copy() for f in derived.flows}
            ),
        )
        fixed = np.full(len(derived), -1, dtype=np.int64)
        trails = [
            Colony(graph, cluster, fixed, task_order(graph), ants=3, alpha=2, beta=1).forage(
                4, 0.1, np.random.default_rng(5)
            )
            for graph in (derived, same)
        ]
        assert trails[0].node_of.tolist() == trails[1].node_of.tolist()
        assert trails[0].cost == pytest.approx(trails[1].cost)


GROUPINGS = [Grouping.SHUFFLE, Grouping.GLOBAL, Grouping.ALL, Grouping.LOCAL_OR_SHUFFLE]


@st.composite
def small_cases(draw: st.DrawFn) -> tuple[InstanceGraph, Cluster, bool]:
    operators = [
        Operator(
            "o0",
            Kind.SOURCE,
            draw(st.integers(1, 2)),
            rate_per_s=draw(st.integers(0, 50)),
            cpu_pct=draw(st.integers(0, 120)),
        )
    ]
    edges = []
    for i in range(1, draw(st.integers(2, 3))):
        operators.append(
            Operator(
                f"o{i}",
                parallelism=draw(st.integers(1, 3)),
                cpu_pct=draw(st.integers(0, 120)),
                mem_mb=draw(st.integers(0, 3000)),
                selectivity=draw(st.integers(0, 3)),
            )
        )
        for _ in range(draw(st.integers(1, 2))):
            upstream = draw(st.integers(0, i - 1))
            edges.append(Edge(f"o{upstream}", f"o{i}", draw(st.sampled_from(GROUPINGS))))
    nodes = tuple(
        Node(
            f"n{i}",
            cpu_cores=draw(st.integers(1, 4)),
            mem_mb=draw(st.sampled_from([2000.0, 8000.0])),
            slots=draw(st.integers(2, 6)),
        )
        for i in range(draw(st.integers(1, 3)))
    )
    graph = expand(Topology("t", tuple(operators), tuple(edges)))
    return graph, Cluster(nodes), draw(st.booleans())


def figures_of(graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> tuple[float, ...]:
    cost = evaluate(graph, cluster, node_of, np.zeros(len(graph), dtype=np.int64))
    return (round(cost.across_per_s, 6), cost.nodes_used, round(cost.max_node_load, 6))


def best_of_all(graph: InstanceGraph, cluster: Cluster, every: bool) -> tuple[float, ...] | None:
    """Look at every placement there is."""
    found = []
    no_process = np.zeros(len(graph), dtype=np.int64)
    for assignment in itertools.product(range(len(cluster)), repeat=len(graph)):
        node_of = np.array(assignment, dtype=np.int64)
        if every and len(set(assignment)) < min(len(cluster), len(graph)):
            continue
        if not violations(graph, cluster, node_of, no_process):
            found.append(figures_of(graph, cluster, node_of))
    return min(found, default=None)


class TestOptimal:
    @settings(max_examples=60, deadline=None)
    @given(case=small_cases())
    def test_equals_the_best_of_all_placements(
        self, case: tuple[InstanceGraph, Cluster, bool]
    ) -> None:
        graph, cluster, every = case
        found = search(Problem.of(graph, cluster, 1.0, use_every_node=every), 100_000)
        best = best_of_all(graph, cluster, every)
        assert found.proved
        assert found.ties_settled
        if best is None:
            assert found.node_of is None
        else:
            assert found.node_of is not None
            assert figures_of(graph, cluster, found.node_of) == best
            assert found.cut == pytest.approx(best[0], abs=1e-5)

    def test_never_above_what_the_others_cut_at_the_same_limits(self) -> None:
        request = Request(chain(3, 4, 3, cpu_pct=60), Cluster.of(3, cpu_cores=3))
        best = planned("optimal", request)
        assert best.feasible
        for name in BASELINES:
            other = planned(name, Request(request.topology, request.cluster))
            if other.feasible:
                assert best.after.across_per_s <= other.after.across_per_s + 1e-9

    def test_exact_nodes_uses_all_and_balances_like_metis(self) -> None:
        request = Request(chain(4, 4), Cluster.of(4), exact_nodes=True)
        plan = planned("optimal", request)
        metis = planned("metis", Request(chain(4, 4), Cluster.of(4), exact_nodes=True))
        assert plan.after.nodes_used == 4
        assert plan.after.max_node_load <= metis.after.max_node_load + 1e-9
        assert plan.after.across_per_s <= metis.after.across_per_s + 1e-9

    def test_refuses_what_is_too_large_and_says_what_to_ask_instead(self) -> None:
        with pytest.raises(Refused, match="up to 64 instances, got 100; ask 'metis'"):
            strategies.make("optimal").plan(Request(chain(50, 50), Cluster.of(2)))
        with pytest.raises(Refused, match="up to 16 nodes, got 20"):
            strategies.make("optimal").plan(Request(chain(2), Cluster.of(20)))

    def test_refuses_when_the_steps_run_out(self) -> None:
        request = Request(chain(9, 9, cpu_pct=40), Cluster.of(5, cpu_cores=2))
        with pytest.raises(Refused, match="within 50 steps"):
            strategies.make("optimal", steps=50).plan(request)

    def test_refuses_edges_whose_cut_depends_on_processes(self) -> None:
        operators = chain(2, 2).operators
        topology = Topology("t", operators, (Edge("o0", "o1", Grouping.LOCAL_OR_SHUFFLE),))
        with pytest.raises(Refused, match="one process a node, got 2"):
            strategies.make("optimal").plan(Request(topology, Cluster.of(2, processes=2)))

    def test_reports_what_no_placement_can_hold(self) -> None:
        plan = planned("optimal", Request(chain(4, cpu_pct=150), Cluster.of(2, cpu_cores=2)))
        assert not plan.feasible
        assert "no placement keeps all limits" in str(plan.reasons[0])
        assert plan.after.nodes_used == 2

    def test_everything_on_one_node_when_it_fits(self) -> None:
        plan = planned("optimal", Request(chain(10, 20, 10, cpu_pct=1), Cluster.of(10)))
        assert plan.after.across_per_s == 0
        assert plan.after.nodes_used == 1


class TestUseAll:
    def test_moves_the_instance_that_talks_least(self) -> None:
        rates = np.array([[50.0, 1.0], [40.0, 3.0]])
        graph = expand(chain(2, 2), measured(rates))
        node_of = use_all(graph, Cluster.of(2), np.zeros(4, dtype=np.int64))
        assert node_of.tolist() == [0, 0, 0, 1]

    def test_rates_of_agrees_with_the_adjacency(self) -> None:
        topology = chain(3, 4, 2)
        graph = expand(topology)
        adjacency = graph.adjacency().toarray()
        for i in range(len(graph)):
            assert rates_of(graph, i) == pytest.approx(adjacency[i])

    def test_prefers_an_instance_that_the_empty_node_can_hold(self) -> None:
        operators = (
            Operator("o0", Kind.SOURCE, 2, mem_mb=900, rate_per_s=0),
            Operator("o1", parallelism=2, mem_mb=50),
        )
        graph = expand(Topology("t", operators, (Edge("o0", "o1"),)))
        cluster = Cluster((Node("large"), Node("small", mem_mb=100)))
        assert use_all(graph, cluster, np.zeros(4, dtype=np.int64)).tolist() == [0, 0, 1, 0]

    @settings(max_examples=40, deadline=None)
    @given(
        counts=st.lists(st.integers(1, 5), min_size=1, max_size=3),
        nodes=st.integers(1, 12),
        seed=st.integers(0, 2**32),
    )
    def test_leaves_no_node_empty_that_could_be_used(
        self, counts: list[int], nodes: int, seed: int
    ) -> None:
        graph = expand(chain(*counts))
        rng = np.random.default_rng(seed)
        before = rng.integers(0, nodes, len(graph))
        after = use_all(graph, Cluster.of(nodes), before)
        assert len(np.unique(after)) == min(nodes, len(graph))
        assert (after != before).sum() == min(nodes, len(graph)) - len(np.unique(before))


@pytest.mark.parametrize("name", BASELINES)
class TestAll:
    def test_exact_nodes_leaves_none_empty(self, name: str) -> None:
        for topology in (chain(5), chain(1, 6, 1), chain(3, 3, rate_per_s=0)):
            plan = planned(name, Request(topology, Cluster.of(5), exact_nodes=True))
            assert plan.after.nodes_used == 5

    def test_one_node_holds_everything(self, name: str) -> None:
        plan = planned(name, Request(chain(3, 5), Cluster.of(1)))
        assert plan.after.cut_share == 0

    def test_same_seed_same_plan(self, name: str) -> None:
        topology, cluster = chain(4, 6, 2, cpu_pct=30), Cluster.of(3, processes=2)
        first, second = (
            planned(name, Request(topology, cluster, rng=np.random.default_rng(7)))
            for _ in range(2)
        )
        assert first == second

    def test_nodes_without_memory_are_reported_or_avoided(self, name: str) -> None:
        operators = (Operator("o0", Kind.SOURCE, 4, mem_mb=100, rate_per_s=10),)
        cluster = Cluster((Node("empty", mem_mb=0), Node("full", mem_mb=1000)))
        plan = planned(name, Request(Topology("t", operators), cluster))
        on_empty = any(spot.node == "empty" for spot in plan.placement["o0"])
        assert on_empty == bool(plan.infeasible)

    def test_a_cyclic_graph_can_be_planned(self, name: str) -> None:
        operators = (
            Operator("o0", Kind.SOURCE, 2, rate_per_s=10),
            Operator("o1", parallelism=3),
        )
        edges = (Edge("o0", "o1"), Edge("o1", "o1"))
        plan = planned(name, Request(Topology("t", operators, edges, relaxed=True), Cluster.of(3)))
        assert len(plan.node_of) == 5
