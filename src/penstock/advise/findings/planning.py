"""Time of the driver: planning, and whatever it does while no task runs."""

from __future__ import annotations

from typing import ClassVar

from penstock.advise.evidence import Evidence, covered_ms
from penstock.advise.findings.finding import LEAST_SHARE, Finding, Gain, register
from penstock.report.text import milliseconds, share

#: What planning a batch, and handing it to the executors, takes at the least.
FINE_MS = 50.0


@register
class Planning:
    """Measure the time in which the driver works and the executors have nothing to do."""

    name: ClassVar[str] = "planning"
    summary: ClassVar[str] = "the driver plans, or does work of its own, while no task runs"

    def find(self, evidence: Evidence) -> Finding | None:
        """Sum planning, and the part of the batch's run in which no stage runs."""
        plan_ms = sum(max(0.0, b.phase_ms("queryPlanning") - FINE_MS) for b in evidence.batches)
        alone_ms = sum(
            max(0.0, b.phase_ms("addBatch") - covered_ms(evidence.query.stages_of[b.id]) - FINE_MS)
            for b in evidence.batches
            if "addBatch" in b.phases
        )
        total_ms = plan_ms + alone_ms
        if evidence.share(total_ms) < LEAST_SHARE:
            return None
        return Finding(
            self.name,
            Gain.TIME,
            evidence.share(total_ms),
            f"The driver holds batches up: for {share(evidence.share(total_ms))} of their time it "
            "plans or works alone, and no task runs.",
            (
                f"planning takes {milliseconds(evidence.mean(evidence.phase_ms('queryPlanning')))} "
                f"of a batch of {milliseconds(evidence.batch_ms)}",
                f"another {milliseconds(evidence.mean(alone_ms))} pass while a batch runs and "
                "no task does: code in foreachBatch, collecting, or writing a table's log",
            ),
            actions=(
                "keep plans small: few unions and few columns, no frames built in loops",
                "a longer trigger interval plans less often",
                "do not collect, count or list in foreachBatch",
            ),
            figures={
                "planning_ms": evidence.mean(evidence.phase_ms("queryPlanning")),
                "driver_ms": evidence.mean(alone_ms),
            },
        )
