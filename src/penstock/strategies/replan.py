"""The end of every plan and re-plan: only moves that pay, and "keep" when nothing is gained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.model import (
    Cluster,
    InstanceGraph,
    Keep,
    NodeUse,
    Plan,
    Reason,
    RoutingTable,
    TierCosts,
    violations,
)
from penstock.model.load import ROUNDING
from penstock.strategies.api import Request, make_plan
from penstock.strategies.place import Placed
from penstock.strategies.place.processes import stay_in_place
from penstock.strategies.place.spread import rates_of

#: How long a new plan is expected to serve, in seconds: what a move brings is counted over it.
HORIZON_S = 300.0

#: A move whose state is under way for less, in seconds, is as free as one without state: it comes
#: with a batch, and nobody feels it.
UNFELT_S = 0.01

#: A re-plan must lower the communication cost by more than this part of it to be a gain.
NOTICEABLE = 1e-6

#: A re-plan must lower a strategy's own aim by this part of it to be a gain.
CLEARLY = 0.05


@dataclass(frozen=True)
class Aim:
    """What a strategy is for besides little traffic and few nodes.

    Parameters
    ----------
    name : str
        Of the figure.
    measure : callable
        The figure of a placement, given as the node of each instance; lower is better.
    allowed : float
        A figure up to this one is as good as any lower one.
    """

    name: str
    measure: Callable[[IntArray], float]
    allowed: float

    def misses(self, node_of: IntArray) -> float:
        """Return how far a placement is above what is allowed; 0 if it is not."""
        return max(self.measure(node_of) - self.allowed, 0.0)


def finish(
    request: Request,
    strategy: str,
    placed: Placed,
    *,
    graph: InstanceGraph | None = None,
    routing: Mapping[str, RoutingTable] | None = None,
    active: tuple[str, ...] = (),
    pinned: bool = True,
    horizon_s: float = HORIZON_S,
    limit: float = 1.0,
    aim: Aim | None = None,
) -> Plan | Keep:
    """Turn a placement into a plan, or into "keep" when it is no better than the running one.

    With a running plan of the same parallelism, moves that cost more than they bring are taken
    back first (`worthwhile`). The plan that is left must break fewer limits than the running one,
    or relieve a node above `limit`, or use fewer nodes, or cost less communication, or come nearer
    to the strategy's own aim, or change the parallelism or the routing; otherwise the answer is
    `Keep`.

    Parameters
    ----------
    request : Request
    strategy : str
        Name of the strategy.
    placed : Placed
        What the placer proposes.
    graph : InstanceGraph, optional
        The graph that was placed, when the strategy changed the parallelism.
    routing, active, pinned
        As in `Plan`.
    horizon_s : float
        How long the plan is expected to serve.
    limit : float
        Load of a node that the plan may reach; no move is taken back beyond it.
    aim : Aim, optional
        What the strategy is for; no move is taken back that serves it.
    """
    graph = graph or request.graph
    node_of, process_of = placed.node_of, placed.process_of
    reasons: list[Reason] = list(placed.reasons)
    running = request.running
    if running is not None and dict(running.parallelism) == dict(graph.topology.parallelism):
        current = running.node_of_in(request.cluster)
        if stands(request.cluster, current, running.process_of):
            node_of, note = worthwhile(request, graph, current, node_of, horizon_s, limit, aim)
            process_of = stay_in_place(graph, request.cluster, node_of, current, running.process_of)
            reasons += note
    plan = make_plan(
        request,
        strategy,
        node_of,
        process_of,
        reasons,
        graph=graph,
        routing=routing,
        active=active,
        pinned=pinned,
    )
    if running is None:
        return plan
    return _better(request, graph, running, plan, limit, aim)


def worthwhile(
    request: Request,
    graph: InstanceGraph,
    current: IntArray,
    node_of: IntArray,
    horizon_s: float = HORIZON_S,
    limit: float = 1.0,
    aim: Aim | None = None,
) -> tuple[IntArray, list[Reason]]:
    """Take back moves that cost more than they bring.

    Moving an instance costs the time its state is under way, state over the slower of the two
    nodes' bandwidths. It brings the traffic that it takes off the network, rate times the
    difference between the tiers' costs (Ra eq. 22), over `horizon_s`. A move stays when it pays,
    when its old node would be above `limit`, when it empties its old node, or when without it the
    placement would miss the strategy's aim by more. An instance without state, or with so little
    that nobody feels its move (`UNFELT_S`), moves for free.
    """
    cost_s = move_seconds(request, graph, current, node_of)
    moved = np.flatnonzero((node_of != current) & (cost_s > UNFELT_S))
    node_of = node_of.copy()
    tiers = TierCosts()
    saved_us = tiers.across_us - tiers.in_node_us
    freed = np.setdiff1d(np.unique(current), np.unique(node_of))
    cluster = request.cluster
    use = NodeUse.of(graph, cluster, node_of)
    room = cluster.processes * cluster.slots
    taken_back = 0
    # The most expensive first: each one that goes back changes what the others bring.
    for instance in moved[np.argsort(-cost_s[moved], kind="stable")].tolist():
        old, new = int(current[instance]), int(node_of[instance])
        if old in freed or (request.exact_nodes and use.instances[new] <= 1):
            continue
        affinity = group_sums(node_of, rates_of(graph, instance), len(cluster))
        brings_s = (affinity[new] - affinity[old]) * saved_us * 1e-6 * horizon_s
        fits = (
            use.cpu_cores[old] + graph.cpu_cores[instance] <= cluster.cpu_cores[old] * limit
            and use.mem_mb[old] + graph.mem_mb[instance] <= cluster.mem_mb[old] * limit
            and use.io_mb_s[old] + graph.io_mb_s[instance] <= cluster.io_mb_s[old] * limit
            and use.instances[old] < room[old]
        )
        if brings_s >= cost_s[instance] or not fits:
            continue
        without = node_of.copy()
        without[instance] = old
        if aim is not None and aim.misses(without) > aim.misses(node_of):
            continue
        links = NodeUse.of(graph, cluster, without).link_mb_s / cluster.bandwidth_mb_s.clip(1e-9)
        if (links > np.maximum(limit, use.link_mb_s / cluster.bandwidth_mb_s.clip(1e-9))).any():
            continue
        node_of = without
        use = NodeUse.of(graph, cluster, node_of)
        taken_back += 1
    if not taken_back:
        return node_of, []
    note = Reason(
        f"{taken_back} moves taken back: moving the state costs more than they save in "
        f"{horizon_s:g} s",
        {"taken_back": taken_back, "horizon_s": horizon_s},
    )
    return node_of, [note]


def move_seconds(
    request: Request, graph: InstanceGraph, current: IntArray, node_of: IntArray
) -> FloatArray:
    """Time that the state of each instance is under way if it moves, in seconds."""
    bandwidth = request.cluster.bandwidth_mb_s
    slower = np.minimum(bandwidth[current], bandwidth[node_of])
    return np.asarray(graph.state_mb / np.maximum(slower, ROUNDING), dtype=np.float64)


def stands(cluster: Cluster, node_of: IntArray, process_of: IntArray) -> bool:
    """Whether a placement stands on nodes and processes that exist."""
    if (node_of < 0).any():
        return False
    return bool((process_of < cluster.processes[node_of]).all())


def _better(
    request: Request,
    graph: InstanceGraph,
    running: Plan,
    plan: Plan,
    limit: float,
    aim: Aim | None,
) -> Plan | Keep:
    before = plan.before
    if before is None:
        return plan
    if dict(running.parallelism) != dict(plan.parallelism):
        return plan
    node_of = running.node_of_in(request.cluster)
    broken = len(violations(graph, request.cluster, node_of, running.process_of))
    figures = {
        "cost_before": before.communication_us_per_s,
        "cost_after": plan.after.communication_us_per_s,
        "nodes_before": before.nodes_used,
        "nodes_after": plan.after.nodes_used,
        "limits_broken_before": broken,
        "limits_broken_after": len(plan.infeasible),
    }
    if len(plan.infeasible) > broken:
        return Keep((Reason("the running plan stays: the new one breaks more limits", figures),))
    if plan.routing and dict(plan.routing) != dict(running.routing):
        return plan
    gain = before.communication_us_per_s - plan.after.communication_us_per_s
    cheaper = gain > NOTICEABLE * max(before.communication_us_per_s, 1.0)
    relieved = (
        before.max_node_load > limit + ROUNDING
        and plan.after.max_node_load < before.max_node_load - ROUNDING
    )
    fewer = plan.after.nodes_used < before.nodes_used
    nearer = False
    if aim is not None and aim.misses(node_of):
        at, to = aim.measure(node_of), aim.measure(plan.node_of_in(request.cluster))
        figures |= {f"{aim.name}_before": at, f"{aim.name}_after": to}
        nearer = to < at * (1 - CLEARLY)
    if len(plan.infeasible) < broken or relieved or fewer or cheaper or nearer:
        return plan
    return Keep((Reason("the running plan stays: the new one brings nothing", figures),))
