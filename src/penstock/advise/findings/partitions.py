"""Shuffle partitions: too many or too few for the cores."""

from __future__ import annotations

from typing import ClassVar

from penstock.advise.application import LoggedStage
from penstock.advise.evidence import Evidence, usual
from penstock.advise.findings.finding import LEAST_SHARE, Finding, Gain, Setting, register
from penstock.report.text import milliseconds, share

#: Tasks a core that are still worth it: more even out, and each costs.
WAVES = 2

#: The setting, and what Spark does without it.
PARTITIONS, DEFAULT = "spark.sql.shuffle.partitions", "200"

#: What every change of it needs.
HAZARD = (
    "the number of partitions of a stateful query is fixed in its checkpoint: change it with a new "
    "checkpoint"
)


@register
class Partitions:
    """Compare the tasks of stages that read a shuffle with the cores that are there."""

    name: ClassVar[str] = "partitions"
    summary: ClassVar[str] = "too many or too few shuffle partitions for the cores"

    def find(self, evidence: Evidence) -> Finding | None:
        """Return what would gain more: fewer partitions, or more."""
        stages = [s for s in evidence.stages if s.parents]
        many_ms = sum(too_many_ms(s, evidence.cores) for s in stages)
        few_ms = sum(_too_few_ms(s, evidence.cores) for s in stages)
        if evidence.share(max(many_ms, few_ms)) < LEAST_SHARE:
            return None
        now = evidence.setting(PARTITIONS, DEFAULT)
        if many_ms >= few_ms:
            return _many(
                evidence, [s for s in stages if too_many_ms(s, evidence.cores)], many_ms, now
            )
        return _few(evidence, [s for s in stages if _too_few_ms(s, evidence.cores)], few_ms, now)


def _many(evidence: Evidence, stages: list[LoggedStage], lost_ms: float, now: str) -> Finding:
    cores, tasks = evidence.cores, usual(len(s.tasks) for s in stages)
    took_ms = usual(usual(t.took_ms for t in s.tasks) for s in stages)
    around_ms = usual(usual(t.overhead_ms for t in s.tasks) for s in stages)
    rows = usual(usual(t.read_rows for t in s.tasks) for s in stages)
    return Finding(
        Partitions.name,
        Gain.TIME,
        evidence.share(lost_ms),
        f"Too many shuffle partitions: {tasks:.0f} tasks on {cores} cores, and most of each task "
        "is starting it and committing its state.",
        (
            f"a task takes {milliseconds(took_ms)}, of which {milliseconds(around_ms)} "
            f"({share(around_ms / took_ms if took_ms else 0.0)}) do not depend on its rows",
            f"it reads {rows:,.0f} rows",
            f"{WAVES * cores} partitions would save {milliseconds(evidence.mean(lost_ms))} of a "
            f"batch of {milliseconds(evidence.batch_ms)}",
        ),
        (Setting(PARTITIONS, now, str(WAVES * cores)),),
        (HAZARD,),
        {"tasks": tasks, "cores": cores, "task_ms": took_ms, "overhead_ms": around_ms},
    )


def _few(evidence: Evidence, stages: list[LoggedStage], lost_ms: float, now: str) -> Finding:
    cores, tasks = evidence.cores, usual(len(s.tasks) for s in stages)
    took_ms = usual(s.took_ms for s in stages)
    return Finding(
        Partitions.name,
        Gain.TIME,
        evidence.share(lost_ms),
        f"Too few shuffle partitions: {tasks:.0f} tasks on {cores} cores, so that "
        f"{cores - tasks:.0f} cores have nothing to do.",
        (
            f"the stage takes {milliseconds(took_ms)}",
            f"{cores} partitions would save {milliseconds(evidence.mean(lost_ms))} of a batch of "
            f"{milliseconds(evidence.batch_ms)}",
        ),
        (Setting(PARTITIONS, now, str(cores)),),
        (HAZARD,),
        {"tasks": tasks, "cores": cores, "stage_ms": took_ms},
    )


def too_many_ms(stage: LoggedStage, cores: int) -> float:
    """Time of a stage that goes into tasks beyond those that the cores need."""
    count = len(stage.tasks)
    spare = count - WAVES * cores
    if spare <= 0:
        return 0.0
    return spare / cores * sum(t.overhead_ms for t in stage.tasks) / count


def _too_few_ms(stage: LoggedStage, cores: int) -> float:
    """Time that the cores without a task would take off the others."""
    count = len(stage.tasks)
    if count >= cores:
        return 0.0
    work_ms = sum(max(0.0, t.took_ms - t.overhead_ms) for t in stage.tasks)
    return work_ms / count - work_ms / cores
