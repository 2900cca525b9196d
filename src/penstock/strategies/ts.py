"""Ts-Stream: topology-aware scheduling on the fewest nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from penstock.common.parameters import Checked, param
from penstock.model import Cluster, InstanceGraph, Keep, Plan, Reason
from penstock.strategies.api import Request, register
from penstock.strategies.loads import capacity_shares, dominant, max_load
from penstock.strategies.partition.spectral import Spectral
from penstock.strategies.place import Placed
from penstock.strategies.place.fewest_nodes import FewestNodes
from penstock.strategies.polish import excess, land, settle, settle_exactly
from penstock.strategies.replan import finish
from penstock.strategies.trigger.latency_or_idle import LatencyOrIdle

#: Processes of a node when its subgraphs are sized: Storm's supervisors have four slots.
WORKERS = 4

#: Subgraphs at the most, unless the parameter asks for more: clustering time grows with them.
MOST_SUBGRAPHS = 1000


@register
@dataclass(frozen=True)
class TsStream(Checked):
    """Cut the graph by its Laplacian, then fill nodes along the heaviest edges.

    Ts-Stream Alg. 1 (`spectral`), eq. 9, Alg. 2 with eq. 10 (`fewest-nodes`) and its trigger
    (`latency-or-idle`). The local search at the end (`polish`) is ours.
    """

    name: ClassVar[str] = "ts"
    summary: ClassVar[str] = "spectral subgraphs on the fewest nodes (Ts-Stream)"
    origin: ClassVar[str] = "Ts-Stream"

    instances_per_process: int = param(
        0, "w_e of eq. 9; 0: so many that a node's processes hold what it can run.", least=0
    )
    alpha: float = param(0.7, "Part of a node's free CPU that is used (eq. 10).", least=0, most=1)
    latency_ms: float = param(
        0.0, "Latency that is high; 0: `latency_rise` decides alone.", least=0, unit="ms"
    )
    latency_rise: float = param(
        2.0, "Times the lowest latency of the running plan that is high; 0: none is.", least=0
    )
    most_free: float = param(
        0.5, "Share of its capacity beyond which a node counts as idle.", least=0, most=1
    )
    polish: int = param(8, "Passes of local search at the end; 0: the paper alone.", least=0)

    def plan(self, request: Request) -> Plan | Keep:
        """Check the trigger, then partition, place and polish."""
        trigger = LatencyOrIdle(
            latency_ms=self.latency_ms,
            latency_rise=self.latency_rise,
            most_free=self.most_free,
            alpha=self.alpha,
        )
        verdict = trigger.check(request)
        if not verdict.fires:
            return Keep(verdict.reasons)
        placed = self._on_all(request) if request.exact_nodes else self._on_fewest(request)
        limit = max(self.alpha, max_load(request.graph, request.cluster, placed.node_of))
        answer = finish(request, self.name, placed, limit=min(limit, 1.0))
        if isinstance(answer, Keep):
            return answer
        # A plan made because nodes are idle must let some go.
        verdict = trigger.check(request, answer)
        if not verdict.fires:
            return Keep(verdict.reasons)
        return replace(answer, reasons=(*verdict.reasons, *answer.reasons))

    def _on_fewest(self, request: Request) -> Placed:
        """Let Alg. 2 choose the nodes."""
        graph, cluster = request.graph, request.cluster
        k = subgraphs(len(graph), self._per_process(graph, cluster))
        weights, shares = dominant(graph, cluster), np.full(k, 1.0 / k)
        groups = Spectral().partition(graph, weights, shares, request.rng)
        placer = FewestNodes(alpha=self.alpha)
        placed = placer.place(graph, groups, k, cluster, request.running, request.rng)
        filled = Cluster(
            tuple(replace(node, cpu_cores=self.alpha * node.cpu_cores) for node in cluster.nodes)
        )
        node_of = settle(graph, filled, placed.node_of, 1.0, self.polish)
        if excess(graph, filled, node_of, 1.0) > 0:
            # There is no room below alpha; no node gets fuller than the fullest is, nor than full.
            limit = min(1.0, max(self.alpha, max_load(graph, cluster, node_of)))
            node_of = settle(graph, cluster, node_of, limit, self.polish)
        return land(request, node_of, placed.reasons)

    def _on_all(self, request: Request) -> Placed:
        """One subgraph for each node that can hold any, all nodes in use."""
        graph, cluster = request.graph, request.cluster
        shares = capacity_shares(graph, cluster)
        usable = np.flatnonzero(shares > 0)
        weights = dominant(graph, cluster)
        groups = Spectral().partition(graph, weights, shares[usable], request.rng)
        node_of = settle_exactly(request, usable[groups], self.polish)
        text = f"{len(graph)} instances in {len(usable)} subgraphs, one for each node"
        reason = Reason(text, {"instances": len(graph), "subgraphs": len(usable)})
        return land(request, node_of, [reason])

    def _per_process(self, graph: InstanceGraph, cluster: Cluster) -> int:
        if self.instances_per_process:
            return self.instances_per_process
        fits = float((cluster.processes * cluster.slots).mean())
        for demand, capacity in (
            (graph.cpu_cores, cluster.cpu_cores * self.alpha),
            (graph.mem_mb, cluster.mem_mb),
            (graph.io_mb_s, cluster.io_mb_s),
        ):
            if demand.sum() > 0:
                fits = min(fits, float(capacity.mean() / demand.mean()))
        workers = max(WORKERS, round(float(cluster.processes.mean())))
        slots = int(cluster.slots.min())
        sizes = [max(1, min(slots, int(fits / w))) for w in range(workers, 0, -1)]
        # Subgraphs of one instance keep no heavy edge within a process: larger ones, if a node's
        # capacity allows them.
        sizes = [size for size in sizes if size > 1] or sizes[-1:]
        fine = [size for size in sizes if subgraphs(len(graph), size) <= MOST_SUBGRAPHS]
        return fine[0] if fine else math.ceil(len(graph) / MOST_SUBGRAPHS)


def subgraphs(instances: int, per_process: int) -> int:
    """Return the number of subgraphs, ``k = ceil(n / w_e)`` (Ts eq. 9).

    Examples
    --------
    >>> subgraphs(10, 4)
    3
    """
    return math.ceil(instances / per_process)
