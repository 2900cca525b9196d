"""From batches to the points of the plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.store.derived import intervals_s
from penstock.store.histogram import Histogram
from penstock.store.records import BatchRecord
from penstock.store.totals import Totals

#: A plot has at most so many points; a longer run puts several batches into one.
MOST_POINTS = 240


@dataclass(frozen=True)
class Point:
    """One or several batches in a row.

    Parameters
    ----------
    first, last : int
        Numbers of the batches.
    start_s, end_s : float
        Start of the first and end of the last batch, since the origin of the plot.
    offered_per_s : float or None
        Rows that arrived: taken, turned away, or left in the queue.
    taken_per_s, written_per_s : float or None
        Rows taken from the sources and written to the sinks.
    queue_length, nodes_used : int
        Of the last batch, and the most of any.
    remote_share : float or None
        Part of the shuffle bytes that crossed nodes.
    lin : float or None
    lit : mapping of str to float
        The largest of any of the batches.
    latency : Histogram
    """

    first: int
    last: int
    start_s: float
    end_s: float
    offered_per_s: float | None
    taken_per_s: float | None
    written_per_s: float | None
    queue_length: int
    nodes_used: int
    remote_share: float | None
    lin: float | None
    lit: Mapping[str, float]
    latency: Histogram


def points_of(
    batches: Sequence[BatchRecord], origin_s: float, most: int = MOST_POINTS
) -> tuple[Point, ...]:
    """Put batches into at most `most` points, equally many in each."""
    spans = intervals_s(batches)
    size = max(1, math.ceil(len(batches) / most))
    found: list[Point] = []
    waiting = 0
    for at in range(0, len(batches), size):
        group = batches[at : at + size]
        span_s = math.fsum(spans[at : at + size])
        totals = Totals.of(group)
        queued = group[-1].queue_length - waiting
        waiting = group[-1].queue_length
        lins = [b.lin for b in group if b.lin is not None]
        lits: dict[str, float] = {}
        for batch in group:
            for name, value in batch.lit.items():
                lits[name] = max(value, lits.get(name, 0.0))
        found.append(
            Point(
                first=group[0].batch,
                last=group[-1].batch,
                start_s=group[0].started_at_s - origin_s,
                end_s=group[-1].ended_at_s - origin_s,
                offered_per_s=_rate(totals.rows_in + totals.dropped + queued, span_s),
                taken_per_s=_rate(totals.rows_in, span_s),
                written_per_s=_rate(totals.rows_out, span_s),
                queue_length=group[-1].queue_length,
                nodes_used=totals.nodes_used,
                remote_share=totals.remote_share,
                lin=max(lins, default=None),
                lit=lits,
                latency=totals.latency,
            )
        )
    return tuple(found)


def _rate(rows: float, span_s: float) -> float | None:
    return max(0.0, rows / span_s) if span_s > 0 else None
