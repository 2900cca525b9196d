"""Skew by executor: a slow one, or one that has more than its part of the tasks."""

from __future__ import annotations

from typing import ClassVar

from penstock.advise.application import LoggedStage
from penstock.advise.evidence import Evidence, usual
from penstock.advise.findings.finding import LEAST_SHARE, Finding, Gain, Setting, register
from penstock.report.text import milliseconds

#: An executor whose tasks take so many times as long as those of the others is slow.
SLOW = 1.5


@register
class ExecutorsRule:
    """Compare executors by the time that their tasks take, and by when they are done."""

    name: ClassVar[str] = "executors"
    summary: ClassVar[str] = "one executor is slow, or has more tasks than the others"

    def find(self, evidence: Evidence) -> Finding | None:
        """Find the executor that stages wait for most, and why they do."""
        late: dict[str, float] = {}
        for stage in evidence.stages:
            name, late_ms = _late(stage)
            if name:
                late[name] = late.get(name, 0.0) + late_ms
        if not late:
            return None
        name = max(late, key=lambda e: late[e])
        ratio, busy = _pace(evidence.stages, name), _busy(evidence.stages)
        rest_ms = usual(v for e, v in busy.items() if e != name)
        more = busy[name] / rest_ms if rest_ms else 1.0
        if evidence.share(late[name]) < LEAST_SHARE or max(ratio, more) < SLOW:
            return None
        host = next((e.host for e in evidence.application.executors if e.id == name), "")
        where = f"executor {name}" + (f" on {host}" if host else "")
        if ratio >= SLOW:
            text = f"Slow executor: tasks of {where} take {ratio:.1f} times as long as elsewhere."
            actions: tuple[str, ...] = (
                "look at its host: other work, a slow disk, fewer cores than promised",
                "let Penstock move its state partitions away",
            )
            settings = (
                Setting(
                    "spark.speculation",
                    evidence.setting("spark.speculation", "false"),
                    "true, for queries without state",
                ),
            )
        else:
            text = f"Uneven executors: {where} has {more:.1f} times as much to do as the others."
            actions = (
                "state partitions stay where they ran first; let Penstock spread them, or restart "
                "the query once all executors are there",
            )
            wait = evidence.setting("spark.locality.wait", "3s")
            settings = (Setting("spark.locality.wait", wait, "0s, if state is small"),)
        return Finding(
            self.name,
            Gain.TIME,
            evidence.share(late[name]),
            text,
            (
                f"stages wait {milliseconds(evidence.mean(late[name]))} of a batch of "
                f"{milliseconds(evidence.batch_ms)} for it after the others are done",
                f"it is busy for {milliseconds(evidence.mean(busy[name]))} a batch, the others "
                f"for {milliseconds(evidence.mean(rest_ms))}",
            ),
            settings,
            actions,
            {"pace": ratio, "busy": more, "late_ms": evidence.mean(late[name])},
        )


def _late(stage: LoggedStage) -> tuple[str, float]:
    """Executor that a stage ended on, and how long all others had nothing to do by then.

    What its longest task takes beyond its shortest is not counted: that is skew by partition.
    """
    ends: dict[str, float] = {}
    for task in stage.tasks:
        ends[task.executor] = max(ends.get(task.executor, 0.0), task.end_ms)
    if len(ends) < 2:
        return "", 0.0
    *_, second, last = sorted(ends, key=lambda e: ends[e])
    own, others = _apart(stage, last)
    skewed = max(own) - (min(own) if len(own) > 1 else usual(others))
    return last, max(0.0, ends[last] - ends[second] - max(0.0, skewed))


def _pace(stages: tuple[LoggedStage, ...], name: str) -> float:
    """How many times as long an executor takes for a task as the others do.

    Its shortest tasks count, because one long task is no slow executor; and only stages in which it
    has several.
    """
    own_ms = others_ms = 0.0
    for stage in stages:
        own, others = _apart(stage, name)
        if len(own) > 1 and others:
            own_ms, others_ms = own_ms + min(own), others_ms + usual(others)
    return own_ms / others_ms if others_ms else 1.0


def _apart(stage: LoggedStage, name: str) -> tuple[list[float], list[float]]:
    """Return the times of an executor's tasks, and of those of all others."""
    own = [t.took_ms for t in stage.tasks if t.executor == name]
    return own, [t.took_ms for t in stage.tasks if t.executor != name]


def _busy(stages: tuple[LoggedStage, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for stage in stages:
        for task in stage.tasks:
            found[task.executor] = found.get(task.executor, 0.0) + task.took_ms
    return found
