"""The first row of each key, for good or for a time, as Spark's ``dropDuplicates``.

1. Rows at or before the watermark of the batch before are late and dropped, where they are sent.
2. Of a key that is not known, the first row of the batch is emitted and the key is kept.
3. With `within`, a key is known until the watermark has passed the time of that row by so much, as
   in ``dropDuplicatesWithinWatermark``. Where the event time is part of the key, the key is known
   until the watermark has reached it. Otherwise it is known for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.common.arrays import BoolArray
from penstock.common.arrow_keys import check_equal, distinct_keys
from penstock.pipeline.keyed.protocols import Arrived, StateAccess, Watermarks
from penstock.pipeline.keyed.reduce import one_batch
from penstock.pipeline.keyed.windows import event_times

#: Column of the state: when a key is no longer known, in microseconds; null for never.
EXPIRES = "__expires_us"

#: Removing keys looks at all of them, so that it is done this many times while the watermark passes
#: through the time that a key is known. A key that is over is taken for unknown before.
SWEEPS = 8


@dataclass(frozen=True)
class Deduplicate:
    """The first row of each key; see `Pipeline.deduplicate`.

    Parameters
    ----------
    by : tuple of str
        Columns of the key.
    time : str, optional
        Column with the event time.
    within_us : int, optional
        How long a key is known.
    lateness_us : int
        How much older than the newest row a row may be.
    """

    by: tuple[str, ...]
    time: str | None = None
    within_us: int | None = None
    lateness_us: int = 0

    @property
    def state(self) -> pa.Schema:
        """When the key is no longer known."""
        return pa.schema([(EXPIRES, pa.int64())])

    @property
    def _expires(self) -> bool:
        return self.within_us is not None or self.time in self.by

    def latenesses(self, name: str) -> Mapping[str, int]:
        """Lateness of its one stream."""
        return {} if self.time is None else {name: self.lateness_us}

    @property
    def sides(self) -> int:
        """It reads one stream."""
        return 1

    def emits(self, *columns: pa.Schema) -> pa.Schema:
        """Rows as they came."""
        return columns[0]

    # ---- on the sender

    def arrive(self, batch: pa.RecordBatch, watermark_us: int | None, side: int = 0) -> Arrived:
        """Leave out late rows, and all but the first of each key."""
        late, latest = 0, None
        if self.time is not None:
            times, timeless = event_times(batch.column(self.time))
            if not timeless.all():
                latest = int(times[~timeless].max())
            if watermark_us is not None:
                over = ~timeless & (times <= watermark_us)
                late = int(over.sum())
                if late:
                    batch = batch.filter(pa.array(~over))
        if not batch.num_rows:
            return Arrived(None, late, latest)
        first = _first(pa.Table.from_batches([batch]), self.by)
        return Arrived(one_batch(first), late, latest)

    # ---- on the receiver

    def run(
        self, inputs: Sequence[pa.Table | None], state: StateAccess, watermarks: Watermarks
    ) -> Iterator[pa.Table]:
        """Emit the rows whose keys are not known, and keep these."""
        rows = inputs[0]
        if rows is not None and rows.num_rows:
            # Sorted by the hash of their keys.
            found = distinct_keys(rows, self.by)
            known, which = state.lookup(found.hashes)
            if known.num_rows:
                check_equal(known, rows.take(pa.array(found.first[which])), self.by)
            new = np.ones(len(found.hashes), dtype=bool)
            new[which[self._still(known, watermarks.before_us)]] = False
            made = rows.take(pa.array(np.sort(found.first[new])))
            state.put(self._kept(made))
            yield made
        if self._expires and self._sweeps(watermarks):
            limit = watermarks.now_us
            over = state.where(lambda part: ~self._still(part, limit), [EXPIRES])
            state.remove(None if over is None else over.select(list(self.by)))

    def _still(self, known: pa.Table, watermark_us: int) -> BoolArray:
        """Which keys are known although the watermark is so far."""
        if EXPIRES not in known.column_names:
            return np.ones(known.num_rows, dtype=bool)
        expires = known.column(EXPIRES)
        later = np.asarray(expires.fill_null(0)) > watermark_us
        return np.asarray(later | np.asarray(expires.is_null()))

    def _kept(self, rows: pa.Table) -> pa.Table:
        kept = rows.select(list(self.by))
        if not self._expires or self.time is None:
            return kept.append_column(EXPIRES, pa.nulls(rows.num_rows, pa.int64()))
        # A row without a time counts as one of 1970, as in Spark.
        times, timeless = event_times(rows.column(self.time))
        expires = np.where(timeless, 0, times) + (self.within_us or 0)
        never = timeless if self.within_us is None else None
        return kept.append_column(EXPIRES, pa.array(expires, pa.int64(), mask=never))

    def _sweeps(self, watermarks: Watermarks) -> bool:
        every = max((self.within_us or self.lateness_us) // SWEEPS, 1000)
        return watermarks.now_us // every > watermarks.before_us // every


def _first(rows: pa.Table, by: tuple[str, ...]) -> pa.Table:
    """First row of each key, in the order of the rows."""
    found = distinct_keys(rows, by)
    if len(found.first) == rows.num_rows:
        return rows
    return rows.take(pa.array(np.sort(found.first)))
