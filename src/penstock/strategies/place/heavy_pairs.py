"""Bin packing of the pairs that talk most: both ends onto one node, the heaviest pair first."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.model import Cluster, InstanceGraph
from penstock.model.load import ROUNDING


def pack_pairs(
    graph: InstanceGraph, cluster: Cluster, *, heavy: float, packed: float
) -> tuple[IntArray, int]:
    """Put the ends of heavy pairs on the same node, first fit, the nodes with most cores first.

    Parameters
    ----------
    graph : InstanceGraph
    cluster : Cluster
    heavy : float
        Part of the pairs that count as heavy, from 0 to 1.
    packed : float
        Part of a node's CPU, memory and I/O that packing may fill, from 0 to 1.

    Returns
    -------
    node_of : array of int
        Node of each instance that was packed, -1 for the others.
    pairs : int
        Pairs whose two ends share a node.
    """
    node_of = np.full(len(graph), -1, dtype=np.int64)
    first, second, rate = strongest_pairs(graph)
    order = np.argsort(-rate, kind="stable")[: int(np.ceil(heavy * len(rate)))]
    demand = np.stack([graph.cpu_cores, graph.mem_mb, graph.io_mb_s, np.ones(len(graph))])
    capacity = packed * np.stack([cluster.cpu_cores, cluster.mem_mb, cluster.io_mb_s])
    room = (cluster.processes * cluster.slots).astype(np.float64)
    free = np.vstack([capacity, room]) * (1 + ROUNDING) + ROUNDING
    preference = np.argsort(-cluster.cpu_cores, kind="stable")
    pairs = 0
    for a, b in zip(first[order].tolist(), second[order].tolist(), strict=True):
        if node_of[a] >= 0 and node_of[b] >= 0:
            pairs += int(node_of[a] == node_of[b])
            continue
        loose = [i for i in (a, b) if node_of[i] < 0]
        need = demand[:, loose].sum(axis=1)
        if len(loose) == 1:
            node = int(max(node_of[a], node_of[b]))
            if (need > free[:, node]).any():
                continue
        else:
            fits = np.all(need[:, None] <= free[:, preference], axis=0)
            if not fits.any():
                continue
            node = int(preference[int(np.argmax(fits))])
        node_of[loose] = node
        free[:, node] -= need
        pairs += 1
    return node_of, pairs


def strongest_pairs(graph: InstanceGraph) -> tuple[IntArray, IntArray, FloatArray]:
    """Pairs in which every instance meets, on each of its edges, a partner of the strongest.

    Of rates with rank one the strongest disjoint pairs join the largest sender with the largest
    receiver, the next with the next, and so on; the shorter side starts over until the longer one
    is through. Of measured rates, each end is joined with its largest partner. So there are no more
    pairs than instances on an edge, though all of them may exchange tuples.

    Returns
    -------
    first, second : array of int
        The two instances of each pair.
    rate : array
        Tuples per second between them over that edge.
    """
    firsts: list[IntArray] = []
    seconds: list[IntArray] = []
    rates: list[FloatArray] = []
    for flow in graph.flows:
        if flow.matrix is None:
            senders = np.argsort(-flow.out, kind="stable")
            receivers = np.argsort(-flow.share, kind="stable")
            turn = np.arange(max(len(senders), len(receivers)))
            i, j = senders[turn % len(senders)], receivers[turn % len(receivers)]
            rate = flow.out[i] * flow.share[j]
        else:
            senders, receivers = np.arange(len(flow.out)), np.arange(len(flow.share))
            i = np.concatenate([senders, np.argmax(flow.matrix, axis=0)])
            j = np.concatenate([np.argmax(flow.matrix, axis=1), receivers])
            i, j = np.unique(np.stack([i, j]), axis=1)
            rate = flow.matrix[i, j]
        a, b = i + flow.first_source, j + flow.first_target
        real = (rate > 0) & (a != b)
        firsts.append(a[real])
        seconds.append(b[real])
        rates.append(rate[real])
    if not rates:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, np.zeros(0)
    return np.concatenate(firsts), np.concatenate(seconds), np.concatenate(rates)
