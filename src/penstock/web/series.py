"""A run over time, as columns: one row for each stretch of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from penstock.report.summary import latency_of
from penstock.store.derived import intervals_s
from penstock.store.records import BatchRecord
from penstock.store.totals import Totals

#: Rows that a page gets of a run, if it does not say how many.
MOST_POINTS = 600

#: How figures that are phases of a batch are named.
PHASE, MS = "phase_", "_ms"

#: Spark's name of all phases together, which is none of them.
WHOLE = "phase_triggerExecution_ms"

#: Figure of a batch: rows that came too late for a window.
LATE = "late_rows"

Columns = dict[str, Any]


def series_of(
    batches: Sequence[BatchRecord],
    origin_s: float,
    most: int = MOST_POINTS,
    before: BatchRecord | None = None,
) -> Columns:
    """Put batches into at most `most` rows, each of an equally long time.

    Parameters
    ----------
    batches : sequence of BatchRecord
    origin_s : float
        What times count from.
    most : int
    before : BatchRecord or None
        The batch before the first, where there is one.

    Returns
    -------
    dict
        Columns of equal length; None where nothing was measured. ``lit`` and ``phases`` have one
        column for each operator and each phase.

    Examples
    --------
    >>> made = [BatchRecord("r", n, 10.0 + n, 200.0, rows_in=50) for n in range(4)]
    >>> found = series_of(made, 10.0, most=2)
    >>> found["batch"], found["processed_per_s"][1]
    ([1, 3], 50.0)
    """
    groups = _grouped(batches, most)
    spans = intervals_s(batches, before)
    waiting = before.queue_length if before else 0
    columns: Columns = {"lit": {}, "phases": {}}
    operators = sorted({name for b in batches for name in b.lit})
    named = dict.fromkeys(n for b in batches for n in b.figures if n.startswith(PHASE))
    phases = [name for name in named if name != WHOLE]
    at = 0
    for group in groups:
        span_s = sum(spans[at : at + len(group)])
        at += len(group)
        for name, value in _row(group, span_s, origin_s, waiting).items():
            columns.setdefault(name, []).append(value)
        for operator in operators:
            values = [b.lit[operator] for b in group if operator in b.lit]
            columns["lit"].setdefault(operator, []).append(max(values, default=None))
        for phase in phases:
            columns["phases"].setdefault(phase[len(PHASE) : -len(MS)], []).append(
                _per_batch(group, phase)
            )
        waiting = group[-1].queue_length
    return columns


def _grouped(batches: Sequence[BatchRecord], most: int) -> list[Sequence[BatchRecord]]:
    if len(batches) <= most:
        return [[one] for one in batches]
    first, last = batches[0].ended_at_s, batches[-1].ended_at_s
    width = max((last - first) / most, 1e-9)
    groups: list[list[BatchRecord]] = []
    number = -1
    for one in batches:
        place = min(most - 1, int((one.ended_at_s - first) / width))
        if place != number:
            groups.append([])
            number = place
        groups[-1].append(one)
    return list(groups)


def _row(
    group: Sequence[BatchRecord], span_s: float, origin_s: float, waiting: int
) -> dict[str, Any]:
    totals, last = Totals.of(group), group[-1]
    latency = latency_of(totals.latency)
    arrived = totals.rows_in + totals.dropped + last.queue_length - waiting

    def per_s(rows: float) -> float | None:
        return round(max(0.0, rows / span_s), 3) if span_s > 0 else None

    lins = [b.lin for b in group if b.lin is not None]
    return {
        "t": round(last.ended_at_s - origin_s, 3),
        "batch": last.batch,
        "offered_per_s": per_s(arrived),
        "processed_per_s": per_s(totals.rows_in),
        "written_per_s": per_s(totals.rows_out),
        "late_per_s": per_s(sum(b.figures.get(LATE, 0.0) for b in group)),
        "dropped_per_s": per_s(totals.dropped),
        "p50_ms": _rounded(latency["p50"] if latency else None),
        "p95_ms": _rounded(latency["p95"] if latency else None),
        "p99_ms": _rounded(latency["p99"] if latency else None),
        "queue": last.queue_length,
        "nodes": totals.nodes_used,
        "batch_ms": _rounded(_mean(group, lambda b: b.duration_ms)),
        "remote_share": _rounded(totals.remote_share),
        "lin": _rounded(max(lins, default=None)),
    }


def _mean(group: Sequence[BatchRecord], value: Callable[[BatchRecord], float]) -> float:
    return fmean(value(b) for b in group)


def _per_batch(group: Sequence[BatchRecord], figure: str) -> float | None:
    """Mean of a figure over batches; rolled-up ones hold the sum of theirs."""
    known = [b for b in group if figure in b.figures]
    if not known:
        return None
    return _rounded(sum(b.figures[figure] for b in known) / sum(b.stands_for for b in known))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
