"""From batches to the points of the plots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.store.derived import intervals_s
from penstock.store.histogram import Histogram
from penstock.store.records import BatchRecord, InstanceRecord
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


@dataclass(frozen=True)
class Strip:
    """Load of one instance over time: cores (or share of the time) in each stretch of it."""

    operator: str
    index: int
    cells: tuple[tuple[float, float, float], ...] = field(default=())


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


def strips_of(
    points: Sequence[Point],
    instances: Iterable[InstanceRecord],
    load_ms: Callable[[InstanceRecord], float | None],
) -> tuple[Strip, ...]:
    """Load of each instance at each point, operators in the order in which they come.

    Parameters
    ----------
    points : sequence of Point
    instances : iterable of InstanceRecord
    load_ms : callable
        The load of one instance in one batch; None leaves a gap.
    """
    at = {b: i for i, p in enumerate(points) for b in range(p.first, p.last + 1)}
    sums: dict[tuple[str, int], dict[int, float]] = {}
    for instance in instances:
        own = sums.setdefault((instance.operator, instance.index), {})
        value, point = load_ms(instance), at.get(instance.batch)
        if value is not None and point is not None:
            own[point] = own.get(point, 0.0) + value
    ends = [p.start_s for p in points[1:]] + [p.end_s for p in points[-1:]]
    order = {name: i for i, name in enumerate(dict.fromkeys(op for op, _ in sums))}
    strips: list[Strip] = []
    for (name, index), values in sorted(sums.items(), key=lambda kv: (order[kv[0][0]], kv[0][1])):
        cells = []
        for i, load in sorted(values.items()):
            start_s, end_s = points[i].start_s, ends[i]
            if end_s > start_s:
                cells.append((start_s, end_s, load / 1000.0 / (end_s - start_s)))
        strips.append(Strip(name, index, tuple(cells)))
    return tuple(strips)


def _rate(rows: float, span_s: float) -> float | None:
    return max(0.0, rows / span_s) if span_s > 0 else None
