"""Penstock's trigger: overloaded, roomier than needed, or clearly improvable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import IntArray
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, InstanceGraph, Measurements, Plan, Reason, expand
from penstock.model.load import ROUNDING
from penstock.strategies.api import Request
from penstock.strategies.loads import max_load
from penstock.strategies.replan import stands
from penstock.strategies.scale.head_room import fewest_nodes, load_limit
from penstock.strategies.trigger import Verdict, register

#: Part of the limit that a plan made for a gain alone may fill.
MARGIN = 0.95


@register
@dataclass(frozen=True)
class HeadRoom(Checked):
    """Fire on overload, on nodes that could be released, or on a proposal that gains clearly.

    The band between `most * slack` and `overload` is where nothing happens: a plan made at the
    limit `most` stays through a swing of a tenth either way. Overload and spare nodes must show in
    each of the last `rounds` windows (`Request.recent`), as far as there are that many. A proposal
    that only gains must fit under the limit with a margin in every window that is known, unless it
    loads no node more than the running plan does: noise makes room that is gone a moment later.
    """

    name: ClassVar[str] = "head-room"
    summary: ClassVar[str] = "overload, spare nodes or a clear gain, each for several rounds"
    origin: ClassVar[str] = "Penstock, after Ra Alg. 2 and Sl's factor xi"

    most: float = param(0.8, "Load of a node that a plan may reach.", least=0.05, most=1)
    overload: float = param(0.98, "Load of a node that calls for a new plan.", least=0.05, most=10)
    slack: float = param(0.8, "Part of the limit under which nodes are released.", least=0, most=1)
    gain: float = param(0.15, "Part of the communication cost worth moving for.", least=0, most=1)
    rounds: int = param(2, "Windows in which a load must show.", least=1, most=100)

    def check(self, request: Request, proposal: Plan | None = None) -> Verdict:
        """Compare the running plan's load with the band, and with the proposal if there is one."""
        running = request.running
        if running is None:
            return Verdict(True, (Reason("no plan is running"),))
        current = running.node_of_in(request.cluster)
        if not stands(request.cluster, current, running.process_of):
            return Verdict(True, (Reason("a node of the running plan is gone"),))
        if set(running.parallelism) != set(request.topology.parallelism):
            return Verdict(True, (Reason("the topology has changed"),))
        if proposal is not None and proposal.before is not None:
            return self._gain(request, current, proposal.before.communication_us_per_s, proposal)
        windows = (*request.recent[-(self.rounds - 1) :], request.measurements)[-self.rounds :]
        graphs = [_graph(request, running, window) for window in windows]
        return self._band(request, current, graphs)

    def _band(self, request: Request, current: IntArray, graphs: list[InstanceGraph]) -> Verdict:
        loads = [max_load(graph, request.cluster, current) for graph in graphs]
        used = np.unique(current)
        figures = {"load": loads[-1], "overload": self.overload, "nodes": len(used)}
        if min(loads) > self.overload:
            text = (
                f"the busiest node is at {loads[-1]:.2f} of its capacity, above {self.overload:g}"
            )
            return Verdict(True, (Reason(text, figures),))
        if not request.exact_nodes and max(loads) <= self.most:
            limit = load_limit(request.measurements, self.most)
            # An instance cannot be cut: one that takes more of a node would keep all nodes awake.
            alone = max(_largest(graph, request.cluster) for graph in graphs)
            limit = min(limit, max(limit * self.slack, alone + ROUNDING))
            needed = [fewest_nodes(graph, request.cluster, limit, used) for graph in graphs]
            counts = [len(used) if found is None else len(found.nodes) for found in needed]
            figures |= {"needed": max(counts), "limit": limit}
            if max(counts) < len(used):
                text = (
                    f"{max(counts)} nodes would do with a load of {limit:.2f}, {len(used)} are used"
                )
                return Verdict(True, (Reason(text, figures),))
        text = f"the busiest node is at {loads[-1]:.2f} and no node can be released"
        return Verdict(False, (Reason(text, figures),))

    def _gain(self, request: Request, current: IntArray, before: float, proposal: Plan) -> Verdict:
        after = proposal.after.communication_us_per_s
        figures = {"cost_before": before, "cost_after": after, "gain": self.gain}
        fires = before > 0 and after < before * (1 - self.gain)
        share = 1 - after / before if before > 0 else 0.0
        text = f"a new plan saves {share:.1%} of the communication, {self.gain:.0%} is asked"
        if fires and not self._fits(request, current, proposal):
            fires, text = False, f"{text}, but it has not fitted with a margin all the time"
        return Verdict(fires, (Reason(text, figures),))

    def _fits(self, request: Request, current: IntArray, proposal: Plan) -> bool:
        """Whether a proposal is within the limit, with a margin, in every window."""
        running, cluster = request.running, request.cluster
        assert running is not None
        node_of = proposal.node_of_in(cluster)
        limit = load_limit(request.measurements, self.most) * MARGIN
        for window in (*request.recent, request.measurements):
            now = max_load(_graph(request, running, window), cluster, current)
            then = max_load(_graph(request, proposal, window), cluster, node_of)
            if then > max(limit, now + ROUNDING):
                return False
        return True


def _largest(graph: InstanceGraph, cluster: Cluster) -> float:
    """Part of the largest node that the largest instance takes."""
    return max(
        float(demand.max() / max(float(capacity.max()), 1e-12))
        for demand, capacity in (
            (graph.cpu_cores, cluster.cpu_cores),
            (graph.mem_mb, cluster.mem_mb),
            (graph.io_mb_s, cluster.io_mb_s),
        )
    )


def _graph(request: Request, plan: Plan, window: Measurements | None) -> InstanceGraph:
    return expand(request.topology.with_parallelism(plan.parallelism), window)
