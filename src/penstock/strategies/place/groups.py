"""What a group of instances needs and what a node has, as rows of one table."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_counts, group_sums
from penstock.model import Cluster, InstanceGraph


def group_demand(graph: InstanceGraph, groups: IntArray, count: int) -> FloatArray:
    """Cores, MB of memory, MB/s of I/O and instances (rows) of each group."""
    return np.stack(
        [
            group_sums(groups, graph.cpu_cores, count),
            group_sums(groups, graph.mem_mb, count),
            group_sums(groups, graph.io_mb_s, count),
            group_counts(groups, count).astype(np.float64),
        ]
    )


def group_capacity(cluster: Cluster) -> FloatArray:
    """Cores, MB of memory, MB/s of I/O and slots (rows) of each node."""
    room = (cluster.processes * cluster.slots).astype(np.float64)
    return np.stack([cluster.cpu_cores, cluster.mem_mb, cluster.io_mb_s, room])
