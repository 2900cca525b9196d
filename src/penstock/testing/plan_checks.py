"""What any plan must be, whoever made it."""

from __future__ import annotations

import json
from math import isclose

from penstock.model import InstanceGraph, Plan, expand
from penstock.strategies import Request
from penstock.testing.broken import require
from penstock.testing.oracle import broken_limits, traffic_by_tier

#: Resources whose violations are recomputed; a strategy may report others.
LIMITS = frozenset({"CPU", "memory", "I/O", "room"})


def check_plan(plan: Plan, request: Request) -> None:
    """Check that a plan answers its request: complete, honest about limits and costs, explained."""
    check_complete(plan, request)
    check_spots(plan, request)
    check_limits(plan, request)
    check_costs(plan, request)
    check_reasons(plan)
    check_json(plan)


def graph_of(plan: Plan, request: Request) -> InstanceGraph:
    """Return the instances of a plan, which may have changed the parallelism."""
    return expand(request.topology.with_parallelism(plan.parallelism), request.measurements)


def check_complete(plan: Plan, request: Request) -> None:
    """Check that every operator is there, in the topology's order, with all its instances."""
    require(
        plan.topology == request.topology.name,
        f"the plan must be for topology {request.topology.name!r}, is for {plan.topology!r}",
    )
    require(
        list(plan.parallelism) == [o.name for o in request.topology.operators],
        f"operators must be the topology's, in its order, are {list(plan.parallelism)}",
    )
    for name, count in plan.parallelism.items():
        placed = len(plan.placement[name])
        require(
            isinstance(count, int) and count >= 1 and placed == count,
            f"operator {name!r} must have its {count!r} instances placed, has {placed}",
        )


def check_spots(plan: Plan, request: Request) -> None:
    """Check that every instance is on an existing process of an existing, active node."""
    cluster = request.cluster
    require(plan.nodes == cluster.names, "the plan's nodes must be the cluster's, in its order")
    awake = set(plan.active)
    require(awake <= set(cluster.names), f"active nodes must exist, {plan.active} do not all")
    for name, spots in plan.placement.items():
        for index, spot in enumerate(spots):
            where = f"{name}[{index}] is on {spot}"
            require(spot.node in cluster.index, f"{where}: no such node")
            processes = cluster.nodes[cluster.index[spot.node]].processes
            require(0 <= spot.process < processes, f"{where}, whose node has {processes} processes")
            require(spot.node in awake, f"{where}, which is not among the active nodes")
    for name, table in plan.routing.items():
        targets = [*table.partitions, *(i for to in table.split.values() for i in to)]
        count = plan.parallelism.get(name, 0)
        require(
            all(0 <= instance < count for instance in targets),
            f"the routing table of {name!r} must point to its {count} instances",
        )


def check_limits(plan: Plan, request: Request) -> None:
    """Check that every limit that is broken is reported, and none that is not."""
    broken = broken_limits(graph_of(plan, request), request.cluster, plan.node_of, plan.process_of)
    reported = {(v.resource, v.where) for v in plan.infeasible if v.resource in LIMITS}
    require(broken <= reported, f"broken limits must be reported: {sorted(broken - reported)}")
    require(reported <= broken, f"limits reported but kept: {sorted(reported - broken)}")


def check_costs(plan: Plan, request: Request) -> None:
    """Check that the traffic that the plan states is that of its placement."""
    traffic = traffic_by_tier(graph_of(plan, request), plan.node_of, plan.process_of)
    cost = plan.after
    stated = (cost.in_process_per_s, cost.in_node_per_s, cost.across_per_s)
    require(
        all(
            isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) for a, b in zip(stated, traffic, strict=True)
        ),
        f"the plan states a traffic by tier of {stated}, its placement has {traffic}",
    )
    used = {spot.node for spots in plan.placement.values() for spot in spots}
    require(
        set(cost.node_load) == used, f"node_load must list {sorted(used)}, lists {cost.node_load}"
    )


def check_reasons(plan: Plan) -> None:
    """Check that there are reasons and that each says something."""
    require(plan.reasons, "a plan must have reasons")
    for reason in plan.reasons:
        require(reason.text.strip(), "a reason must not be empty")


def check_json(plan: Plan) -> None:
    """Check that the plan comes back from JSON as it went, whatever the order of the keys."""
    written = json.dumps(plan.to_dict(), allow_nan=False, sort_keys=True)
    require(Plan.from_dict(json.loads(written)) == plan, "the plan changes on its way through JSON")
