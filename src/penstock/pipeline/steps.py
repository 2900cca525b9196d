"""The parts of a pipeline: what a step does, where its tuples come from, where they go."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt
import pyarrow as pa

from penstock.common.keywords import class_keywords
from penstock.model import Grouping, InvalidValue, NotAllowed
from penstock.pipeline.keyed.protocols import Keyed, Process

#: A stateless function: an Arrow batch in, an Arrow batch (or None for nothing) out. A function of
#: two parameters also gets the name of the step that the batch came from.
MapFunction = Callable[..., "pa.RecordBatch | pa.Table | None"]

#: Groupings by key.
BY_KEY = frozenset({Grouping.FIELDS, Grouping.PARTIAL_KEY, Grouping.HOT_KEY})

#: Positions of one partition, of a source that has several: partition `p` has those from
#: ``p * PARTITION`` on. Other sources have one partition, and their offsets are their positions.
PARTITION = 2**44

#: A custom grouping: for each row of a batch, the target instance, below the given number.
ChooseFunction = Callable[[pa.RecordBatch, int], npt.ArrayLike]


def as_key(by: str | Sequence[str]) -> tuple[str, ...]:
    """Columns of a key that was given as one name or as several."""
    return (by,) if isinstance(by, str) else tuple(by)


@class_keywords
@dataclass(frozen=True, init=False)
class Link:
    """Where a step reads from, and how the tuples are distributed over its instances.

    Parameters
    ----------
    source : str
        The step that is read.
    grouping : Grouping or str
    by : str or sequence of str
        Columns of the key for ``fields``, ``partial-key`` and ``hot-key``; the one column that
        holds the target instance for ``direct``.
    choose : callable, optional
        For ``custom``: gets a batch and the number of instances, returns an instance for each row.
    """

    source: str
    grouping: Grouping = Grouping.SHUFFLE
    by: tuple[str, ...] = ()
    choose: ChooseFunction | None = None

    def __init__(
        self,
        source: str,
        grouping: Grouping | str = Grouping.SHUFFLE,
        by: str | Sequence[str] = (),
        choose: ChooseFunction | None = None,
    ) -> None:
        owner = f"the link from {source!r}"
        try:
            grouping = Grouping(grouping)
        except ValueError:
            allowed = "one of " + ", ".join(g.value for g in Grouping)
            raise InvalidValue("grouping", owner, allowed, grouping) from None
        given = {"source": source, "grouping": grouping, "by": as_key(by), "choose": choose}
        for name, value in given.items():
            object.__setattr__(self, name, value)
        if (self.by_key or grouping is Grouping.DIRECT) and not self.by:
            raise InvalidValue("by", owner, f"a column for {grouping.value} grouping", by)
        if grouping is Grouping.DIRECT and len(self.by) != 1:
            raise InvalidValue("by", owner, "one column for direct grouping", by)
        if grouping is Grouping.CUSTOM and choose is None:
            raise InvalidValue("choose", owner, "a function for custom grouping", choose)
        if grouping is not Grouping.CUSTOM and choose is not None:
            raise NotAllowed(
                f"{owner} has the grouping {grouping.value}, which calls no function; leave "
                "'choose' out, or group by 'custom'"
            )

    @cached_property
    def by_key(self) -> bool:
        """Whether the key of a tuple decides where it goes."""
        return self.grouping in BY_KEY


@class_keywords
@dataclass(frozen=True)
class Hints:
    """What the planner may assume of a step before anything was measured.

    Parameters
    ----------
    cpu_us_per_tuple : float
        Processor time of a tuple, in microseconds.
    mem_mb : float
        Memory of an instance, without its state.
    selectivity : float
        Tuples out for each tuple in.
    state_mb : float
        State of all instances together.
    tuple_bytes : float
        Size of a tuple that is sent on.
    rate_per_s : float, optional
        Of a source: tuples a second.
    """

    cpu_us_per_tuple: float = 0.0
    mem_mb: float = 0.0
    selectivity: float = 1.0
    state_mb: float = 0.0
    tuple_bytes: float = 100.0
    rate_per_s: float | None = None


@runtime_checkable
class Source(Protocol):
    """A stream that can be read again: positions are whole numbers, and a range of them is data.

    `read` must return the same rows for the same range, on any machine.
    """

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows."""
        ...

    @property
    def stamp(self) -> str | None:
        """Column that holds the microseconds from the stream's start to a row; None without one."""
        ...

    def available(self, elapsed_s: float) -> int:
        """Position that the stream has reached after so many seconds."""
        ...

    def read(self, start: int, stop: int) -> pa.Table:
        """Rows from position `start` up to `stop`."""
        ...

    @property
    def end(self) -> int | None:
        """Position where the stream ends; None if it does not."""
        ...


class Offsets(Protocol):
    """Tells the driver which offsets of a source with partitions are there."""

    def look(self, reached: Mapping[int, int]) -> Mapping[int, tuple[int, int]]:
        """Return where each partition goes on, and the offset up to which it can be read.

        Parameters
        ----------
        reached : mapping of int to int
            Offsets up to which batches have taken the partitions; empty when a run begins.
        """
        ...


@runtime_checkable
class PartitionedSource(Protocol):
    """A stream of several partitions, each of which has offsets of its own.

    Offset `o` of partition `p` is the position ``p * PARTITION + o``. `read` must return the same
    rows for the same range, on any machine; an offset may hold no row.
    """

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows."""
        ...

    @property
    def until(self) -> str | None:
        """``latest`` if the stream ends at the offsets that are there at the start, else None."""
        ...

    def offsets(self) -> Offsets:
        """Return what tells which offsets are there; only the driver asks for it."""
        ...

    def read(self, start: int, stop: int) -> pa.Table:
        """Rows from position `start` up to `stop`, both of one partition."""
        ...


@dataclass(frozen=True)
class Attempt:
    """One attempt at a batch.

    Parameters
    ----------
    batch_id : int
    number : int
        Number of the attempt, which no other one of the checkpoint has.
    epoch : int
        Number of the driver's turn at the checkpoint; a driver that starts later has a higher one.
    """

    batch_id: int
    number: int = 0
    epoch: int = 0


@dataclass(frozen=True)
class StagedFile:
    """A file that a task wrote for a sink.

    Parameters
    ----------
    name : str
    rows, size_bytes : int
    schema : str
        Columns of the rows, where the file itself does not tell them.
    """

    name: str
    rows: int
    size_bytes: int
    schema: str = ""


@runtime_checkable
class Sink(Protocol):
    """Where results go. Writing the same batch twice leaves one batch.

    A sink whose `on_workers` is true is written by the tasks themselves, in two steps: `stage` in
    the task, `commit` by the driver once all tasks of the batch are done. Others get the rows of
    the whole batch in the driver.
    """

    on_workers: bool

    def start(self, checkpoint: str) -> None:
        """Get ready, when a run starts; `checkpoint` tells its checkpoint from all others."""
        ...

    def stage(self, attempt: Attempt, instance: int, table: pa.Table) -> StagedFile | None:
        """Write one instance's rows where no reader looks; only if `on_workers`."""
        ...

    def commit(
        self, attempt: Attempt, table: pa.Table | None, staged: Sequence[StagedFile] = ()
    ) -> None:
        """Make a batch visible.

        Parameters
        ----------
        attempt : Attempt
        table : Table or None
            Its rows, unless `on_workers`; None if there are none.
        staged : sequence of StagedFile
            What `stage` returned in the tasks, if `on_workers`.
        """
        ...

    def recover(self, committed: int) -> None:
        """Forget everything after batch `committed`."""
        ...


@dataclass(frozen=True, eq=False)
class Step:
    """One operator as the user wrote it.

    Parameters
    ----------
    splittable : bool
        Whether the tuples of a key may go to several instances.
    late_for : str, optional
        Instead of a function: the step with windows whose late rows this one sends on.
    """

    name: str
    links: tuple[Link, ...] = ()
    source: Any = None
    function: MapFunction | None = None
    keyed: Keyed | Process | None = None
    sink: Sink | None = None
    parallelism: int | None = None
    chain: bool = True
    hints: Hints = field(default_factory=Hints)
    splittable: bool = False
    late_for: str | None = None

    @cached_property
    def wants_origin(self) -> bool:
        """Whether the function also takes the name of the step that its batch came from."""
        return wants_origin(self.function)


def wants_origin(function: Any) -> bool:
    """Whether a function also takes the name of the step that its batch came from."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    required = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    return len(required) >= 2
