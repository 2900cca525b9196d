"""Heaviest instance first, each to the node that it loads least: balance and nothing else."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import IntArray
from penstock.model import Cluster, InstanceGraph
from penstock.model.load import OVER_NOTHING


def longest_first(
    graph: InstanceGraph, cluster: Cluster, standing: IntArray | None = None
) -> IntArray:
    """Place for balance alone: longest processing time first.

    R. L. Graham: Bounds on multiprocessing timing anomalies, 1969. The weight of an instance is
    its largest share of any resource of the cluster.

    Parameters
    ----------
    graph : InstanceGraph
    cluster : Cluster
    standing : array of int, optional
        Node of each instance that stays where it is, -1 of those that are to be placed.

    Returns
    -------
    array of int
        Node of each instance. Nodes without a capacity that is needed are used last.
    """
    demand = np.stack([graph.cpu_cores, graph.mem_mb, graph.io_mb_s])
    capacity = np.stack([cluster.cpu_cores, cluster.mem_mb, cluster.io_mb_s])
    unit = np.where(capacity > 0, 1.0 / np.maximum(capacity, 1e-12), OVER_NOTHING)
    total = np.maximum(capacity.sum(axis=1, keepdims=True), 1e-12)
    weight = (demand / total).max(axis=0)
    room = (cluster.processes * cluster.slots).astype(np.float64)
    node_of = np.full(len(graph), -1) if standing is None else standing.astype(np.int64)
    stays = np.flatnonzero(node_of >= 0)
    use = np.zeros_like(capacity)
    np.add.at(use.T, node_of[stays], demand[:, stays].T)
    use *= unit
    held = np.bincount(node_of[stays], minlength=len(cluster)).astype(np.float64)
    for instance in np.argsort(-weight, kind="stable").tolist():
        if node_of[instance] >= 0:
            continue
        after = use + demand[:, instance, None] * unit
        busiest = after.max(axis=0) + np.where(held >= room, OVER_NOTHING, 0.0)
        # Among equals the node with the fewest instances, so that weightless ones spread too.
        node = int(np.lexsort((held, busiest))[0])
        node_of[instance] = node
        use[:, node] = after[:, node]
        held[node] += 1
    return node_of
