"""What the metrics store keeps, as frozen values.

Times are seconds since 1970 in UTC. What was not measured is None, never NaN and never a silent 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.common.errors import InvalidValue
from penstock.model import Plan
from penstock.store.edge_record import EdgeRecord
from penstock.store.field_checks import FieldChecks
from penstock.store.histogram import EMPTY, Histogram
from penstock.store.operator_record import OperatorRecord

#: Kind of the events that are decisions of the control loop.
DECISION = "decision"

#: Figure of a batch record that stands for several batches: how many.
ROLLED_UP = "rolled_up"

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
        check = FieldChecks(self, "a run")
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
        Imbalance over the nodes in use (Ms eq. 38); see `derived.imbalance`.
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
        check = FieldChecks(self, "a batch")
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
    def stands_for(self) -> int:
        """Batches that it stands for: one, or several where old ones were rolled up."""
        return int(self.figures.get(ROLLED_UP, 1))

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
        check = FieldChecks(self, "an instance's record")
        check.names("run", "operator", "node")
        check.names("executor", "host", empty=True)
        check.counts("batch", "index", "tuples_in", "tuples_out")
        check.counts("mem_bytes", optional=True)
        check.numbers("cpu_ms", "run_ms", optional=True)


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
        check = FieldChecks(self, "a node's record")
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
        check = FieldChecks(self, "a plan's record")
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
        check = FieldChecks(self, "an event")
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
    edges: tuple[EdgeRecord, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    operators: tuple[OperatorRecord, ...] = ()

    @property
    def decisions(self) -> tuple[EventRecord, ...]:
        """The events that are decisions."""
        return tuple(e for e in self.events if e.kind == DECISION)
