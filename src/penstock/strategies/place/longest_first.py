"""Heaviest instance first, each to the node that it loads least: balance and nothing else."""

from __future__ import annotations

import heapq

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.model import Cluster, InstanceGraph
from penstock.model.load import OVER_NOTHING

#: Instances of equal demand from which a heap pays.
MANY = 16


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
    order = np.argsort(-weight, kind="stable")
    for run in _alike(demand, order[node_of[order] < 0]):
        _place(run, demand[:, run[0], None] * unit, use, held, room, node_of)
    return node_of


def _alike(demand: FloatArray, order: IntArray) -> list[IntArray]:
    """Cut an order of instances where the demand changes."""
    ordered = demand[:, order]
    cuts = np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1
    return [run for run in np.split(order, cuts) if len(run)]


def _place(
    run: IntArray,
    added: FloatArray,
    use: FloatArray,
    held: FloatArray,
    room: FloatArray,
    node_of: IntArray,
) -> None:
    """Place instances of equal demand; changes `use`, `held` and `node_of`.

    Among equals the node with the fewest instances, so that weightless ones spread too. Many alike
    take the next node from a heap, so that no node is looked at twice for nothing.
    """
    busiest = (use + added).max(axis=0) + np.where(held >= room, OVER_NOTHING, 0.0)
    heap: list[tuple[float, float, int]] = []
    if len(run) >= MANY:
        heap = list(zip(busiest.tolist(), held.tolist(), range(len(held)), strict=True))
        heapq.heapify(heap)
    for instance in run.tolist():
        if heap:
            node = heap[0][2]
        else:
            least = np.flatnonzero(busiest == busiest.min())
            node = int(least[np.argmin(held[least])])
        node_of[instance] = node
        use[:, node] += added[:, node]
        held[node] += 1
        full = OVER_NOTHING if held[node] >= room[node] else 0.0
        busiest[node] = (use[:, node] + added[:, node]).max() + full
        if heap:
            heapq.heapreplace(heap, (float(busiest[node]), float(held[node]), node))
