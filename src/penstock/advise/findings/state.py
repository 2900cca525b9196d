"""State that only grows, or that takes up the memory of the executors."""

from __future__ import annotations

from typing import ClassVar

from penstock.advise.evidence import Evidence
from penstock.advise.findings.commit import PACKAGE, PROVIDER, ROCKSDB
from penstock.advise.findings.finding import Finding, Gain, Setting, register
from penstock.report.text import data_size, number, share

#: Growth over the log that is more than filling up.
GROWTH = 1.2

#: Part of the memory that state may take before it is told of.
ROOMY = 0.3

#: Hours ahead in which memory must not run out.
AHEAD_H = 24.0


@register
class StateRule:
    """Compare the state, and how fast it grows, with the memory of the executors."""

    name: ClassVar[str] = "state"
    summary: ClassVar[str] = "state takes up the executors' memory, or grows without an end"

    def find(self, evidence: Evidence) -> Finding | None:
        """Look at the first and the last batch."""
        first, last = evidence.batches[0], evidence.batches[-1]
        size, rows = (sum(s.stored_bytes for s in last.state), sum(s.rows for s in last.state))
        if not size or not evidence.executors:
            return None
        before = sum(s.stored_bytes for s in first.state)
        removed = sum(s.removed_rows for b in evidence.batches for s in b.state)
        hours = (last.end_ms - first.end_ms) / 3.6e6
        room = evidence.memory_bytes * evidence.executors
        per_hour = (size - before) / hours if hours > 0 else 0.0
        grows = size > GROWTH * before and not removed and per_hour > 0
        heap = not any(s.rocksdb for s in last.state)
        full_h = (room - size) / per_hour if grows else float("inf")
        if size < ROOMY * room and not full_h < AHEAD_H:
            return None
        told = [f"{number(rows)} rows, {data_size(size)}; the executors have {data_size(room)}"]
        if grows:
            told.append(
                f"it grew by {data_size(per_hour)} an hour and nothing was removed; it is as large "
                f"as the memory after {full_h:.3g} hours"
            )
        actions = []
        if not removed:
            actions.append("give the query a watermark, or its state a time to live")
        settings: tuple[Setting, ...] = ()
        if heap:
            now = evidence.setting(PROVIDER, "HDFSBackedStateStoreProvider").rpartition(".")[2]
            settings = (Setting(PROVIDER, now, f"{PACKAGE}.{ROCKSDB}"),)
        where = "on the Java heap" if heap else "in RocksDB"
        return Finding(
            self.name,
            Gain.RISK,
            min(1.0, size / room),
            f"State: {data_size(size)} {where}, {share(min(1.0, size / room))} of the executors' "
            f"memory{', and it only grows' if grows else ''}.",
            tuple(told),
            settings,
            tuple(actions),
            {"state_bytes": size, "state_rows": rows, "bytes_per_hour": per_hour},
        )
