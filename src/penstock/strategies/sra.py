"""Sra-Stream: parallelism by state and rate, first fit at first, then node by node."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from penstock.common.arrays import IntArray
from penstock.common.parameters import Checked, param
from penstock.model import InstanceGraph, Keep, Plan, Reason, violations
from penstock.strategies.api import Request, cost_of_running, register
from penstock.strategies.loads import exact_limit
from penstock.strategies.partition.refine import refine, repair
from penstock.strategies.place import Placed
from penstock.strategies.place.first_fit import FirstFit
from penstock.strategies.place.processes import fill_in_order
from penstock.strategies.place.spread import use_all
from penstock.strategies.replan import finish
from penstock.strategies.scale import Scaled
from penstock.strategies.scale.drain import Drain
from penstock.strategies.scale.rate_ratio import RateRatio
from penstock.strategies.scale.slowest import Slowest
from penstock.strategies.trigger.rate_change import RateChange


@register
@dataclass(frozen=True)
class Sra(Checked):
    """Sra-Stream's planner.

    The first plan sets the parallelism (eq. 22, 26), places every instance where it would finish
    first (Alg. 1) and empties nodes that this leaves nearly idle. A re-plan starts from the running
    placement: the parallelism follows the rate (eq. 23-25), the slowest operator gets another
    instance when the makespan grew, and nodes are relieved or emptied (Alg. 2).
    """

    name: ClassVar[str] = "sra"
    summary: ClassVar[str] = "parallelism by time over CPU and rate, first fit, drained nodes"
    origin: ClassVar[str] = "Sra-Stream, Sun et al., Future Gener. Comput. Syst. 2019"

    a: float = param(
        0.25, "Change of the source rate that counts.", least=0.01, most=0.99, unit="of the rate"
    )
    growth: float = param(
        1.0, "Growth of the makespan that calls for a plan.", least=0, most=100, unit="of it"
    )
    high: float = param(0.9, "Load above which a node is relieved.", least=0, most=1)
    low: float = param(0.2, "Load below which a node is emptied.", least=0, most=1)
    polish: int = param(0, "Passes of local search at the end (ours).", least=0, most=100)

    def plan(self, request: Request) -> Plan | Keep:
        """Plan, or keep the running plan while rate and makespan are what it was made for."""
        running = request.running
        if running is None:
            return self._first(request, ())
        verdict = RateChange(self.a, self.growth).check(request)
        off = None if request.exact_nodes else RateRatio(self.a).off(request)
        if running.strategy == self.name and not verdict.fires and off is None:
            return Keep(verdict.reasons)
        if cost_of_running(request) is None:
            return self._first(replace(request, running=None), verdict.reasons)
        return self._again(request, running, verdict.reasons)

    def _first(self, request: Request, why: tuple[Reason, ...]) -> Plan | Keep:
        declared = Scaled(request.graph, np.arange(len(request.graph)), len(request.graph), ())
        if request.exact_nodes:
            return self._end(request, self._fitted(request, declared), why)
        scaled = RateRatio(self.a).scale(request, *_parts(declared))
        fitted = self._fitted(request, scaled)
        if scaled.graph is not request.graph and _broken(request, fitted):
            text = "the declared parallelism stays: the one by time over CPU finds no room"
            note = replace(declared, reasons=(Reason(text),))
            fitted = self._fitted(request, note)
        return self._end(request, fitted, why)

    def _fitted(self, request: Request, scaled: Scaled) -> Scaled:
        """FFRA with one group for each instance, then nodes that are nearly idle emptied."""
        graph, cluster = scaled.graph, request.cluster
        each = np.arange(len(graph))
        placed = FirstFit(self.high).place(graph, each, len(graph), cluster, None, request.rng)
        reasons = (*scaled.reasons, *placed.reasons)
        fitted = Scaled(graph, placed.node_of, len(cluster), reasons)
        return fitted if request.exact_nodes else self._drained(request, fitted)

    def _again(self, request: Request, running: Plan, why: tuple[Reason, ...]) -> Plan | Keep:
        """MSRA from the running placement; the instances are those that run."""
        topology = request.topology.with_parallelism(running.parallelism)
        request = replace(request, topology=topology)
        current = running.node_of_in(request.cluster)
        same = Scaled(request.graph, current, len(request.cluster), ())
        if request.exact_nodes:
            return self._end(request, same, why)
        scaled = RateRatio(self.a).scale(request, *_parts(same))
        if any(r.figures.get("makespan_growth", 0.0) > self.growth for r in why):
            slowest = Slowest().scale(request, *_parts(scaled))
            scaled = replace(slowest, reasons=(*scaled.reasons, *slowest.reasons))
        drained = self._drained(request, scaled)
        if scaled.graph is not request.graph and _broken(request, drained):
            drained = self._drained(request, same)
        return self._end(request, drained, why)

    def _drained(self, request: Request, scaled: Scaled) -> Scaled:
        drained = Drain(self.high, self.low).scale(request, *_parts(scaled))
        return replace(drained, reasons=(*scaled.reasons, *drained.reasons))

    def _end(self, request: Request, scaled: Scaled, why: tuple[Reason, ...]) -> Plan | Keep:
        """Mend what is over a limit, give the instances of a node to its processes, and judge."""
        graph, cluster, node_of = scaled.graph, request.cluster, scaled.groups
        limit, every = 1.0, request.exact_nodes
        if every:
            limit = exact_limit(request)
            node_of = use_all(graph, cluster, node_of)
        if self.polish:
            node_of = refine(graph, cluster, node_of, limit, passes=self.polish, keep_all=every)
        else:
            node_of = repair(graph, cluster, node_of, limit, keep_all=every)
        process_of = fill_in_order(cluster, node_of)
        placed = Placed(node_of, process_of, (*why, *scaled.reasons))
        return finish(request, self.name, placed, graph=graph)


def _parts(scaled: Scaled) -> tuple[InstanceGraph, IntArray, int]:
    return scaled.graph, scaled.groups, scaled.count


def _broken(request: Request, scaled: Scaled) -> bool:
    node_of = repair(scaled.graph, request.cluster, scaled.groups)
    process_of = fill_in_order(request.cluster, node_of)
    return bool(violations(scaled.graph, request.cluster, node_of, process_of))
