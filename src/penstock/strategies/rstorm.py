"""R-Storm: each task to the node whose free resources are nearest to what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, InstanceGraph, Keep, Plan, Reason
from penstock.model.load import ROUNDING
from penstock.strategies.api import Request, register
from penstock.strategies.place import Placed
from penstock.strategies.place.breadth_first import task_order
from penstock.strategies.place.processes import fill_in_order
from penstock.strategies.place.spread import use_all
from penstock.strategies.replan import finish

#: Network distance from the reference node: the node itself, its rack, another rack (as in Storm).
SAME_NODE, SAME_RACK, OTHER_RACK = 0.0, 0.5, 1.0


@register
@dataclass(frozen=True)
class RStorm(Checked):
    """Place tasks one by one, near in demand and near in the network.

    B. Peng, M. Hosseini, Z. Hong, R. Farivar, R. Campbell, "R-Storm: Resource-Aware Scheduling in
    Storm", Middleware 2015; it became Apache Storm's `ResourceAwareStrategy`.

    1. Operators are visited breadth first from the sources, along edges in both directions, and
       give one task each in turn, so that tasks that talk to each other come one after the other.
    2. The reference node is the node with the most resources in the rack with the most.
    3. A task goes to the node with the smallest Euclidean distance between what it needs and what
       is free: memory, CPU, and the network distance to the reference node.

    Memory is hard, and so is the number of slots, which Storm does not limit. CPU is soft: nodes
    that can hold it are tried first, then any node with the memory. The paper leaves the scales of
    the axes to its weights; here free memory and CPU are divided by those of the largest node.
    When no node has the memory, the one with the most left takes the task, and the plan reports it.
    """

    name: ClassVar[str] = "rstorm"
    summary: ClassVar[str] = "nearest fit of memory, CPU and network distance; memory is hard"
    origin: ClassVar[str] = "Peng et al., R-Storm, Middleware 2015"

    memory_weight: float = param(1.0, "Weight of the memory axis.", least=0)
    cpu_weight: float = param(1.0, "Weight of the CPU axis.", least=0)
    network_weight: float = param(1.0, "Weight of the network distance.", least=0)

    def plan(self, request: Request) -> Plan | Keep:
        """Place task by task."""
        graph, cluster = request.graph, request.cluster
        order = task_order(graph)
        reference = reference_node(cluster)
        node_of, soft, hard = self._assign(graph, cluster, order, reference)
        if request.exact_nodes:
            node_of = use_all(graph, cluster, node_of)
        process_of = np.empty_like(node_of)
        process_of[order] = fill_in_order(cluster, node_of[order])
        chosen = cluster.nodes[reference]
        reasons = [
            Reason(
                f"reference node {chosen.name!r} has the most resources in the richest rack, "
                f"{chosen.rack!r}: {chosen.cpu_cores:g} cores, {chosen.mem_mb:g} MB",
                {"cpu_cores": chosen.cpu_cores, "mem_mb": chosen.mem_mb},
            ),
            Reason(
                f"{len(graph)} tasks placed breadth first on {len(np.unique(node_of))} nodes",
                {"instances": len(graph), "nodes": len(np.unique(node_of))},
            ),
        ]
        if soft:
            reasons.append(
                Reason(f"{soft} tasks found memory but no CPU, which is soft", {"tasks": soft})
            )
        if hard:
            reasons.append(
                Reason(f"{hard} tasks found no node with memory and a slot", {"tasks": hard})
            )
        return finish(request, self.name, Placed(node_of, process_of, tuple(reasons)))

    def _assign(
        self, graph: InstanceGraph, cluster: Cluster, order: IntArray, reference: int
    ) -> tuple[IntArray, int, int]:
        """Node of each task, and how many broke the soft and the hard limits."""
        largest_mem = max(float(cluster.mem_mb.max()), ROUNDING)
        largest_cpu = max(float(cluster.cpu_cores.max()), ROUNDING)
        free_mem = cluster.mem_mb / largest_mem
        free_cpu = cluster.cpu_cores / largest_cpu
        room = (cluster.processes * cluster.slots).astype(np.int64)
        network = self.network_weight * network_distance(cluster, reference) ** 2
        node_of = np.empty(len(graph), dtype=np.int64)
        needs = zip(
            order.tolist(),
            (graph.mem_mb[order] / largest_mem).tolist(),
            (graph.cpu_cores[order] / largest_cpu).tolist(),
            strict=True,
        )
        soft = hard = 0
        for task, mem, cpu in needs:
            left_mem, left_cpu = free_mem - mem, free_cpu - cpu
            distance = self.memory_weight * left_mem**2 + self.cpu_weight * left_cpu**2 + network
            holds = (left_mem >= -ROUNDING) & (room > 0)
            both = holds & (left_cpu >= -ROUNDING)
            if both.any():
                node = int(np.argmin(np.where(both, distance, np.inf)))
            elif holds.any():
                node = int(np.argmin(np.where(holds, distance, np.inf)))
                soft += 1
            else:
                node = int(np.argmax(np.where(room > 0, left_mem, left_mem - 1e9)))
                hard += 1
            node_of[task] = node
            free_mem[node] -= mem
            free_cpu[node] -= cpu
            room[node] -= 1
        return node_of, soft, hard


def reference_node(cluster: Cluster) -> int:
    """Node with the most resources in the rack with the most.

    Resources are the node's parts of the cluster's memory and CPU, added up.
    """
    riches: FloatArray = np.zeros(len(cluster))
    for capacity in (cluster.mem_mb, cluster.cpu_cores):
        if capacity.sum() > 0:
            riches = riches + capacity / capacity.sum()
    racks = group_sums(cluster.rack, riches, int(cluster.rack.max()) + 1)
    best = int(np.argmax(racks))
    return int(np.argmax(np.where(cluster.rack == best, riches, -1.0)))


def network_distance(cluster: Cluster, reference: int) -> FloatArray:
    """Distance of each node from the reference node by tier: itself, its rack, another rack."""
    distance = np.where(cluster.rack == cluster.rack[reference], SAME_RACK, OTHER_RACK)
    distance[reference] = SAME_NODE
    return distance
