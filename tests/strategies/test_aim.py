"""A strategy's own aim: a plan that serves it is a gain, and nothing takes it back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.common.arrays import IntArray
from penstock.model import Cluster, Edge, Grouping, Keep, Kind, Operator, Plan, Reason, Topology
from penstock.model.load import lin
from penstock.strategies import Request, make_plan
from penstock.strategies.ms import MsStream
from penstock.strategies.place import Placed
from penstock.strategies.replan import Aim, finish, worthwhile
from penstock.strategies.trigger.node_imbalance import node_loads

UNEVEN = np.array([0, *np.repeat(np.arange(4), [8, 4, 2, 2])])
EVEN = np.array([0, *np.repeat(np.arange(4), 4)])


def uneven(state_mb: float = 0.0) -> Request:
    """Make sixteen equal instances, half of them on one node: loads 0.5, 0.25, 0.125, 0.125."""
    topology = Topology(
        "uneven",
        (
            Operator("in", Kind.SOURCE, rate_per_s=1),
            Operator("a", Kind.STATEFUL, 16, cpu_pct=12.5, state_mb=state_mb),
        ),
        (Edge("in", "a", Grouping.SHUFFLE),),
    )
    request = Request(topology, Cluster.of(4, cpu_cores=2.0))
    running = make_plan(request, "even", UNEVEN, np.zeros_like(UNEVEN), [Reason("put there")])
    return replace(request, running=running)


def at(node_of: IntArray) -> Placed:
    return Placed(node_of, np.zeros_like(node_of), (Reason("for the test"),))


def balance(request: Request, allowed: float = 0.4) -> Aim:
    return Aim("lin", lambda found: lin(node_loads(request.graph, request.cluster, found)), allowed)


@pytest.mark.parametrize("state_mb", [0.0, 500.0])
def test_ms_levels_nodes_that_lag(state_mb: float) -> None:
    request = uneven(state_mb)
    plan = MsStream(epochs=60, groups=4).plan(request)
    assert isinstance(plan, Plan)
    assert plan.before is not None
    assert plan.before.lin > 0.4 >= plan.after.lin
    assert plan.after.nodes_used == 4


def test_moves_that_serve_the_aim_are_not_taken_back() -> None:
    request = uneven(500.0)
    assert isinstance(finish(request, "any", at(EVEN)), Keep)
    plan = finish(request, "any", at(EVEN), aim=balance(request))
    assert isinstance(plan, Plan)
    assert plan.after.lin <= 0.4
    moved = (plan.node_of_in(request.cluster) != UNEVEN).sum()
    assert 0 < moved < 10, "moves beyond what the aim asks for are taken back"


def test_an_aim_that_is_reached_is_no_reason() -> None:
    request = uneven()
    assert isinstance(finish(request, "any", at(EVEN), aim=balance(request, allowed=2.0)), Keep)


def test_a_plan_that_hardly_helps_is_no_gain() -> None:
    request = uneven()
    answer = finish(request, "any", at(3 - UNEVEN), aim=balance(request))
    assert isinstance(answer, Keep)
    assert answer.reasons[0].figures["lin_after"] == answer.reasons[0].figures["lin_before"]


def test_the_search_does_not_empty_nodes_that_were_asked_for() -> None:
    """Less traffic is on two nodes; four groups were asked for."""
    topology = Topology(
        "pairs",
        (
            Operator("in", Kind.SOURCE, 8, rate_per_s=800, cpu_pct=20),
            Operator("out", Kind.STATELESS, 8, cpu_pct=20),
        ),
        (Edge("in", "out", Grouping.SHUFFLE),),
    )
    plan = MsStream(epochs=60, groups=4).plan(Request(topology, Cluster.of(4, cpu_cores=2.0)))
    assert isinstance(plan, Plan)
    assert plan.after.nodes_used == 4
    assert plan.after.lin <= 0.4


@pytest.mark.parametrize(("state_mb", "free"), [(0.0, True), (10.0, True), (500.0, False)])
def test_a_move_that_nobody_feels_is_free(state_mb: float, free: bool) -> None:
    # Sixteen instances share the state; 125 MB/s carry an instance's 0.6 MB in 5 ms.
    request = uneven(state_mb)
    left, notes = worthwhile(request, request.graph, UNEVEN, EVEN)
    assert (left.tolist() == EVEN.tolist()) is free
    assert bool(notes) is not free
