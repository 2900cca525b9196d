"""Instances off nodes that are too full, everything off nodes nearly idle (Sra Alg. 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_counts, group_sums
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, InstanceGraph, NodeUse, Reason, TierCosts
from penstock.model.cost import estimate_latency_ms
from penstock.model.load import ROUNDING, fraction
from penstock.strategies.api import Request
from penstock.strategies.place.spread import rates_of
from penstock.strategies.scale import Scaled, register
from penstock.strategies.scale.slowest import instance_us


@register
@dataclass(frozen=True)
class Drain(Checked):
    """Sra-Stream's care for single nodes.

    Works on a placement: group `i` is node `i`. A node above `high` of its CPU or memory (eq. 13)
    gives the instances with the highest latency to other nodes; one below `low` of both (eq. 14)
    gives everything away, so that it can be shut down. No receiver goes above `high`, and the
    makespan may not grow by more than `growth`: the paper asks for the users' limit, which we do
    not have. Among receivers those come first that run no instance of the same operator, then the
    one that the instance talks to most, then the one with the most CPU to spare.
    """

    name: ClassVar[str] = "drain"
    summary: ClassVar[str] = "overloaded nodes relieved, nearly idle ones emptied"
    origin: ClassVar[str] = "Sra-Stream, Alg. 2, eq. 13-14"

    high: float = param(0.9, "Load above which a node is relieved.", least=0, most=1)
    low: float = param(0.2, "Load below which a node is emptied.", least=0, most=1)
    growth: float = param(
        0.25, "Growth of the makespan that a change may cost.", least=0, most=10, unit="of it"
    )

    def scale(self, request: Request, graph: InstanceGraph, groups: IntArray, count: int) -> Scaled:
        """Move instances between nodes; nodes that end up empty are not needed."""
        cluster = request.cluster
        node_of = groups.copy()
        allowed = makespan(graph, cluster, node_of) * (1.0 + self.growth)
        relieved = self._each(graph, cluster, node_of, allowed, empties=False)
        emptied = self._each(graph, cluster, node_of, allowed, empties=True)
        moved = int((node_of != groups).sum())
        text = (
            f"{relieved} nodes above {self.high:g} relieved and {emptied} below {self.low:g} "
            f"emptied, {moved} instances moved"
        )
        figures = {"relieved": relieved, "emptied": emptied, "moved": moved}
        return Scaled(graph, node_of, count, (Reason(text, figures),))

    def _each(
        self,
        graph: InstanceGraph,
        cluster: Cluster,
        node_of: IntArray,
        allowed: float,
        *,
        empties: bool,
    ) -> int:
        """Relieve, or empty, one node after the other; count those where it worked."""
        done = 0
        use = busiest(graph, cluster, node_of)
        held = group_counts(node_of, len(cluster))
        if empties:
            nodes = np.flatnonzero((held > 0) & (use < self.low - ROUNDING))
            nodes = nodes[np.argsort(use[nodes], kind="stable")]
        else:
            nodes = np.flatnonzero(use > self.high + ROUNDING)
            nodes = nodes[np.argsort(-use[nodes], kind="stable")]
        for node in nodes.tolist():
            if empties and busiest(graph, cluster, node_of)[node] >= self.low - ROUNDING:
                continue  # It has taken over what another node held.
            before = node_of.copy()
            self._move_off(graph, cluster, node_of, node, empties)
            left = int((node_of == node).sum())
            fine = left == 0 if empties else not np.array_equal(before, node_of)
            if fine and makespan(graph, cluster, node_of) <= allowed * (1 + ROUNDING):
                done += 1
            else:
                node_of[:] = before
        return done

    def _move_off(
        self, graph: InstanceGraph, cluster: Cluster, node_of: IntArray, node: int, everything: bool
    ) -> None:
        members = np.flatnonzero(node_of == node)
        slow = instance_us(graph, cluster, node_of)[members]
        if everything and len(members) == len(node_of):
            return
        for instance in members[np.argsort(-slow, kind="stable")].tolist():
            if not everything and busiest(graph, cluster, node_of)[node] <= self.high + ROUNDING:
                return
            target = self._receiver(graph, cluster, node_of, instance)
            if target is not None:
                node_of[instance] = target
            elif everything:
                return

    def _receiver(
        self, graph: InstanceGraph, cluster: Cluster, node_of: IntArray, instance: int
    ) -> int | None:
        use = NodeUse.of(graph, cluster, node_of)
        cpu = fraction(use.cpu_cores + graph.cpu_cores[instance], cluster.cpu_cores)
        mem = fraction(use.mem_mb + graph.mem_mb[instance], cluster.mem_mb)
        io = fraction(use.io_mb_s + graph.io_mb_s[instance], cluster.io_mb_s)
        open_ = (cpu <= self.high) & (mem <= self.high) & (io <= 1.0)
        open_ &= use.instances < cluster.processes * cluster.slots
        # A node that runs nothing is asleep: waking it is not what emptying another is for.
        open_ &= (use.instances > 0) | (
            busiest(graph, cluster, node_of)[node_of[instance]] > self.high
        )
        open_[node_of[instance]] = False
        if not open_.any():
            return None
        operator = graph.operator_of[instance]
        siblings = group_counts(node_of[graph.operator_of == operator], len(cluster)) > 0
        pull = group_sums(node_of, rates_of(graph, instance), len(cluster))
        order = np.lexsort((cpu, -pull, siblings, ~open_))
        return int(order[0])


def busiest(graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> FloatArray:
    """CPU or memory use of each node, whichever is larger."""
    cpu, mem, _ = NodeUse.of(graph, cluster, node_of).fractions(cluster)
    return np.maximum(cpu, mem)


def makespan(graph: InstanceGraph, cluster: Cluster, node_of: IntArray) -> float:
    """Estimated time of a tuple along the slowest path, in milliseconds (Sra eq. 5-6)."""
    cpu = NodeUse.of(graph, cluster, node_of).fractions(cluster)[0]
    inside = np.array([float(f.internal(node_of, len(cluster)).sum()) for f in graph.flows])
    across = np.array([f.total for f in graph.flows]) - inside
    tiers = (np.zeros(len(inside)), inside, np.maximum(across, 0.0))
    return estimate_latency_ms(graph, cpu[node_of], tiers, TierCosts()) or 0.0
