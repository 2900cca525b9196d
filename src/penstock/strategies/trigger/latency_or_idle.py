"""Plan anew when latency stays high or a node has too little or too much left (Ts section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray
from penstock.common.parameters import Checked, param
from penstock.model import NodeUse, Plan, Reason
from penstock.strategies.api import Request, cost_of_running
from penstock.strategies.trigger import Verdict, register


@register
@dataclass(frozen=True)
class LatencyOrIdle(Checked):
    """Fire on high latency, on a node without head-room, and on nodes that could be let go.

    Ts checks two things from time to time: whether latency has been high for long, and whether
    the capacity that a node has left is past a threshold. The measured latency is already the mean
    of a window without its extremes, and the window is the "long". High is what is well above the
    lowest latency that was measured under the running plan: how long a batch takes at the least
    differs from one job to another, so that no fixed number is high for all. "Past a threshold" is
    read both ways: a node with less than `least_free` left is overloaded, one with more than
    `most_free` left is idle. Idle nodes count only if the stream would fit on fewer nodes even if
    it grew by `margin`, so that a rate that wobbles does not wake and release a node in turn; and a
    plan made for this reason has to use fewer nodes. Ts prints no thresholds; these are ours.
    """

    name: ClassVar[str] = "latency-or-idle"
    summary: ClassVar[str] = "latency high for long, or a node's free capacity past a threshold"
    origin: ClassVar[str] = "Ts-Stream section 4.1"

    latency_ms: float = param(
        0.0, "Latency that is high; 0: `latency_rise` decides alone.", least=0, unit="ms"
    )
    latency_rise: float = param(
        2.0, "Times the lowest latency of the running plan that is high; 0: none is.", least=0
    )
    least_free: float = param(
        0.05, "A node with less left of a resource is overloaded.", least=0, most=1
    )
    most_free: float = param(
        0.5, "A node with more left of every resource is idle.", least=0, most=1
    )
    alpha: float = param(0.7, "Part of a node's CPU that a new plan fills.", least=0, most=1)
    margin: float = param(0.25, "Growth that fewer nodes would still have to hold.", least=0)

    def check(self, request: Request, proposal: Plan | None = None) -> Verdict:
        """Look at latency first, then at overload, then at idle nodes; see `Trigger.check`."""
        running = request.running
        if running is None:
            return Verdict(True, (Reason("nothing runs yet"),))
        before = cost_of_running(request)
        if before is None or dict(running.parallelism) != dict(request.topology.parallelism):
            return Verdict(True, (Reason("the running plan does not fit topology and cluster"),))
        measured = request.measurements.latency_ms if request.measurements else None
        high = self._high_ms(request)
        if measured is not None and high is not None and measured > high:
            text = f"latency of {measured:.4g} ms is above {high:.4g} ms"
            return Verdict(True, (Reason(text, {"latency_ms": measured, "limit_ms": high}),))
        names = list(before.node_load)
        free = 1.0 - np.array([self._use(request, n, before.node_load[n]) for n in names])
        worst = int(np.argmin(free))
        figures = {"least_free": float(free[worst]), "most_free": float(free.max())}
        if free[worst] < self.least_free:
            text = f"node {names[worst]!r} has {max(free[worst], 0.0):.0%} left, too little"
            return Verdict(True, (Reason(text, {**figures, "limit": self.least_free}),))
        if free.max() > self.most_free:
            return self._idle(request, before.nodes_used, proposal, figures)
        text = f"every node has between {free[worst]:.0%} and {free.max():.0%} left, latency is low"
        return Verdict(False, (Reason(text, figures),))

    def _high_ms(self, request: Request) -> float | None:
        """Return the latency above which it is high; None if nothing was measured to compare."""
        limits = [self.latency_ms] if self.latency_ms else []
        seen = [window.latency_ms for window in request.recent if window.latency_ms is not None]
        if self.latency_rise and seen:
            limits.append(self.latency_rise * min(seen))
        return min(limits, default=None)

    def _idle(
        self, request: Request, used: int, proposal: Plan | None, figures: dict[str, float]
    ) -> Verdict:
        if proposal is not None:
            after = proposal.after.nodes_used
            text = f"{after} nodes instead of {used}"
        else:
            after = fewest(request, self.alpha, 1.0 + self.margin)
            text = f"nodes are idle: {after} could do instead of {used}"
        figures = {**figures, "nodes_before": used, "nodes_after": after}
        if after < used:
            return Verdict(True, (Reason(text, figures),))
        return Verdict(False, (Reason(f"nodes are idle, but {used} are needed", figures),))

    @staticmethod
    def _use(request: Request, node: str, derived: float) -> float:
        """Use of the busiest resource: as measured, unless the instances on the node need more."""
        seen = request.measurements.nodes.get(node) if request.measurements else None
        known = [seen.cpu, seen.mem, seen.io, seen.network] if seen else []
        return max([derived, *(value for value in known if value is not None)])


def fewest(request: Request, alpha: float, growth: float) -> int:
    """Nodes that the demand needs at the least, its CPU and I/O grown, the CPU filled to `alpha`.

    A bound: whether instances can be packed so tightly is not looked at. The number of nodes, if
    not even all of them are enough.
    """
    graph, cluster = request.graph, request.cluster
    total = NodeUse.of(graph, cluster, np.zeros(len(graph), dtype=np.int64))
    most = 1
    for demand, capacity in (
        (float(total.cpu_cores.sum()) * growth, cluster.cpu_cores * alpha),
        (float(total.mem_mb.sum()), cluster.mem_mb),
        (float(total.io_mb_s.sum()) * growth, cluster.io_mb_s),
        (float(len(graph)), (cluster.processes * cluster.slots).astype(np.float64)),
    ):
        most = max(most, _enough(demand, capacity))
    return most


def _enough(demand: float, capacity: FloatArray) -> int:
    """How many of the largest capacities hold the demand."""
    held = np.cumsum(np.sort(capacity)[::-1])
    short = int((held < demand * (1 - 1e-9)).sum())
    return min(short + 1, len(capacity))
