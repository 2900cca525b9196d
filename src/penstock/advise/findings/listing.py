"""A source of files: listing folders, and files that are too small."""

from __future__ import annotations

from typing import ClassVar

from penstock.advise.evidence import Evidence, usual
from penstock.advise.findings.finding import LEAST_SHARE, Finding, Gain, Setting, register
from penstock.advise.findings.partitions import WAVES, too_many_ms
from penstock.advise.findings.source import ASKING, FILES
from penstock.report.text import data_size, milliseconds

#: Files below this make tasks whose start takes longer than their work.
SMALL_BYTES = 8e6


@register
class Listing:
    """Measure what a source of files spends on finding them, and on opening small ones."""

    name: ClassVar[str] = "listing"
    summary: ClassVar[str] = "listing folders and opening small files takes long"

    def find(self, evidence: Evidence) -> Finding | None:
        """Sum the time of listing, and of tasks that small files are too many for."""
        if not any(d.startswith(FILES) for d in evidence.query.sources):
            return None
        listing_ms = evidence.phase_ms(*ASKING)
        stages = [s for s in evidence.stages if s.reads_source]
        size = usual(usual(t.read_bytes for t in s.tasks) for s in stages)
        small_ms = 0.0
        if size < SMALL_BYTES:
            small_ms = sum(too_many_ms(s, evidence.cores) for s in stages)
        if evidence.share(listing_ms + small_ms) < LEAST_SHARE:
            return None
        tasks = usual(len(s.tasks) for s in stages)
        settings = []
        if small_ms > 0:
            now = evidence.setting("spark.sql.files.openCostInBytes", "4194304")
            settings.append(Setting("spark.sql.files.openCostInBytes", now, "65536"))
        return Finding(
            self.name,
            Gain.TIME,
            evidence.share(listing_ms + small_ms),
            f"Small files: a batch takes {milliseconds(evidence.mean(listing_ms))} to find new "
            f"files, and {milliseconds(evidence.mean(small_ms))} for tasks that only open small "
            "ones.",
            (
                f"a batch takes {milliseconds(evidence.batch_ms)} in all",
                f"{tasks:.0f} tasks read it, {data_size(size)} each; {WAVES * evidence.cores} "
                "would do for the cores",
            ),
            tuple(settings),
            (
                "let what writes the files write fewer and larger ones",
                "move files away once they are read: cleanSource=archive or delete",
                "name one folder, not a pattern over many; split it by date",
            ),
            {
                "listing_ms": evidence.mean(listing_ms),
                "small_ms": evidence.mean(small_ms),
                "bytes_a_task": size,
            },
        )
