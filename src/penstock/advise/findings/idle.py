"""Idle executors: paid for while nothing runs."""

from __future__ import annotations

from typing import ClassVar

from penstock.advise.elastic import executor_time
from penstock.advise.evidence import Evidence
from penstock.advise.findings.finding import Finding, Gain, Setting, register
from penstock.report.text import milliseconds, share

#: Part of the time without a batch from which on executors count as idle. A query that runs one
#: batch after the other needs what it has to keep up.
WAITING = 0.2

#: Rows that elastic executors must process of those that all executors would have.
KEPT_UP = 0.98


@register
class Idle:
    """Compare the executors that were there with those that elastic ones would have been."""

    name: ClassVar[str] = "idle"
    summary: ClassVar[str] = "executors are there that nothing runs on"

    def find(self, evidence: Evidence) -> Finding | None:
        """Take what elastic executors save, where the query has time to spare."""
        elastic = evidence.elastic
        if elastic is None or evidence.waiting_share < WAITING or elastic.kept_up < KEPT_UP:
            return None
        saved = 1.0 - elastic.executor_s / elastic.static_s if elastic.static_s > 0 else 0.0
        if saved <= 0:
            return None
        told = [
            f"tasks take {share(elastic.busy_share)} of the cores' time",
            f"no batch runs for {share(evidence.waiting_share)} of the time; one takes "
            f"{milliseconds(evidence.batch_ms)}, every {milliseconds(evidence.cycle_ms)}",
            f"elastic ones would have taken {executor_time(elastic.executor_s)} instead of "
            f"{executor_time(elastic.static_s)} (simulated on the recorded rates)",
        ]
        if elastic.p95_ms is not None and elastic.static_p95_ms is not None:
            told.append(
                f"the simulated p95 latency goes from {milliseconds(elastic.static_p95_ms)} to "
                f"{milliseconds(elastic.p95_ms)}"
            )
        return Finding(
            self.name,
            Gain.COST,
            saved,
            f"Idle executors: {elastic.executors} are there, and {elastic.mean_executors:.3g} on "
            "average would do.",
            tuple(told),
            (
                Setting(
                    "spark.executor.instances",
                    str(elastic.executors),
                    f"{elastic.most_executors}, or elastic with Penstock",
                ),
            ),
            ("let Penstock add and release executors as the rate goes up and down",),
            {
                "busy_share": elastic.busy_share,
                "executor_s": elastic.executor_s,
                "static_s": elastic.static_s,
            },
        )
