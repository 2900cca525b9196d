"""No node left empty: what a comparison at a fixed number of nodes asks of every strategy."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.model import Cluster, InstanceGraph, NodeUse
from penstock.model.load import ROUNDING


def use_all(graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> IntArray:
    """Give every empty node the instance whose move adds least to the cut.

    Only nodes with several instances give one away, and an instance that the empty node can hold
    is preferred to one that it cannot; of moves that cost the same, the one off the busiest node
    wins. With fewer instances than nodes, every instance ends up alone.

    Examples
    --------
    >>> from penstock.model import Kind, Operator, Topology, expand
    >>> alone = expand(Topology("t", (Operator("a", Kind.SOURCE, 3),)))
    >>> use_all(alone, Cluster.of(3), np.zeros(3, dtype=np.int64)).tolist()
    [1, 2, 0]
    """
    node_of = np.array(node_of, dtype=np.int64)
    held = np.bincount(node_of, minlength=len(cluster))
    if held.all():
        return node_of
    company = _company(graph, cluster, node_of)
    for empty in np.flatnonzero(held == 0).tolist():
        movable = np.flatnonzero(held[node_of] > 1)
        if not len(movable):
            break
        fits = (
            (graph.cpu_cores[movable] <= cluster.cpu_cores[empty] + ROUNDING)
            & (graph.mem_mb[movable] <= cluster.mem_mb[empty] + ROUNDING)
            & (graph.io_mb_s[movable] <= cluster.io_mb_s[empty] + ROUNDING)
        )
        busiest = NodeUse.of(graph, cluster, node_of).busiest_inside(cluster)
        order = np.lexsort((-busiest[node_of[movable]], company[movable], ~fits))
        instance = int(movable[order[0]])
        left = int(node_of[instance])
        mates = np.flatnonzero(node_of == left)
        company[mates] -= rates_of(graph, instance)[mates]
        company[instance] = 0.0
        held[left] -= 1
        held[empty] += 1
        node_of[instance] = empty
    return node_of


def rates_of(graph: InstanceGraph, instance: int) -> FloatArray:
    """Tuples per second, both ways, between one instance and every other."""
    row = np.zeros(len(graph))
    for flow in graph.flows:
        if flow.sources.start <= instance < flow.sources.stop:
            i = instance - flow.sources.start
            row[flow.targets] += flow.out[i] * flow.share if flow.matrix is None else flow.matrix[i]
        if flow.targets.start <= instance < flow.targets.stop:
            j = instance - flow.targets.start
            row[flow.sources] += (
                flow.out * flow.share[j] if flow.matrix is None else flow.matrix[:, j]
            )
    row[instance] = 0.0
    return row


def _company(graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> FloatArray:
    """Tuples per second between each instance and the others of its node."""
    company = np.zeros(len(graph))
    for flow in graph.flows:
        source, target = node_of[flow.sources], node_of[flow.targets]
        if flow.matrix is None:
            got = group_sums(target, flow.share, len(cluster))
            sent = group_sums(source, flow.out, len(cluster))
            company[flow.sources] += flow.out * got[source]
            company[flow.targets] += flow.share * sent[target]
        else:
            near = np.where(source[:, None] == target[None, :], flow.matrix, 0.0)
            company[flow.sources] += near.sum(axis=1)
            company[flow.targets] += near.sum(axis=0)
        if flow.first_source == flow.first_target:
            company[flow.sources] -= 2.0 * np.diagonal(flow.pairs)
    return company
