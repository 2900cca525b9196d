"""Skew by partition: one partition has far more to do, and all others wait for it."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from penstock.advise.application import LoggedStage, Task
from penstock.advise.evidence import Evidence, usual
from penstock.advise.findings.finding import Finding, Gain, register
from penstock.report.text import milliseconds, share

#: A task that takes so many times as long as the one in the middle is skewed.
RATIO = 2.0


@register
class Skew:
    """Find stages whose longest task takes much longer than the one in the middle."""

    name: ClassVar[str] = "skew"
    summary: ClassVar[str] = "one partition has far more to do than the others"

    def find(self, evidence: Evidence) -> Finding | None:
        """Sum the time that the other cores wait for the longest task of each stage."""
        lost_ms = 0.0
        heavy: list[tuple[LoggedStage, Task]] = []
        for stage in evidence.stages:
            longest = max(stage.tasks, key=lambda t: t.took_ms)
            wait_ms = _lost_ms(stage, longest, evidence.cores)
            if wait_ms > 0:
                lost_ms += wait_ms
                heavy.append((stage, longest))
        if not heavy:
            return None
        name, partition = Counter((s.name, t.partition) for s, t in heavy).most_common(1)[0][0]
        same = [(s, t) for s, t in heavy if (s.name, t.partition) == (name, partition)]
        long_ms = usual(t.took_ms for _, t in same)
        other_ms = usual(usual(t.took_ms for t in s.tasks) for s, _ in same)
        rows = usual(t.read_rows for _, t in same)
        part = usual(_row_share(s, t) for s, t in same)
        even = usual(1.0 / len(s.tasks) for s, _ in same)
        by_rows = part > RATIO * even
        told = [
            f"it is the longest in {len(same)} of {len(evidence.batches)} batches",
            f"it reads {rows:,.0f} rows, {share(part)} of the stage's; even would be {share(even)}",
            f"waiting for it takes {milliseconds(evidence.mean(lost_ms))} of a batch of "
            f"{milliseconds(evidence.batch_ms)}",
        ]
        if by_rows:
            cause = "because most rows have keys of that partition"
            actions: tuple[str, ...] = (
                "split the hot key: aggregate by key and a random number first, then by key",
                "filter or sample the hot key earlier, if it is a default or an empty value",
            )
        else:
            cause = (
                "although it does not have many more rows: its rows or its state cost more, or its "
                "executor is slow"
            )
            actions = ("look at what the rows of that partition have in common",)
        return Finding(
            self.name,
            Gain.TIME,
            evidence.share(lost_ms),
            f"Skew: partition {partition} of {name} takes {milliseconds(long_ms)} where the others "
            f"take {milliseconds(other_ms)}, {cause}.",
            tuple(told),
            actions=(
                *actions,
                "let Penstock place heavy state partitions on executors of their own",
            ),
            figures={
                "partition": partition,
                "longest_ms": long_ms,
                "usual_ms": other_ms,
                "row_share": part,
            },
        )


def _lost_ms(stage: LoggedStage, longest: Task, cores: int) -> float:
    """Time of a stage that would go away, were its work spread evenly."""
    took = [t.took_ms for t in stage.tasks]
    if len(took) < 2 or longest.took_ms < RATIO * usual(took):
        return 0.0
    even_ms = sum(took) / min(cores, len(took))
    span_ms = max(t.end_ms for t in stage.tasks) - min(t.start_ms for t in stage.tasks)
    return max(0.0, min(span_ms - even_ms, longest.took_ms - usual(took)))


def _row_share(stage: LoggedStage, task: Task) -> float:
    total = sum(t.read_rows for t in stage.tasks)
    return task.read_rows / total if total else 0.0
