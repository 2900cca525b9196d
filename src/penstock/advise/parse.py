"""From the events of a log to an application; what is missing in an event counts as 0."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from penstock.advise.application import (
    Application,
    LoggedBatch,
    LoggedExecutor,
    LoggedQuery,
    LoggedStage,
    StateOperator,
    Task,
)
from penstock.advise.fields import Record, figures, inner, items, number, text, time_ms, whole

#: Where Spark's listener of streaming queries is.
STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"

#: Time that a task's state stores take to commit, as an accumulator of the plan.
COMMIT = "time to commit changes"

#: Properties of a stage that tell which batch of which query it belongs to.
QUERY, RUN, BATCH = "sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId"


@dataclass
class _Run:
    """A run of a query while its events come in."""

    id: str
    run_id: str
    name: str = ""
    sources: tuple[str, ...] = ()
    sink: str = ""
    failure: str = ""
    batches: dict[int, LoggedBatch] = field(default_factory=dict)
    stages: list[LoggedStage] = field(default_factory=list)


@dataclass
class _Open:
    """A stage while its events come in."""

    run_id: str
    batch: int
    parents: tuple[int, ...]
    steps: tuple[str, ...]
    submitted_ms: float
    completed_ms: float = 0.0
    tasks: dict[int, Task] = field(default_factory=dict)


class _Fold:
    """Takes events one after the other."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {"id": "", "name": "", "spark": ""}
        self.properties: dict[str, str] = {}
        self.executors: dict[str, LoggedExecutor] = {}
        self.runs: dict[str, _Run] = {}
        self.open: dict[tuple[int, int], _Open] = {}
        self.batch_stages = 0
        self.first_ms: float | None = None
        self.last_ms = 0.0
        self.lost_tasks = 0

    def seen(self, value: object) -> float:
        """Widen the time that is known of; return the moment."""
        at_ms = time_ms(value)
        if at_ms is None or at_ms <= 0:
            return 0.0
        self.first_ms = at_ms if self.first_ms is None else min(self.first_ms, at_ms)
        self.last_ms = max(self.last_ms, at_ms)
        return at_ms

    def log_start(self, event: Record) -> None:
        self.values["spark"] = text(event, "Spark Version")

    def environment(self, event: Record) -> None:
        found = inner(event, "Spark Properties")
        self.properties |= {k: v for k, v in found.items() if isinstance(v, str)}

    def application_start(self, event: Record) -> None:
        self.values |= {"id": text(event, "App ID"), "name": text(event, "App Name")}
        self.seen(event.get("Timestamp"))

    def application_end(self, event: Record) -> None:
        self.seen(event.get("Timestamp"))

    def executor_added(self, event: Record) -> None:
        name, info = text(event, "Executor ID"), inner(event, "Executor Info")
        at_ms = self.seen(event.get("Timestamp"))
        if name:
            cores = max(1, whole(info, "Total Cores", 1))
            self.executors[name] = LoggedExecutor(name, text(info, "Host"), cores, at_ms)

    def executor_removed(self, event: Record) -> None:
        name, at_ms = text(event, "Executor ID"), self.seen(event.get("Timestamp"))
        known = self.executors.get(name)
        if known is not None:
            self.executors[name] = LoggedExecutor(
                known.id, known.host, known.cores, known.added_ms, at_ms
            )

    def stage_submitted(self, event: Record) -> None:
        info, properties = inner(event, "Stage Info"), inner(event, "Properties")
        batch = whole(properties, BATCH, -1)
        run_id = self._run_id(text(properties, RUN), text(properties, QUERY))
        if not text(properties, QUERY) or batch < 0 or not run_id:
            self.batch_stages += 1
            return
        parents = info.get("Parent IDs")
        self.open[whole(info, "Stage ID", -1), whole(info, "Stage Attempt ID")] = _Open(
            run_id,
            batch,
            tuple(p for p in parents if isinstance(p, int)) if isinstance(parents, list) else (),
            tuple(dict.fromkeys(s for r in items(info, "RDD Info") if (s := _step(r)))),
            self.seen(info.get("Submission Time")),
        )

    def _run_id(self, group: str, query: str) -> str:
        """Run of a stage: the job group names it, unless the job has a group of its own."""
        if group in self.runs:
            return group
        known = [run.run_id for run in self.runs.values() if run.id == query]
        if known:
            return known[-1]
        if query:
            # The log begins after the query did.
            self.runs[group or query] = _Run(query, group or query)
            return group or query
        return ""

    def task_end(self, event: Record) -> None:
        key = (whole(event, "Stage ID", -1), whole(event, "Stage Attempt ID"))
        stage = self.open.get(key)
        if stage is None:
            return
        task = _task(event)
        if task is None:
            self.lost_tasks += 1
        else:
            self.seen(task.end_ms)
            # A speculative copy that comes second adds nothing.
            stage.tasks.setdefault(task.partition, task)

    def stage_completed(self, event: Record) -> None:
        info = inner(event, "Stage Info")
        stage = self.open.pop((whole(info, "Stage ID", -1), whole(info, "Stage Attempt ID")), None)
        if stage is None or not stage.tasks:
            return
        tasks = tuple(stage.tasks[p] for p in sorted(stage.tasks))
        began = self.seen(info.get("Submission Time")) or stage.submitted_ms
        ended = self.seen(info.get("Completion Time")) or max(t.end_ms for t in tasks)
        self.runs[stage.run_id].stages.append(
            LoggedStage(
                whole(info, "Stage ID", -1),
                stage.run_id,
                stage.batch,
                began or min(t.start_ms for t in tasks),
                ended,
                stage.parents,
                stage.steps,
                tasks,
            )
        )

    def query_started(self, event: Record) -> None:
        run_id = text(event, "runId")
        if run_id:
            self.runs[run_id] = _Run(text(event, "id") or run_id, run_id, text(event, "name"))
            self.seen(event.get("timestamp"))

    def query_progress(self, event: Record) -> None:
        progress = inner(event, "progress")
        run_id, at_ms = text(progress, "runId"), self.seen(progress.get("timestamp"))
        phases = figures(progress, "durationMs")
        if not run_id or not at_ms:
            return
        run = self.runs.setdefault(run_id, _Run(text(progress, "id") or run_id, run_id))
        run.name = run.name or text(progress, "name")
        sources = tuple(items(progress, "sources"))
        run.sources = tuple(text(s, "description") for s in sources) or run.sources
        run.sink = text(inner(progress, "sink"), "description") or run.sink
        if "addBatch" not in phases:
            return  # the trigger found nothing to do
        number_of = whole(progress, "batchId", -1)
        took_ms = phases.pop("triggerExecution", sum(phases.values()))
        self.seen(at_ms + took_ms)
        run.batches[number_of] = LoggedBatch(
            number_of,
            at_ms,
            took_ms,
            phases,
            sum(number(s, "numInputRows") for s in sources),
            _behind(sources),
            tuple(_state(s) for s in items(progress, "stateOperators")),
        )

    def query_terminated(self, event: Record) -> None:
        run = self.runs.get(text(event, "runId"))
        if run is not None:
            run.failure = text(event, "exception").strip().split("\n")[0]

    def application(self, origin: str) -> Application:
        """Make the value of all that came in."""
        queries = tuple(
            LoggedQuery(
                run.id,
                run.run_id,
                run.name,
                run.sources,
                run.sink,
                tuple(run.batches[b] for b in sorted(run.batches)),
                tuple(sorted(run.stages, key=lambda s: s.id)),
                run.failure,
            )
            for run in self.runs.values()
        )
        lost = f"{self.lost_tasks:,} tasks failed or were killed; they are not in the figures"
        return Application(
            origin,
            **self.values,
            start_ms=self.first_ms or 0.0,
            end_ms=self.last_ms,
            properties=self.properties,
            executors=tuple(self.executors.values()),
            queries=queries,
            batch_stages=self.batch_stages,
            notes=(lost,) if self.lost_tasks else (),
        )


_HANDLERS: Mapping[str, Callable[[_Fold, Record], None]] = {
    "SparkListenerLogStart": _Fold.log_start,
    "SparkListenerEnvironmentUpdate": _Fold.environment,
    "SparkListenerApplicationStart": _Fold.application_start,
    "SparkListenerApplicationEnd": _Fold.application_end,
    "SparkListenerExecutorAdded": _Fold.executor_added,
    "SparkListenerExecutorRemoved": _Fold.executor_removed,
    "SparkListenerStageSubmitted": _Fold.stage_submitted,
    "SparkListenerStageCompleted": _Fold.stage_completed,
    "SparkListenerTaskEnd": _Fold.task_end,
    f"{STREAMING}QueryStartedEvent": _Fold.query_started,
    f"{STREAMING}QueryProgressEvent": _Fold.query_progress,
    f"{STREAMING}QueryTerminatedEvent": _Fold.query_terminated,
}

#: Kinds of events that are read; a log has many more.
READ = frozenset(_HANDLERS)


def application_of(events: Iterable[Mapping[str, Any]], origin: str) -> Application:
    """Make an application of its events, in the order in which they were written."""
    fold = _Fold()
    for event in events:
        handler = _HANDLERS.get(text(event, "Event"))
        if handler is not None:
            handler(fold, event)
    return fold.application(origin)


def _task(event: Record) -> Task | None:
    """Make a task of its end; None when it did not end well."""
    info, metrics = inner(event, "Task Info"), inner(event, "Task Metrics")
    if text(inner(event, "Task End Reason"), "Reason") != "Success" or not metrics:
        return None
    read, write = inner(metrics, "Shuffle Read Metrics"), inner(metrics, "Shuffle Write Metrics")
    source = inner(metrics, "Input Metrics")
    commit_ms = sum(
        number(a, "Update") for a in items(info, "Accumulables") if a.get("Name") == COMMIT
    )
    start_ms = time_ms(info.get("Launch Time")) or 0.0
    end_ms = max(start_ms, time_ms(info.get("Finish Time")) or 0.0)
    return Task(
        partition=whole(info, "Partition ID", whole(info, "Index")),
        executor=text(info, "Executor ID"),
        start_ms=start_ms,
        end_ms=end_ms,
        run_ms=number(metrics, "Executor Run Time"),
        cpu_ms=number(metrics, "Executor CPU Time") / 1e6,
        gc_ms=number(metrics, "JVM GC Time"),
        fetch_wait_ms=number(read, "Fetch Wait Time"),
        read_rows=number(source, "Records Read") + number(read, "Total Records Read"),
        read_bytes=number(source, "Bytes Read")
        + number(read, "Remote Bytes Read")
        + number(read, "Local Bytes Read"),
        written_rows=number(write, "Shuffle Records Written"),
        written_bytes=number(write, "Shuffle Bytes Written"),
        spilled_bytes=number(metrics, "Disk Bytes Spilled"),
        state_commit_ms=commit_ms,
    )


def _state(record: Record) -> StateOperator:
    return StateOperator(
        text(record, "operatorName") or "state",
        number(record, "numRowsTotal"),
        number(record, "numRowsUpdated"),
        number(record, "numRowsRemoved"),
        number(record, "memoryUsedBytes"),
        number(record, "commitTimeMs"),
        whole(record, "numShufflePartitions"),
        {
            name: value
            for name, value in figures(record, "customMetrics").items()
            if not name.startswith("SnapshotLastUploaded")
        },
    )


def _behind(sources: Iterable[Record]) -> float | None:
    """Rows that Kafka's furthest partition is behind, over all sources that say it."""
    found = [
        number(inner(source, "metrics"), "maxOffsetsBehindLatest")
        for source in sources
        if "maxOffsetsBehindLatest" in inner(source, "metrics")
    ]
    return sum(found) if found else None


def _step(rdd: Record) -> str:
    """Step of the plan that an RDD was made by."""
    return _scope_name(text(rdd, "Scope"))


@lru_cache(maxsize=4096)
def _scope_name(scope: str) -> str:
    try:
        value = json.loads(scope)
    except ValueError:
        return ""
    return text(value, "name") if isinstance(value, dict) else ""
