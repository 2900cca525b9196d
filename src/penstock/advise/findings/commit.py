"""Commits: state stores, the log of offsets, the log of commits."""

from __future__ import annotations

from typing import ClassVar

from penstock.advise.evidence import Evidence, usual
from penstock.advise.findings.finding import LEAST_SHARE, Finding, Gain, Setting, register
from penstock.advise.findings.partitions import WAVES
from penstock.report.text import data_size, milliseconds, share

#: Phases that write the logs of a checkpoint.
LOGS = ("walCommit", "commitOffsets", "commitBatch")

#: What a commit, or an entry of a log, takes on storage that is good for it.
FINE_MS = 50.0

#: State that is better kept by RocksDB than on the Java heap.
LARGE_BYTES = 50e6

STORE = "spark.sql.streaming.stateStore."
PROVIDER, ROCKSDB = f"{STORE}providerClass", "RocksDBStateStoreProvider"
PACKAGE = "org.apache.spark.sql.execution.streaming.state"


@register
class Commit:
    """Measure what commits take beyond what they would on good storage."""

    name: ClassVar[str] = "commit"
    summary: ClassVar[str] = "committing state or the checkpoint's logs takes long"

    def find(self, evidence: Evidence) -> Finding | None:
        """Sum commits of state over the cores, and those of logs."""
        state_ms = full_ms = 0.0
        for stage in evidence.stages:
            count, cores = len(stage.tasks), min(evidence.cores, len(stage.tasks))
            # What too many partitions cost is another finding.
            part = min(1.0, WAVES * evidence.cores / count) / cores
            state_ms += part * sum(max(0.0, t.state_commit_ms - FINE_MS) for t in stage.tasks)
            full_ms += sum(t.state_commit_ms for t in stage.tasks) / cores
        logs_ms = sum(
            max(0.0, b.phase_ms(name) - FINE_MS) for b in evidence.batches for name in LOGS
        )
        if evidence.share(state_ms + logs_ms) < LEAST_SHARE:
            return None
        log_ms = evidence.mean(evidence.phase_ms(*LOGS))
        one_ms = usual(t.state_commit_ms for s in evidence.stages for t in s.tasks if s.stateful)
        size = sum(s.stored_bytes for s in evidence.batches[-1].state)
        told = [
            f"committing state takes {milliseconds(evidence.mean(full_ms))} of a batch of "
            f"{milliseconds(evidence.batch_ms)}: {milliseconds(one_ms)} for each partition, with "
            f"{data_size(size)} of state in all",
            f"writing the logs of the checkpoint takes {milliseconds(log_ms)} of it",
        ]
        told += _parts(evidence)
        settings, actions = _advice(evidence, state_ms)
        what = "state" if state_ms >= logs_ms else "the checkpoint's logs"
        total = evidence.mean(full_ms) + log_ms
        return Finding(
            self.name,
            Gain.TIME,
            evidence.share(state_ms + logs_ms),
            f"Slow commit: {share(total / evidence.batch_ms)} of a batch goes into commits, most "
            f"of it into {what}.",
            tuple(told),
            settings,
            actions,
            {"state_commit_ms": evidence.mean(full_ms), "log_ms": log_ms, "state_bytes": size},
        )


def _parts(evidence: Evidence) -> list[str]:
    """Say what RocksDB spends a commit on."""
    names = {
        "rocksdbCommitCompactLatency": "compaction",
        "rocksdbCommitFlushLatency": "flush",
        "rocksdbCommitFileSyncLatencyMs": "copying files to the checkpoint",
        "rocksdbChangeLogWriterCommitLatencyMs": "writing the changelog",
    }
    sums = {
        label: sum(o.figures.get(name, 0.0) for b in evidence.batches for o in b.state)
        for name, label in names.items()
    }
    told = [f"{label} {milliseconds(evidence.mean(ms))}" for label, ms in sums.items() if ms > 0]
    return [f"RocksDB's commits, all partitions of a batch: {', '.join(told)}"] if told else []


def _advice(evidence: Evidence, state_ms: float) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    settings: list[Setting] = []
    actions: list[str] = []
    if state_ms > 0:
        state = evidence.batches[-1].state
        rocksdb = any(o.rocksdb for o in state)
        if not rocksdb and sum(o.stored_bytes for o in state) > LARGE_BYTES:
            now = evidence.setting(PROVIDER, "HDFSBackedStateStoreProvider").rpartition(".")[2]
            settings.append(Setting(PROVIDER, now, f"{PACKAGE}.{ROCKSDB}"))
            actions.append("another provider of state needs a new checkpoint")
        name = f"{STORE}rocksdb.compactOnCommit"
        if rocksdb and evidence.setting(name, "false") == "true":
            settings.append(Setting(name, "true", "false"))
        name = f"{STORE}rocksdb.changelogCheckpointing.enabled"
        if rocksdb and evidence.setting(name, "false") != "true":
            settings.append(Setting(name, "false", "true"))
    actions.append("put the checkpoint on storage that is near and writes small files fast")
    actions.append("a longer trigger interval commits less often")
    return tuple(settings), tuple(actions)
