"""The load of nodes and instances: demands against capacities, and how uneven they are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_counts, group_sums
from penstock.model.cluster import Cluster
from penstock.model.instances import InstanceGraph
from penstock.model.links import link_mb_s

#: Capacity comparisons forgive this much rounding, relative to the capacity.
ROUNDING = 1e-9

#: Stands for demand on a capacity of 0, and keeps figures finite.
OVER_NOTHING = 1e6


def lit(loads: FloatArray) -> float:
    """Imbalance over the instances of an operator (Ms eq. 10).

    The larger of how far the busiest is above the mean and the idlest below it, relative to the
    mean. 0 when nothing is loaded.

    Examples
    --------
    >>> lit(np.array([10.0, 20.0, 60.0]))
    1.0
    """
    mean = float(np.mean(loads)) if len(loads) else 0.0
    if mean <= 0:
        return 0.0
    return max((float(loads.max()) - mean) / mean, (mean - float(loads.min())) / mean)


def lin(loads: FloatArray) -> float:
    """Imbalance over nodes, ``max(m*max/sum - 1, 1 - m*min/sum)`` (Ms eq. 38).

    Examples
    --------
    >>> round(lin(np.array([0.2, 0.4, 0.6])), 3)
    0.5
    """
    total = float(loads.sum()) if len(loads) else 0.0
    if total <= 0:
        return 0.0
    m = len(loads)
    return max(m * float(loads.max()) / total - 1.0, 1.0 - m * float(loads.min()) / total)


@dataclass(frozen=True, eq=False)
class NodeUse:
    """Demand put on each node, in the units of its capacities."""

    cpu_cores: FloatArray
    mem_mb: FloatArray
    io_mb_s: FloatArray
    instances: IntArray
    graph: InstanceGraph | None = None
    node_of: IntArray | None = None

    @classmethod
    def of(cls, graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> NodeUse:
        """Add up the instances of each node."""
        m = len(cluster)
        return cls(
            group_sums(node_of, graph.cpu_cores, m),
            group_sums(node_of, graph.mem_mb, m),
            group_sums(node_of, graph.io_mb_s, m),
            group_counts(node_of, m),
            graph,
            node_of,
        )

    @cached_property
    def link_mb_s(self) -> FloatArray:
        """Bytes that each node sends to others, or receives from them, whichever are more."""
        if self.graph is None or self.node_of is None:
            return np.zeros(len(self.instances))
        sent, received = link_mb_s(self.graph, self.node_of, len(self.instances))
        return np.maximum(sent, received)

    def fractions(self, cluster: Cluster) -> tuple[FloatArray, FloatArray, FloatArray]:
        """CPU, memory and I/O use as fractions of the capacities."""
        return (
            fraction(self.cpu_cores, cluster.cpu_cores),
            fraction(self.mem_mb, cluster.mem_mb),
            fraction(self.io_mb_s, cluster.io_mb_s),
        )

    def busiest(self, cluster: Cluster) -> FloatArray:
        """Use of each node's busiest resource, its link among them, as a fraction."""
        link = fraction(self.link_mb_s, cluster.bandwidth_mb_s)
        return np.maximum(self.busiest_inside(cluster), link)

    def busiest_inside(self, cluster: Cluster) -> FloatArray:
        """Use of each node's busiest resource but its link, as a fraction."""
        cpu, mem, io = self.fractions(cluster)
        return np.maximum(np.maximum(cpu, mem), io)


def fraction(demand: FloatArray, capacity: FloatArray) -> FloatArray:
    """Divide demands by capacities; 0 of nothing is 0, something of nothing is `OVER_NOTHING`."""
    out = np.where(demand > 0, OVER_NOTHING, 0.0)
    np.divide(demand, capacity, out=out, where=capacity > 0)
    return out
