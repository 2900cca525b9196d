"""A slow source: batches wait for offsets, or tasks wait for rows."""

from __future__ import annotations

from typing import ClassVar

from penstock.advise.application import LoggedStage
from penstock.advise.evidence import Evidence, usual
from penstock.advise.findings.finding import LEAST_SHARE, Finding, Gain, Setting, register
from penstock.report.text import milliseconds, number, share

#: Phases in which the driver asks the source, in this and in earlier releases of Spark.
ASKING = ("latestOffset", "getOffset", "setOffsetRange", "getEndOffset", "getBatch")

#: How the sources of files are described.
FILES = "FileStreamSource"


@register
class SourceRule:
    """Measure the time in which the source is waited for."""

    name: ClassVar[str] = "source"
    summary: ClassVar[str] = "the source is slow, or is read by too few tasks"

    def find(self, evidence: Evidence) -> Finding | None:
        """Sum what the driver waits for offsets, and what the reading stage waits for rows."""
        files = any(d.startswith(FILES) for d in evidence.query.sources)
        asking_ms = 0.0 if files else evidence.phase_ms(*ASKING)
        stages = [s for s in evidence.stages if s.reads_source]
        reading_ms = sum(_lost_ms(s, evidence.cores) for s in stages)
        if evidence.share(asking_ms + reading_ms) < LEAST_SHARE:
            return None
        stage_ms = sum(s.took_ms for s in stages)
        tasks = usual(len(s.tasks) for s in stages)
        run_ms = sum(t.run_ms for s in stages for t in s.tasks)
        cpu_ms = sum(t.cpu_ms for s in stages for t in s.tasks)
        rows = sum(b.rows for b in evidence.batches)
        speed = rows / (run_ms / 1e3) if run_ms else 0.0
        told = [
            f"reading takes {milliseconds(evidence.mean(stage_ms))} of a batch of "
            f"{milliseconds(evidence.batch_ms)}, asking for offsets "
            f"{milliseconds(evidence.mean(evidence.phase_ms(*ASKING)))}",
            f"{tasks:.0f} tasks read it, and there are {evidence.cores} cores; each gets "
            f"{number(speed)} rows a second",
            f"its tasks compute for {share(cpu_ms / run_ms if run_ms else 0.0)} of their time in "
            "Java and wait for the rest: for the source, or for Python",
        ]
        python = sorted({step for s in stages for step in s.python})
        if python:
            told.append(f"the same stage runs {', '.join(python)}, which may be what takes long")
        if all(len(evidence.query.stages_of[b.id]) == 1 for b in evidence.batches):
            told.append("the same stage writes to the sink, which may be what takes long")
        most = "its offsets" if asking_ms > reading_ms else "its rows"
        return Finding(
            self.name,
            Gain.TIME,
            evidence.share(asking_ms + reading_ms),
            f"Slow source: {share(evidence.share(stage_ms + asking_ms))} of a batch goes into "
            f"reading {_described(evidence)}, most of it into waiting for {most}.",
            tuple(told),
            _settings(evidence, tasks),
            _actions(evidence, tasks),
            {
                "reading_ms": evidence.mean(stage_ms),
                "asking_ms": evidence.mean(asking_ms),
                "tasks": tasks,
                "rows_per_task_s": speed,
            },
        )


def _lost_ms(stage: LoggedStage, cores: int) -> float:
    """Time of the reading stage in which its tasks wait, or in which cores have no task."""
    run_ms = sum(t.run_ms for t in stage.tasks)
    if run_ms <= 0:
        return 0.0
    busy_ms = sum(min(t.run_ms, t.cpu_ms + t.gc_ms) for t in stage.tasks)
    waits = 1.0 - busy_ms / run_ms
    alone = max(0.0, 1.0 - len(stage.tasks) / cores)
    return max(waits, alone) * max(t.run_ms for t in stage.tasks)


def _described(evidence: Evidence) -> str:
    names = [d.split("[")[0].split("@")[0].rpartition(".")[2] for d in evidence.query.sources]
    return " and ".join(name for name in names if name) or "the source"


def _settings(evidence: Evidence, tasks: float) -> tuple[Setting, ...]:
    if tasks >= evidence.cores or not any("Kafka" in d for d in evidence.query.sources):
        return ()
    return (Setting("minPartitions of the Kafka source", f"{tasks:.0f}", str(evidence.cores)),)


def _actions(evidence: Evidence, tasks: float) -> tuple[str, ...]:
    made = []
    if tasks < evidence.cores:
        made.append(f"give the source at least {evidence.cores} partitions, one for each core")
    made.append("look at the system that the source reads: its load, its network, its limits")
    return tuple(made)
