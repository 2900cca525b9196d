"""Equal nodes made to measure, for when a topology is there and a cluster is not."""

from __future__ import annotations

import math
from dataclasses import replace

from penstock.common.arrays import FloatArray
from penstock.common.errors import InvalidValue
from penstock.model.cluster import Cluster
from penstock.model.instances import InstanceGraph
from penstock.model.links import total_mb_s

#: Part of a node's capacity that is in use when the demand is spread evenly.
TARGET_USE = 0.7

#: Processes on each node.
PROCESSES = 4

#: A topology that declares no demand still gets nodes that are not empty.
LEAST_CPU_CORES = 0.1
LEAST_MEM_MB = 64.0

#: More nodes than this are taken for a slip of the keyboard.
MOST_NODES = 100_000


def sized_for(graph: InstanceGraph, count: int) -> Cluster:
    """Make `count` equal nodes on which the topology fits.

    With a total demand `T` and a largest instance `d`, a node gets ``max(T / (0.7 * count),
    T / count + d)`` of CPU, memory and I/O: spread evenly, the demand takes 70 % of every node, and
    whatever the sizes of the instances are, giving each to the emptiest node never runs over.
    Each node has 4 processes with so many slots that they do not bind, and a link that would carry
    all tuples.

    Examples
    --------
    >>> from penstock.model import Kind, Operator, Topology, expand
    >>> graph = expand(Topology("t", (Operator("a", Kind.SOURCE, 14, cpu_pct=100, mem_mb=512),)))
    >>> node = sized_for(graph, 2).nodes[0]
    >>> round(node.cpu_cores, 6), round(node.mem_mb, 6), node.processes, node.slots
    (10.0, 5120.0, 4, 4)

    Parameters
    ----------
    graph : InstanceGraph
    count : int
        Number of nodes, from 1 to 100,000.
    """
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_NODES:
        raise InvalidValue("nodes", "a cluster", f"a whole number from 1 to {MOST_NODES}", count)
    equal = Cluster.of(
        count,
        cpu_cores=max(LEAST_CPU_CORES, _capacity(graph.cpu_cores, count)),
        mem_mb=max(LEAST_MEM_MB, _capacity(graph.mem_mb, count)),
        processes=PROCESSES,
        slots=max(1, math.ceil(len(graph) / PROCESSES)),
    )
    io_mb_s = max(equal.nodes[0].io_mb_s, _capacity(graph.io_mb_s, count))
    link = max(equal.nodes[0].bandwidth_mb_s, total_mb_s(graph) / TARGET_USE)
    return Cluster(
        tuple(replace(node, io_mb_s=io_mb_s, bandwidth_mb_s=link) for node in equal.nodes)
    )


def _capacity(demand: FloatArray, count: int) -> float:
    total, largest = float(demand.sum()), float(demand.max(initial=0.0))
    return max(total / (TARGET_USE * count), total / count + largest)
