"""Fires when the source rate or the makespan has changed (Sra eq. 23, Alg. 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.common.parameters import Checked, param
from penstock.model import Plan, Reason
from penstock.strategies.api import Request, cost_of_running
from penstock.strategies.scale.rate_ratio import rate_change
from penstock.strategies.trigger import Verdict, register


@register
@dataclass(frozen=True)
class RateChange(Checked):
    """Fire on a change of the source rate, on a longer makespan, and on overload.

    The rate is compared with the one that the running plan was made for. The makespan is the
    latency as measured, compared with the lowest that was measured under the running plan; until
    there is one to compare with, it is the model's estimate, compared with that of the plan: a
    measured latency cannot be compared with an estimated one.
    """

    name: ClassVar[str] = "rate-change"
    summary: ClassVar[str] = "the source rate, or the makespan, has changed by a fraction"
    origin: ClassVar[str] = "Sra-Stream, eq. 23 and Alg. 2"

    a: float = param(
        0.25, "Change of the source rate that counts.", least=0.01, most=0.99, unit="of the rate"
    )
    growth: float = param(
        1.0, "Growth of the makespan that counts.", least=0, most=100, unit="of the makespan"
    )

    def check(self, request: Request, proposal: Plan | None = None) -> Verdict:
        """Compare the rate, the makespan and the loads with those of the running plan."""
        running, now = request.running, cost_of_running(request)
        if running is None:
            return Verdict(True, (Reason("no plan is running"),))
        if now is None:
            text = "the running plan no longer stands: a node is gone, or the topology has changed"
            return Verdict(True, (Reason(text),))
        change = rate_change(request)
        then_ms, now_ms = measured_ms(request) or (running.after.latency_ms, now.latency_ms)
        slower = now_ms / then_ms - 1.0 if now_ms and then_ms else 0.0
        load, planned = now.max_node_load, running.after.max_node_load
        figures = {"rate_change": change, "makespan_growth": slower, "load": load}
        if abs(change) > self.a:
            text = f"the rate changed by {change:+.0%}, more than {self.a:.0%}"
        elif slower > self.growth:
            text = f"the makespan grew by {slower:.0%}, more than {self.growth:.0%}"
        elif load > 1.0 >= planned:
            text = f"a node is at {load:.2f} of its capacity, planned for {planned:.2f}"
        else:
            text = f"the rate changed by {change:+.0%} and the makespan by {slower:+.0%}"
            return Verdict(False, (Reason(text, figures),))
        return Verdict(True, (Reason(text, figures),))


def measured_ms(request: Request) -> tuple[float, float] | None:
    """Lowest latency under the running plan, and latency now; None if either was not measured."""
    now = request.measurements.latency_ms if request.measurements else None
    before = [window.latency_ms for window in request.recent if window.latency_ms is not None]
    return (min(before), now) if before and now is not None else None
