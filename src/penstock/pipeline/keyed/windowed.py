"""A keyed reduction by window: made on the sender, merged on the receiver, closed in time.

Watermarks are those of Spark:

1. The watermark of a step in a batch is the largest event time in the batches before it, less the
   lateness that is allowed. It starts at 1970 and never goes back. It is an input of the batch, so
   that a batch that is repeated drops and closes the same.
2. A row is late for a window that ended at or before the watermark of the *batch before*; of the
   windows of a row, each counts by itself. Windows that close in this batch still take its rows.
3. A window closes when the watermark of the batch has reached its end.
4. When a batch moved the watermark and there is no more data, also at the end of a source, a batch
   without data closes windows. What no watermark has reached stays open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.arrays import IntArray
from penstock.model import NotAllowed
from penstock.pipeline.keyed.reduce import Mergeable, merge_into
from penstock.pipeline.keyed.windows import Window, as_times, event_times
from penstock.pipeline.steps import Step

#: Columns that tell windows apart: the first is part of the state's key, both are emitted.
START, END = "window_start", "window_end"


class Arrived(NamedTuple):
    """Parts made of a batch, rows that were too late, and the largest event time."""

    parts: pa.Table | None
    late: int
    latest_us: int | None


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

    # ---- on the sender

    def partial(self, batch: pa.RecordBatch) -> pa.Table | None:
        """Reduce a batch by window when nothing is late yet."""
        return self.arrive(batch, None).parts

    def arrive(self, batch: pa.RecordBatch, watermark_us: int | None) -> Arrived:
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

    def advanced(self, watermark_us: int, seen_us: Iterable[int]) -> int:
        """Watermark after a batch with these event times; it never goes back."""
        return max([watermark_us, *(time - self.window.lateness_us for time in seen_us)])


def advanced_watermarks(
    steps: Iterable[Step],
    watermarks: Mapping[str, int],
    seen: Iterable[Mapping[str, int]],
) -> dict[str, int]:
    """Watermarks of all steps with windows after a batch.

    Parameters
    ----------
    steps : iterable of Step
        All steps of the pipeline.
    watermarks : mapping of str to int
        Those that the batch ran with.
    seen : iterable of mapping of str to int
        Largest event time of each step, as every task saw it.
    """
    times = list(seen)
    return {
        step.name: step.keyed.advanced(
            watermarks.get(step.name, 0), [t[step.name] for t in times if step.name in t]
        )
        for step in steps
        if isinstance(step.keyed, Windowed)
    }


def routed_by(keyed: Any) -> tuple[str, ...]:
    """Columns by which the rows of a keyed step find their instance."""
    found: tuple[str, ...] = getattr(keyed, "routed_by", keyed.by)
    return found
