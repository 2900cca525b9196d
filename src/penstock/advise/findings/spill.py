"""Spill: data that goes to disk because memory is short."""

from __future__ import annotations

from typing import ClassVar

from penstock.advise.evidence import Evidence
from penstock.advise.findings.finding import Finding, Gain, Setting, register
from penstock.advise.findings.partitions import PARTITIONS
from penstock.report.text import data_size, milliseconds

#: Speed at which spilled data is written and read again: a plain disk. Spark records no time of it.
DISK_BYTES_S = 100e6


@register
class Spill:
    """Estimate what writing to disk and reading back takes."""

    name: ClassVar[str] = "spill"
    summary: ClassVar[str] = "tasks write to disk because memory is short"

    def find(self, evidence: Evidence) -> Finding | None:
        """Spread the bytes over the cores, at the speed of a plain disk."""
        lost_ms = spilled = 0.0
        for stage in evidence.stages:
            size = sum(t.spilled_bytes for t in stage.tasks)
            spilled += size
            spread = min(evidence.cores, len(stage.tasks))
            lost_ms += min(stage.took_ms, 2 * size / DISK_BYTES_S * 1e3 / spread)
        if not spilled:
            return None
        tasks = max(len(s.tasks) for s in evidence.stages if any(t.spilled_bytes for t in s.tasks))
        memory = evidence.memory_bytes
        return Finding(
            self.name,
            Gain.TIME,
            evidence.share(lost_ms),
            f"Spill: a batch writes {data_size(evidence.mean(spilled))} to disk because memory is "
            "short.",
            (
                f"at {data_size(DISK_BYTES_S)}/s that takes about "
                f"{milliseconds(evidence.mean(lost_ms))} of a batch of "
                f"{milliseconds(evidence.batch_ms)}; Spark does not record the time itself",
            ),
            (
                Setting(
                    "spark.executor.memory", data_size(memory), f"{data_size(2 * memory)} or more"
                ),
                Setting(PARTITIONS, str(tasks), str(2 * tasks)),
            ),
            figures={"spilled_bytes": evidence.mean(spilled)},
        )
