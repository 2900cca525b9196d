"""Sl-Stream: fitness, position update, decoding, matching, its trigger, the whole strategy."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.arrays import FloatArray
from penstock.model import (
    Cluster,
    Edge,
    InstanceGraph,
    Keep,
    Kind,
    Measurements,
    Node,
    Operator,
    Plan,
    Reason,
    Topology,
    expand,
)
from penstock.strategies import Request, make_plan
from penstock.strategies.partition.quantum_swarm import (
    QuantumSwarm,
    contraction,
    decode,
    fitness,
    step,
)
from penstock.strategies.place.matching import Matching, assign
from penstock.strategies.sl import SlStream
from penstock.strategies.trigger.better_scheme import BetterScheme, cpu_and_memory
from penstock.testing.partitioner_checks import equal
from penstock.testing.scenarios import every_grouping, wordcount


def chain(rates: list[float]) -> tuple[Topology, Measurements]:
    """Make single instances in a row with the given rates between neighbours."""
    names = [f"v{i}" for i in range(len(rates) + 1)]
    operators = (Operator("v0", Kind.SOURCE), *(Operator(name) for name in names[1:]))
    edges = tuple(Edge(a, b) for a, b in itertools.pairwise(names))
    measured = {
        (a, b): np.array([[rate]])
        for (a, b), rate in zip(itertools.pairwise(names), rates, strict=True)
    }
    return Topology("chain", operators, edges), Measurements(rates=measured)


def chain_graph(rates: list[float]) -> InstanceGraph:
    return expand(*chain(rates))


class TestFitness:
    WEIGHTS = np.array([1.0, 1.0, 1.0, 5.0])

    def test_by_hand(self) -> None:
        # Eq. 15. Cut between v1 and v2: 3 of 10. Instances 1/2, 1/2; load 2/8, 6/8: 1/4 + 1/4.
        graph = chain_graph([6.0, 3.0, 1.0])
        scheme = np.array([[0, 0, 1, 1]])
        assert fitness(graph, self.WEIGHTS, scheme, 2, 0.0)[0] == pytest.approx(0.3)
        assert fitness(graph, self.WEIGHTS, scheme, 2, 2.0)[0] == pytest.approx(0.3 + 2 * 0.5)

    def test_balance_of_shares_costs_nothing(self) -> None:
        # Instances 3/4, 1/4 and load 3/4, 1/4.
        graph = chain_graph([6.0, 3.0, 1.0])
        cost = fitness(graph, np.ones(4), np.array([[0, 0, 0, 1]]), 2, 1.0)
        assert cost[0] == pytest.approx(0.1)

    def test_less_traffic_costs_less(self) -> None:
        graph = chain_graph([6.0, 3.0, 1.0])
        heavy, light = fitness(graph, np.ones(4), np.array([[0, 1, 1, 1], [0, 0, 0, 1]]), 2, 0.0)
        assert light < heavy

    @pytest.mark.parametrize("topology", [wordcount(4), every_grouping()])
    def test_traffic_is_the_cut(self, topology: Topology) -> None:
        rng = np.random.default_rng(0)
        derived = expand(topology)
        first = derived.flows[0]
        key = (first.edge.source, first.edge.target)
        seen = Measurements(rates={key: rng.random(first.pairs.shape)})
        for graph in (derived, expand(topology, seen)):
            schemes = rng.integers(0, 3, (5, len(graph)))
            expected = [graph.cut(scheme, 3) / graph.total_rate for scheme in schemes]
            found = fitness(graph, np.ones(len(graph)), schemes, 3, 0.0)
            np.testing.assert_allclose(found, expected, atol=1e-12)


class TestPositions:
    def test_contraction(self) -> None:
        # Eq. 21 falls from sigma + 0.5 to 0.5.
        assert contraction(0.8, 0, 100) == pytest.approx(1.3)
        assert contraction(0.8, 75, 100) == pytest.approx(0.7)
        assert contraction(0.8, 100, 100) == pytest.approx(0.5)

    def test_step_by_hand(self) -> None:
        # Eq. 20 and 23: p = 0.25 * 4 + 0.75 * 8 = 7; 0.5 * |5 - 6| * ln(e^2) = 1.
        # Second coordinate: p = 1 * 2 + 0 * 9 = 2; 0.5 * |1 - 7| * ln(e) = 3.
        moved = {
            sign: step(
                np.array([[6.0, 7.0]]),
                np.array([[4.0, 2.0]]),
                np.array([8.0, 9.0]),
                np.array([5.0, 1.0]),
                0.5,
                phi=np.array([[0.25, 1.0]]),
                u=np.exp([[-2.0, -1.0]]),
                sign=np.full((1, 2), sign),
            )
            for sign in (1.0, -1.0)
        }
        np.testing.assert_allclose(moved[1.0], [[8.0, 5.0]])
        np.testing.assert_allclose(moved[-1.0], [[6.0, -1.0]])

    def test_stays_when_all_agree(self) -> None:
        here = np.array([[3.0, 4.0]])
        arguments = {"phi": np.full((1, 2), 0.3), "u": np.full((1, 2), 0.1)}
        moved = step(here, here, here[0], here[0], 1.0, sign=np.ones((1, 2)), **arguments)
        np.testing.assert_allclose(moved, here)

    def test_decode_cuts_the_order(self) -> None:
        # In the order of the coordinates: 2, 0, 3, 1.
        position = np.array([[2.5, 9.0, 0.1, 3.0]])
        assert decode(position, np.ones(4), np.array([0.5, 0.5])).tolist() == [[0, 1, 0, 1]]
        heavy = np.array([1.0, 1.0, 6.0, 1.0])
        assert decode(position, heavy, np.array([0.7, 0.3])).tolist() == [[1, 1, 0, 1]]

    @given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 99))
    def test_decode_fills_every_group(self, n: int, k: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        weights = rng.random(n) ** 8
        groups = decode(rng.random((3, n)), weights, rng.dirichlet(np.ones(k)) + 1e-9)
        for scheme in groups:
            assert len(set(scheme.tolist())) == min(n, k)
            assert scheme.min() >= 0
            assert scheme.max() < k


class TestQuantumSwarm:
    def cost(self, graph: InstanceGraph, iterations: int, seed: int) -> float:
        swarm = QuantumSwarm(iterations=iterations)
        weights = np.ones(len(graph))
        groups = swarm.partition(graph, weights, equal(3), np.random.default_rng(seed))
        return float(fitness(graph, weights, groups[None, :], 3, 1.0)[0])

    @pytest.mark.parametrize("seed", range(3))
    def test_iterations_lower_the_cost(self, seed: int) -> None:
        graph = chain_graph([10.0, 10.0, 1.0, 10.0, 10.0, 1.0, 10.0, 10.0])
        started, ended = self.cost(graph, 0, seed), self.cost(graph, 100, seed)
        assert ended < started

    def test_finds_the_best_cut_of_a_chain(self) -> None:
        graph = chain_graph([10.0, 10.0, 1.0, 10.0, 10.0, 1.0, 10.0, 10.0])
        swarm = QuantumSwarm(particles=60, iterations=200)
        groups = swarm.partition(graph, np.ones(9), equal(3), np.random.default_rng(0))
        assert graph.cut(groups, 3) == pytest.approx(2.0)


def brute_force(costs: FloatArray) -> tuple[int, float]:
    """Return the most rows that can be matched, and the least cost of so many."""
    rows, columns = costs.shape
    best = (0, 0.0)
    # Columns beyond the real ones stand for "not matched".
    for chosen in set(itertools.permutations([*range(columns), *[-1] * rows], rows)):
        taken = [costs[i, c] for i, c in enumerate(chosen) if c >= 0]
        if all(np.isfinite(taken)):
            best = min(best, (-len(taken), float(sum(taken))))
    return -best[0], best[1]


class TestMatching:
    def test_four_by_four_against_all_permutations(self) -> None:
        # In the manner of Sl fig. 4: four subgraphs, four nodes.
        costs = np.array(
            [
                [2.0, 15.0, 13.0, 4.0],
                [10.0, 4.0, 14.0, 15.0],
                [9.0, 14.0, 16.0, 13.0],
                [7.0, 8.0, 11.0, 9.0],
            ]
        )
        match = assign(costs)
        least = min(costs[range(4), list(p)].sum() for p in itertools.permutations(range(4)))
        assert sorted(match.tolist()) == [0, 1, 2, 3]
        assert costs[range(4), match].sum() == least == 28.0

    @pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2), (3, 4)])
    @pytest.mark.parametrize("seed", range(4))
    def test_against_brute_force(self, shape: tuple[int, int], seed: int) -> None:
        rng = np.random.default_rng(seed)
        costs = np.where(rng.random(shape) < 0.4, np.inf, rng.integers(0, 20, shape))
        match = assign(costs)
        done = np.flatnonzero(match >= 0)
        assert len(set(match[done].tolist())) == len(done)
        most, least = brute_force(costs)
        assert len(done) == most
        assert costs[done, match[done]].sum() == pytest.approx(least)

    def test_cost_by_hand(self) -> None:
        # Eq. 14 in shares: CPU 1 of 4 leaves 0.75, memory 50 of 100 leaves 0.5.
        demand = np.array([[1.0], [50.0], [0.0], [1.0]])
        free = np.array([[4.0, 1.0, 0.5], [100.0, 50.0, 100.0], [1.0, 1.0, 1.0], [9.0, 9.0, 9.0]])
        costs = Matching(mu=0.8).costs(demand, free, free)
        assert costs[0, 0] == pytest.approx(0.8 * 0.75 + 0.2 * 0.5)
        # An exact fit leaves nothing; half a core is not enough.
        assert costs[0, 1] == pytest.approx(0.0)
        assert np.isinf(costs[0, 2])

    def place(
        self, cores: list[float], nodes: list[float], running: Plan | None = None
    ) -> tuple[list[int], str]:
        topology, _ = chain([1.0] * (len(cores) - 1))
        names = [o.name for o in topology.operators]
        seen = {name: np.array([c]) for name, c in zip(names, cores, strict=True)}
        graph = expand(topology, Measurements(cpu_cores=seen))
        cluster = Cluster(tuple(Node(f"n{i}", cpu_cores=c) for i, c in enumerate(nodes)))
        placed = Matching().place(
            graph, np.arange(len(cores)), len(cores), cluster, running, np.random.default_rng(0)
        )
        return placed.node_of.tolist(), " ".join(reason.text for reason in placed.reasons)

    def test_the_smallest_nodes_that_fit(self) -> None:
        assert self.place([3.0, 0.9], [8.0, 1.0, 4.0])[0] == [2, 1]

    def test_a_subgraph_that_fits_nowhere_is_reported(self) -> None:
        homes, reasons = self.place([9.0, 1.0], [4.0, 1.0])
        assert "subgraph 0 fits on no node" in reasons
        assert "1 of 2 subgraphs matched" in reasons
        assert homes[1] == 1

    def test_more_subgraphs_than_nodes_take_rounds(self) -> None:
        homes, reasons = self.place([1.0, 1.0, 1.0, 1.0], [2.0, 2.0])
        assert sorted(homes) == [0, 0, 1, 1]
        assert "in 2 rounds" in reasons

    def test_ties_go_to_where_a_subgraph_runs(self) -> None:
        topology, seen = chain([1.0, 1.0])
        cluster = Cluster.of(4)
        node_of = np.array([3, 1, 2])
        request = Request(topology, cluster, seen)
        running = make_plan(request, "x", node_of, 0 * node_of, [Reason("there")])
        placed = Matching().place(
            request.graph, np.arange(3), 3, cluster, running, np.random.default_rng(0)
        )
        assert placed.node_of.tolist() == [3, 1, 2]


class TestTrigger:
    def verdict(self, old: list[int], new: list[int], xi: float = 0.7, cpu: float = 0.0) -> bool:
        topology, seen = chain([4.0, 3.0, 3.0])
        cores = {o.name: np.array([cpu]) for o in topology.operators}
        request = Request(topology, Cluster.of(4, cpu_cores=1.0), replace(seen, cpu_cores=cores))
        plans = [
            make_plan(request, "x", np.array(nodes), np.zeros(4, dtype=np.int64), [Reason("x")])
            for nodes in (old, new)
        ]
        trigger = BetterScheme(xi=xi, rho=1.0)
        return trigger.check(replace(request, running=plans[0]), plans[1]).fires

    def test_new_over_old(self) -> None:
        # Cut 7 of 10 before, 4 after: 0.571.
        assert self.verdict([0, 1, 2, 2], [0, 1, 1, 1], xi=0.58)
        assert not self.verdict([0, 1, 2, 2], [0, 1, 1, 1], xi=0.56)

    def test_never_for_something_dearer(self) -> None:
        assert not self.verdict([0, 1, 1, 1], [0, 1, 2, 2], xi=1.0)

    def test_default_factor(self) -> None:
        # 6 of 10 against 10 of 10 is better by enough; 7 of 10 is not.
        assert BetterScheme().xi == 0.7
        assert self.verdict([0, 1, 2, 3], [0, 0, 1, 2])
        assert not self.verdict([0, 1, 2, 3], [0, 1, 1, 2])

    def test_fewer_nodes(self) -> None:
        # The same cut on 2 nodes instead of 4 would be better; on 3 of 4 it is not by enough.
        assert self.verdict([0, 1, 2, 3], [0, 1, 0, 1], xi=0.7)
        assert not self.verdict([0, 1, 2, 3], [0, 1, 0, 2], xi=0.7)

    def test_broken_limits(self) -> None:
        assert self.verdict([0, 0, 0, 1], [0, 0, 1, 1], cpu=0.5)
        assert not self.verdict([0, 0, 1, 1], [0, 0, 0, 0], cpu=0.5)

    def test_fires_without_a_plan_or_a_proposal(self) -> None:
        request = Request(wordcount(), Cluster.of(2))
        assert BetterScheme().check(request).fires

    def test_load_figure(self) -> None:
        # Eq. 5: shares of the cluster's CPU and memory.
        topology = Topology("t", (Operator("a", Kind.SOURCE, cpu_pct=100, mem_mb=400),))
        cluster = Cluster.of(2, cpu_cores=2.0, mem_mb=1000.0)
        load = cpu_and_memory(expand(topology), cluster, 0.75)
        assert load.tolist() == pytest.approx([0.75 * 0.25 + 0.25 * 0.2])


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


class TestStrategy:
    def test_as_many_nodes_as_asked(self) -> None:
        plan = SlStream(nodes=3).plan(Request(stream(500), Cluster.of(5, cpu_cores=1.0)))
        assert isinstance(plan, Plan)
        assert plan.after.nodes_used == 3

    def test_as_many_nodes_as_needed(self) -> None:
        # 0.7 of 4 nodes hold 2.8 cores, of 3 only 2.1.
        plan = SlStream().plan(Request(stream(2700), Cluster.of(9, cpu_cores=1.0)))
        assert isinstance(plan, Plan)
        assert plan.after.nodes_used == 4
        assert plan.after.max_node_load <= 0.8 + 1e-9

    def test_keeps_its_plan_when_nothing_changed(self) -> None:
        request = Request(stream(2700), Cluster.of(9, cpu_cores=1.0))
        running = SlStream().plan(request)
        assert isinstance(running, Plan)
        again = replace(request, running=running, rng=np.random.default_rng(5))
        assert isinstance(SlStream().plan(again), Keep)

    def test_follows_the_rate(self) -> None:
        cluster = Cluster.of(12, cpu_cores=1.0)
        running: Plan | None = None
        made: list[tuple[float, int]] = []
        for turn, rate in enumerate((2000, 1850, 2180, 1900, 4000, 4200, 3700, 2000, 2150, 1850)):
            request = Request(
                stream(rate), cluster, running=running, rng=np.random.default_rng(turn)
            )
            answer = SlStream().plan(request)
            if isinstance(answer, Plan):
                made.append((rate, answer.after.nodes_used))
                assert answer.feasible
                running = answer
        assert [rate for rate, _ in made] == [2000, 4000, 2000]
        assert made[1][1] > made[0][1] >= made[2][1]
