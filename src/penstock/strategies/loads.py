"""One weight for an instance, one share for a node, one limit for a comparison."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.model import Cluster, InstanceGraph, NodeUse
from penstock.strategies.api import Request

#: Largest number of instance pairs for which METIS is run only to learn its balance: a second or
#: two.
CHEAP_PAIRS = 2_000_000

#: METIS's default tolerance: a part may weigh this much more than its share.
TOLERANCE = 1.03


def dominant(graph: InstanceGraph, cluster: Cluster) -> FloatArray:
    """Weight of each instance: its largest share of any resource of the whole cluster.

    Equal weights when no instance needs anything.
    """
    shares = [
        demand / max(float(capacity.sum()), 1e-12)
        for demand, capacity in (
            (graph.cpu_cores, cluster.cpu_cores),
            (graph.mem_mb, cluster.mem_mb),
            (graph.io_mb_s, cluster.io_mb_s),
        )
    ]
    weight = np.maximum.reduce(shares)
    if weight.sum() <= 0:
        return np.full(len(graph), 1.0 / len(graph))
    return np.asarray(weight, dtype=np.float64)


def capacity_shares(graph: InstanceGraph, cluster: Cluster) -> FloatArray:
    """Part of the load that each node should get: its smallest share of a resource in demand.

    Sums to 1. Nodes without a resource that is in demand get 0, unless all are like that.
    """
    share = np.full(len(cluster), np.inf)
    for demand, capacity in (
        (graph.cpu_cores, cluster.cpu_cores),
        (graph.mem_mb, cluster.mem_mb),
        (graph.io_mb_s, cluster.io_mb_s),
    ):
        if demand.sum() > 0 and capacity.sum() > 0:
            share = np.minimum(share, capacity / capacity.sum())
    if not np.isfinite(share).all() or share.sum() <= 0:
        return np.full(len(cluster), 1.0 / len(cluster))
    return np.asarray(share / share.sum(), dtype=np.float64)


def max_load(graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> float:
    """Use of the busiest resource of any node, as a fraction."""
    return float(NodeUse.of(graph, cluster, node_of).busiest(cluster).max())


def max_load_inside(graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> float:
    """Use of the busiest resource of any node but its link, as a fraction."""
    return float(NodeUse.of(graph, cluster, node_of).busiest_inside(cluster).max())


def pairs_of(graph: InstanceGraph) -> int:
    """Count the instance pairs that the graph would have if it were written out."""
    return sum(len(flow.out) * len(flow.share) for flow in graph.flows)


def exact_limit(request: Request) -> float:
    """Largest load of a node that a comparison at a fixed number of nodes allows.

    Cuts can only be compared at equal balance, so the yardstick is what METIS needs: its own
    largest load where running it is cheap, and otherwise its tolerance over an even share. Never
    above 1 when balance alone would fit. What links carry is the cut itself and does not count.
    """
    from penstock.strategies.partition.metis import Metis
    from penstock.strategies.place.longest_first import longest_first

    graph, cluster = request.graph, request.cluster
    balanced = max_load_inside(graph, cluster, longest_first(graph, cluster))
    if pairs_of(graph) <= CHEAP_PAIRS:
        weights, shares = dominant(graph, cluster), capacity_shares(graph, cluster)
        usable = np.flatnonzero(shares > 0)
        share = shares[usable] / shares[usable].sum()
        groups = Metis().partition(graph, weights, share, np.random.default_rng(0))
        reached = max_load_inside(graph, cluster, usable[groups])
    else:
        reached = max(balanced, TOLERANCE * _even(graph, cluster))
    return min(reached, 1.0) if balanced <= 1.0 else max(reached, balanced)


def _even(graph: InstanceGraph, cluster: Cluster) -> float:
    """Load of every node if instances could be divided at will."""
    loads = [
        float(demand.sum() / capacity.sum())
        for demand, capacity in (
            (graph.cpu_cores, cluster.cpu_cores),
            (graph.mem_mb, cluster.mem_mb),
            (graph.io_mb_s, cluster.io_mb_s),
        )
        if capacity.sum() > 0
    ]
    return max(loads, default=0.0)
