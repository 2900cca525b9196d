"""Collection of garbage in the executors."""

from __future__ import annotations

from typing import ClassVar

from penstock.advise.evidence import Evidence
from penstock.advise.findings.commit import PACKAGE, PROVIDER, ROCKSDB
from penstock.advise.findings.finding import LEAST_SHARE, Finding, Gain, Setting, register
from penstock.report.text import data_size, milliseconds, share


@register
class Garbage:
    """Measure the part of the tasks' time that goes into collecting garbage."""

    name: ClassVar[str] = "garbage"
    summary: ClassVar[str] = "executors spend their time on collecting garbage"

    def find(self, evidence: Evidence) -> Finding | None:
        """Take the part of each stage that its tasks lose to the collector."""
        lost_ms = gc_ms = run_ms = 0.0
        for stage in evidence.stages:
            run = sum(t.run_ms for t in stage.tasks)
            gc = sum(min(t.gc_ms, t.run_ms) for t in stage.tasks)
            lost_ms += stage.took_ms * gc / run if run else 0.0
            gc_ms, run_ms = gc_ms + gc, run_ms + run
        if evidence.share(lost_ms) < LEAST_SHARE or not run_ms:
            return None
        memory = evidence.memory_bytes
        settings = [
            Setting("spark.executor.memory", data_size(memory), f"{data_size(2 * memory)} or more")
        ]
        state = evidence.batches[-1].state
        if state and not any(o.rocksdb for o in state):
            now = evidence.setting(PROVIDER, "HDFSBackedStateStoreProvider").rpartition(".")[2]
            settings.append(Setting(PROVIDER, now, f"{PACKAGE}.{ROCKSDB}"))
        return Finding(
            self.name,
            Gain.TIME,
            evidence.share(lost_ms),
            f"Garbage: tasks spend {share(gc_ms / run_ms)} of their time on collecting it.",
            (
                f"that is {milliseconds(evidence.mean(lost_ms))} of a batch of "
                f"{milliseconds(evidence.batch_ms)}",
                f"an executor has {data_size(memory)} of memory",
            ),
            tuple(settings),
            ("state that RocksDB keeps is outside the Java heap",),
            {"gc_share": gc_ms / run_ms, "memory_bytes": memory},
        )
