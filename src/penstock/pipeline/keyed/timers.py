"""A function of the user's over state by key, with timers and a time to live.

A timer is a column of the state that says when a key is due. So it is kept, moved and backed up
with the state of its key, and a key has at most one timer of each kind.

1. Rows at or before the watermark of the batch before are late and dropped, where they are sent.
2. `update` gets the rows of the batch and the state of their keys. State whose time to live is over
   is not shown to it.
3. `on_timer` gets the state of all keys whose timer is due: by event time when the watermark of the
   batch has reached it, by processing time when the clock of the batch has. A timer that was due is
   cleared, unless `on_timer` writes the key anew.
4. State that was not written for its time to live is removed.

The clock of a batch is an input of the batch, as the watermark is: a batch that is repeated has the
same.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.arrays import BoolArray
from penstock.common.arrow_keys import check_equal, distinct_keys
from penstock.common.key_hashing import key_hashes
from penstock.pipeline.keyed.protocols import Arrived, StateAccess, Watermarks
from penstock.pipeline.keyed.update import KeyedResult, outcome
from penstock.pipeline.keyed.windows import event_times

#: Column of the state: when a key was last written, in microseconds of the clock.
WRITTEN = "__written_us"

#: Removing what is over its time to live looks at all keys, and is done so often while it passes.
SWEEPS = 8


class BatchTime(NamedTuple):
    """What time it is in a batch, in microseconds since 1970: by events, and by the clock."""

    watermark_us: int
    clock_us: int


@dataclass(frozen=True)
class Timers:
    """When keys are due; see `Pipeline.stateful`.

    Parameters
    ----------
    on_timer : callable
    event_timer, processing_timer : str, optional
        Columns of the state: a timestamp, or int64 microseconds.
    """

    on_timer: Callable[..., Any]
    event_timer: str | None = None
    processing_timer: str | None = None

    @property
    def columns(self) -> list[str]:
        """Columns of both timers, as far as there are."""
        return [name for name in (self.event_timer, self.processing_timer) if name is not None]

    def due(self, rows: pa.Table, time: BatchTime) -> BoolArray:
        """Which keys are due."""
        found = np.zeros(rows.num_rows, dtype=bool)
        for name, now_us in (
            (self.event_timer, time.watermark_us),
            (self.processing_timer, time.clock_us),
        ):
            if name is not None and name in rows.column_names:
                at, unset = event_times(rows.column(name))
                found |= ~unset & (at <= now_us)
        return found

    def cleared(self, rows: pa.Table, time: BatchTime) -> pa.Table:
        """Rows without the timers that are due."""
        for name in self.columns:
            only = Timers(
                self.on_timer,
                name if name == self.event_timer else None,
                name if name == self.processing_timer else None,
            )
            column = rows.column(name)
            unset = pa.nulls(rows.num_rows, column.type)
            column = pc.if_else(pa.array(only.due(rows, time)), unset, column)
            rows = rows.set_column(rows.column_names.index(name), name, column)
        return rows


@dataclass(frozen=True)
class TimedUpdate:
    """A step with state that a function of the user's updates, and timers; see `Pipeline.stateful`.

    Parameters
    ----------
    by : tuple of str
    state : pyarrow.Schema
        Columns of the state besides the key.
    function : callable
    time : str, optional
        Column with the event time.
    lateness_us : int
    timers : Timers, optional
    ttl_us : int, optional
        How long state is kept that is not written.
    """

    by: tuple[str, ...]
    state: pa.Schema
    function: Callable[..., Any]
    time: str | None = None
    lateness_us: int = 0
    timers: Timers | None = None
    ttl_us: int | None = None

    @property
    def sides(self) -> int:
        """It reads one stream."""
        return 1

    def latenesses(self, name: str) -> Mapping[str, int]:
        """Lateness of its one stream."""
        return {} if self.time is None else {name: self.lateness_us}

    def arrive(self, batch: pa.RecordBatch, watermark_us: int | None, side: int = 0) -> Arrived:
        """Leave out late rows."""
        if self.time is None:
            return Arrived(batch, 0, None)
        times, timeless = event_times(batch.column(self.time))
        latest = None if timeless.all() else int(times[~timeless].max())
        late = np.zeros(len(times), dtype=bool)
        if watermark_us is not None:
            late = ~timeless & (times <= watermark_us)
        if late.any():
            batch = batch.filter(pa.array(~late))
        return Arrived(batch if batch.num_rows else None, int(late.sum()), latest)

    def run(
        self, inputs: Sequence[pa.Table | None], state: StateAccess, watermarks: Watermarks
    ) -> Iterator[pa.Table]:
        """Call the functions, and keep what they return."""
        time = BatchTime(watermarks.now_us, watermarks.clock_us)
        rows = inputs[0]
        if rows is not None and rows.num_rows:
            made = self._called(self.function, time, rows, self._known(rows, state, time))
            self._keep(made, state, time)
            if made.emit is not None:
                yield made.emit
        if self.timers is not None:
            yield from self._fire(self.timers, state, time)
        if self.ttl_us is not None and self._sweeps(self.ttl_us, watermarks):
            over = state.where(partial(self._over, clock_us=time.clock_us), [WRITTEN])
            state.remove(None if over is None else over.select(list(self.by)))

    def next_timer_us(self, state: StateAccess) -> int | None:
        """When the next key is due by processing time; None if none is."""
        name = None if self.timers is None else self.timers.processing_timer
        if name is None:
            return None
        rows = state.where(lambda part: _is_set(part, name), [name])
        return None if rows is None else int(event_times(rows.column(name))[0].min())

    def _fire(self, timers: Timers, state: StateAccess, time: BatchTime) -> Iterator[pa.Table]:
        rows = state.where(partial(timers.due, time=time), timers.columns)
        if rows is None:
            return
        rows = self._shown(rows)
        made = self._called(timers.on_timer, time, rows)
        written = [part for part in (made.changed, made.removed) if part is not None]
        again = np.zeros(rows.num_rows, dtype=bool)
        for part in written:
            again |= np.isin(key_hashes(rows, self.by), key_hashes(part, self.by))
        left = rows.filter(pa.array(~again))
        if left.num_rows:
            state.put(self._stamped(timers.cleared(left, time), time))
        self._keep(made, state, time)
        if made.emit is not None:
            yield made.emit

    def _called(self, function: Callable[..., Any], time: BatchTime, *tables: pa.Table) -> Any:
        """Call a function with tables, and with the time if it takes one argument more."""
        wants_time = positional_parameters(function) > len(tables)
        return outcome(self, function(*tables, time) if wants_time else function(*tables))

    def _known(self, rows: pa.Table, state: StateAccess, time: BatchTime) -> pa.Table:
        """Return the state of the keys of some rows, without what is over its time to live."""
        found = distinct_keys(rows, self.by)
        known, which = state.lookup(found.hashes)
        if not known.num_rows:
            return pa.schema([*(rows.schema.field(k) for k in self.by), *self.state]).empty_table()
        check_equal(known, rows.take(pa.array(found.first[which])), self.by)
        if self.ttl_us is not None:
            known = known.filter(pa.array(~self._over(known, time.clock_us)))
        return self._shown(known)

    def _shown(self, rows: pa.Table) -> pa.Table:
        return rows.select([*self.by, *self.state.names])

    def _keep(self, made: KeyedResult, state: StateAccess, time: BatchTime) -> None:
        if made.changed is not None:
            state.put(self._stamped(made.changed, time))
        state.remove(made.removed)

    def _stamped(self, rows: pa.Table, time: BatchTime) -> pa.Table:
        if self.ttl_us is None:
            return rows
        return rows.append_column(WRITTEN, pa.array(np.full(rows.num_rows, time.clock_us)))

    def _over(self, rows: pa.Table, clock_us: int) -> BoolArray:
        """Which rows were not written for their time to live."""
        if WRITTEN not in rows.column_names or self.ttl_us is None:
            return np.zeros(rows.num_rows, dtype=bool)
        written = rows.column(WRITTEN).fill_null(clock_us)
        return np.asarray(np.asarray(written) + self.ttl_us <= clock_us)

    def _sweeps(self, ttl_us: int, watermarks: Watermarks) -> bool:
        every = max(ttl_us // SWEEPS, 1000)
        return watermarks.clock_us // every > watermarks.clock_before_us // every


def _is_set(rows: pa.Table, name: str) -> BoolArray:
    if name not in rows.column_names:
        return np.zeros(rows.num_rows, dtype=bool)
    return np.asarray(rows.column(name).is_valid())


def positional_parameters(function: Callable[..., Any]) -> int:
    """Count the positional parameters of a function that must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)
