"""What Spark's listener told of one batch of one query, as typed values. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.runtimes.spark.jvm import Executor


@dataclass(frozen=True)
class StatefulOperator:
    """One stateful operator of a query, as Spark numbers it.

    Parameters
    ----------
    name : str
        Spark's short name of its kind, such as ``stateStoreSave`` or ``symmetricHashJoin``.
    id : int
        Unique within the query; not in the order of the data flow.
    partitions : int
        State partitions, which no restart changes.
    checkpoint, run : str
        Folder of its state and id of the query's run, which name its stores.
    stores : tuple of str
        Stores of each partition; a stream-stream join has four.
    """

    name: str
    id: int
    partitions: int
    checkpoint: str
    run: str
    stores: tuple[str, ...]


@dataclass(frozen=True)
class PlanSegment:
    """A part of the physical plan between shuffles, which Spark runs as one stage.

    Parameters
    ----------
    writes : str
        Id of the shuffle that it writes; empty for the last segment.
    reads : tuple of str
        Ids of the shuffles that it reads; empty where it reads a source.
    operators : tuple of StatefulOperator
    """

    writes: str
    reads: tuple[str, ...]
    operators: tuple[StatefulOperator, ...]


@dataclass(frozen=True)
class StageRun:
    """One attempt of one stage."""

    id: int
    attempt: int
    parents: tuple[int, ...]
    writes: str
    tasks: int


@dataclass(frozen=True)
class TaskRun:
    """One task attempt as Spark measured it; times in milliseconds, state of its partition."""

    stage: int
    attempt: int
    partition: int
    executor: str
    host: str
    succeeded: bool
    locality: str
    launched_ms: int
    finished_ms: int
    run_ms: int = 0
    cpu_ns: int = 0
    gc_ms: int = 0
    spilled_bytes: int = 0
    peak_memory_bytes: int = 0
    rows_read: int = 0
    local_bytes: int = 0
    remote_bytes: int = 0
    rows_written: int = 0
    bytes_written: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    update_ms: int = 0
    commit_ms: int = 0
    load_ms: int = 0
    file_bytes: int = 0

    @property
    def stored_bytes(self) -> int:
        """State that another executor would have to load, about."""
        return max(self.state_bytes, self.file_bytes)


@dataclass(frozen=True, eq=False)
class Batch:
    """One batch of a query.

    Parameters
    ----------
    query : str
        Id of the query.
    number : int
    progress : mapping
        Spark's own progress report.
    segments : tuple of PlanSegment
        Of the batch's physical plan, the last one first; empty where the next batch had already
        replaced it.
    stages, tasks
        What ran.
    executors : tuple of Executor
        Those that are alive, the driver left out where it runs no tasks.
    heap_bytes : mapping of str to int
        Largest use of the heap so far, by executor.
    """

    query: str
    number: int
    progress: Mapping[str, Any]
    segments: tuple[PlanSegment, ...]
    stages: tuple[StageRun, ...]
    tasks: tuple[TaskRun, ...]
    executors: tuple[Executor, ...]
    heap_bytes: Mapping[str, int]

    @property
    def started_at_s(self) -> float:
        """When it was triggered, in seconds since 1970."""
        text = str(self.progress["timestamp"]).replace("Z", "+00:00")
        return datetime.fromisoformat(text).timestamp()

    @property
    def duration_ms(self) -> float:
        """From the trigger to the commit."""
        return float(self.progress["durationMs"].get("triggerExecution", 0))

    @property
    def rows_in(self) -> int:
        """Rows that came from the sources."""
        return int(self.progress["numInputRows"])


def parse(text: str) -> Batch:
    """Read what `StreamingWatch` told of a batch."""
    _, head, report, *lines = text.splitlines()
    query, number = head.split("\t")
    rows = [line.split("\t") for line in lines]
    found = executors_of(lines)
    return Batch(
        query,
        int(number),
        json.loads(report),
        tuple(_segment(row) for row in rows if row[0] == "segment"),
        tuple(_stage(row) for row in rows if row[0] == "stage"),
        tuple(_task(row) for row in rows if row[0] == "task"),
        found,
        {row[1]: int(row[5]) for row in rows if row[0] == "executor" and int(row[5]) >= 0},
    )


def executors_of(lines: Sequence[str]) -> tuple[Executor, ...]:
    """Read the lines of executors; the driver counts only where it is the only one."""
    rows = [line.split("\t") for line in lines if line.startswith("executor\t")]
    found = [Executor(row[1], row[2], int(row[3]), int(row[4])) for row in rows]
    apart = [executor for executor in found if executor.id != "driver"]
    return tuple(sorted(apart or found, key=lambda e: (len(e.id), e.id)))


def rows_behind(progress: Mapping[str, Any]) -> int:
    """Count the rows that wait at the sources, where their offsets say so, as Kafka's do."""
    waiting = 0.0
    for source in progress.get("sources", ()):
        ends = _offset(source.get("endOffset")), _offset(source.get("latestOffset"))
        waiting += _difference(*ends)
    return max(0, int(waiting))


def _offset(value: Any) -> Any:
    """Take an offset as Spark prints it: a JSON value, or a text with one."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None


def _difference(end: Any, latest: Any) -> float:
    """Add up how far partitions of a topic are behind; what has another shape says nothing."""
    if isinstance(end, dict) and isinstance(latest, dict):
        return sum(_difference(end[key], latest[key]) for key in end.keys() & latest.keys())
    numbers = isinstance(end, int) and isinstance(latest, int)
    return float(latest - end) if numbers else 0.0


def _segment(row: list[str]) -> PlanSegment:
    _, writes, reads, operators = row
    return PlanSegment(
        writes,
        tuple(shuffle for shuffle in reads.split(",") if shuffle),
        tuple(_operator(text) for text in operators.split(";") if text),
    )


def _operator(text: str) -> StatefulOperator:
    name, number, partitions, checkpoint, run, stores = text.split("|")
    return StatefulOperator(
        name, int(number), int(partitions), checkpoint, run, tuple(stores.split(","))
    )


def _stage(row: list[str]) -> StageRun:
    _, number, attempt, parents, writes, tasks, *_ = row
    before = tuple(int(parent) for parent in parents.split(",") if parent)
    return StageRun(int(number), int(attempt), before, writes, int(tasks))


def _task(row: list[str]) -> TaskRun:
    _, stage, attempt, partition, executor, host, succeeded, locality, *numbers = row
    return TaskRun(
        int(stage),
        int(attempt),
        int(partition),
        executor,
        host,
        succeeded == "true",
        locality,
        *(int(number) for number in numbers),
    )
