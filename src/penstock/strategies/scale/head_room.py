"""The fewest nodes that hold a graph and still have room for the rate to swing."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import IntArray
from penstock.model import Cluster, InstanceGraph, Measurements
from penstock.strategies.partition.class_state import ClassState
from penstock.strategies.partition.refine import settle
from penstock.strategies.place.dot_product import Packing, pack
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
) -> Packing | None:
    """Choose the fewest nodes on which every instance finds room under the limit.

    Nodes are packed by several rules (`place.dot_product`). Where that takes more nodes than the
    sums of the demand ask for, fewer are tried: the roomiest nodes, balanced and then repaired.

    Parameters
    ----------
    graph : InstanceGraph
    cluster : Cluster
    limit : float
        Largest use of any resource of a node, as a fraction.
    preferred : array of int, optional
        Nodes that are awake already; they are taken first.

    Returns
    -------
    Packing or None
        None when not even all nodes suffice.
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
    packed = pack(graph, cluster, limit, preferred, count)
    most = len(order) if packed is None else len(packed.nodes) - 1
    while count <= most:
        chosen = np.sort(order[:count])
        found = balanced(graph, sub_cluster(cluster, chosen), limit)
        if found is not None:
            return Packing(chosen, chosen[found])
        count = min(count + max(1, count // 16), most) if count < most else count + 1
    return packed


def balanced(graph: InstanceGraph, cluster: Cluster, limit: float) -> IntArray | None:
    """Balance the instances over all nodes, and repair what is over the limit; None in vain."""
    start = longest_first(graph, cluster)
    state = ClassState(graph, cluster, start, limit)
    settle(state)
    return state.node_of(start) if state.excess() == 0.0 else None


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
            room = np.minimum(room, capacity / max(float(demand.sum()), 1e-12))
    last = np.ones(len(cluster))
    if preferred is not None:
        last[preferred] = 0.0
    order = np.lexsort((-room, last))
    return order[room[order] > 0]
