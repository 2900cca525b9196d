"""A join of two streams by equal keys and a bound on event time, as Spark's stream-stream join.

1. Rows at or before the watermark of the batch before are late and dropped, where they are sent.
2. New rows of each side meet the stored rows of the other side, and each other. Each pair is
   emitted once.
3. New rows are stored, unless no row can meet them any more because it would be late.
4. Stored rows that are over in this sense are removed. Those of an outer side that met no row are
   emitted then, with nulls for the other side.

Without a bound on time all rows are stored for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.arrays import BoolArray, IntArray
from penstock.common.arrow_keys import normal_keys
from penstock.model import NotAllowed
from penstock.pipeline.keyed.join_columns import JoinColumns
from penstock.pipeline.keyed.pairs import SideRows, pairs
from penstock.pipeline.keyed.protocols import Arrived, StateAccess, Watermarks
from penstock.pipeline.keyed.rows_by_key import LEFT, NUMBER, RIGHT, SIDE, RowsByKey
from penstock.pipeline.keyed.time_bound import STEP_US, TimeBound
from penstock.pipeline.keyed.windows import event_times

#: Kinds of joins, and the sides whose rows are emitted without a match, too.
HOW: Mapping[str, tuple[int, ...]] = {
    "inner": (),
    "left": (LEFT,),
    "right": (RIGHT,),
    "full": (LEFT, RIGHT),
}

#: Column of the state: whether a row of an outer side has met another one.
MATCHED = "__matched"

#: Column that numbers pairs while a condition is asked of them.
_PAIR = "__pair"


class _Met:
    """Rows of one side in a batch, the numbers of their keys, and which have met another row."""

    def __init__(self, rows: pa.Table, keys: IntArray) -> None:
        self.rows, self.keys = rows, keys
        self.now = np.zeros(rows.num_rows, dtype=bool)


@dataclass(frozen=True, eq=False)
class Join:
    """A join of two streams; see `Pipeline.join`.

    Parameters
    ----------
    columns : JoinColumns
        Names of the columns of both sides.
    how : str
        One of `HOW`.
    time : TimeBound, optional
    where : pyarrow.compute.Expression, optional
        What must be true of a pair, over the columns that are emitted.
    """

    columns: JoinColumns
    how: str = "inner"
    time: TimeBound | None = None
    where: pc.Expression | None = None

    @property
    def keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns of the key on each side."""
        return self.columns.keys

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of the state's key."""
        return (*self.keys[LEFT], SIDE, NUMBER)

    @property
    def routed_by(self) -> tuple[str, ...]:
        """Columns by which instances are chosen."""
        return self.keys[LEFT]

    @property
    def state(self) -> pa.Schema:
        """No columns are known before it runs."""
        return pa.schema([])

    @property
    def sides(self) -> int:
        """It reads two streams."""
        return 2

    def latenesses(self, name: str) -> Mapping[str, int]:
        """Lateness of both streams."""
        if self.time is None:
            return {}
        left, right = self.time.lateness_us
        return {f"{name}/left": left, f"{name}/right": right}

    def emits(self, *columns: pa.Schema) -> pa.Schema:
        """Columns of what is emitted, from those of both sides."""
        left, right = (self._renamed(schema.empty_table(), n) for n, schema in enumerate(columns))
        return self.columns.emitted(left, right).schema

    # ---- on the sender

    def arrive(self, batch: pa.RecordBatch, watermark_us: int | None, side: int) -> Arrived:
        """Leave out rows that come to nothing, and those that are late."""
        keep = np.ones(batch.num_rows, dtype=bool)
        if side not in HOW[self.how]:
            for name in self.keys[side]:
                if batch.column(name).null_count:
                    keep &= ~np.asarray(batch.column(name).is_null())
        if self.time is None:
            return Arrived(_only(batch, keep), 0, None)
        times, timeless = event_times(batch.column(self.time.columns[side]))
        timed = keep & ~timeless
        latest = int(times[timed].max()) // STEP_US * STEP_US if timed.any() else None
        if side not in HOW[self.how]:
            keep = timed
        if watermark_us is None:
            return Arrived(_only(batch, keep), 0, latest)
        late = timed & (times <= watermark_us)
        return Arrived(_only(batch, keep & ~late), int(late.sum()), latest)

    # ---- on the receiver

    def run(
        self, inputs: Sequence[pa.Table | None], state: StateAccess, watermarks: Watermarks
    ) -> Iterator[pa.Table]:
        """Join new rows with what is stored, store them, and remove what is over."""
        there = [rows is not None and rows.num_rows > 0 for rows in inputs]
        if any(there):
            new = [
                self._renamed(rows, side) if rows is not None and rows.num_rows else None
                for side, rows in enumerate(inputs)
            ]
            yield from self._joined(new, state, watermarks.now_us)
        if self.time is not None and (HOW[self.how] or self.time.sweeps(watermarks)):
            yield from self._sweep(self.time, state, watermarks.now_us)

    def _joined(
        self, new: Sequence[pa.Table | None], state: StateAccess, watermark_us: int
    ) -> Iterator[pa.Table]:
        on, there = self.keys[LEFT], [rows for rows in new if rows is not None]
        stored = RowsByKey(state, on, _together([rows.select(list(on)) for rows in there], on))
        first = new[LEFT]
        cut = 0 if first is None else first.num_rows
        numbers = (stored.of_row[:cut], stored.of_row[cut:])
        came = [
            None if rows is None else _Met(rows, keys)
            for rows, keys in zip(new, numbers, strict=True)
        ]
        for side, here in enumerate(came):
            if here is not None:
                other = _Met(*stored.find(1 - side, here.keys))
                yield from self._pairs(*((here, other) if side == LEFT else (other, here)))
                if 1 - side in HOW[self.how]:
                    stored.replace(_newly_met(other))
        left, right = came
        if left is not None and right is not None:
            yield from self._pairs(left, right)
        for side, here in enumerate(came):
            if here is not None:
                self._store(stored, side, here, watermark_us)
        stored.write()

    def _store(self, stored: RowsByKey, side: int, new: _Met, watermark_us: int) -> None:
        """Store new rows; of an outer side also those that are over, because they are emitted."""
        if side in HOW[self.how]:
            stored.add(side, new.rows.append_column(MATCHED, pa.array(new.now)), new.keys)
            return
        kept = ~self._over(new.rows, side, watermark_us)
        stored.add(side, new.rows.filter(pa.array(kept)), new.keys[kept])

    def _pairs(self, left: _Met, right: _Met) -> Iterator[pa.Table]:
        """Yield the joined rows of two sides, and note which rows have met another one."""
        if not (left.rows.num_rows and right.rows.num_rows):
            return
        bound = None if self.time is None else self.time.bound
        sides = (self._side_rows(left, LEFT), self._side_rows(right, RIGHT))
        for one, other in pairs(*sides, bound):
            made = self.columns.emitted(
                left.rows.take(pa.array(one)), right.rows.take(pa.array(other))
            )
            if self.where is not None:
                numbered = made.append_column(_PAIR, pa.array(np.arange(made.num_rows)))
                made = numbered.filter(self.where)
                true = np.asarray(made.column(_PAIR))
                one, other, made = one[true], other[true], made.drop_columns([_PAIR])
            left.now[one] = True
            right.now[other] = True
            yield made

    def _side_rows(self, met: _Met, side: int) -> SideRows:
        """Return what pairs are looked for by; a key with a null matches nothing."""
        times, never = self._times(met.rows, side)
        for name in self.keys[LEFT] if HOW[self.how] else ():
            if met.rows.column(name).null_count:
                never = never | np.asarray(met.rows.column(name).is_null())
        return SideRows(met.keys, times, never)

    def _renamed(self, rows: pa.Table, side: int) -> pa.Table:
        """Give rows the names that they have in the state."""
        for at, field in enumerate(rows.schema):
            if pa.types.is_dictionary(field.type):
                rows = rows.set_column(at, field.name, rows.column(at).cast(field.type.value_type))
        named = rows.rename_columns([self.columns.stored(n, side) for n in rows.column_names])
        made: pa.Table = normal_keys(named, self.keys[LEFT], "a join")
        return made

    def _times(self, rows: pa.Table, side: int) -> tuple[IntArray, BoolArray]:
        """Return the event times of rows of the state, and which have none."""
        none = np.zeros(rows.num_rows, dtype=np.int64)
        if self.time is None:
            return none, none.astype(bool)
        name = self.columns.stored(self.time.columns[side], side)
        if name not in rows.column_names:
            return none, ~none.astype(bool)
        return event_times(rows.column(name))

    def _over(self, rows: pa.Table, side: int, watermark_us: int) -> BoolArray:
        """Which rows of a side no row can meet any more."""
        limit = None if self.time is None else self.time.limit_us(side, watermark_us)
        if limit is None:
            return np.zeros(rows.num_rows, dtype=bool)
        times, timeless = self._times(rows, side)
        return np.asarray(~timeless & (times <= limit))

    def _all_over(self, rows: pa.Table, watermark_us: int) -> BoolArray:
        """Which rows of the state no row can meet any more."""
        sides = np.asarray(rows.column(SIDE))
        over = np.zeros(rows.num_rows, dtype=bool)
        for side in (LEFT, RIGHT):
            over |= (sides == side) & self._over(rows, side, watermark_us)
        return over

    def _sweep(self, time: TimeBound, state: StateAccess, watermark_us: int) -> Iterator[pa.Table]:
        """Remove what is over, and emit what is over and met nothing on an outer side."""
        columns = [SIDE, *(self.columns.stored(time.columns[n], n) for n in (LEFT, RIGHT))]
        rows = state.where(partial(self._all_over, watermark_us=watermark_us), columns)
        if rows is None:
            return
        stored = RowsByKey(state, self.keys[LEFT], rows)
        stored.remove(rows, stored.of_row)
        stored.write()
        for side in HOW[self.how]:
            of_side = np.asarray(rows.column(SIDE)) == side
            met = np.asarray(rows.column(MATCHED).fill_null(False)) if of_side.any() else of_side
            alone = rows.filter(pa.array(of_side & ~met))
            if alone.num_rows:
                yield self.columns.alone(alone, side)


def _newly_met(other: _Met) -> pa.Table:
    """Rows of the state that met another one for the first time, marked."""
    if not other.now.any():
        return other.rows.slice(0, 0)
    known = np.asarray(other.rows.column(MATCHED).fill_null(False))
    rows = other.rows.filter(pa.array(other.now & ~known))
    at = rows.column_names.index(MATCHED)
    return rows.set_column(at, MATCHED, pa.array(np.ones(rows.num_rows, dtype=bool)))


def _only(batch: pa.RecordBatch, keep: BoolArray) -> pa.RecordBatch | None:
    """Return the rows that are kept; None if there are none."""
    if keep.all():
        return batch
    return batch.filter(pa.array(keep)) if keep.any() else None


def _together(keys: list[pa.Table], on: tuple[str, ...]) -> pa.Table:
    """Put the keys of both sides into one table."""
    for name in on:
        kinds = [part.schema.field(name).type for part in keys]
        if kinds[0] != kinds[-1]:
            raise NotAllowed(
                f"a join has keys of different types, {kinds[0]} on the left and {kinds[-1]} on "
                f"the right of {name!r}; cast one of them in a select before it"
            )
    return pa.concat_tables(keys)
