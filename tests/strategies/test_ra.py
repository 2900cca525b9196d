"""Ra-Stream by hand: objective, acceptance, thresholds, surplus, trigger, and the whole."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.arrays import FloatArray, IntArray
from penstock.model import (
    Cluster,
    Edge,
    InstanceGraph,
    InvalidValue,
    Keep,
    Kind,
    Measurements,
    Node,
    Operator,
    Plan,
    Topology,
    expand,
)
from penstock.model.sizing import sized_for
from penstock.strategies import Request, strategies
from penstock.strategies.loads import capacity_shares, dominant
from penstock.strategies.partition.annealing import (
    Annealing,
    Scheme,
    acceptance,
    objective,
    slices,
)
from penstock.strategies.partition.growing import Growing
from penstock.strategies.place.best_surplus import BestSurplus, decides
from penstock.strategies.ra import Ra
from penstock.strategies.scale import Scaled
from penstock.strategies.scale.thresholds import Thresholds
from penstock.strategies.trigger.load_band import LoadBand
from penstock.testing.generate import topologies


def _from_pairs(graph: InstanceGraph, groups: IntArray, count: int, epsilon: float) -> float:
    """Ra eq. 16-19 from every pair of tasks."""
    weights = graph.adjacency().toarray()
    internal = np.zeros(count)
    cut = 0.0
    for i in range(len(graph)):
        for j in range(i):
            if groups[i] == groups[j]:
                internal[groups[i]] += weights[i, j]
            else:
                cut += weights[i, j]
    total = cut + internal.sum()
    if total == 0:
        return 0.0
    mean = internal.sum() / count
    sigma = math.sqrt(sum((w - mean) ** 2 for w in internal) / count)
    return float(epsilon * cut / total + (1 - epsilon) * (sigma / mean if mean > 0 else 0.0))


class TestObjective:
    def test_by_hand(self) -> None:
        # 10 of 50 are cut; 30 and 10 inside: mean 20, deviation 10, half of the mean.
        assert objective(np.array([30.0, 10.0]), 50.0, 0.7) == pytest.approx(0.7 * 0.2 + 0.3 * 0.5)

    def test_the_ends_of_epsilon(self) -> None:
        internal = np.array([30.0, 10.0])
        assert objective(internal, 50.0, 1.0) == pytest.approx(0.2)
        assert objective(internal, 50.0, 0.0) == pytest.approx(0.5)

    def test_the_deviation_has_no_unit(self) -> None:
        internal = np.array([30.0, 10.0])
        assert objective(internal * 1000, 50_000.0, 0.3) == pytest.approx(
            objective(internal, 50.0, 0.3)
        )

    def test_nothing_inside_and_nothing_at_all(self) -> None:
        assert objective(np.zeros(3), 10.0, 0.7) == pytest.approx(0.7)
        assert objective(np.zeros(3), 0.0, 0.7) == 0.0

    @given(topologies(cyclic=True), st.integers(2, 4), st.integers(0, 2**32 - 1))
    def test_incremental_is_full(self, topology: Topology, count: int, seed: int) -> None:
        graph, rng = expand(topology), np.random.default_rng(seed)
        scheme = Scheme(graph, rng.integers(count, size=len(graph)), count, 0.7)
        for _ in range(12):
            task, target = int(rng.integers(len(graph))), int(rng.integers(count))
            if target == scheme.groups[task] or scheme.total <= 0:
                continue
            before = scheme.objective
            foretold = scheme.changes(np.array([task]), np.array([target]))[0]
            scheme.move(task, target)
            full = _from_pairs(graph, scheme.groups, count, 0.7)
            assert scheme.objective == pytest.approx(full, rel=1e-6, abs=1e-6)
            assert scheme.objective - before == pytest.approx(foretold, rel=1e-6, abs=1e-6)


class TestAcceptance:
    def test_worse_is_less_likely_and_better_is_certain(self) -> None:
        chance = acceptance(np.array([-0.5, 0.0, 0.5, 1.0]), 0.5)
        assert chance.tolist() == pytest.approx([1.0, 1.0, math.exp(-1), math.exp(-2)])

    def test_colder_is_stricter(self) -> None:
        worse = np.array([0.1])
        assert acceptance(worse, 0.01)[0] < acceptance(worse, 1.0)[0] < 1.0


def _streams(count: int, parallelism: int) -> InstanceGraph:
    """Several streams that do not touch."""
    operators = [
        (
            Operator(f"in-{i}", Kind.SOURCE, parallelism),
            Operator(f"out-{i}", parallelism=parallelism),
        )
        for i in range(count)
    ]
    edges = tuple(Edge(f"in-{i}", f"out-{i}") for i in range(count))
    return expand(Topology("streams", tuple(o for pair in operators for o in pair), edges))


class TestAnnealing:
    @pytest.mark.parametrize("seed", range(3))
    def test_is_no_worse_than_its_starts(self, seed: int) -> None:
        graph = _streams(3, 6)
        weights, shares = np.ones(len(graph)), np.full(4, 0.25)
        groups = Annealing().partition(graph, weights, shares, np.random.default_rng(seed))
        grown = Growing().partition(graph, weights, shares, np.random.default_rng(seed))
        found = Scheme(graph, groups, 4, 0.7).objective
        for start in (slices(graph, weights, shares), grown):
            assert found <= Scheme(graph, start, 4, 0.7).objective + 1e-12

    def test_finds_streams_that_do_not_touch(self) -> None:
        graph = _streams(4, 5)
        groups = Annealing().partition(
            graph, np.ones(len(graph)), np.full(4, 0.25), np.random.default_rng(0)
        )
        assert graph.cut(groups, 4) == 0.0

    def test_improves_on_a_bad_start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Without a good start, the search itself must find the streams again.
        graph = _streams(2, 6)
        dealt = np.arange(len(graph)) % 2
        monkeypatch.setattr(Growing, "partition", lambda *_: dealt)
        monkeypatch.setattr("penstock.strategies.partition.annealing.slices", lambda *_: dealt)
        search = Annealing(iterations=20.0, moves=1000.0, hot=1.0)
        shares = np.full(2, 0.5)
        groups = search.partition(graph, np.ones(len(graph)), shares, np.random.default_rng(1))
        assert graph.cut(groups, 2) < 0.3 * graph.cut(dealt, 2)

    def test_keeps_the_weight_within_bounds(self) -> None:
        graph = _streams(3, 8)
        weights = np.array([1.0, 2.0, 3.0] * (len(graph) // 3))
        shares = np.array([0.5, 0.3, 0.2])
        groups = Annealing().partition(graph, weights, shares, np.random.default_rng(0))
        held = np.bincount(groups, weights=weights, minlength=3)
        assert (held <= shares * weights.sum() * 1.1 + weights.max()).all()


def _tasks(*percents: float, edges: tuple[tuple[int, int], ...] = ()) -> InstanceGraph:
    """One task for each percentage of a node's only core; edges carry 100 tuples/s each."""
    operators = tuple(
        Operator(f"t{i}", Kind.SOURCE if not any(i == b for _, b in edges) else Kind.STATELESS,
                 cpu_pct=percent)
        for i, percent in enumerate(percents)
    )  # fmt: skip
    return expand(Topology("tasks", operators, tuple(Edge(f"t{a}", f"t{b}") for a, b in edges)))


def _scale(
    graph: InstanceGraph, groups: list[int], nodes: int = 4, **parameters: object
) -> tuple[Scaled, FloatArray]:
    """Scale on nodes of one core; return the loads too, in ascending order."""
    request = Request(graph.topology, Cluster.of(nodes, cpu_cores=1.0))
    scaler = Thresholds(**parameters)  # type: ignore[arg-type]
    scaled = scaler.scale(request, graph, np.array(groups), max(groups) + 1)
    loads = np.bincount(scaled.groups, weights=graph.cpu_cores, minlength=scaled.count)
    return scaled, np.sort(loads)


class TestThresholds:
    def test_merges_with_the_best_fitting(self) -> None:
        # 0.2 fits with 0.3 and with 0.5; the larger is the better fit. 0.3 is left, and nothing
        # fits it: with 0.7 it would be 1.0, and 0.7 can spare 0.1, but not a piece of 0.2.
        scaled, loads = _scale(_tasks(20, 30, 50), [0, 1, 2])
        assert loads.tolist() == pytest.approx([0.3, 0.7])
        assert scaled.groups[0] == scaled.groups[2] != scaled.groups[1]
        assert scaled.count == 2
        assert "nothing fits: 1 of 2 groups" in scaled.reasons[-1].text

    def test_goes_on_merging_until_within_the_band(self) -> None:
        scaled, loads = _scale(_tasks(*[10] * 6), [0, 1, 2, 3, 4, 5], nodes=6)
        assert scaled.count == 1
        assert loads.tolist() == pytest.approx([0.6])
        assert len(scaled.reasons) == 1

    def test_never_merges_beyond_the_upper_end(self) -> None:
        _, loads = _scale(_tasks(50, 30), [0, 1])
        assert loads.tolist() == pytest.approx([0.3, 0.5])

    def test_fills_task_by_task(self) -> None:
        # 0.5 takes 0.05 twice; the giver stays within the band.
        scaled, loads = _scale(_tasks(50, *[5] * 14), [0] + [1] * 14)
        assert loads.tolist() == pytest.approx([0.6, 0.6])
        assert scaled.reasons[0].figures["moved"] == 2

    def test_the_overloaded_fill_the_underloaded(self) -> None:
        # 0.5 fills up to 0.6 from 0.95, which gives away two more to be at 0.75.
        _, loads = _scale(_tasks(50, *[5] * 19), [0] + [1] * 19, nodes=2)
        assert loads.tolist() == pytest.approx([0.7, 0.75])

    def test_gives_away_into_a_new_group(self) -> None:
        scaled, loads = _scale(_tasks(*[25] * 6), [0] * 6)
        assert scaled.count == 2
        assert loads.tolist() == pytest.approx([0.75, 0.75])

    def test_opens_no_more_groups_than_nodes(self) -> None:
        scaled, loads = _scale(_tasks(*[25] * 8), [0] * 8, nodes=2)
        assert scaled.count == 2
        assert loads.sum() == pytest.approx(2.0)
        assert "nothing fits" in scaled.reasons[-1].text

    def test_ends_when_nothing_fits(self) -> None:
        scaled, loads = _scale(_tasks(80, 90), [0, 1], nodes=2)
        assert loads.tolist() == pytest.approx([0.8, 0.9])
        assert "nothing fits: 2 of 2 groups" in scaled.reasons[-1].text

    def test_the_task_that_is_missed_least_goes(self) -> None:
        # All tasks of the full group are alike but for their traffic: only t4 talks to nobody.
        edges = ((0, 1), (1, 2), (2, 3))
        graph = _tasks(20, 20, 20, 20, 20, 50, edges=edges)
        scaled, loads = _scale(graph, [0, 0, 0, 0, 0, 1], nodes=2)
        assert scaled.groups[4] == scaled.groups[5]
        assert len(set(scaled.groups[:4].tolist())) == 1
        assert loads.tolist() == pytest.approx([0.7, 0.8])

    def test_within_the_band_nothing_changes(self) -> None:
        scaled, _ = _scale(_tasks(60, 75, 70), [0, 1, 2])
        assert scaled.groups.tolist() == [0, 1, 2]
        assert scaled.reasons[0].figures["moved"] == 0

    def test_slots_count(self) -> None:
        graph = _tasks(*[10] * 6)
        request = Request(graph.topology, Cluster.of(6, cpu_cores=1.0, slots=3))
        scaled = Thresholds().scale(request, graph, np.arange(6), 6)
        assert np.bincount(scaled.groups).max() <= 3

    def test_the_weighted_load_is_equation_6(self) -> None:
        # CPU alone weighs 0.5, so that 1.0 of a core is a load of 0.5 and 0.4 more fits with it.
        _, loads = _scale(_tasks(100, 40), [0, 1], load="weighted")
        assert loads.tolist() == pytest.approx([1.4])

    @given(topologies(), st.integers(1, 5), st.integers(0, 1000))
    def test_keeps_every_task_and_never_needs_more_nodes(
        self, topology: Topology, nodes: int, seed: int
    ) -> None:
        graph = expand(topology)
        request = Request(topology, sized_for(graph, nodes))
        groups = np.random.default_rng(seed).integers(nodes, size=len(graph))
        scaled = Thresholds().scale(request, graph, groups, nodes)
        assert scaled.groups.shape == (len(graph),)
        assert sorted(set(scaled.groups.tolist())) == list(range(scaled.count))
        assert scaled.count <= nodes


class TestBestSurplus:
    def test_equation_15_by_hand(self) -> None:
        free = np.array([[4.0, 2.0], [1000.0, 3000.0], [100.0, 300.0]])
        left = BestSurplus(gamma=0.5, delta=0.35).surplus(
            free, np.array([1.0, 500.0, 50.0]), np.array([4.0, 4000.0, 500.0])
        )
        assert left[0] == pytest.approx(0.5 * 3 / 4 + 0.35 * 500 / 4000 + 0.15 * 50 / 500)
        assert left[1] == pytest.approx(0.5 * 1 / 4 + 0.35 * 2500 / 4000 + 0.15 * 250 / 500)

    def test_equation_13_needs_cpu_and_memory(self) -> None:
        free = np.array([[4.0, 0.5, 4.0], [1000.0, 1000.0, 10.0], [9.0, 9.0, 9.0], [5.0, 5.0, 5.0]])
        assert decides(free, np.array([1.0, 100.0, 0.0, 1.0])).tolist() == [True, False, False]

    def test_the_largest_surplus_wins_among_those_that_fit(self) -> None:
        # "wide" would have the most left over, but lacks the CPU.
        nodes = (
            Node("wide", cpu_cores=0.5, mem_mb=90_000),
            Node("small", cpu_cores=2, mem_mb=2000),
            Node("big", cpu_cores=4, mem_mb=4000),
        )
        graph = expand(Topology("t", (Operator("a", Kind.SOURCE, cpu_pct=100, mem_mb=100),)))
        placed = _place(BestSurplus(), graph, [0], Cluster(nodes))
        assert placed.tolist() == [2]

    def test_what_is_placed_is_no_longer_free(self) -> None:
        graph = _tasks(60, 50, 40)
        placed = _place(BestSurplus(), graph, [0, 1, 2], Cluster.of(2, cpu_cores=1.0))
        assert placed[1] == placed[2] != placed[0]

    def test_of_equals_the_node_that_runs_it_already(self) -> None:
        graph, cluster = _tasks(50, 50), Cluster.of(3, cpu_cores=1.0)
        running = strategies.make("even").plan(Request(graph.topology, cluster))
        running = replace(running, node_of=np.array([2, 1]))
        placed = BestSurplus().place(
            graph, np.arange(2), 2, cluster, running, np.random.default_rng(0)
        )
        assert placed.node_of.tolist() == [2, 1]

    def test_pairs_share_a_process(self) -> None:
        graph = _tasks(1, 1, 1, 1, edges=((0, 3), (1, 2)))
        cluster = Cluster.of(1, processes=2, slots=2)
        placed = BestSurplus().place(
            graph, np.zeros(4, dtype=np.int64), 1, cluster, None, np.random.default_rng(0)
        )
        assert placed.process_of[0] == placed.process_of[3] != placed.process_of[1]
        assert placed.process_of[1] == placed.process_of[2]

    def test_says_what_fits_nowhere(self) -> None:
        graph = _tasks(150)
        placed = BestSurplus().place(
            graph, np.zeros(1, dtype=np.int64), 1, Cluster.of(2, cpu_cores=1.0), None,
            np.random.default_rng(0),
        )  # fmt: skip
        assert "fit on no node" in placed.reasons[-1].text

    def test_weights_beyond_1_are_refused(self) -> None:
        with pytest.raises(InvalidValue, match="delta"):
            BestSurplus(gamma=0.8, delta=0.3)


def _place(
    placer: BestSurplus, graph: InstanceGraph, groups: list[int], cluster: Cluster
) -> IntArray:
    return placer.place(
        graph, np.array(groups), max(groups) + 1, cluster, None, np.random.default_rng(0)
    ).node_of


#: 4 cores of work at 1000 tuples/s, in small pieces and without state.
STREAM = Topology(
    "stream",
    (
        Operator("in", Kind.SOURCE, 8, cpu_us_per_tuple=500, mem_mb=1, rate_per_s=1000),
        Operator("map", parallelism=24, cpu_us_per_tuple=2500, mem_mb=1),
        Operator("out", parallelism=8, cpu_us_per_tuple=1000, mem_mb=1),
    ),
    (Edge("in", "map"), Edge("map", "out")),
)
NODES = Cluster.of(12, cpu_cores=1.0)


def _at(rate_per_s: float, running: Plan | None = None, seed: int = 0) -> Request:
    measured = Measurements(source_rates={"in": rate_per_s})
    return Request(STREAM, NODES, measured, running, rng=np.random.default_rng(seed))


def _plan(answer: Plan | Keep) -> Plan:
    assert isinstance(answer, Plan)
    return answer


class TestLoadBand:
    running = _plan(Ra().plan(_at(1000)))

    def test_without_a_plan_it_fires(self) -> None:
        assert LoadBand().check(_at(1000)).fires

    @pytest.mark.parametrize(("rate", "fires"), [(1000, False), (1100, False), (900, False),
                                                 (1500, True), (600, True)])  # fmt: skip
    def test_both_sides(self, rate: float, fires: bool) -> None:
        verdict = LoadBand().check(_at(rate, self.running))
        assert verdict.fires is fires
        assert verdict.reasons[0].figures["highest"] > 0

    def test_without_a_margin_it_is_the_paper(self) -> None:
        assert LoadBand(margin=0.0).check(_at(1150, self.running)).fires
        assert LoadBand(margin=0.0).check(_at(800, self.running)).fires

    def test_a_node_that_is_gone(self) -> None:
        left = Cluster(tuple(n for n in NODES.nodes if n.name not in self.running.active[:1]))
        assert LoadBand().check(replace(_at(1000, self.running), cluster=left)).fires


class TestRa:
    def test_takes_the_nodes_that_the_load_needs(self) -> None:
        # 4 cores of work between 0.60 and 0.75 of a node: 4 / 0.75 = 5.3 to 4 / 0.6 = 6.7 nodes.
        plan = _plan(Ra().plan(_at(1000)))
        assert plan.after.nodes_used == 6
        assert plan.feasible
        assert plan.after.max_node_load <= 0.75 + 1e-9

    def test_an_even_plan_is_replaced_by_fewer_nodes(self) -> None:
        even = strategies.make("even").plan(_at(1000))
        plan = _plan(Ra().plan(_at(1000, even)))
        assert plan.after.nodes_used < even.after.nodes_used == 12

    def test_unchanged_it_keeps(self) -> None:
        plan = _plan(Ra().plan(_at(1000)))
        assert isinstance(Ra().plan(_at(1000, plan, seed=1)), Keep)

    @pytest.mark.parametrize("level", [700.0, 1000.0, 1700.0])
    def test_a_wobble_of_a_tenth_changes_nothing(self, level: float) -> None:
        rng = np.random.default_rng(3)
        plan = _plan(Ra().plan(_at(level)))
        for _ in range(20):
            rate = level * float(rng.uniform(0.9, 1.1))
            assert isinstance(Ra().plan(_at(rate, plan)), Keep)

    def test_twice_the_rate_and_back_take_one_plan_each(self) -> None:
        first = _plan(Ra().plan(_at(1000)))
        doubled = _plan(Ra().plan(_at(2000, first)))
        assert doubled.feasible
        assert doubled.after.nodes_used > first.after.nodes_used
        assert isinstance(Ra().plan(_at(2000, doubled)), Keep)
        back = _plan(Ra().plan(_at(1000, doubled)))
        assert back.feasible
        assert back.after.nodes_used < doubled.after.nodes_used
        assert isinstance(Ra().plan(_at(1000, back)), Keep)

    @pytest.mark.parametrize("polish", [0, 8])
    def test_exact_nodes(self, polish: int) -> None:
        request = replace(_at(1000), exact_nodes=True)
        plan = _plan(Ra(polish=polish).plan(request))
        assert plan.after.nodes_used == len(NODES)
        metis = strategies.make("metis").plan(replace(_at(1000), exact_nodes=True))
        assert plan.after.max_node_load <= metis.after.max_node_load + 1e-9
        assert dict(plan.parallelism) == dict(STREAM.parallelism)

    def test_polish_only_lowers_the_cut(self) -> None:
        plain, polished = (_plan(Ra(polish=n).plan(_at(1000))) for n in (0, 8))
        assert polished.after.cut_share <= plain.after.cut_share + 1e-12
        assert polished.after.nodes_used <= plain.after.nodes_used

    def test_annealing_gets_the_shares_of_unlike_nodes(self) -> None:
        graph = expand(STREAM)
        cluster = Cluster((Node("big", cpu_cores=6), Node("small", cpu_cores=2)))
        shares = capacity_shares(graph, cluster)
        weights = dominant(graph, cluster)
        groups = Annealing().partition(graph, weights, shares, np.random.default_rng(0))
        held = np.bincount(groups, weights=weights, minlength=2) / weights.sum()
        assert held[0] == pytest.approx(float(shares[0]), abs=0.1)
