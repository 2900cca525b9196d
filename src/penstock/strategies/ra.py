"""Ra-Stream: anneal, scale between two thresholds, place by surplus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import IntArray
from penstock.common.parameters import Checked, param
from penstock.model import Keep, Plan, Reason
from penstock.strategies.api import Request, register
from penstock.strategies.loads import capacity_shares, dominant, exact_limit, max_load
from penstock.strategies.partition.annealing import Annealing
from penstock.strategies.partition.refine import refine, repair
from penstock.strategies.place import Placed
from penstock.strategies.place.best_surplus import BestSurplus
from penstock.strategies.place.processes import gather_pairs
from penstock.strategies.place.spread import use_all
from penstock.strategies.replan import finish
from penstock.strategies.scale.head_room import sub_cluster
from penstock.strategies.scale.thresholds import Thresholds
from penstock.strategies.trigger.load_band import LoadBand


@register
@dataclass(frozen=True)
class Ra(Checked):
    """Ra-Stream's planner.

    The graph is annealed into as many groups as there are nodes (Alg. 1), these are merged, filled
    and relieved until their loads lie in a band, which leaves the number of nodes that is needed
    (Alg. 2), and each goes to the node with the largest surplus, its busiest pairs into one process
    (Alg. 3). A local search on the chosen nodes ends it: that is ours, and 0 passes leave it out.
    """

    name: ClassVar[str] = "ra"
    summary: ClassVar[str] = "annealed groups, scaled between two thresholds, placed by surplus"
    origin: ClassVar[str] = "Ra-Stream, Fan et al., Future Gener. Comput. Syst. 2025"

    epsilon: float = param(0.70, "Weight of the cut share in the annealing.", least=0, most=1)
    zeta: float = param(0.99, "Factor of the temperature at each step.", least=0.5, most=0.9999)
    under: float = param(0.60, "Load below which a node is not worth having.", least=0, most=1)
    over: float = param(0.75, "Load that a node should not exceed.", least=0, most=1)
    gamma: float = param(0.50, "Weight of the CPU left over.", least=0, most=1)
    delta: float = param(0.35, "Weight of the memory left over.", least=0, most=1)
    margin: float = param(
        0.25, "How far a node must leave the band to call for a plan (ours).", least=0, most=10
    )
    polish: int = param(8, "Passes of local search at the end (ours).", least=0, most=100)

    def plan(self, request: Request) -> Plan | Keep:
        """Plan, or keep the running plan while its nodes stay in the band."""
        graph, cluster = request.graph, request.cluster
        why: tuple[Reason, ...] = ()
        if request.running is not None and request.running.strategy == self.name:
            verdict = LoadBand(self.under, self.over, self.margin).check(request)
            if not verdict.fires:
                return Keep(verdict.reasons)
            why = verdict.reasons
        shares = capacity_shares(graph, cluster)
        usable = np.flatnonzero(shares > 0)
        annealing = Annealing(epsilon=self.epsilon, zeta=self.zeta)
        weights = dominant(graph, cluster)
        groups = annealing.partition(graph, weights, shares[usable], request.rng)
        if request.exact_nodes:
            return self._exact(request, use_all(graph, cluster, usable[groups]), why)
        scaled = Thresholds(self.under, self.over).scale(request, graph, groups, len(usable))
        placer = BestSurplus(self.gamma, self.delta)
        placed = placer.place(
            graph, scaled.groups, scaled.count, cluster, request.running, request.rng
        )
        node_of, note = self._polish(request, placed.node_of)
        process_of = gather_pairs(graph, cluster, node_of)
        reasons = (*why, *scaled.reasons, *placed.reasons, *note)
        return finish(request, self.name, Placed(node_of, process_of, reasons), limit=self.over)

    def _polish(self, request: Request, node_of: IntArray) -> tuple[IntArray, tuple[Reason, ...]]:
        """Mend what is over a limit anywhere, then search on the nodes in use."""
        graph, cluster = request.graph, request.cluster
        cut = graph.cut(node_of, len(cluster))
        if max_load(graph, cluster, node_of) > 1.0:
            node_of = repair(graph, cluster, node_of)
        if self.polish:
            used = np.unique(node_of)
            part, local = sub_cluster(cluster, used), np.searchsorted(used, node_of)
            limit = max(self.over, min(max_load(graph, cluster, node_of), 1.0))
            node_of = used[refine(graph, part, local, limit, passes=self.polish)]
        after = graph.cut(node_of, len(cluster))
        if after == cut:
            return node_of, ()
        text = f"local search changed the tuples/s across nodes from {cut:g} to {after:g}"
        return node_of, (Reason(text, {"before_per_s": cut, "after_per_s": after}),)

    def _exact(self, request: Request, node_of: IntArray, why: tuple[Reason, ...]) -> Plan | Keep:
        """One group for each node, no scaling, every node used."""
        graph, cluster = request.graph, request.cluster
        limit = exact_limit(request)
        node_of = refine(graph, cluster, node_of, limit, passes=self.polish, keep_all=True)
        text = f"all {len(cluster)} nodes are asked for, none above {limit:.2f}"
        reason = Reason(text, {"nodes": len(cluster), "limit": limit})
        process_of = gather_pairs(graph, cluster, node_of)
        return finish(request, self.name, Placed(node_of, process_of, (*why, reason)))
