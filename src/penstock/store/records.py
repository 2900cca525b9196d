"""What the metrics store keeps, as frozen values.

Times are seconds since 1970 in UTC. What was not measured is None, never NaN and never a silent 0.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.common.arrays import FloatArray, IntArray, frozen_floats, frozen_ints
from penstock.common.errors import InvalidValue
from penstock.model import Plan
from penstock.model.cost import lin, lit
from penstock.store.histogram import EMPTY, Histogram

#: Largest whole number that both databases hold.
LARGEST = 2**63 - 1

#: Kind of the events that are decisions of the control loop.
DECISION = "decision"

#: Kind of the events that say what losses the state survives from then on.
STATE = "state"


class RunStatus(str, Enum):
    """How far a run is."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True)
class RunRecord:
    """One run of one topology.

    Parameters
    ----------
    id : str
        Unique within the store; the caller makes it.
    topology, strategy : str
        Names of what runs and of what plans it.
    started_at_s : float
    ended_at_s : float or None
        None while it runs.
    status : RunStatus
    config : mapping
        Whatever the caller wants to find again, as JSON holds it.
    rows_lost, rows_duplicated : int or None
        What a comparison of input and output found; None when nothing was compared.
    """

    id: str
    topology: str
    strategy: str
    started_at_s: float
    ended_at_s: float | None = None
    status: RunStatus = RunStatus.RUNNING
    config: Mapping[str, Any] = field(default_factory=dict)
    rows_lost: int | None = None
    rows_duplicated: int | None = None

    def __post_init__(self) -> None:
        check = _Check(self, "a run")
        check.names("id", "topology", "strategy")
        check.numbers("started_at_s")
        check.numbers("ended_at_s", optional=True)
        check.counts("rows_lost", "rows_duplicated", optional=True)
        check.json("config")
        if not isinstance(self.status, RunStatus):
            try:
                object.__setattr__(self, "status", RunStatus(self.status))
            except ValueError:
                allowed = "one of " + ", ".join(s.value for s in RunStatus)
                raise InvalidValue("status", "a run", allowed, self.status) from None


@dataclass(frozen=True)
class BatchRecord:
    """What one micro-batch did, all instances together; kept when its detail is dropped.

    Parameters
    ----------
    run : str
    batch : int
        Number of the batch. Writing a batch again replaces it.
    started_at_s : float
    duration_ms : float
        From the start to the commit.
    rows_in, rows_out : int
        Rows taken from the sources and rows written to the sinks.
    queue_length : int
        Rows that still waited at the sources when the batch was taken, those of the batch left out.
    dropped : int
        Rows that a full queue turned away since the batch before.
    local_bytes, host_local_bytes, remote_bytes : int
        Shuffle bytes read within a process, within a node, across nodes.
    tasks, tasks_honoured : int
        Tasks that had a planned executor, and those of them that ran there.
    nodes_used : int
        Nodes on which an instance ran.
    lin : float or None
        Imbalance over the nodes in use (Ms eq. 38); see `imbalance`.
    lit : mapping of str to float
        Imbalance over the instances of each stateful operator (Ms eq. 10).
    latency : Histogram
        Source stamp to commit.
    figures : mapping of str to float
        Anything else worth a number, as the time that planning took.
    """

    run: str
    batch: int
    started_at_s: float
    duration_ms: float
    rows_in: int = 0
    rows_out: int = 0
    queue_length: int = 0
    dropped: int = 0
    local_bytes: int = 0
    host_local_bytes: int = 0
    remote_bytes: int = 0
    tasks: int = 0
    tasks_honoured: int = 0
    nodes_used: int = 0
    lin: float | None = None
    lit: Mapping[str, float] = field(default_factory=dict)
    latency: Histogram = EMPTY
    figures: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check = _Check(self, "a batch")
        check.names("run")
        check.counts(
            "batch",
            "rows_in",
            "rows_out",
            "queue_length",
            "dropped",
            "local_bytes",
            "host_local_bytes",
            "remote_bytes",
            "tasks",
            "tasks_honoured",
            "nodes_used",
        )
        check.numbers("started_at_s", "duration_ms")
        check.numbers("lin", optional=True)
        check.json("lit", "figures")
        for name in ("lit", "figures"):
            for key, value in getattr(self, name).items():
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise InvalidValue(f"{name}[{key!r}]", "a batch", "a number", value)
        if self.tasks_honoured > self.tasks:
            allowed = f"at most the {self.tasks} tasks"
            raise InvalidValue("tasks_honoured", "a batch", allowed, self.tasks_honoured)

    @property
    def ended_at_s(self) -> float:
        """When it was committed."""
        return self.started_at_s + self.duration_ms / 1000.0

    @property
    def shuffle_bytes(self) -> int:
        """Shuffle bytes of all tiers."""
        return self.local_bytes + self.host_local_bytes + self.remote_bytes


@dataclass(frozen=True)
class InstanceRecord:
    """What one instance did in one batch.

    Parameters
    ----------
    run : str
    batch : int
    operator : str
    index : int
        Number of the instance within its operator.
    node, executor, host : str
        Where it ran, as the engine records it: name in the plan, executor id, host name.
    tuples_in, tuples_out : int
    cpu_ms, run_ms : float or None
        CPU time and time from start to end.
    mem_bytes : int or None
    """

    run: str
    batch: int
    operator: str
    index: int
    node: str
    executor: str = ""
    host: str = ""
    tuples_in: int = 0
    tuples_out: int = 0
    cpu_ms: float | None = None
    run_ms: float | None = None
    mem_bytes: int | None = None

    def __post_init__(self) -> None:
        check = _Check(self, "an instance's record")
        check.names("run", "operator", "node")
        check.names("executor", "host", empty=True)
        check.counts("batch", "index", "tuples_in", "tuples_out")
        check.counts("mem_bytes", optional=True)
        check.numbers("cpu_ms", "run_ms", optional=True)


@dataclass(frozen=True, eq=False)
class EdgeRecord:
    """Tuples between the instances of two operators in one batch, zero pairs left out.

    Parameters
    ----------
    run : str
    batch : int
    source, target : str
        Names of the operators.
    source_instances, target_instances : int
        Shape of the matrix.
    rows, columns, tuples : array of int
        Source instance, target instance and tuples of each pair that had any.
    """

    run: str
    batch: int
    source: str
    target: str
    source_instances: int
    target_instances: int
    rows: IntArray
    columns: IntArray
    tuples: IntArray

    def __post_init__(self) -> None:
        owner = "an edge's record"
        check = _Check(self, owner)
        check.names("run", "source", "target")
        check.counts("batch", "source_instances", "target_instances")
        for name in ("rows", "columns", "tuples"):
            object.__setattr__(self, name, frozen_ints(getattr(self, name)))
        if not self.rows.shape == self.columns.shape == self.tuples.shape or self.rows.ndim != 1:
            shapes = (self.rows.shape, self.columns.shape, self.tuples.shape)
            raise InvalidValue("rows, columns and tuples", owner, "equally long", shapes)
        bounds = (("rows", self.source_instances), ("columns", self.target_instances))
        for name, limit in (*bounds, ("tuples", LARGEST)):
            values = getattr(self, name)
            if len(values) and not (values.min() >= 0 and values.max() < limit):
                raise InvalidValue(name, owner, f"from 0 to below {limit}", values.tolist())

    @classmethod
    def of(
        cls, run: str, batch: int, source: str, target: str, matrix: npt.ArrayLike
    ) -> EdgeRecord:
        """Take the pairs of a matrix, source instances in rows.

        Examples
        --------
        >>> edge = EdgeRecord.of("r", 0, "split", "count", [[5, 0], [0, 7]])
        >>> edge.rows.tolist(), edge.columns.tolist(), edge.tuples.tolist()
        ([0, 1], [0, 1], [5, 7])
        """
        counted = np.asarray(matrix)
        if counted.ndim != 2 or not np.equal(counted, np.floor(counted)).all():
            owner = "an edge's record"
            raise InvalidValue("matrix", owner, "two-dimensional, whole numbers", matrix)
        rows, columns = np.nonzero(counted)
        shape = counted.shape
        pairs = (frozen_ints(a) for a in (rows, columns, counted[rows, columns]))
        return cls(run, batch, source, target, shape[0], shape[1], *pairs)

    @property
    def matrix(self) -> FloatArray:
        """Tuples of every pair, source instances in rows."""
        dense = np.zeros((self.source_instances, self.target_instances))
        dense[self.rows, self.columns] = self.tuples
        return frozen_floats(dense)

    def _key(self) -> tuple[object, ...]:
        shape = (self.source_instances, self.target_instances)
        pairs = tuple(a.tobytes() for a in (self.rows, self.columns, self.tuples))
        return (self.run, self.batch, self.source, self.target, shape, pairs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EdgeRecord) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True)
class NodeRecord:
    """Measured use of one node in one batch, as fractions of its capacity."""

    run: str
    batch: int
    node: str
    cpu: float | None = None
    mem: float | None = None
    io: float | None = None

    def __post_init__(self) -> None:
        check = _Check(self, "a node's record")
        check.names("run", "node")
        check.counts("batch")
        check.numbers("cpu", "mem", "io", optional=True)


@dataclass(frozen=True)
class PlanRecord:
    """A plan and the first batch that ran under it."""

    run: str
    from_batch: int
    plan: Plan

    def __post_init__(self) -> None:
        check = _Check(self, "a plan's record")
        check.names("run")
        check.counts("from_batch")


@dataclass(frozen=True)
class EventRecord:
    """Something that happened, told so that a person can read it.

    Parameters
    ----------
    run : str
    number : int
        Number within the run, which `penstock explain` names. Writing a number again replaces the
        event: what a decision really gained is known only later.
    at_s : float
    kind : str
        `DECISION` for decisions of the control loop, `STATE` for what the state survives; any other
        word for anything else.
    text : str
        One or a few sentences.
    figures : mapping
        What decided, what moved, how long each step took, as JSON holds it.
    batch : int or None
        The batch before which it happened.
    """

    run: str
    number: int
    at_s: float
    kind: str
    text: str
    figures: Mapping[str, Any] = field(default_factory=dict)
    batch: int | None = None

    def __post_init__(self) -> None:
        check = _Check(self, "an event")
        check.names("run", "kind")
        check.names("text", empty=True)
        check.counts("number")
        check.counts("batch", optional=True)
        check.numbers("at_s")
        check.json("figures")


@dataclass(frozen=True)
class RunRecords:
    """All that is stored of one run, as one moment saw it, each part in order."""

    run: RunRecord
    batches: tuple[BatchRecord, ...] = ()
    instances: tuple[InstanceRecord, ...] = ()
    plans: tuple[PlanRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()

    @property
    def decisions(self) -> tuple[EventRecord, ...]:
        """The events that are decisions."""
        return tuple(e for e in self.events if e.kind == DECISION)


def imbalance(
    instances: Iterable[InstanceRecord], stateful: Collection[str], *, load: str = "cpu_ms"
) -> tuple[float | None, dict[str, float]]:
    """LIN over the nodes and LIT of each stateful operator, for a `BatchRecord`.

    Parameters
    ----------
    instances : iterable of InstanceRecord
        Those of one batch.
    stateful : collection of str
        Operators whose imbalance counts.
    load : {"cpu_ms", "run_ms"}
        What a node's load is the sum of. Take ``run_ms`` for operators that wait instead of
        computing. LIN is None when it was not measured on every instance.
    """
    nodes: dict[str, float] = {}
    tuples: dict[str, list[int]] = {}
    measured = True
    for instance in instances:
        value = getattr(instance, load)
        measured = measured and value is not None
        nodes[instance.node] = nodes.get(instance.node, 0.0) + (value or 0.0)
        if instance.operator in stateful:
            tuples.setdefault(instance.operator, []).append(instance.tuples_in)
    over_nodes = lin(frozen_floats(list(nodes.values()))) if nodes and measured else None
    return over_nodes, {name: lit(frozen_floats(counts)) for name, counts in tuples.items()}


def intervals_s(
    batches: Sequence[BatchRecord], before: BatchRecord | None = None
) -> tuple[float, ...]:
    """Seconds that each batch stands for: since the start of the batch before it.

    The rows of a batch arrived while the one before ran and while nothing ran, so rates are counts
    over this time; the duration alone would overstate them where batches start at fixed times. The
    very first batch has only its duration.
    """
    spans: list[float] = []
    for batch in batches:
        since = batch.started_at_s - before.started_at_s if before else 0.0
        spans.append(since if since > 0 else batch.duration_ms / 1000.0)
        before = batch
    return tuple(spans)


def json_text(value: Any) -> str:
    """Write JSON in few characters, all of them ASCII: a text column of any database takes it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


@dataclass(frozen=True)
class _Check:
    """Checks of one record's fields, and their conversion to plain Python values."""

    record: object
    owner: str

    def names(self, *fields: str, empty: bool = False) -> None:
        for name in fields:
            value = getattr(self.record, name)
            # PostgreSQL holds no NUL character in a text, and nothing holds half a character.
            sound = isinstance(value, str) and "\0" not in value and (empty or value)
            if not sound or any("\ud800" <= c <= "\udfff" for c in value):
                kind = "a text" if empty else "a non-empty text"
                allowed = f"{kind} without NUL or broken characters"
                raise InvalidValue(name, self.owner, allowed, value)

    def counts(self, *fields: str, optional: bool = False) -> None:
        for name in fields:
            value = getattr(self.record, name)
            if value is None and optional:
                continue
            try:
                whole = operator.index(value)
            except TypeError:
                whole = -1
            if isinstance(value, bool) or not 0 <= whole <= LARGEST:
                allowed = f"a whole number from 0 to {LARGEST}"
                raise InvalidValue(name, self.owner, allowed, value)
            object.__setattr__(self.record, name, whole)

    def numbers(self, *fields: str, optional: bool = False) -> None:
        for name in fields:
            value = getattr(self.record, name)
            if value is None and optional:
                continue
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                number = math.nan
            if isinstance(value, (bool, str)) or not math.isfinite(number) or number < 0:
                raise InvalidValue(name, self.owner, "a finite number of at least 0", value)
            object.__setattr__(self.record, name, number)

    def json(self, *fields: str) -> None:
        """Keep what will be read back: lists for tuples, plain numbers for NumPy's."""
        for name in fields:
            value = getattr(self.record, name)
            if not value and isinstance(value, dict):
                continue
            try:
                plain = json.loads(json_text(value))
            except (TypeError, ValueError, RecursionError):
                plain = None
            if not isinstance(plain, dict):
                raise InvalidValue(name, self.owner, "a mapping that JSON can hold", value)
            object.__setattr__(self.record, name, plain)
