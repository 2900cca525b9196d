"""What a task reads: messages of the layer before, and its part of a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.common.arrow_keys import decoded
from penstock.engine.batch import BatchSpec
from penstock.engine.errors import UserCode
from penstock.engine.messages import Address, EdgeRows, address_of, decode, unpack
from penstock.engine.state.task_state import TaskState
from penstock.pipeline.steps import Source, Step

#: Stamps of source rows are counted in steps of this many microseconds.
STAMP_STEP_US = 1000


class TaskInput:
    """What one instance reads in one batch.

    Parameters
    ----------
    spec : BatchSpec
    here : Address
        The task.
    state : TaskState or None
        Of the instance; it gets the messages with state.

    Attributes
    ----------
    stamps : dict of int to int
        Rows that the source made in each step of `STAMP_STEP_US`.
    """

    def __init__(self, spec: BatchSpec, here: Address, state: TaskState | None) -> None:
        self.spec, self.here, self.state = spec, here, state
        self.stamps: dict[int, int] = {}
        self._tables: dict[int, list[pa.Table]] = {}

    def receive(self, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """Take the messages for this instance, and pass on those for a later layer."""
        rows: list[EdgeRows] = []
        for data in messages:
            to = address_of(data)
            if to.layer != self.here.layer:
                yield self.spec.next_hop(self.here, to), bytes(data)
                continue
            message = unpack(data)
            if isinstance(message, EdgeRows):
                rows.append(message)
            elif self.state is not None:
                self.state.receive(message)
            else:
                raise TypeError(f"an instance without state got a {type(message).__name__}")
        # In the order of the senders, however they came: a batch that is repeated looks the same.
        for message in sorted(rows, key=lambda message: message.sender):
            self._tables.setdefault(message.edge, []).append(decode(message.body))

    def tables(self, edge: int) -> list[pa.Table]:
        """Return the rows that came along an edge, in the order of their senders."""
        return self._tables.get(edge, [])

    def read_source(
        self, step: Step, user_code: UserCode, rows: Iterable[tuple[str, pa.Table]]
    ) -> Iterator[pa.Table]:
        """Read this instance's part of the batch's ranges, and what the backend read itself.

        Parameters
        ----------
        step : Step
            The source.
        user_code : UserCode
        rows : iterable of (str, Table)
            By source step: rows of streaming DataFrames.
        """
        vertex, instance = self.spec.instance_at(*self.here)
        count = self.spec.parallelism[vertex]
        for low, high in part_of(self.spec.ranges.get(step.name, ()), instance, count):
            table = user_code.call(step.name, partial(_read, step.source, low, high))
            self._count_stamps(table, getattr(step.source, "stamp", None))
            yield table
        for name, table in rows:
            if name == step.name and table.num_rows:
                yield decoded(table)

    def _count_stamps(self, table: pa.Table, stamp: str | None) -> None:
        if stamp is None:
            return
        steps = np.asarray(table.column(stamp)) // STAMP_STEP_US
        for value, times in zip(*np.unique(steps, return_counts=True), strict=True):
            self.stamps[int(value)] = self.stamps.get(int(value), 0) + int(times)


def part_of(ranges: Sequence[tuple[int, int]], instance: int, count: int) -> list[tuple[int, int]]:
    """Return the ranges that one of `count` instances reads: equal parts, in the order of ranges.

    Examples
    --------
    >>> [part_of([(0, 10), (100, 102)], instance, 3) for instance in range(3)]
    [[(0, 4)], [(4, 8)], [(8, 10), (100, 102)]]
    """
    total = sum(stop - start for start, stop in ranges)
    first, last = total * instance // count, total * (instance + 1) // count
    parts, before = [], 0
    for start, stop in ranges:
        low, high = max(start, start + first - before), min(stop, start + last - before)
        if high > low:
            parts.append((low, high))
        before += stop - start
    return parts


def _read(source: Source, start: int, stop: int) -> pa.Table:
    return decoded(source.read(start, stop))
