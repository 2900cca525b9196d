"""Sliding windows that are kept in panes, and put together when they close.

A pane is the longest time that no window cuts in two. A row is reduced into its one pane, where it
is sent from and where it is kept, instead of into each window that holds it: for windows of ten
seconds every two, that is a fifth of the rows to send, merge and store. When a window closes, its
panes are merged. This needs results that do not depend on the order of arrival, and windows that
are emitted once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.common.arrays import BoolArray, IntArray
from penstock.pipeline.keyed.protocols import Arrived, Watermarks
from penstock.pipeline.keyed.windowed import START, Windowed
from penstock.pipeline.keyed.windows import Window, as_times, event_times


def in_panes(window: Window, ordered: bool) -> bool:
    """Whether windows can be kept in panes: they overlap, and are emitted once, in any order."""
    return window.slide_us < window.size_us and window.emit == "closed" and not ordered


class PanedWindows(Windowed):
    """Sliding windows in panes. The key of the state is the key and the pane's start."""

    def _last_end(self, times_us: IntArray) -> IntArray:
        """End of the last window that holds each time."""
        slide = self.window.slide_us
        return np.asarray(times_us // slide * slide + self.window.size_us)

    # ---- on the sender

    def arrive(self, batch: pa.RecordBatch, watermark_us: int | None, side: int = 0) -> Arrived:
        """Reduce a batch by pane, without what comes too late for all windows of its pane."""
        times, missing = event_times(batch.column(self.window.column))
        late = int(missing.sum())
        if late:
            batch, times = batch.filter(pa.array(~missing)), times[~missing]
        if not len(times):
            return Arrived(None, late, None)
        latest = int(times.max())
        if watermark_us is not None:
            late += int(self._too_late(times, watermark_us).sum())
            kept = self._last_end(times) > watermark_us
            if not kept.all():
                batch, times = batch.filter(pa.array(kept)), times[kept]
        if not len(times):
            return Arrived(None, late, latest)
        kind = batch.schema.field(self.window.column).type
        panes = times // self.window.pane_us * self.window.pane_us
        parts = self.reduce.partial(batch.append_column(START, as_times(panes, kind)))
        return Arrived(parts, late, latest)

    # ---- on the receiver

    def closing(self, rows: pa.Table, watermarks: Watermarks) -> BoolArray:
        """Which panes are part of a window that closes between two watermarks."""
        panes, _ = event_times(rows.column(START))
        window = self.window
        # The last window of a pane that has closed.
        ended = (watermarks.now_us - window.size_us) // window.slide_us * window.slide_us
        last = np.minimum(panes // window.slide_us * window.slide_us, ended)
        return np.asarray(
            (last >= window.earliest(panes)) & (last + window.size_us > watermarks.before_us)
        )

    def closed(
        self, rows: pa.Table | None, watermarks: Watermarks
    ) -> tuple[pa.Table | None, pa.Table | None]:
        """Put the windows together that close, and say which panes are not needed any more."""
        if rows is None or not rows.num_rows:
            return None, None
        panes, _ = event_times(rows.column(START))
        copies, starts = self.window.spread(panes)
        ends = starts + self.window.size_us
        now = (ends > watermarks.before_us) & (ends <= watermarks.now_us)
        copies, starts = copies[now], starts[now]
        emitted = None
        if len(copies):
            at, kind = rows.column_names.index(START), rows.schema.field(START).type
            parts = rows.take(pa.array(copies)).set_column(at, START, as_times(starts, kind))
            emitted = self.emitted(self.reduce.merged(parts))
        gone = rows.filter(pa.array(self._last_end(panes) <= watermarks.now_us))
        return emitted, gone.select(list(self.by)) if gone.num_rows else None
