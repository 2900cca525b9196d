"""Bytes between nodes: what the link of each node carries, and what crosses racks."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.model.instances import Flow, InstanceGraph


def megabytes(graph: InstanceGraph, flow: Flow) -> float:
    """Size of a tuple of a flow, in MB: that of what its sender emits."""
    return graph.topology[flow.edge.source].tuple_bytes * 1e-6


def total_mb_s(graph: InstanceGraph) -> float:
    """Bytes per second over all edges, in MB/s: no link can carry more."""
    return float(sum(flow.total * megabytes(graph, flow) for flow in graph.flows))


def across_mb_s(graph: InstanceGraph, groups: IntArray) -> float:
    """Bytes per second between different groups of instances, in MB/s."""
    return float(link_mb_s(graph, groups, int(groups.max(initial=0)) + 1)[0].sum())


def link_mb_s(graph: InstanceGraph, node_of: IntArray, nodes: int) -> tuple[FloatArray, FloatArray]:
    """Bytes per second that each node sends to other nodes, and that it receives from them.

    A link carries both ways at once, so the larger of the two is what its bandwidth has to bear.

    Examples
    --------
    >>> from penstock.model import Edge, Kind, Operator, Topology, expand
    >>> pair = expand(Topology(
    ...     "pair",
    ...     (Operator("a", Kind.SOURCE, rate_per_s=1000, tuple_bytes=500), Operator("b")),
    ...     (Edge("a", "b"),)))
    >>> [mb.tolist() for mb in link_mb_s(pair, np.array([0, 1]), 2)]
    [[0.5, 0.0], [0.0, 0.5]]
    """
    sent, received = np.zeros(nodes), np.zeros(nodes)
    for flow in graph.flows:
        size = megabytes(graph, flow)
        source, target = node_of[flow.sources], node_of[flow.targets]
        if flow.matrix is not None:
            out = np.asarray(flow.matrix.sum(axis=1), dtype=np.float64)
            inside = flow.internal(node_of, nodes)
            sent += size * (group_sums(source, out, nodes) - inside)
            received += size * (group_sums(target, flow.received, nodes) - inside)
            continue
        leaving = group_sums(source, flow.out, nodes)
        share = group_sums(target, flow.share, nodes)
        if flow.is_local:
            # Where a target is near, everything stays.
            leaving = np.where(share > 0, 0.0, leaving)
        inside = leaving * share
        sent += size * (leaving * flow.share.sum() - inside)
        received += size * (leaving.sum() * share - inside)
    return np.maximum(sent, 0.0), np.maximum(received, 0.0)
