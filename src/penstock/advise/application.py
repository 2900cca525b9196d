"""What an event log tells of an application, as frozen values: executors, queries, batches, tasks.

Times are milliseconds of the calendar (since 1970), lengths of time end in ``_ms``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

#: Steps of a plan that keep state, as far as their name does not begin with ``StateStore``.
STATEFUL = (
    "FlatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState",
    "TransformWithState",
    "StreamingSymmetricHashJoin",
    "StreamingDeduplicate",
    "StreamingGlobalLimit",
    "SessionWindowStateStore",
)


@dataclass(frozen=True)
class LoggedExecutor:
    """A process that runs tasks.

    Parameters
    ----------
    id, host : str
    cores : int
        Tasks that it runs at a time.
    added_ms : float
    removed_ms : float or None
        None: it stayed to the end of what was read.
    """

    id: str
    host: str
    cores: int
    added_ms: float
    removed_ms: float | None = None

    def present_ms(self, low_ms: float, high_ms: float) -> float:
        """How long it was there between two times.

        Examples
        --------
        >>> LoggedExecutor("1", "host", 2, added_ms=100, removed_ms=400).present_ms(200, 1000)
        200
        """
        end_ms = high_ms if self.removed_ms is None else min(high_ms, self.removed_ms)
        return max(0, end_ms - max(low_ms, self.added_ms))


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at one partition of a stage that ended well.

    Parameters
    ----------
    partition : int
    executor : str
    start_ms, end_ms : float
    run_ms, cpu_ms, gc_ms : float
        Time in the executor, CPU of its Java thread in it, and collection of garbage in it.
        What a Python worker computes is in `run_ms` and not in `cpu_ms`.
    fetch_wait_ms : float
        Time that it waited for shuffled data.
    read_rows, read_bytes : float
        Of the source and of shuffles.
    written_rows, written_bytes : float
        To a shuffle.
    spilled_bytes : float
        Written to disk because memory was short.
    state_commit_ms : float
        Time to commit its state stores.
    """

    partition: int
    executor: str
    start_ms: float
    end_ms: float
    run_ms: float = 0.0
    cpu_ms: float = 0.0
    gc_ms: float = 0.0
    fetch_wait_ms: float = 0.0
    read_rows: float = 0.0
    read_bytes: float = 0.0
    written_rows: float = 0.0
    written_bytes: float = 0.0
    spilled_bytes: float = 0.0
    state_commit_ms: float = 0.0

    @property
    def took_ms(self) -> float:
        """Time that it held a core."""
        return max(0.0, self.end_ms - self.start_ms)

    @property
    def overhead_ms(self) -> float:
        """Time of starting it, of sending its result, and of committing its state.

        All of it comes with a task, however few rows that has.
        """
        around = max(0.0, self.took_ms - self.run_ms)
        return min(self.took_ms, around + self.state_commit_ms)


@dataclass(frozen=True)
class LoggedStage:
    """A stage of a batch: tasks that run at the same time, as far as there are cores.

    Parameters
    ----------
    id : int
    run_id : str
        Run of the query that it belongs to; empty for work that is not a stream's.
    batch : int
        -1 when it belongs to none.
    submitted_ms, completed_ms : float
    parents : tuple of int
        Stages whose shuffles it reads.
    steps : tuple of str
        Steps of the plan that it runs, as Spark names them.
    tasks : tuple of Task
    """

    id: int
    run_id: str
    batch: int
    submitted_ms: float
    completed_ms: float
    parents: tuple[int, ...] = ()
    steps: tuple[str, ...] = ()
    tasks: tuple[Task, ...] = ()

    @property
    def took_ms(self) -> float:
        """From its first to its last moment."""
        return max(0.0, self.completed_ms - self.submitted_ms)

    @property
    def stateful(self) -> bool:
        """Whether it keeps state."""
        if any(task.state_commit_ms > 0 for task in self.tasks):
            return True
        return any(s.startswith(("StateStore", *STATEFUL)) for s in self.steps)

    @property
    def reads_source(self) -> bool:
        """Whether it reads the stream itself: it has no stage before it."""
        return not self.parents

    @property
    def python(self) -> tuple[str, ...]:
        """Its steps that run in Python workers."""
        return tuple(s for s in self.steps if "Python" in s or "Pandas" in s or "Arrow" in s)

    @property
    def name(self) -> str:
        """What it does, in a word or two."""
        kept = [s for s in self.steps if s.startswith(("StateStore", *STATEFUL))]
        if kept:
            return sorted(kept, key=lambda s: (s == "StateStoreRestore", s))[0]
        if self.reads_source:
            return "source"
        plain = [s for s in self.steps if not s.startswith(("WholeStage", "Exchange"))]
        return sorted(plain)[0] if plain else "shuffle"


@dataclass(frozen=True)
class StateOperator:
    """State of one operator after a batch."""

    name: str
    rows: float = 0.0
    updated_rows: float = 0.0
    removed_rows: float = 0.0
    memory_bytes: float = 0.0
    commit_ms: float = 0.0
    partitions: int = 0
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def rocksdb(self) -> bool:
        """Whether RocksDB keeps it."""
        return any(name.startswith("rocksdb") for name in self.figures)

    @property
    def stored_bytes(self) -> float:
        """Size of the state: files of RocksDB, or memory."""
        return max(self.figures.get("rocksdbSstFileSize", 0.0), self.memory_bytes)


@dataclass(frozen=True)
class LoggedBatch:
    """One trigger of a query that processed something.

    Parameters
    ----------
    id : int
    start_ms : float
    took_ms : float
        Of the whole trigger.
    phases : mapping of str to float
        Parts of it in milliseconds, as Spark names them: ``latestOffset``, ``addBatch`` and so on.
        Empty where they are not known.
    rows : float
        Read from the sources.
    behind_rows : float or None
        Rows that the source's partition which is furthest behind had waiting; None where the source
        does not say.
    state : tuple of StateOperator
    """

    id: int
    start_ms: float
    took_ms: float
    phases: Mapping[str, float] = field(default_factory=dict)
    rows: float = 0.0
    behind_rows: float | None = None
    state: tuple[StateOperator, ...] = ()

    @property
    def end_ms(self) -> float:
        """When it was done."""
        return self.start_ms + self.took_ms

    def phase_ms(self, *names: str) -> float:
        """Sum some phases; those that are not known are 0."""
        return sum(self.phases.get(name, 0.0) for name in names)


@dataclass(frozen=True)
class LoggedQuery:
    """One run of a streaming query.

    Parameters
    ----------
    id, run_id, name : str
        The id stays over restarts from a checkpoint, the run's does not.
    sources, sink : tuple of str, str
        As Spark describes them.
    batches : tuple of LoggedBatch
        By number. Triggers that found nothing to do are left out.
    stages : tuple of LoggedStage
        Of all batches, by number.
    failure : str
        First line of what ended it; empty when nothing did.
    """

    id: str
    run_id: str
    name: str = ""
    sources: tuple[str, ...] = ()
    sink: str = ""
    batches: tuple[LoggedBatch, ...] = ()
    stages: tuple[LoggedStage, ...] = ()
    failure: str = ""

    @property
    def title(self) -> str:
        """Its name, or the start of its id."""
        return self.name or f"query {self.id[:8]}"

    @cached_property
    def stages_of(self) -> Mapping[int, tuple[LoggedStage, ...]]:
        """Stages of each batch."""
        found: dict[int, list[LoggedStage]] = {}
        for stage in self.stages:
            found.setdefault(stage.batch, []).append(stage)
        return {batch: tuple(stages) for batch, stages in found.items()}


@dataclass(frozen=True)
class Application:
    """All that is known of an application.

    Parameters
    ----------
    origin : str
        The file, folder or address that it was read from.
    id, name, spark : str
        Id, name, and release of Spark.
    start_ms, end_ms : float
        First and last moment that anything is known of.
    properties : mapping of str to str
        Configuration of Spark.
    executors : tuple of LoggedExecutor
    queries : tuple of LoggedQuery
        Streaming queries.
    batch_stages : int
        Stages that belong to no streaming query.
    notes : tuple of str
        What could not be read or is not known, in sentences.
    """

    origin: str
    id: str = ""
    name: str = ""
    spark: str = ""
    start_ms: float = 0.0
    end_ms: float = 0.0
    properties: Mapping[str, str] = field(default_factory=dict)
    executors: tuple[LoggedExecutor, ...] = ()
    queries: tuple[LoggedQuery, ...] = ()
    batch_stages: int = 0
    notes: tuple[str, ...] = ()

    @property
    def streaming(self) -> bool:
        """Whether it ran a streaming query."""
        return bool(self.queries)

    def noting(self, notes: tuple[str, ...]) -> Application:
        """Return the same with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def cores(self, low_ms: float, high_ms: float) -> float:
        """Cores that were there between two times, on average."""
        if high_ms <= low_ms:
            return float(sum(e.cores for e in self.executors if e.present_ms(low_ms, low_ms + 1)))
        held = sum(e.cores * e.present_ms(low_ms, high_ms) for e in self.executors)
        return held / (high_ms - low_ms)
