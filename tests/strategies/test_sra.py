"""Sra-Stream by hand: ratios, first fit, traffic CPU, drain, triggers, merge, and the whole."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.arrays import IntArray
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
    expand,
)
from penstock.strategies import Request, make_plan
from penstock.strategies.loads import exact_limit
from penstock.strategies.place.first_fit import FilledNodes, FirstFit, directed_rates
from penstock.strategies.scale import Scaler, scalers
from penstock.strategies.scale.drain import Drain, makespan
from penstock.strategies.scale.rate_ratio import (
    RateRatio,
    fixed,
    measured_time_over_cpu,
    rate_change,
    submitted,
    time_over_cpu,
)
from penstock.strategies.scale.slowest import Slowest, operator_us
from penstock.strategies.sra import Sra
from penstock.strategies.trigger.rate_change import RateChange
from penstock.testing.generate import topologies

#: Per source tuple: 50 us in the source, 80 in split, 5 times 20 in count.
WORDS = Topology(
    "words",
    (
        Operator("lines", Kind.SOURCE, 1, cpu_us_per_tuple=50, mem_mb=8, rate_per_s=2000),
        Operator("split", parallelism=2, cpu_us_per_tuple=80, mem_mb=8, selectivity=5),
        Operator("count", Kind.STATEFUL, 2, cpu_us_per_tuple=20, mem_mb=8, state_mb=8),
    ),
    (Edge("lines", "split"), Edge("split", "count", Grouping.FIELDS)),
)


def _request(
    rate_per_s: float = 2000.0,
    running: Plan | None = None,
    cluster: Cluster | None = None,
    topology: Topology = WORDS,
) -> Request:
    measured = Measurements(source_rates={topology.sources[0].name: rate_per_s})
    return Request(topology, cluster or Cluster.of(3, cpu_cores=4.0), measured, running)


def _plan(answer: Plan | Keep) -> Plan:
    assert isinstance(answer, Plan)
    return answer


def _put(request: Request, node_of: list[int]) -> Plan:
    """Return a plan that stands as told."""
    nodes = np.array(node_of)
    return make_plan(request, "sra", nodes, np.zeros_like(nodes), [Reason("put there")])


class TestRatio:
    def test_time_over_cpu_by_hand(self) -> None:
        ratio = time_over_cpu(expand(WORDS), Cluster.of(3))
        assert ratio == pytest.approx({"lines": 50.0, "split": 80.0, "count": 100.0})

    def test_waiting_for_the_disk_takes_time_but_no_cpu(self) -> None:
        # 100 us of CPU and 50,000 bytes at 500 MB/s = 100 us of waiting: T = 200, C = 0.5.
        slow = Operator("slow", cpu_us_per_tuple=100, io_bytes_per_tuple=50_000)
        topology = Topology("t", (Operator("in", Kind.SOURCE), slow), (Edge("in", "slow"),))
        assert time_over_cpu(expand(topology), Cluster.of(1))["slow"] == pytest.approx(400.0)

    def test_degrees_at_submission_by_hand(self) -> None:
        # In the ratio 50 : 80 : 100 with one source: 1, 1.6 and 2, together 4.6. With 12 cores k is
        # ceil(12 / 4.6) = 3, and the degrees are 3, 4.8 and 6.
        ratio = {"lines": 50.0, "split": 80.0, "count": 100.0}
        assert submitted(ratio, {}, WORDS, 12.0) == ({"lines": 3, "split": 5, "count": 6}, 3)

    def test_k_is_at_least_1_and_so_is_a_degree(self) -> None:
        ratio = {"lines": 50.0, "split": 80.0, "count": 0.5}
        degrees, k = submitted(ratio, {}, WORDS, 1.0)
        assert k == 1
        assert min(degrees.values()) == 1

    def test_a_lopsided_ratio_does_not_outgrow_the_cores(self) -> None:
        degrees, k = submitted({"lines": 1.0, "split": 900.0, "count": 100.0}, {}, WORDS, 10.0)
        assert k == 1
        assert degrees == {"lines": 1, "split": 9, "count": 1}

    def test_the_scaler_at_submission(self) -> None:
        request = _request(cluster=Cluster.of(3, cpu_cores=4.0))
        graph = request.graph
        scaled = RateRatio().scale(request, graph, np.arange(len(graph)), len(graph))
        assert dict(scaled.graph.topology.parallelism) == {"lines": 3, "split": 5, "count": 6}
        assert scaled.reasons[0].figures["k"] == 3

    def test_without_declared_cpu_the_parallelism_stays(self) -> None:
        topology = replace(
            WORDS, operators=tuple(replace(o, cpu_us_per_tuple=0.0) for o in WORDS.operators)
        )
        request = _request(topology=topology)
        scaled = RateRatio().scale(request, request.graph, np.zeros(5, dtype=np.int64), 3)
        assert scaled.graph is request.graph
        assert "declares no CPU time" in scaled.reasons[0].text

    def test_operators_that_do_not_share_their_stream_are_fixed(self) -> None:
        edges = (Edge("lines", "split", Grouping.ALL), Edge("split", "count", Grouping.GLOBAL))
        assert fixed(replace(WORDS, edges=edges)) == {"split", "count"}


class TestRateSteps:
    @pytest.mark.parametrize(
        ("change", "steps"),
        [
            (0.0, 0),
            (0.25, 0),
            (0.26, 1),
            (1.0, 3),
            (-0.25, 0),
            (-0.26, -1),
            (-0.5, -2),
            (-1.0, -48),
        ],
    )
    def test_up_and_down(self, change: float, steps: int) -> None:
        # 1.25**3 = 1.95 < 2 < 1.25**4, and 0.75**2 = 0.56 > 0.5 > 0.75**3.
        assert RateRatio(a=0.25).steps(change) == steps

    def test_growth_is_1_plus_a_and_shrinking_1_minus_a(self) -> None:
        ratio = RateRatio(a=0.2)
        assert ratio.factor(1) == pytest.approx(1.2)
        assert ratio.factor(-1) == pytest.approx(0.8)
        assert ratio.factor(2) == pytest.approx(1.44)
        assert ratio.factor(-2) == pytest.approx(0.64)

    def test_degrees_are_whole_and_at_least_1(self) -> None:
        ratio = RateRatio(a=0.2)
        assert [ratio.followed(d, 1) for d in (1, 5, 10)] == [2, 6, 12]
        assert [ratio.followed(d, -1) for d in (1, 5, 10)] == [1, 4, 8]

    def test_the_change_is_now_less_then_over_then(self) -> None:
        running = _put(_request(1000.0), [0, 1, 2, 1, 2])
        assert rate_change(_request(1500.0, running)) == pytest.approx(0.5)
        assert rate_change(_request(500.0, running)) == pytest.approx(-0.5)

    @pytest.mark.parametrize(("rate", "split"), [(2000.0, 4), (1000.0, 2), (500.0, 1), (100.0, 1)])
    def test_the_scaler_follows_the_rate(self, rate: float, split: int) -> None:
        running = _put(_request(1000.0), [0, 1, 2, 1, 2])
        request = _request(rate, running)
        groups = np.array([0, 1, 2, 1, 2])
        scaled = RateRatio(a=0.25).scale(request, request.graph, groups, 3)
        assert scaled.graph.topology["split"].parallelism == split
        # Instances that stay, stay where they are.
        kept = min(2, split)
        assert scaled.groups[scaled.graph.span("split")][:kept].tolist() == [1, 2][:kept]

    def test_growth_ends_at_the_cores(self) -> None:
        cluster = Cluster.of(2, cpu_cores=2.0)
        running = _put(_request(10.0, cluster=cluster), [0, 1, 0, 1, 0])
        request = _request(10_000.0, running, cluster)
        scaled = RateRatio().scale(request, request.graph, running.node_of, 2)
        assert len(scaled.graph) <= 8


def busy(graph: InstanceGraph, node_of: list[int], nodes: int = 2) -> list[float]:
    """CPU of each node after instances were put there one by one."""
    filled = FilledNodes(graph, Cluster.of(nodes), input_us=10.0, output_us=100.0)
    for instance, node in enumerate(node_of):
        filled.put(np.array([instance]), node)
    return filled.busy.tolist()


class TestTrafficCpu:
    def test_equations_8_to_10_by_hand(self) -> None:
        # in -> a (100 tuples/s) -> b (300 tuples/s).
        topology = Topology(
            "t",
            (
                Operator("in", Kind.SOURCE, rate_per_s=100, cpu_us_per_tuple=1000),
                Operator("a", cpu_us_per_tuple=1000, selectivity=3),
                Operator("b", cpu_us_per_tuple=1000),
            ),
            (Edge("in", "a"), Edge("a", "b")),
        )
        graph = expand(topology)
        cores = graph.cpu_cores
        assert cores.tolist() == pytest.approx([0.1, 0.1, 0.3])
        # "a" receives from another node: 100 * 10 us; "in" sends to it: 100 * 100 us.
        assert busy(graph, [0, 0, 0]) == pytest.approx([0.5, 0.0])
        assert busy(graph, [0, 1, 1]) == pytest.approx([0.1 + 0.01, 0.4 + 0.001])
        assert busy(graph, [0, 0, 1]) == pytest.approx([0.2 + 0.03, 0.3 + 0.003])

    @given(topologies(cyclic=True), st.randoms(use_true_random=False))
    def test_equations_8_to_10(self, topology: Topology, random: Random) -> None:
        graph = expand(topology)
        node_of = np.array([random.randrange(3) for _ in range(len(graph))])
        rates = graph.rates().toarray() * (node_of[:, None] != node_of[None, :])
        cores = graph.cpu_cores + 1e-6 * (10.0 * rates.sum(axis=0) + 100.0 * rates.sum(axis=1))
        expected = np.bincount(node_of, weights=cores, minlength=3)
        np.testing.assert_allclose(busy(graph, node_of.tolist(), 3), expected)

    @given(topologies(cyclic=True))
    def test_directed_rates_are_those_of_the_matrix(self, topology: Topology) -> None:
        graph = expand(topology)
        full = graph.rates().toarray()
        for instance in range(len(graph)):
            received, sent = directed_rates(graph, instance)
            np.testing.assert_allclose(received, full[:, instance])
            np.testing.assert_allclose(sent, full[instance])


def _fit(graph: InstanceGraph, cluster: Cluster, **parameters: float) -> IntArray:
    placer = FirstFit(**parameters)
    rng = np.random.default_rng(0)
    return placer.place(graph, np.arange(len(graph)), len(graph), cluster, None, rng).node_of


class TestFirstFit:
    def test_nodes_by_free_cpu_then_memory(self) -> None:
        # Without demand every node is as good: the order of the nodes decides.
        graph = expand(Topology("t", (Operator("in", Kind.SOURCE, 3),)))
        nodes = (
            Node("c", cpu_cores=2, mem_mb=100),
            Node("b", cpu_cores=4, mem_mb=100),
            Node("a", cpu_cores=4, mem_mb=200),
        )
        assert _fit(graph, Cluster(nodes)).tolist() == [2, 1, 0]

    def test_instances_of_an_operator_apart_as_long_as_there_are_nodes(self) -> None:
        graph = expand(WORDS.with_parallelism({"split": 4}))
        node_of = _fit(graph, Cluster.of(3, cpu_cores=4.0))
        assert sorted(np.bincount(node_of[graph.span("split")]).tolist()) == [1, 1, 2]
        assert len(set(node_of[graph.span("count")].tolist())) == 2

    def test_where_it_finishes_first_by_hand(self) -> None:
        # The source takes 0.4 of node 0. Beside it a tuple comes in 20 us, but "map" shares the
        # node; on node 1 it has the node to itself, and the tuple comes in 100 us.
        def where(map_us: float) -> IntArray:
            topology = Topology(
                "t",
                (
                    Operator("in", Kind.SOURCE, rate_per_s=1000, cpu_us_per_tuple=400),
                    Operator("map", cpu_us_per_tuple=map_us),
                ),
                (Edge("in", "map"),),
            )
            return _fit(expand(topology), Cluster.of(2, cpu_cores=1.0), input_us=0.0, output_us=0.0)

        assert where(50.0).tolist() == [0, 0]  # 50/0.55 + 20 = 111 < 50/0.95 + 100 = 153
        assert where(100.0).tolist() == [0, 1]  # 100/0.5 + 20 = 220 > 100/0.9 + 100 = 211

    def test_a_node_is_available_up_to_high(self) -> None:
        graph = expand(Topology("t", (Operator("in", Kind.SOURCE, 1, cpu_pct=85),)))
        nodes = Cluster((Node("large", cpu_cores=0.9), Node("small", cpu_cores=1.0, mem_mb=1.0)))
        assert _fit(graph, nodes).tolist() == [1]

    def test_the_traffic_counts_for_availability(self) -> None:
        # 0.45 + 0.45 fits node 0 at 0.9 exactly; on node 1 the traffic alone would take 0.5 more.
        topology = Topology(
            "t",
            (
                Operator("in", Kind.SOURCE, rate_per_s=1000, cpu_us_per_tuple=450),
                Operator("map", cpu_us_per_tuple=450),
            ),
            (Edge("in", "map"),),
        )
        cluster = Cluster.of(2, cpu_cores=1.0)
        apart = _fit(expand(topology), cluster, input_us=0.0, output_us=0.0)
        assert apart.tolist() == [0, 1]
        assert _fit(expand(topology), cluster, input_us=500.0, output_us=0.0).tolist() == [0, 0]

    def test_groups_are_placed_as_wholes(self) -> None:
        graph = expand(WORDS)
        groups = np.array([0, 0, 1, 0, 1])
        placed = FirstFit().place(graph, groups, 2, Cluster.of(3), None, np.random.default_rng(0))
        assert all(len(set(placed.node_of[groups == g].tolist())) == 1 for g in (0, 1))

    def test_says_when_no_node_is_available(self) -> None:
        graph = expand(Topology("t", (Operator("in", Kind.SOURCE, 2, cpu_pct=95),)))
        placed = FirstFit().place(
            graph, np.arange(2), 2, Cluster.of(1, cpu_cores=1.0), None, np.random.default_rng(0)
        )
        assert placed.reasons[-1].figures == {"crowded": 2, "full": 1}


def _loads(*percents: float) -> Topology:
    return Topology(
        "loads", tuple(Operator(f"t{i}", Kind.SOURCE, cpu_pct=p) for i, p in enumerate(percents))
    )


def _drain(topology: Topology, node_of: list[int], nodes: int, **parameters: float) -> IntArray:
    request = Request(topology, Cluster.of(nodes, cpu_cores=1.0))
    return Drain(**parameters).scale(request, request.graph, np.array(node_of), nodes).groups


class TestDrain:
    def test_a_node_above_high_is_relieved(self) -> None:
        moved = _drain(_loads(60, 40, 30), [0, 0, 1], 2)
        held = np.bincount(moved, weights=[0.6, 0.4, 0.3], minlength=2)
        assert held.max() <= 0.9

    def test_a_node_at_high_stays(self) -> None:
        assert _drain(_loads(50, 40, 30), [0, 0, 1], 2).tolist() == [0, 0, 1]

    def test_a_node_below_low_is_emptied(self) -> None:
        assert _drain(_loads(50, 10, 5), [0, 1, 1], 2, growth=10.0).tolist() == [0, 0, 0]

    def test_a_node_at_low_stays(self) -> None:
        assert _drain(_loads(50, 20), [0, 1], 2, growth=10.0).tolist() == [0, 1]

    def test_no_receiver_goes_above_high(self) -> None:
        assert _drain(_loads(80, 15), [0, 1], 2, growth=10.0).tolist() == [0, 1]

    def test_memory_alone_can_be_too_much_and_keeps_a_node_up(self) -> None:
        topology = Topology(
            "t",
            tuple(
                Operator(f"t{i}", Kind.SOURCE, cpu_pct=5, mem_mb=mb)
                for i, mb in enumerate((60.0, 40.0, 30.0))
            ),
        )
        request = Request(topology, Cluster.of(2, cpu_cores=1.0, mem_mb=100.0))
        moved = Drain().scale(request, request.graph, np.array([0, 0, 1]), 2)
        held = np.bincount(moved.groups, weights=[60.0, 40.0, 30.0], minlength=2)
        assert held.max() <= 90.0
        assert held.min() > 0.0

    def test_the_makespan_is_respected(self) -> None:
        # Emptying the second node takes the first from 0.5 to 0.65, and the makespan with it.
        topology = Topology(
            "t",
            (
                Operator("in", Kind.SOURCE, rate_per_s=1000, cpu_us_per_tuple=500),
                Operator("side", Kind.SOURCE, rate_per_s=1000, cpu_us_per_tuple=150),
                Operator("out"),
            ),
            (Edge("in", "out"), Edge("side", "out")),
        )
        start = [0, 1, 0]
        assert _drain(topology, start, 2, growth=0.1).tolist() == start
        assert _drain(topology, start, 2, growth=1.0).tolist() == [0, 0, 0]

    def test_the_slowest_goes_first(self) -> None:
        topology = Topology(
            "t",
            (
                Operator("fast", Kind.SOURCE, rate_per_s=4000, cpu_us_per_tuple=100),
                Operator("slow", Kind.SOURCE, rate_per_s=40, cpu_us_per_tuple=10_000),
                Operator("rest", Kind.SOURCE, cpu_pct=20),
            ),
        )
        assert _drain(topology, [0, 0, 0], 2).tolist() == [0, 1, 0]

    def test_makespan_is_that_of_the_plan(self) -> None:
        request = _request()
        node_of = np.array([0, 1, 2, 1, 2])
        plan = _put(request, node_of.tolist())
        # One process a node, so "in the node" and "in the process" differ in what they cost.
        assert plan.after.latency_ms is not None
        assert makespan(request.graph, request.cluster, node_of) >= plan.after.latency_ms


class TestSlowest:
    def test_the_slowest_operator_gets_one_more(self) -> None:
        request = _request()
        groups = np.array([0, 1, 2, 1, 2])
        times = operator_us(request.graph, request.cluster, groups)
        assert max(times, key=lambda n: times[n]) == "split"
        scaled = Slowest().scale(request, request.graph, groups, 3)
        assert dict(scaled.graph.topology.parallelism) == {"lines": 1, "split": 3, "count": 2}


@given(topologies(), st.sampled_from(scalers.names()), st.integers(1, 4))
def test_every_scaler_keeps_its_contract(topology: Topology, name: str, nodes: int) -> None:
    scaler = scalers.make(name)
    assert isinstance(scaler, Scaler)
    request = Request(topology, Cluster.of(nodes))
    groups = np.arange(len(request.graph)) % nodes
    scaled = scaler.scale(request, request.graph, groups, nodes)
    assert list(scaled.graph.topology.parallelism) == list(topology.parallelism)
    assert scaled.groups.shape == (len(scaled.graph),)
    assert scaled.groups.min() >= 0
    assert scaled.groups.max() < scaled.count
    assert all(reason.text for reason in scaled.reasons)
    assert scaled.reasons


class TestRateChange:
    running = _put(_request(2000.0), [0, 1, 2, 1, 2])

    @pytest.mark.parametrize(
        ("rate", "fires"), [(2000, False), (2490, False), (2510, True), (1510, False), (1490, True)]
    )
    def test_both_sides(self, rate: float, fires: bool) -> None:
        assert RateChange(a=0.25).check(_request(rate, self.running)).fires is fires

    def test_the_makespan(self) -> None:
        request = _request(2400.0, self.running)
        assert not RateChange(a=0.25, growth=1.0).check(request).fires
        verdict = RateChange(a=0.25, growth=0.0).check(request)
        assert verdict.fires
        assert "makespan" in verdict.reasons[0].text

    def test_overload(self) -> None:
        # The first node needs 0.14 of its 0.15 cores, and 0.17 at the higher rate.
        cluster = Cluster.of(2, cpu_cores=0.15)
        running = _put(_request(1000.0, cluster=cluster), [0, 0, 1, 1, 0])
        assert running.feasible
        trigger = RateChange(a=0.25, growth=100.0)
        assert not trigger.check(_request(1050.0, running, cluster)).fires
        verdict = trigger.check(_request(1240.0, running, cluster))
        assert verdict.fires
        assert "of its capacity" in verdict.reasons[0].text

    def test_without_a_plan_or_its_nodes(self) -> None:
        assert RateChange().check(_request()).fires
        left = Cluster(Cluster.of(3, cpu_cores=4.0).nodes[1:])
        assert RateChange().check(_request(2000.0, self.running, left)).fires


class TestMeasured:
    """Time over CPU and makespan as the engine measured them."""

    running = _put(_request(), [0, 0, 1, 1, 0])

    @staticmethod
    def seen(split: float, count: float, busy: float, **more: Any) -> Measurements:
        return Measurements(
            source_rates={"lines": 2000.0},
            cpu_cores={
                "lines": np.array([0.1]),
                "split": np.array([split / 2] * 2),
                "count": np.array([count / 2] * 2),
            },
            busy={"lines": 1.0, "split": 1.0, "count": busy},
            **more,
        )

    def asked(self, measured: Measurements, **more: Any) -> Request:
        cluster = Cluster.of(3, cpu_cores=4.0)
        return replace(_request(2000.0, self.running, cluster), measurements=measured, **more)

    def test_time_and_cpu_are_told_apart(self) -> None:
        asked = self.asked(self.seen(0.5, 0.5, busy=0.25))
        ratio = measured_time_over_cpu(WORDS, asked)
        # Half a core a second for 2,000 tuples is 250 us; a processor works for a quarter of it.
        assert ratio == pytest.approx({"split": 250.0, "count": 1000.0})

    def test_degrees_that_are_far_off_are_set_anew(self) -> None:
        degrees, reason = RateRatio().off(self.asked(self.seen(0.5, 0.5, busy=0.25))) or ({}, None)
        assert degrees["count"] >= 4
        assert degrees["lines"] == 1
        assert reason is not None
        assert "count" in reason.text
        plan = Sra().plan(self.asked(self.seen(0.5, 0.5, busy=0.25)))
        assert isinstance(plan, Plan)
        assert plan.parallelism["count"] > WORDS["count"].parallelism

    def test_what_was_not_measured_decides_nothing(self) -> None:
        assert RateRatio().off(self.asked(replace(self.seen(0.5, 0.5, 0.25), busy={}))) is None
        assert RateRatio().off(_request()) is None
        assert RateRatio(drift=1000).off(self.asked(self.seen(0.5, 0.5, 0.25))) is None

    def test_a_makespan_is_compared_with_what_was_measured(self) -> None:
        quick, slow = (self.seen(0.1, 0.1, 1.0, latency_ms=ms) for ms in (400.0, 900.0))
        trigger = RateChange(a=0.9, growth=1.0)
        assert trigger.check(self.asked(slow, recent=(quick, slow))).fires
        assert not trigger.check(self.asked(quick, recent=(slow, quick))).fires
        verdict = trigger.check(self.asked(slow))
        assert verdict.reasons[0].figures["makespan_growth"] < 1.0, "estimated: nothing to compare"


class TestSra:
    def test_the_first_plan_sets_the_parallelism(self) -> None:
        plan = _plan(Sra().plan(_request()))
        assert dict(plan.parallelism) == {"lines": 3, "split": 5, "count": 6}
        assert plan.feasible

    def test_declared_parallelism_where_the_other_finds_no_room(self) -> None:
        # 40 MB of memory declared; 14 instances would need 120 MB and more.
        cluster = Cluster.of(3, cpu_cores=4.0, mem_mb=30.0)
        plan = _plan(Sra().plan(_request(cluster=cluster)))
        assert dict(plan.parallelism) == dict(WORDS.parallelism)
        assert plan.feasible
        assert any("finds no room" in r.text for r in plan.reasons)

    def test_unchanged_it_keeps(self) -> None:
        plan = _plan(Sra().plan(_request()))
        assert isinstance(Sra().plan(_request(2000.0, plan)), Keep)

    @pytest.mark.parametrize("level", [500.0, 2000.0, 8000.0])
    def test_a_wobble_of_a_tenth_changes_nothing(self, level: float) -> None:
        rng = np.random.default_rng(5)
        plan = _plan(Sra().plan(_request(level)))
        for _ in range(20):
            rate = level * float(rng.uniform(0.9, 1.1))
            assert isinstance(Sra().plan(_request(rate, plan)), Keep)

    def test_twice_the_rate_and_back_take_one_plan_each(self) -> None:
        first = _plan(Sra().plan(_request(8000.0)))
        doubled = _plan(Sra().plan(_request(16_000.0, first)))
        assert doubled.feasible
        assert sum(doubled.parallelism.values()) > sum(first.parallelism.values())
        assert isinstance(Sra().plan(_request(16_000.0, doubled)), Keep)
        back = _plan(Sra().plan(_request(8000.0, doubled)))
        assert back.feasible
        assert sum(back.parallelism.values()) < sum(doubled.parallelism.values())
        assert isinstance(Sra().plan(_request(8000.0, back)), Keep)

    def test_a_replan_moves_little(self) -> None:
        first = _plan(Sra().plan(_request(8000.0)))
        grown = _plan(Sra().plan(_request(11_000.0, first)))
        for name, spots in first.placement.items():
            stayed = [a == b for a, b in zip(spots, grown.placement[name], strict=False)]
            assert all(stayed), name

    def test_exact_nodes(self) -> None:
        request = replace(_request(cluster=Cluster.of(4, cpu_cores=4.0)), exact_nodes=True)
        plan = _plan(Sra().plan(request))
        assert plan.after.nodes_used == 4
        assert dict(plan.parallelism) == dict(WORDS.parallelism)
        assert plan.after.max_node_load <= exact_limit(request) + 1e-9

    def test_a_node_that_is_gone(self) -> None:
        plan = _plan(Sra().plan(_request()))
        nodes = Cluster.of(3, cpu_cores=4.0).nodes
        left = Cluster(tuple(node for node in nodes if node.name != plan.active[0]))
        assert _plan(Sra().plan(_request(2000.0, plan, left))).feasible
