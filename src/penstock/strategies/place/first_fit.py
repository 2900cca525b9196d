"""Each instance to the node where it would finish first (Sra Alg. 1: FFRA, eq. 8-10, 13, 15)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, InstanceGraph, Plan, Reason, TierCosts
from penstock.model.cost import SATURATED
from penstock.model.load import ROUNDING, fraction
from penstock.strategies.place import Placed, register
from penstock.strategies.place.processes import fill_in_order


@register
@dataclass(frozen=True)
class FirstFit(Checked):
    """Sra-Stream's first placement.

    Nodes are sorted by free CPU, then by free memory, and operators are taken in topological order.
    Each instance goes to the node where a tuple would be done first: its CPU time, stretched by how
    busy the node then is, and the way of the tuples that come from other nodes. A node that holds
    no instance of the operator is preferred as long as there is one. A node counts as available
    while it stays under `high` of its CPU and memory, the CPU for traffic with other nodes included
    (eq. 8-10); where none is, up to its capacity, and where none has that, the least overloaded one
    takes it. The groups that it is given are placed as wholes; with one group for each instance it
    is the paper's algorithm.
    """

    name: ClassVar[str] = "first-fit"
    summary: ClassVar[str] = "instances in topological order, each where it would finish first"
    origin: ClassVar[str] = "Sra-Stream, Alg. 1 (FFRA), eq. 8-10"

    high: float = param(0.9, "Load up to which a node is available (eq. 13).", least=0, most=1)
    input_us: float = param(
        2.0, "CPU time to receive a tuple from another node (ours).", least=0, unit="us"
    )
    output_us: float = param(
        2.0, "CPU time to send a tuple to another node (ours).", least=0, unit="us"
    )

    def place(
        self,
        graph: InstanceGraph,
        groups: IntArray,
        count: int,
        cluster: Cluster,
        running: Plan | None,
        rng: np.random.Generator,
    ) -> Placed:
        """Place group by group, in the order of their first operators."""
        nodes = FilledNodes(graph, cluster, self.input_us, self.output_us)
        crowded = full = 0
        for members in _in_order(graph, groups, count):
            available = nodes.available(members, self.high)
            if not available.any():
                crowded += 1
                available = nodes.available(members, 1.0, traffic=False)
            if not available.any():
                full += 1
                nodes.put(members, nodes.least_overloaded(members))
                continue
            time_us = np.round(nodes.finish_us(members), 6)
            siblings = nodes.siblings(members)
            nodes.put(members, int(np.lexsort((nodes.rank, time_us, siblings, ~available))[0]))
        used = len(np.unique(nodes.node_of))
        text = f"{len(graph)} instances on {used} nodes, each where it would finish first"
        reasons = [Reason(text, {"instances": len(graph), "nodes": used})]
        if crowded:
            text = f"{crowded} placements found no node that stays under {self.high:g}"
            reasons.append(Reason(text, {"crowded": crowded, "full": full}))
        process_of = fill_in_order(cluster, nodes.node_of)
        return Placed(nodes.node_of, process_of, tuple(reasons))


def directed_rates(graph: InstanceGraph, instance: int) -> tuple[FloatArray, FloatArray]:
    """Tuples per second from every instance to this one, and from this one to every other."""
    received, sent = np.zeros(len(graph)), np.zeros(len(graph))
    for flow in graph.flows:
        if flow.targets.start <= instance < flow.targets.stop:
            i = instance - flow.targets.start
            column = flow.out * flow.share[i] if flow.matrix is None else flow.matrix[:, i]
            received[flow.sources] += column
        if flow.sources.start <= instance < flow.sources.stop:
            i = instance - flow.sources.start
            sent[flow.targets] += (
                flow.out[i] * flow.share if flow.matrix is None else flow.matrix[i]
            )
    return received, sent


class FilledNodes:
    """What the nodes hold so far: CPU with the traffic between nodes (Sra eq. 8-10), and the rest.

    Processing always counts; receiving and sending only what comes from and goes to an instance on
    another node.
    """

    def __init__(
        self, graph: InstanceGraph, cluster: Cluster, input_us: float, output_us: float
    ) -> None:
        self.graph, self.cluster = graph, cluster
        self.costs = np.array([[input_us], [output_us]]) * 1e-6
        self.node_of = np.full(len(graph), -1, dtype=np.int64)
        self.used = np.zeros((4, len(cluster)))
        self.room = (cluster.processes * cluster.slots).astype(np.float64)
        #: CPU for processing and traffic of each node.
        self.busy = np.zeros(len(cluster))
        self.held = np.zeros((len(graph.topology.operators), len(cluster)))
        order = np.lexsort((-cluster.mem_mb, -cluster.cpu_cores))
        #: Place of each node in the order of free CPU, then free memory.
        self.rank = np.empty(len(cluster), dtype=np.int64)
        self.rank[order] = np.arange(len(cluster))
        self.tiers = TierCosts()
        self._seen: tuple[int, FloatArray] | None = None

    def demand(self, members: IntArray) -> FloatArray:
        """CPU, memory, disk and slots that the members need together, without traffic."""
        graph = self.graph
        needs = (graph.cpu_cores, graph.mem_mb, graph.io_mb_s)
        return np.array([*(float(need[members].sum()) for need in needs), float(len(members))])

    def traffic(self, members: IntArray) -> FloatArray:
        """Tuples per second received from, and sent to, what stands on each node (rows: two)."""
        first = int(members[0])
        if self._seen is None or self._seen[0] != first:
            placed = np.flatnonzero(self.node_of >= 0)
            sums = np.zeros((2, len(self.cluster)))
            for instance in members.tolist():
                for row, rates in enumerate(directed_rates(self.graph, instance)):
                    sums[row] += group_sums(self.node_of[placed], rates[placed], len(self.cluster))
            self._seen = first, sums
        return self._seen[1]

    def cpu_after(self, members: IntArray) -> FloatArray:
        """Cores of each node if it took the members, their own traffic included."""
        both = self.traffic(members)
        far = both.sum(axis=1, keepdims=True) - both
        cores = self.busy + self.demand(members)[0] + (self.costs * far).sum(axis=0)
        return np.asarray(cores, dtype=np.float64)

    def available(
        self, members: IntArray, high: float, *, traffic: bool = True
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Nodes that stay within `high` of their capacities (Sra eq. 13)."""
        cluster, after = self.cluster, self.used + self.demand(members)[:, None]
        cpu = self.cpu_after(members) if traffic else after[0]
        return np.asarray(
            (cpu <= cluster.cpu_cores * high + ROUNDING)
            & (after[1] <= cluster.mem_mb * high + ROUNDING)
            & (after[2] <= cluster.io_mb_s + ROUNDING)
            & (after[3] <= self.room)
        )

    def finish_us(self, members: IntArray) -> FloatArray:
        """Time in microseconds that the tuples of a second need on each node."""
        use = fraction(self.cpu_after(members), self.cluster.cpu_cores)
        stretch = 1.0 / (1.0 - np.minimum(use, SATURATED))
        received = self.traffic(members)[0]
        way = self.tiers.across_us * (received.sum() - received) + self.tiers.in_node_us * received
        own_us = self.demand(members)[0] * 1e6
        return np.asarray(own_us * stretch + way, dtype=np.float64)

    def siblings(self, members: IntArray) -> FloatArray:
        """Instances of the members' operators on each node."""
        operators = np.unique(self.graph.operator_of[members])
        return np.asarray(self.held[operators].sum(axis=0), dtype=np.float64)

    def least_overloaded(self, members: IntArray) -> int:
        """Return the node whose fullest resource would be the least full with the members."""
        after = self.used + self.demand(members)[:, None]
        cluster = self.cluster
        worst = np.maximum.reduce(
            [
                fraction(after[0], cluster.cpu_cores),
                fraction(after[1], cluster.mem_mb),
                fraction(after[2], cluster.io_mb_s),
                fraction(after[3], self.room),
            ]
        )
        return int(np.lexsort((self.rank, worst))[0])

    def put(self, members: IntArray, node: int) -> None:
        """Put the members onto a node."""
        received, sent = self.traffic(members)
        self.busy[node] = self.cpu_after(members)[node]
        # The neighbours elsewhere now send to, and receive from, another node.
        elsewhere = self.costs[1, 0] * received + self.costs[0, 0] * sent
        elsewhere[node] = 0.0
        self.busy += elsewhere
        self.used[:, node] += self.demand(members)
        np.add.at(self.held[:, node], self.graph.operator_of[members], 1.0)
        self.node_of[members] = node
        self._seen = None


def _in_order(graph: InstanceGraph, groups: IntArray, count: int) -> list[IntArray]:
    """Members of each group that has some, groups by the first of their operators in the order."""
    position = {name: i for i, name in enumerate(graph.topology.order)}
    rank = np.array([position[o.name] for o in graph.topology.operators])[graph.operator_of]
    line = np.lexsort((np.arange(len(graph)), rank))
    by_group: dict[int, list[int]] = {}
    for instance in line.tolist():
        by_group.setdefault(int(groups[instance]), []).append(instance)
    return [np.array(members, dtype=np.int64) for members in by_group.values()]
