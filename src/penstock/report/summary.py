"""The figures of a run as one JSON object: what `penstock run --json` prints."""

from __future__ import annotations

from typing import TypedDict

from penstock.store.histogram import Histogram
from penstock.store.records import STATE, RunRecords
from penstock.store.totals import Totals


class Latency(TypedDict):
    """Percentiles from the stamp at the source to the commit, in ms."""

    p50: float
    p95: float
    p99: float
    max: float


class Summary(TypedDict):
    """What a run did; None where nothing was measured.

    ``rows_lost`` and ``rows_duplicated`` are what the comparison of input and output found, rows
    that a full queue turned away are ``rows_dropped``. ``throughput`` is rows taken from the
    sources per second, from the start of the first to the end of the last batch, ``seconds``.
    ``placement_honoured`` is the part of the tasks that ran on their planned executor,
    ``nodes_used`` the most nodes that one batch used, ``decisions`` their number, ``state`` what
    losses the state survived at the end.
    """

    run: str
    topology: str
    strategy: str
    status: str
    seconds: float | None
    batches: int
    rows_in: int
    rows_out: int
    rows_lost: int | None
    rows_duplicated: int | None
    rows_dropped: int
    throughput: float | None
    latency_ms: Latency | None
    placement_honoured: float | None
    local_bytes: int
    host_local_bytes: int
    remote_bytes: int
    nodes_used: int
    decisions: int
    state: str | None


def summarise(records: RunRecords, totals: Totals | None = None) -> Summary:
    """Sum up a run.

    Parameters
    ----------
    records : RunRecords
    totals : Totals or None
        Of all its batches; None adds them up from `records`.

    Examples
    --------
    >>> from penstock.store.records import BatchRecord, RunRecord
    >>> batch = BatchRecord("r", 0, 10.0, 2000.0, rows_in=500)
    >>> summarise(RunRecords(RunRecord("r", "wordcount", "even", 10.0), (batch,)))["throughput"]
    250.0
    """
    run = records.run
    totals = Totals.of(records.batches) if totals is None else totals
    return Summary(
        run=run.id,
        topology=run.topology,
        strategy=run.strategy,
        status=run.status.value,
        seconds=totals.seconds,
        batches=totals.batches,
        rows_in=totals.rows_in,
        rows_out=totals.rows_out,
        rows_lost=run.rows_lost,
        rows_duplicated=run.rows_duplicated,
        rows_dropped=totals.dropped,
        throughput=totals.rows_in / totals.seconds if totals.seconds else None,
        latency_ms=latency_of(totals.latency),
        placement_honoured=totals.placement_honoured,
        local_bytes=totals.local_bytes,
        host_local_bytes=totals.host_local_bytes,
        remote_bytes=totals.remote_bytes,
        nodes_used=totals.nodes_used,
        decisions=len(records.decisions),
        state=next((e.text for e in reversed(records.events) if e.kind == STATE), None),
    )


def latency_of(histogram: Histogram) -> Latency | None:
    """Percentiles of a histogram; None when nothing was counted."""
    p50, p95, p99 = (histogram.percentile(p) for p in (50, 95, 99))
    if p50 is None or p95 is None or p99 is None or histogram.max_ms is None:
        return None
    return Latency(p50=p50, p95=p95, p99=p99, max=histogram.max_ms)
