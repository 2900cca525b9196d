"""The fewest nodes that hold a graph and still have room for the rate to swing."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import IntArray
from penstock.model import Cluster, InstanceGraph, Measurements
from penstock.strategies.partition.class_state import ClassState
from penstock.strategies.partition.refine import settle
from penstock.strategies.place.longest_first import longest_first

#: Standard deviations of the rate that must fit between the limit and the capacity.
DEVIATIONS = 2.0


def load_limit(measurements: Measurements | None, most: float) -> float:
    """Largest load that a plan may put on a node, as a fraction.

    A rate that swings by its standard deviation, twice over, must still fit:
    ``limit * (1 + 2 * cv) <= 1``. A stream that was not measured, or that is steady, is held to
    `most`.

    Examples
    --------
    >>> load_limit(Measurements(rate_cv=0.5), most=0.8)
    0.5
    >>> load_limit(None, most=0.8)
    0.8
    """
    if measurements is None or measurements.rate_cv is None:
        return most
    return min(most, 1.0 / (1.0 + DEVIATIONS * measurements.rate_cv))


def fewest_nodes(
    graph: InstanceGraph, cluster: Cluster, limit: float, preferred: IntArray | None = None
) -> IntArray | None:
    """Choose the fewest nodes on which every instance finds room under the limit.

    Nodes are taken in descending order of what they can hold, preferred ones first. The first
    number of nodes that could suffice by its sums is tried, then ever more.

    Parameters
    ----------
    graph : InstanceGraph
    cluster : Cluster
    limit : float
        Largest use of any resource of a node, as a fraction.
    preferred : array of int, optional
        Nodes that are awake already.

    Returns
    -------
    array of int or None
        Nodes in ascending order; None when not even all of them suffice.
    """
    order = _by_room(graph, cluster, preferred)
    demand = np.array([graph.cpu_cores.sum(), graph.mem_mb.sum(), graph.io_mb_s.sum(), len(graph)])
    room = np.stack(
        [
            cluster.cpu_cores * limit,
            cluster.mem_mb * limit,
            cluster.io_mb_s * limit,
            (cluster.processes * cluster.slots).astype(np.float64),
        ]
    )[:, order]
    enough = (np.cumsum(room, axis=1) >= demand[:, None] * (1 - 1e-9)).all(axis=0)
    if not enough.any():
        return None
    count = int(np.argmax(enough)) + 1
    while count <= len(order):
        chosen = np.sort(order[:count])
        if holds(graph, sub_cluster(cluster, chosen), limit):
            return chosen
        count = min(count + max(1, count // 16), len(order)) if count < len(order) else count + 1
    return None


def holds(graph: InstanceGraph, cluster: Cluster, limit: float) -> bool:
    """Whether a placement under the limit is found: balanced first, then repaired."""
    state = ClassState(graph, cluster, longest_first(graph, cluster), limit)
    settle(state)
    return state.excess() == 0.0


def sub_cluster(cluster: Cluster, chosen: IntArray) -> Cluster:
    """Return the cluster of the chosen nodes alone."""
    return Cluster(tuple(cluster.nodes[i] for i in chosen.tolist()))


def _by_room(graph: InstanceGraph, cluster: Cluster, preferred: IntArray | None) -> IntArray:
    """Nodes that can hold anything at all, the roomiest first, preferred ones before others."""
    room = np.full(len(cluster), np.inf)
    for demand, capacity in (
        (graph.cpu_cores, cluster.cpu_cores),
        (graph.mem_mb, cluster.mem_mb),
        (graph.io_mb_s, cluster.io_mb_s),
    ):
        if demand.sum() > 0:
            room = np.minimum(room, capacity / demand.sum())
    last = np.ones(len(cluster))
    if preferred is not None:
        last[preferred] = 0.0
    order = np.lexsort((-room, last))
    return order[room[order] > 0]
