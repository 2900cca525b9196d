"""A keyed reduction by window: made on the sender, merged on the receiver, closed in time.

Watermarks are those of `penstock.pipeline.keyed.timed`:

1. A row is late for a window that ended at or before the watermark of the *batch before*; of the
   windows of a row, each counts by itself. Windows that close in this batch still take its rows.
2. A window closes when the watermark of the batch has reached its end. What no watermark has
   reached stays open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.arrays import IntArray
from penstock.model import NotAllowed
from penstock.pipeline.keyed.protocols import Arrived, Watermarks
from penstock.pipeline.keyed.reduce import Mergeable, merge_into
from penstock.pipeline.keyed.windows import Window, as_times, event_times

#: Columns that tell windows apart: the first is part of the state's key, both are emitted.
START, END = "window_start", "window_end"


@dataclass(frozen=True)
class Windowed:
    """A keyed reduction by window. The key of the state is the key and the window's start.

    Parameters
    ----------
    window : Window
    reduce : Mergeable
        Its `by` ends with `START`.
    """

    window: Window
    reduce: Mergeable

    def __post_init__(self) -> None:
        taken = sorted({START, END} & {*self.by[:-1], *self.state.names})
        if taken:
            raise NotAllowed(
                f"an aggregation by window emits {START} and {END} itself; rename the column "
                f"{taken[0]!r}"
            )

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of the state's key: the key, and the window's start."""
        return self.reduce.by

    @property
    def routed_by(self) -> tuple[str, ...]:
        """Columns by which instances are chosen: the key alone."""
        return self.by[:-1]

    @property
    def state(self) -> pa.Schema:
        """Columns of the state besides the key."""
        return self.reduce.state

    def latenesses(self, name: str) -> Mapping[str, int]:
        """Lateness of its one stream."""
        return {name: self.window.lateness_us}

    # ---- on the sender

    def partial(self, batch: pa.RecordBatch) -> pa.Table | None:
        """Reduce a batch by window when nothing is late yet."""
        return self.arrive(batch, None).parts

    def arrive(self, batch: pa.RecordBatch, watermark_us: int | None, side: int = 0) -> Arrived:
        """Reduce a batch by window, without what comes too late.

        A row counts as late if it is for any one of its windows, or has no time at all.
        """
        times, missing = event_times(batch.column(self.window.column))
        late = int(missing.sum())
        if late:
            batch, times = batch.filter(pa.array(~missing)), times[~missing]
        if not len(times):
            return Arrived(None, late, None)
        if watermark_us is not None:
            late += int(self._too_late(times, watermark_us).sum())
        kind = batch.schema.field(self.window.column).type
        latest = int(times.max())
        if self.reduce.ordered or self.window.slide_us == self.window.size_us:
            rows, starts = self._open(times, watermark_us)
            if not len(rows):
                return Arrived(None, late, latest)
            spread = batch if len(rows) == len(times) == rows[-1] + 1 else batch.take(rows)
            parts = self.reduce.partial(spread.append_column(START, as_times(starts, kind)))
            return Arrived(parts, late, latest)
        # Reduced by pane first: only what is left is copied for each of its windows.
        panes = times // self.window.pane_us * self.window.pane_us
        made = self.reduce.partial(batch.append_column(START, as_times(panes, kind)))
        rows, starts = self._open(event_times(made.column(START))[0], watermark_us)
        if not len(rows):
            return Arrived(None, late, latest)
        at = made.column_names.index(START)
        copies = made.take(rows).set_column(at, START, as_times(starts, kind))
        return Arrived(self.reduce.merged(copies), late, latest)

    def _open(self, times_us: IntArray, watermark_us: int | None) -> tuple[IntArray, IntArray]:
        """Rows, in their order, and the starts of their windows that are open."""
        rows, starts = self.window.spread(times_us)
        if watermark_us is not None:
            still = starts + self.window.size_us > watermark_us
            rows, starts = rows[still], starts[still]
        if self.window.slide_us == self.window.size_us:
            return rows, starts
        order = np.argsort(rows, kind="stable")
        return rows[order], starts[order]

    def _too_late(self, times_us: IntArray, watermark_us: int) -> npt.NDArray[np.bool_]:
        return np.asarray(self.window.earliest(times_us) + self.window.size_us <= watermark_us)

    def late_rows(self, batch: pa.RecordBatch, watermark_us: int | None) -> pa.RecordBatch:
        """Rows that `arrive` counts as late."""
        times, missing = event_times(batch.column(self.window.column))
        if watermark_us is not None:
            missing = missing | self._too_late(times, watermark_us)
        return batch.filter(pa.array(missing))

    # ---- on the receiver

    def update(self, batch: pa.Table, state: pa.Table) -> tuple[pa.Table | None, pa.Table]:
        """Merge parts into the state of open windows."""
        rows = merge_into(self.reduce, batch, state)
        return self.emitted(rows) if self.window.emit == "changes" else None, rows

    def crossed(self, before_us: int, now_us: int) -> bool:
        """Whether a window may have closed between two watermarks."""
        return self.window.closed(now_us) > self.window.closed(before_us)

    def over(self, rows: pa.Table, watermark_us: int) -> npt.NDArray[np.bool_]:
        """Which rows of the state are of windows that the watermark has passed."""
        starts, _ = event_times(rows.column(START))
        return np.asarray(starts + self.window.size_us <= watermark_us)

    def closing(self, rows: pa.Table, watermarks: Watermarks) -> npt.NDArray[np.bool_]:
        """Which rows of the state are needed to close windows between two watermarks."""
        return self.over(rows, watermarks.now_us)

    def closed(
        self, rows: pa.Table | None, watermarks: Watermarks
    ) -> tuple[pa.Table | None, pa.Table | None]:
        """Close windows between two watermarks; see `close`."""
        return self.close(rows, watermarks.now_us)

    def close(
        self, rows: pa.Table | None, watermark_us: int
    ) -> tuple[pa.Table | None, pa.Table | None]:
        """Close the windows that the watermark has passed, among some rows of the state.

        Returns
        -------
        tuple
            What is emitted, and the keys whose state is to be removed; None for nothing.
        """
        if rows is None or not rows.num_rows:
            return None, None
        done = rows.filter(pa.array(self.over(rows, watermark_us)))
        if not done.num_rows:
            return None, None
        made = self.emitted(done) if self.window.emit == "closed" else None
        return made, done.select(list(self.by))

    def emitted(self, rows: pa.Table) -> pa.Table:
        """Key, start and end of the window, and the results."""
        out = self.reduce.finished(rows)
        starts, _ = event_times(out.column(START))
        end = as_times(starts + self.window.size_us, out.schema.field(START).type)
        return out.add_column(out.column_names.index(START) + 1, END, end)
