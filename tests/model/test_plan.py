from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import (
    Cluster,
    Cost,
    InvalidValue,
    Keep,
    Plan,
    Reason,
    RoutingTable,
    Spot,
    Violation,
    violations,
)
from penstock.model.cost import evaluate
from penstock.strategies import Request
from penstock.testing.generate import placements, requests

FREE = Cost(0, 0, 0, 0, {"x": 0.0}, {}, 0)


def plan(**changes: Any) -> Plan:
    values: dict[str, Any] = {
        "strategy": "mine",
        "topology": "t",
        "parallelism": {"a": 1, "b": 2},
        "nodes": ("x", "y"),
        "node_of": np.array([0, 1, 1]),
        "process_of": np.array([0, 0, 3]),
        "after": FREE,
        "reasons": (Reason("because"),),
    }
    return Plan(**{**values, **changes})


def test_placement_by_operator() -> None:
    assert plan().placement == {"a": (Spot("x", 0),), "b": (Spot("y", 0), Spot("y", 3))}
    assert str(Spot("y", 3)) == "y/3"


def test_nodes_in_use_are_active_unless_more_are_named() -> None:
    assert plan().active == ("x", "y")
    assert plan(node_of=np.array([1, 1, 1])).active == ("y",)
    assert plan(node_of=np.array([1, 1, 1]), active=("x", "y")).active == ("x", "y")


def test_feasible_means_no_limit_is_broken() -> None:
    assert plan().feasible
    assert not plan(infeasible=(Violation("CPU", "node 'x'", 2, 1, "cores"),)).feasible


def test_positions_in_another_cluster() -> None:
    other = Cluster((Cluster.of(1).nodes[0], replace(Cluster.of(1).nodes[0], name="y")))
    assert plan().node_of_in(other).tolist() == [-1, 1, 1]


def test_arrays_and_mappings_are_frozen() -> None:
    mine = np.array([0, 1, 1])
    made = plan(node_of=mine)
    mine[0] = 1
    assert made.node_of.tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        made.node_of[0] = 1
    with pytest.raises(TypeError):
        made.parallelism["a"] = 3  # type: ignore[index]


def test_equality_is_by_value() -> None:
    assert plan() == plan()
    assert hash(plan()) == hash(plan())
    assert plan() != "a plan"
    for change in (
        {"node_of": np.array([1, 1, 1])},
        {"process_of": np.array([0, 0, 0])},
        {"reasons": (Reason("because", {"k": 1.0}),)},
        {"strategy": "yours"},
        {"pinned": False},
        {"before": FREE},
        {"active": ("y", "x")},
        {"routing": {"b": RoutingTable((0, 1))}},
        {"parallelism": {"a": 2, "b": 1}},
    ):
        assert plan() != plan(**change), change


def test_the_order_of_operators_is_part_of_a_plan() -> None:
    one, two = plan(parallelism={"a": 1, "b": 2}), plan(parallelism={"b": 2, "a": 1})
    assert one.placement != two.placement
    assert one != two


def test_the_order_of_operators_survives_sorted_keys() -> None:
    made = plan(parallelism={"b": 2, "a": 1})
    back = Plan.from_dict(json.loads(json.dumps(made.to_dict(), sort_keys=True)))
    assert back == made
    assert back.placement == made.placement


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: plan(node_of=np.array([0, 1])),
            "parameter node_of of a plan by 'mine' must be 3 numbers, one an instance, got (2,)",
        ),
        (
            lambda: plan(process_of=np.array([[0, 0, 0]])),
            "parameter process_of of a plan by 'mine' must be 3 numbers, one an instance, "
            "got (1, 3)",
        ),
        (
            lambda: plan(node_of=np.array([0, 1, 2])),
            "parameter node_of of a plan by 'mine' must be from 0 to 1, got 2",
        ),
        (
            lambda: plan(node_of=np.array([0, 1, -1])),
            "parameter node_of of a plan by 'mine' must be from 0 to 1, got -1",
        ),
        (
            lambda: plan(process_of=np.array([0, -2, 0])),
            "parameter process_of of a plan by 'mine' must be at least 0, got -2",
        ),
        (
            lambda: plan(reasons=()),
            "parameter reasons of a plan by 'mine' must be at least one reason, got ()",
        ),
        (
            lambda: Plan.from_dict({**plan().to_dict(), "format": 99}),
            "parameter format of a plan must be 1, got 99",
        ),
        (
            lambda: RoutingTable(()),
            "parameter partitions of a routing table must be at least one partition, got ()",
        ),
        (
            lambda: Keep(()),
            "parameter reasons of a decision to keep must be at least one reason, got ()",
        ),
    ],
)
def test_every_error_says_what_is_allowed(make: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        make()
    assert str(caught.value) == message


@given(requests(cyclic=None), st.booleans(), st.data())
def test_json_round_trip(request: Request, sort_keys: bool, data: st.DataObject) -> None:
    where = data.draw(placements(request))
    cost = evaluate(request.graph, request.cluster, *where)
    table = RoutingTable(
        tuple(data.draw(st.lists(st.integers(0, 3), min_size=1))),
        data.draw(st.dictionaries(st.integers(), st.lists(st.integers(0, 3)).map(tuple))),
    )
    made = Plan(
        strategy="mine",
        topology=request.topology.name,
        parallelism=request.topology.parallelism,
        nodes=request.cluster.names,
        node_of=where[0],
        process_of=where[1],
        after=cost,
        before=data.draw(st.sampled_from([None, cost])),
        reasons=(Reason("because", {"figure": data.draw(st.floats(-1e9, 1e9))}),),
        infeasible=violations(request.graph, request.cluster, *where),
        routing={request.topology.operators[-1].name: table},
        pinned=data.draw(st.booleans()),
    )
    written = json.dumps(made.to_dict(), allow_nan=False, sort_keys=sort_keys)
    back = Plan.from_dict(json.loads(written))
    assert back == made
    assert back.placement == made.placement
    assert hash(back) == hash(made)
