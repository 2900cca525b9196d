"""What the engine asks of a step with state by key, and what it gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from penstock.common.arrays import BoolArray, IntArray
from penstock.common.key_hashing import HashArray


@runtime_checkable
class Keyed(Protocol):
    """What a stateful step does with its keys."""

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of the key."""
        ...

    @property
    def state(self) -> pa.Schema:
        """Columns of the state besides the key."""
        ...

    def partial(self, batch: pa.RecordBatch) -> pa.RecordBatch | pa.Table | None:
        """Shrink a batch before it is sent, or return it as it is; None sends nothing."""
        ...

    def update(self, batch: pa.Table, state: pa.Table) -> Any:
        """Process a batch.

        Parameters
        ----------
        batch : pyarrow.Table
            The tuples (or what `partial` made of them) of this instance in this micro-batch.
        state : pyarrow.Table
            Key and state of those keys of the batch that have one.

        Returns
        -------
        tuple
            What is emitted, the rows (key and state) that are new or changed, and, if there is a
            third, the keys that are removed. None is nothing. The engine trusts it: what a function
            of the user's made goes through `penstock.pipeline.keyed.update.outcome` first.
        """
        ...


class Arrived(NamedTuple):
    """What is sent of a batch, how many rows were too late, and the largest event time."""

    parts: pa.RecordBatch | pa.Table | None
    late: int
    latest_us: int | None


class Watermarks(NamedTuple):
    """Watermarks of a step, in microseconds: in the batch before, and in this one; and the clock.

    The clock of a batch is when it was begun for the first time.
    """

    before_us: int
    now_us: int
    clock_before_us: int = 0
    clock_us: int = 0


class StateAccess(Protocol):
    """The state of one instance while a batch changes it."""

    def lookup(self, hashes: HashArray) -> tuple[pa.Table, IntArray]:
        """Return the rows with the given hashes of keys, ascending, and which hash each has."""
        ...

    def where(
        self, wanted: Callable[[pa.Table], BoolArray], columns: Sequence[str]
    ) -> pa.Table | None:
        """Return the rows that a predicate over some columns picks; None for none."""
        ...

    def put(self, rows: pa.Table | None) -> None:
        """Insert or replace rows."""
        ...

    def remove(self, keys: pa.Table | None) -> None:
        """Remove keys."""
        ...


@runtime_checkable
class EventTimed(Protocol):
    """A step with state that follows event time."""

    def latenesses(self, name: str) -> Mapping[str, int]:
        """Lateness, in microseconds, of each stream that the step called `name` reads.

        A step that reads one stream calls it by its own name. A step that reads two calls them
        ``<name>/left`` and ``<name>/right``, in this order; no name of a step has a slash.
        """
        ...

    def arrive(self, batch: pa.RecordBatch, watermark_us: int | None, side: int) -> Arrived:
        """Make what is sent of a batch of the stream with number `side`, without late rows."""
        ...


@runtime_checkable
class Process(EventTimed, Protocol):
    """A step that works on its state itself, with all streams that it reads at hand."""

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of the state's key."""
        ...

    @property
    def state(self) -> pa.Schema:
        """Columns of the state besides the key, as far as they are known before it runs."""
        ...

    @property
    def sides(self) -> int:
        """How many streams it reads; with one, all steps that it reads from are that one."""
        ...

    def run(
        self, inputs: Sequence[pa.Table | None], state: StateAccess, watermarks: Watermarks
    ) -> Iterator[pa.Table]:
        """Process a batch.

        Parameters
        ----------
        inputs : sequence of Table or None
            The rows of each stream; None if a stream has none in this batch.
        state : StateAccess
        watermarks : Watermarks

        Yields
        ------
        Table
            What is emitted.
        """
        ...
