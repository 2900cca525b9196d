"""A keyed reduction by session: rows of a key without a gap between them, as ``session_window``.

1. A row alone is a session from its time to its time and the gap. Those of a key that meet or
   overlap are one.
2. A row is late if its own session ended at or before the watermark of the *batch before*.
3. A session closes when the watermark of the batch has reached its end. It is emitted once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.common.arrays import BoolArray, IntArray
from penstock.common.arrow_keys import distinct_keys
from penstock.model import NotAllowed
from penstock.pipeline.keyed.protocols import Arrived, StateAccess, Watermarks
from penstock.pipeline.keyed.reduce import Mergeable, merge_into
from penstock.pipeline.keyed.rows_by_key import LEFT, NUMBER, SIDE, RowsByKey
from penstock.pipeline.keyed.windowed import END, START
from penstock.pipeline.keyed.windows import Session, as_times, event_times


def merged_sessions(
    keys: IntArray, starts: IntArray, ends: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Find the session that each span belongs to, and start and end of each session.

    Spans of one key that meet or overlap belong together.

    Examples
    --------
    >>> keys, starts = np.array([0, 0, 0, 1]), np.array([7, 1, 3, 4])
    >>> of_row, first, last = merged_sessions(keys, starts, starts + 2)
    >>> of_row.tolist(), first.tolist(), last.tolist()
    ([1, 0, 0, 2], [1, 7, 4], [5, 9, 6])
    """
    order = np.lexsort((ends, starts, keys))
    key, start = keys[order], starts[order]
    # The largest end so far of a key: places among all ends stand for the ends, so that key and
    # place fit into one number that only grows.
    every = np.sort(ends)
    place = key * len(every) + np.searchsorted(every, ends[order])
    reached = every[np.maximum.accumulate(place) - key * len(every)]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (key[1:] != key[:-1]) | (start[1:] > reached[:-1])
    of_row = np.empty(len(order), dtype=np.int64)
    of_row[order] = np.cumsum(new) - 1
    last = np.append(np.flatnonzero(new)[1:], len(order)) - 1
    return of_row, start[new], reached[last]


@dataclass(frozen=True)
class SessionWindowed:
    """A keyed reduction by session.

    Parameters
    ----------
    window : Session
    reduce : Mergeable
        Its `by` ends with `START` and `END`.
    """

    window: Session
    reduce: Mergeable

    def __post_init__(self) -> None:
        taken = sorted({START, END} & {*self.key, *self.reduce.state.names})
        if taken:
            raise NotAllowed(
                f"an aggregation by session emits {START} and {END} itself; rename the column "
                f"{taken[0]!r}"
            )

    @property
    def key(self) -> tuple[str, ...]:
        """Columns of the key, without the session."""
        return self.reduce.by[:-2]

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of the state's key: a key has several sessions, which are numbered."""
        return (*self.key, SIDE, NUMBER)

    @property
    def routed_by(self) -> tuple[str, ...]:
        """Columns by which instances are chosen."""
        return self.key

    @property
    def state(self) -> pa.Schema:
        """Columns of the state besides the key."""
        return self.reduce.state

    @property
    def sides(self) -> int:
        """It reads one stream."""
        return 1

    def latenesses(self, name: str) -> Mapping[str, int]:
        """Lateness of its one stream."""
        return {name: self.window.lateness_us}

    # ---- on the sender

    def arrive(self, batch: pa.RecordBatch, watermark_us: int | None, side: int = 0) -> Arrived:
        """Reduce a batch by session, without what comes too late."""
        times, missing = event_times(batch.column(self.window.column))
        latest = None if missing.all() else int(times[~missing].max())
        over = self._too_late(times, missing, watermark_us)
        late = int(over.sum())
        if late:
            batch, times = batch.filter(pa.array(~over)), times[~over]
        if not len(times):
            return Arrived(None, late, latest)
        kind = batch.schema.field(self.window.column).type
        batch = batch.append_column(START, as_times(times, kind))
        batch = batch.append_column(END, as_times(times + self.window.gap_us, kind))
        parts = self.reduce.partial(batch)
        return Arrived(self.reduce.merged(self._in_sessions(parts)[0]), late, latest)

    def _too_late(self, times: IntArray, missing: BoolArray, watermark_us: int | None) -> BoolArray:
        if watermark_us is None:
            return missing
        return np.asarray(missing | (times + self.window.gap_us <= watermark_us))

    def late_rows(self, batch: pa.RecordBatch, watermark_us: int | None) -> pa.RecordBatch:
        """Rows that `arrive` counts as late."""
        times, missing = event_times(batch.column(self.window.column))
        return batch.filter(pa.array(self._too_late(times, missing, watermark_us)))

    def _in_sessions(self, parts: pa.Table) -> tuple[pa.Table, IntArray]:
        """Give each part the start and end of its session; return the number of that, too."""
        keys = distinct_keys(parts, self.key).of_row
        starts, _ = event_times(parts.column(START))
        ends, _ = event_times(parts.column(END))
        of_row, first, last = merged_sessions(keys, starts, ends)
        for name, times in ((START, first[of_row]), (END, last[of_row])):
            at = parts.column_names.index(name)
            parts = parts.set_column(at, name, as_times(times, parts.schema.field(name).type))
        return parts, of_row

    # ---- on the receiver

    def run(
        self, inputs: Sequence[pa.Table | None], state: StateAccess, watermarks: Watermarks
    ) -> Iterator[pa.Table]:
        """Merge what arrived with the sessions that are open, and close those that are over."""
        if inputs[0] is not None and inputs[0].num_rows:
            self._merge(inputs[0], state)
        if watermarks.now_us > 0:
            limit = watermarks.now_us
            rows = state.where(lambda part: self._over(part, limit), [END])
            if rows is not None:
                stored = RowsByKey(state, self.key, rows)
                stored.remove(rows, stored.of_row)
                stored.write()
                yield self.reduce.finished(rows)

    def _merge(self, parts: pa.Table, state: StateAccess) -> None:
        """Replace the open sessions that something arrived for."""
        stored = RowsByKey(state, self.key, parts)
        known, _ = stored.find(LEFT, stored.of_row)
        count = known.num_rows
        names = [*self.reduce.by, *self.reduce.state.names]
        # What is known comes first: it is older than what arrives.
        together = parts.select(names)
        if count:
            together = pa.concat_tables([known.select(names), together], promote_options="default")
        together, session = self._in_sessions(together)
        touched = np.isin(session, session[count:])
        old = known.filter(pa.array(touched[:count]))
        if old.num_rows:
            stored.remove(old, stored.number(old))
        empty = together.slice(0, 0)
        rows = merge_into(self.reduce, together.filter(pa.array(touched)), empty)
        stored.add(LEFT, rows, stored.number(rows))
        stored.write()

    def _over(self, rows: pa.Table, watermark_us: int) -> BoolArray:
        """Which rows of the state are of sessions that the watermark has passed."""
        if END not in rows.column_names:
            return np.zeros(rows.num_rows, dtype=bool)
        ends, missing = event_times(rows.column(END))
        return np.asarray(~missing & (ends <= watermark_us))
