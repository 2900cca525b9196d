from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import (
    Cluster,
    Cost,
    Edge,
    Grouping,
    InvalidValue,
    Kind,
    LoadWeights,
    Measurements,
    Node,
    NodeUse,
    Operator,
    TierCosts,
    Topology,
    Violation,
    evaluate,
    expand,
    violations,
)
from penstock.model.cost import estimate_latency_ms
from penstock.model.load import OVER_NOTHING, fraction, lin, lit
from penstock.strategies import Request
from penstock.testing.generate import placements, requests
from penstock.testing.oracle import broken_limits, traffic_by_tier


@pytest.mark.parametrize(
    ("loads", "value"),
    [
        ([], 0.0),
        ([5.0], 0.0),
        ([0.0, 0.0], 0.0),
        ([10.0, 20.0, 60.0], 1.0),  # mean 30: the busiest is 30 above
        ([0.0, 10.0, 10.0, 10.0], 1.0),  # mean 7.5: the idlest is 7.5 below
        ([8.0, 10.0, 12.0], 0.2),
        ([4.0, 12.0, 14.0], 0.6),  # 0.4 above, 0.6 below
    ],
)
def test_imbalance_by_hand(loads: list[float], value: float) -> None:
    # Ms eq. 10 and eq. 38 are the same figure, over instances and over nodes.
    assert lit(np.array(loads)) == pytest.approx(value)
    assert lin(np.array(loads)) == pytest.approx(value)


PAIR = Topology(
    "pair",
    (
        Operator("a", Kind.SOURCE, 2, rate_per_s=200),
        Operator("b", Kind.STATEFUL, 2, cpu_us_per_tuple=1000, mem_mb=100),
    ),
    (Edge("a", "b", Grouping.FIELDS, (0.75, 0.25)),),
)
TWO = Cluster(
    (
        Node("x", cpu_cores=1, mem_mb=400, io_mb_s=10, processes=2, slots=2),
        Node("y", cpu_cores=0.5, mem_mb=1000, io_mb_s=10, processes=1, slots=1),
    )
)


def test_tiers_by_hand() -> None:
    graph = expand(PAIR)
    # a0 and b0 in x/0, a1 in x/1, b1 in y/0.
    cost = evaluate(graph, TWO, np.array([0, 0, 0, 1]), np.array([0, 1, 0, 0]))
    # a0 -> b0 75 in process, a1 -> b0 75 in node, a0 -> b1 and a1 -> b1 25 each across.
    assert (cost.in_process_per_s, cost.in_node_per_s, cost.across_per_s) == (75, 75, 50)
    assert cost.communication_us_per_s == 75 * 0 + 75 * 20 + 50 * 100  # Ra eq. 22-23
    assert cost.total_per_s == 200
    assert cost.cut_share == 0.25
    assert cost.in_process_share == 0.375
    assert cost.nodes_used == 2
    # b0 takes 150 tuples/s, 0.15 cores; b1 takes 50, 0.05 cores; memory 100 of 400 and of 1000.
    assert cost.node_load == pytest.approx({"x": 0.25, "y": 0.1})
    assert cost.max_node_load == pytest.approx(0.25)
    assert cost.process_load == pytest.approx({"x/0": 0.15, "x/1": 0.0, "y/0": 0.1})
    assert cost.lit == pytest.approx({"b": 0.5})
    weighted = [0.5 * 0.15 + 0.35 * 0.25, 0.5 * 0.1 + 0.35 * 0.1]
    assert cost.lin == pytest.approx(2 * max(weighted) / sum(weighted) - 1)


def test_other_tier_costs_and_weights() -> None:
    graph = expand(PAIR)
    where = (np.array([0, 0, 0, 1]), np.array([0, 1, 0, 0]))
    cost = evaluate(graph, TWO, *where, TierCosts(1, 2, 3), LoadWeights(1, 0))
    assert cost.communication_us_per_s == 75 + 2 * 75 + 3 * 50
    assert cost.lin == pytest.approx(2 * 0.15 / 0.25 - 1)


def test_local_or_shuffle_by_hand() -> None:
    topology = Topology(
        "t",
        (Operator("a", Kind.SOURCE, 2, rate_per_s=200), Operator("b", parallelism=2)),
        (Edge("a", "b", Grouping.LOCAL_OR_SHUFFLE),),
    )
    where = (np.array([0, 0, 0, 1]), np.array([0, 1, 0, 0]))
    cost = evaluate(expand(topology), TWO, *where)
    # a0 finds b0 in its process and sends it all; a1 finds none and deals to b0 and b1.
    assert (cost.in_process_per_s, cost.in_node_per_s, cost.across_per_s) == (100, 50, 50)
    # What was measured is what happened, whatever was preferred.
    measured = Measurements(rates={("a", "b"): np.array([[60.0, 40.0], [50.0, 50.0]])})
    cost = evaluate(expand(topology, measured), TWO, *where)
    assert (cost.in_process_per_s, cost.in_node_per_s, cost.across_per_s) == (60, 50, 90)


@pytest.mark.parametrize("slow_first", [False, True])
def test_latency_by_hand(slow_first: bool) -> None:
    branches = ("slow", "fast") if slow_first else ("fast", "slow")
    topology = Topology(
        "t",
        (
            Operator("s", Kind.SOURCE, rate_per_s=100),
            *(Operator(b, cpu_us_per_tuple=2000 if b == "slow" else 0) for b in branches),
            Operator("sink"),
        ),
        tuple(Edge("s", b) for b in branches) + tuple(Edge(b, "sink") for b in branches),
    )
    # slow takes 0.2 of a core, alone on half a core: use 0.4, so 2000 us become 3333.3.
    node_of = np.array([0, *(int(b == "slow") for b in branches), 0])
    cost = evaluate(expand(topology), TWO, node_of, np.zeros(4, dtype=np.int64))
    assert cost.latency_ms == pytest.approx((100 + 2000 / 0.6 + 100) / 1000)


def test_latency_of_a_busy_node_stays_finite() -> None:
    topology = Topology(
        "t",
        (Operator("s", Kind.SOURCE, rate_per_s=100), Operator("a", cpu_us_per_tuple=1e6)),
        (Edge("s", "a"),),
    )
    cost = evaluate(expand(topology), TWO, np.array([0, 0]), np.array([0, 0]))
    assert cost.latency_ms == pytest.approx(100_000)  # 1 s, stretched by 1 / (1 - 0.99)


def test_nothing_flows() -> None:
    graph = expand(Topology("t", (Operator("a", Kind.SOURCE, 2, rate_per_s=0),)))
    cost = evaluate(graph, TWO, np.array([0, 1]), np.array([0, 0]))
    assert cost.latency_ms is None
    assert (cost.cut_share, cost.in_process_share, cost.lin) == (0, 0, 0)
    assert (cost.node_load, cost.lit) == ({"x": 0, "y": 0}, {})


@given(requests(cyclic=None), st.data())
def test_traffic_by_tier_equals_the_naive_one(request: Request, data: st.DataObject) -> None:
    node_of, process_of = data.draw(placements(request))
    cost = evaluate(request.graph, request.cluster, node_of, process_of)
    got = (cost.in_process_per_s, cost.in_node_per_s, cost.across_per_s)
    want = traffic_by_tier(request.graph, node_of, process_of)
    assert got == pytest.approx(want, rel=1e-9, abs=1e-6)
    assert min(got) >= 0


@given(requests(cyclic=None))
def test_everything_in_one_process_crosses_nothing(request: Request) -> None:
    nowhere_else = np.zeros(len(request.graph), dtype=np.int64)
    cost = evaluate(request.graph, request.cluster, nowhere_else, nowhere_else)
    assert (cost.in_node_per_s, cost.across_per_s) == (0, 0)  # exactly


@given(requests(cyclic=None), st.permutations(range(4)), st.data())
def test_names_of_equal_nodes_do_not_matter(
    request: Request, order: list[int], data: st.DataObject
) -> None:
    cluster = Cluster.of(4, processes=2)
    n = len(request.graph)
    node_of = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    process_of = np.arange(n) % 2
    one = evaluate(request.graph, cluster, node_of, process_of)
    two = evaluate(request.graph, cluster, np.array(order)[node_of], process_of)
    for name in ("in_process_per_s", "in_node_per_s", "across_per_s", "lin", "max_node_load"):
        assert getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-9, abs=1e-6), name
    assert (one.latency_ms or 0) == pytest.approx(two.latency_ms or 0)


@given(requests(cyclic=None), st.data())
def test_violations_equal_the_naive_ones(request: Request, data: st.DataObject) -> None:
    node_of, process_of = data.draw(placements(request))
    found = violations(request.graph, request.cluster, node_of, process_of)
    assert len({(v.resource, v.where) for v in found}) == len(found)
    assert {(v.resource, v.where) for v in found} == broken_limits(
        request.graph, request.cluster, node_of, process_of
    )
    assert all(v.demand > v.capacity for v in found)


def test_violations_by_hand() -> None:
    graph = expand(
        Topology(
            "t",
            (Operator("a", Kind.SOURCE, 3, cpu_pct=40, mem_mb=500, io_bytes_per_tuple=1e4),),
        )
    )
    found = violations(graph, TWO, np.array([1, 1, 1]), np.array([0, 0, 0]))
    assert [str(v) for v in found] == [
        "node 'y' needs 1.2 cores of CPU, has 0.5",
        "node 'y' needs 1500 MB of memory, has 1000",
        "node 'y' needs 30 MB/s of I/O, has 10",
        "process 0 of node 'y' needs 3 slots of room, has 1",
    ]
    assert found[1] == Violation("memory", "node 'y'", 1500.0, 1000.0, "MB")


def test_a_capacity_that_is_just_used_up_is_no_violation() -> None:
    graph = expand(Topology("t", (Operator("a", Kind.SOURCE, 10, cpu_pct=10),)))
    zeros = np.zeros(10, dtype=np.int64)  # ten times 0.1 is not quite 1
    assert violations(graph, Cluster.of(1, cpu_cores=1), zeros, zeros) == ()


@given(requests(cyclic=None), st.data())
def test_slower_tiers_never_lower_the_latency(request: Request, data: st.DataObject) -> None:
    graph, tiers = request.graph, TierCosts(5, 20, 100)
    use = np.full(len(graph), data.draw(st.sampled_from([0.0, 0.5, 2.0])))
    total = np.array([flow.total for flow in graph.flows])
    unit = st.lists(st.floats(0, 1), min_size=len(total), max_size=len(total)).map(np.array)
    near, middle, slide = data.draw(unit), data.draw(unit), data.draw(unit)
    fast = (total * near, total * (1 - near) * middle, total * (1 - near) * (1 - middle))
    if data.draw(st.booleans()):
        slow = (fast[0] * (1 - slide), fast[1] + fast[0] * slide, fast[2])
    else:
        slow = (fast[0], fast[1] * (1 - slide), fast[2] + fast[1] * slide)
    before = estimate_latency_ms(graph, use, fast, tiers)
    after = estimate_latency_ms(graph, use, slow, tiers)
    assert (before is None) == (after is None) == (graph.total_rate <= 0)
    assert (after or 0) >= (before or 0) * (1 - 1e-9)


def test_use_of_nodes() -> None:
    use = NodeUse.of(expand(PAIR), TWO, np.array([0, 0, 0, 0]))
    assert use.instances.tolist() == [4, 0]
    assert use.cpu_cores.tolist() == pytest.approx([0.2, 0])
    assert use.mem_mb.tolist() == [200, 0]
    assert use.busiest(TWO).tolist() == pytest.approx([0.5, 0])
    one = np.ones(2)
    use = NodeUse(one * 0.1, one * 40, one * 9, np.ones(2, dtype=np.int64))
    assert [f.tolist() for f in use.fractions(TWO)] == [[0.1, 0.2], [0.1, 0.04], [0.9, 0.9]]
    assert use.busiest(TWO).tolist() == [0.9, 0.9]


def test_something_of_nothing_is_finite() -> None:
    got = fraction(np.array([0.0, 2.0, 1.0]), np.array([0.0, 0.0, 4.0]))
    assert got.tolist() == [0.0, OVER_NOTHING, 0.25]


def test_cost_comes_back_from_plain_values() -> None:
    cost = evaluate(expand(PAIR), TWO, np.array([0, 0, 0, 1]), np.array([0, 1, 0, 0]))
    assert Cost.from_dict(cost.to_dict()) == cost


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TierCosts(1, 0, 2),
            "parameter tiers of tier costs must be in ascending order: in process, in node, across "
            "nodes, got (1, 0, 2)",
        ),
        (
            lambda: TierCosts(-1, 0, 2),
            "parameter tiers of tier costs must be in ascending order: in process, in node, across "
            "nodes, got (-1, 0, 2)",
        ),
        (
            lambda: LoadWeights(0.8, 0.3),
            "parameter weights of the load figure must be between 0 and 1 with a sum of at most 1, "
            "got LoadWeights(alpha=0.8, beta=0.3)",
        ),
    ],
)
def test_every_error_says_what_is_allowed(make: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        make()
    assert str(caught.value) == message


def test_one_load_figure() -> None:
    one = LoadWeights(0.5, 0.3).combine(np.array([1.0]), np.array([0.5]), np.array([0.25]))
    assert one[0] == pytest.approx(0.5 + 0.15 + 0.05)
