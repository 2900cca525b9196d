"""Fires when a node has left the band of loads that a plan aims at (Ra section 5.3, eq. 21)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.common.parameters import Checked, param
from penstock.model import Plan, Reason
from penstock.strategies.api import Request, cost_of_running
from penstock.strategies.trigger import Verdict, register


@register
@dataclass(frozen=True)
class LoadBand(Checked):
    """Fire when a node in use is clearly under `under` or clearly over `over`.

    The paper's band is narrow: a rate that swings by a tenth leaves it. So a node must leave it by
    the factor `1 + margin`, and a node that the running plan had to leave outside the band is
    compared with the load that it was planned for. A node over its capacity always counts, unless
    it was planned so. A margin of 0 is the paper.
    """

    name: ClassVar[str] = "load-band"
    summary: ClassVar[str] = "a node has left the band of loads"
    origin: ClassVar[str] = "Ra-Stream, section 5.3, eq. 21"

    under: float = param(0.60, "Lower end of the band.", least=0, most=1, unit="of a node")
    over: float = param(0.75, "Upper end of the band.", least=0, most=1, unit="of a node")
    margin: float = param(
        0.25, "How far outside the band a node must be (ours).", least=0, most=10, unit="of the end"
    )

    def check(self, request: Request, proposal: Plan | None = None) -> Verdict:
        """Compare every node of the running plan with the band."""
        running = request.running
        if running is None:
            return Verdict(True, (Reason("no plan is running"),))
        now = cost_of_running(request)
        if now is None:
            return Verdict(
                True,
                (
                    Reason(
                        "the running plan no longer stands: a node is gone, "
                        "or the topology has changed"
                    ),
                ),
            )
        planned = running.after.node_load
        highest, lowest = max(now.node_load.values()), min(now.node_load.values())
        figures = {"highest": highest, "lowest": lowest, "under": self.under, "over": self.over}
        for node, load in now.node_load.items():
            then = planned.get(node, load)
            most = max(self.over, then) * (1.0 + self.margin)
            least = min(self.under, then) / (1.0 + self.margin)
            if load > most or load > 1.0 >= then:
                text = f"node {node!r} is at {load:.2f} of its capacity, planned for {then:.2f}"
                return Verdict(True, (Reason(text, {**figures, "load": load, "planned": then}),))
            if load < least and not request.exact_nodes:
                text = (
                    f"node {node!r} is only at {load:.2f} of its capacity, planned for {then:.2f}"
                )
                return Verdict(True, (Reason(text, {**figures, "load": load, "planned": then}),))
        text = f"loads from {lowest:.2f} to {highest:.2f} are near the band, or as planned"
        return Verdict(False, (Reason(text, figures),))
