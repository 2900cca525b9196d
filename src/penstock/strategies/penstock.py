"""Penstock's own strategy, the default: few nodes, little traffic, few moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from penstock.common.arrays import IntArray
from penstock.common.parameters import Checked, param
from penstock.model import Keep, Plan, Reason, RoutingTable
from penstock.model.links import link_mb_s
from penstock.model.load import ROUNDING
from penstock.strategies.api import Request, register
from penstock.strategies.loads import exact_limit, max_load
from penstock.strategies.partition.portfolio import best_placement
from penstock.strategies.partition.refine import refine
from penstock.strategies.place import Placed
from penstock.strategies.place.close_packing import pack_closely
from penstock.strategies.place.longest_first import longest_first
from penstock.strategies.place.processes import fill_processes
from penstock.strategies.place.relabel import bounded, carry_over, relabel
from penstock.strategies.replan import finish
from penstock.strategies.route.skew import routed
from penstock.strategies.scale.head_room import fewest_nodes, load_limit, sub_cluster
from penstock.strategies.trigger.head_room import HeadRoom

#: Loads that are tried from the limit of a plan to a full node, until the nodes suffice.
LIMITS = 5


@register
@dataclass(frozen=True)
class Penstock(Checked):
    """Fewest nodes with head-room, least traffic between them, as few moves as that takes.

    The first plan takes the fewest nodes that leave room for the measured swing of the rate
    (`scale.head_room`), and searches for the placement on them that crosses nodes least
    (`partition.portfolio`); inside a node the instances that talk most share a process. A new plan
    is made on overload, on spare nodes or on a clear gain (`trigger.head_room`); it starts from the
    running one, and begins afresh only where that gains clearly more. Skewed keys are repartitioned
    over the instances, and keys hotter than an instance are split (`route.skew`).
    """

    name: ClassVar[str] = "penstock"
    summary: ClassVar[str] = (
        "fewest nodes with head-room, least traffic, bounded moves; the default"
    )
    origin: ClassVar[str] = "Penstock"

    most: float = param(0.8, "Load of a node that a plan may reach.", least=0.05, most=1)
    overload: float = param(0.98, "Load of a node that calls for a new plan.", least=0.05, most=10)
    slack: float = param(0.8, "Part of the limit under which nodes are released.", least=0, most=1)
    gain: float = param(0.15, "Part of the communication cost worth moving for.", least=0, most=1)
    rounds: int = param(2, "Windows in which a load must show.", least=1, most=100)
    chi: float = param(0.3, "Imbalance of instances (LIT) that is left alone.", least=0)
    partitions: int = param(64, "Router partitions for each instance.", least=1, most=65_536)
    max_moves: float = param(
        0.25, "Part of the instances that may move for a gain alone.", least=0, most=1
    )
    effort: float = param(0.3, "Search effort an instance.", least=0, most=1000, unit="ms")

    def plan(self, request: Request) -> Plan | Keep:
        """Plan, or keep the running plan."""
        if request.running is None:
            return self._fresh(request)
        trigger = HeadRoom(self.most, self.overload, self.slack, self.gain, self.rounds)
        verdict = trigger.check(request)
        if verdict.fires:
            # Nodes are given up with the margin that let them go, or they would soon be missed.
            margin = verdict.reasons[0].figures.get("limit")
            return self._again(request, verdict.reasons, bound=None, margin=margin)
        if self._routing(request)[1]:
            return self._rerouted(request)
        proposal = self._again(request, (), bound=self.max_moves)
        if isinstance(proposal, Keep):
            return Keep((*verdict.reasons, *proposal.reasons))
        gain = trigger.check(request, proposal)
        if not gain.fires:
            return Keep((*verdict.reasons, *gain.reasons))
        return replace(proposal, reasons=(*gain.reasons, *proposal.reasons))

    def _fresh(self, request: Request) -> Plan | Keep:
        chosen, limit, reason, packed = self._nodes(request, None)
        node_of = self._search(request, chosen, limit, packed)
        reasons: tuple[Reason, ...] = (reason,)
        if _links_over(request, node_of, limit):
            node_of, note = self._wider(request, node_of, len(chosen), limit)
            reasons = (reason, note)
        return self._finish(request, node_of, limit, reasons)

    def _wider(
        self, request: Request, node_of: IntArray, count: int, limit: float
    ) -> tuple[IntArray, Reason]:
        """Try more nodes, each with a link of its own, until no link carries too much."""
        best, least = node_of, _links_over(request, node_of, limit)
        fair = np.argsort(-request.cluster.bandwidth_mb_s, kind="stable")
        while least > 0 and count < len(request.cluster):
            count = min(len(request.cluster), max(count + 1, count * 3 // 2))
            chosen = np.sort(fair[:count])
            found = self._search(request, chosen, limit, [])
            over = _links_over(request, found, limit)
            fits = max_load(request.graph, request.cluster, found) <= 1.0 + ROUNDING
            if over < least and (fits or over > 0):
                best, least = found, over
        used = len(np.unique(best))
        text = f"{used} nodes, for their links carry no more than {limit:.2f} of what they can"
        if least > 0:
            text = f"links carry more than {limit:.2f} of what they can, on any number of nodes"
        return best, Reason(text, {"nodes": used, "limit": limit, "over_mb_s": least})

    def _again(
        self,
        request: Request,
        why: tuple[Reason, ...],
        bound: float | None,
        margin: float | None = None,
    ) -> Plan | Keep:
        running = request.running
        assert running is not None
        graph, cluster = request.graph, request.cluster
        same = dict(running.parallelism) == dict(graph.topology.parallelism)
        current = running.node_of_in(cluster) if same else np.full(len(graph), -1, dtype=np.int64)
        awake = np.unique(current[current >= 0])
        if same and len(awake) and (current < 0).any() and not request.exact_nodes:
            rest = self._without_the_gone(request, current, awake, why)
            if rest is not None:
                return rest
        packed: list[IntArray] = []
        if bound is None or not len(awake):
            preferred = awake if len(awake) else None
            chosen, limit, reason, packed = self._nodes(request, preferred, margin)
        else:
            chosen, limit = awake, load_limit(request.measurements, self.most)
            reason = Reason(f"the {len(awake)} nodes in use stay", {"nodes": len(awake)})
        start = carry_over(graph, cluster, current, chosen)
        subset = sub_cluster(cluster, chosen)
        near = chosen[refine(graph, subset, start, limit, keep_all=request.exact_nodes, real=True)]
        if bound is not None and same:
            moves = int(np.ceil(bound * len(graph)))
            near = bounded(graph, cluster, current, near, limit, moves)
        else:
            far = self._search(request, chosen, limit, [*packed, start])
            tight = max_load(graph, cluster, near) > limit + ROUNDING
            crossing = graph.crossing(near, len(cluster))
            if tight or graph.crossing(far, len(cluster)) < crossing * (1 - self.gain):
                near = relabel(graph, cluster, current, far)
        return self._finish(request, near, limit, (*why, reason))

    def _without_the_gone(
        self, request: Request, current: IntArray, awake: IntArray, why: tuple[Reason, ...]
    ) -> Plan | Keep | None:
        """Find a node among those that are left for what has none; None if they are too few.

        Nothing else moves, and no further node is given up: what is spare shows when all is well.
        """
        limit = load_limit(request.measurements, self.most)
        position = np.full(len(request.cluster) + 1, -1, dtype=np.int64)
        position[awake] = np.arange(len(awake))
        part = sub_cluster(request.cluster, awake)
        node_of = awake[longest_first(request.graph, part, position[current])]
        if max_load(request.graph, request.cluster, node_of) > limit + ROUNDING:
            return None
        text = f"the {len(awake)} nodes that are left take what ran there"
        reason = Reason(text, {"nodes": len(awake), "limit": limit})
        return self._finish(request, node_of, limit, (*why, reason))

    def _nodes(
        self, request: Request, awake: IntArray | None, margin: float | None = None
    ) -> tuple[IntArray, float, Reason, list[IntArray]]:
        """Choose nodes, and the load that they may reach: less than the limit if there is one.

        The last value is placements on them, as positions among the chosen nodes, if any are known.
        """
        everything = np.arange(len(request.cluster))
        if request.exact_nodes:
            limit = exact_limit(request)
            text = f"all {len(everything)} nodes are asked for, none above {limit:.2f}"
            why = Reason(text, {"nodes": len(everything), "limit": limit})
            close = pack_closely(request.graph, request.cluster, limit)
            return everything, limit, why, [] if close is None else [close]
        limit = load_limit(request.measurements, self.most)
        for bound in (margin or limit, *np.linspace(limit, 1.0, LIMITS).tolist()):
            packed = fewest_nodes(request.graph, request.cluster, bound, awake)
            if packed is not None:
                count = len(packed.nodes)
                text = f"{count} of {len(everything)} nodes hold it with a load of {bound:.2f}"
                figures = {"nodes": count, "limit": bound, "wanted_limit": limit}
                part = sub_cluster(request.cluster, packed.nodes)
                close = pack_closely(request.graph, part, bound)
                starts = [packed.start] if close is None else [close, packed.start]
                return packed.nodes, bound, Reason(text, figures), starts
        text = f"not even all {len(everything)} nodes hold it"
        return everything, 1.0, Reason(text, {"nodes": len(everything), "limit": 1.0}), []

    def _search(
        self, request: Request, chosen: IntArray, limit: float, starts: list[IntArray]
    ) -> IntArray:
        effort_s = 0.04 + len(request.graph) * self.effort * 1e-3
        part = sub_cluster(request.cluster, chosen)
        found = best_placement(
            request.graph,
            part,
            limit,
            request.rng,
            effort_s=effort_s,
            keep_all=request.exact_nodes,
            starts=starts,
        )
        return chosen[found]

    def _finish(
        self, request: Request, node_of: IntArray, limit: float, reasons: tuple[Reason, ...]
    ) -> Plan | Keep:
        process_of = fill_processes(request.graph, request.cluster, node_of)
        routing, notes = self._routing(request)
        placed = Placed(node_of, process_of, (*reasons, *notes))
        return finish(request, self.name, placed, routing=routing, limit=limit)

    def _rerouted(self, request: Request) -> Plan | Keep:
        """Repartition keys; no instance moves for that."""
        running = request.running
        assert running is not None
        routing, notes = self._routing(request)
        stays = Placed(running.node_of_in(request.cluster), running.process_of, notes)
        return finish(request, self.name, stays, routing=routing)

    def _routing(self, request: Request) -> tuple[Mapping[str, RoutingTable], tuple[Reason, ...]]:
        return routed(
            request.topology,
            request.measurements,
            request.running,
            chi=self.chi,
            partitions=self.partitions,
        )


def _links_over(request: Request, node_of: IntArray, limit: float) -> float:
    """MB per second above the limit of the nodes' links, in all."""
    sent, received = link_mb_s(request.graph, node_of, len(request.cluster))
    over = np.maximum(sent, received) - request.cluster.bandwidth_mb_s * limit * (1 + ROUNDING)
    return float(np.maximum(over, 0.0).sum())
