"""The last steps of the papers' strategies: keep the limits, lower the traffic, move little."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.common.arrays import IntArray
from penstock.model import Cluster, InstanceGraph, Reason
from penstock.model.load import ROUNDING
from penstock.strategies.api import Request
from penstock.strategies.loads import exact_limit
from penstock.strategies.partition.class_state import ClassState
from penstock.strategies.partition.refine import refine
from penstock.strategies.place import Placed
from penstock.strategies.place.groups import group_capacity, group_demand
from penstock.strategies.place.longest_first import longest_first
from penstock.strategies.place.processes import gather_pairs
from penstock.strategies.place.relabel import relabel
from penstock.strategies.place.spread import use_all


def settle(
    graph: InstanceGraph,
    cluster: Cluster,
    node_of: IntArray,
    limit: float,
    passes: int,
    *,
    keep_all: bool = False,
) -> IntArray:
    """Repair and refine a placement on the nodes that it uses.

    Other nodes are woken only when the limits cannot be kept without them.

    Parameters
    ----------
    graph : InstanceGraph
    cluster : Cluster
    node_of : array of int
    limit : float
        Largest use of any resource of a node, as a fraction.
    passes : int
        Passes of `refine`; 0 repairs only.
    keep_all : bool
        Empty none of the nodes.
    """
    used = np.unique(node_of)
    part = Cluster(tuple(cluster.nodes[i] for i in used.tolist()))
    local = np.searchsorted(used, node_of)
    node_of = used[refine(graph, part, local, limit, passes=passes, keep_all=keep_all)]
    if excess(graph, cluster, node_of, limit) > 0:
        node_of = refine(graph, cluster, node_of, limit, passes=passes, keep_all=keep_all)
    return node_of


def settle_exactly(request: Request, node_of: IntArray, passes: int) -> IntArray:
    """Repair and refine a placement on all nodes, no busier than `exact_limit` allows.

    A start from which the limit cannot be reached gives way to the most even placement.
    """
    graph, cluster, limit = request.graph, request.cluster, exact_limit(request)

    def tried(start: IntArray) -> IntArray:
        start = use_all(graph, cluster, start)
        return refine(graph, cluster, start, limit, passes=passes, keep_all=True)

    node_of = tried(node_of)
    over = excess(graph, cluster, node_of, limit)
    if over > 0:
        even = tried(longest_first(graph, cluster))
        if excess(graph, cluster, even, limit) < over:
            return even
    return node_of


def land(request: Request, node_of: IntArray, reasons: Sequence[Reason]) -> Placed:
    """Fill the processes; with a plan running, rename nodes and instances so that few move.

    Equal nodes exchange their contents and interchangeable instances their places: the cost of the
    placement stays what it is.
    """
    graph, cluster, running = request.graph, request.cluster, request.running
    if running is not None and dict(running.parallelism) == dict(request.topology.parallelism):
        current = running.node_of_in(cluster)
        node_of = relabel(graph, cluster, current, node_of)
        start = np.where(current >= 0, current, node_of)
        node_of = ClassState(graph, cluster, node_of, 1.0).node_of(start)
    return Placed(node_of, gather_pairs(graph, cluster, node_of), tuple(reasons))


def excess(graph: InstanceGraph, cluster: Cluster, node_of: IntArray, limit: float) -> float:
    """How much is over the limit, in all, relative to the largest capacities; 0 if nothing is."""
    load = group_demand(graph, node_of, len(cluster))
    capacity = group_capacity(cluster) * np.array([[limit], [limit], [limit], [1.0]])
    over = np.maximum(load - capacity * (1 + ROUNDING) - ROUNDING, 0.0)
    return float((over / np.maximum(capacity.max(axis=1, keepdims=True), ROUNDING)).sum())
