"""One strategy's run among several on the same input, measured or simulated: figures and series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from penstock.model import PenstockError, diff
from penstock.report.series import points_of
from penstock.report.text import UNKNOWN, milliseconds, number, share, whole
from penstock.store.derived import intervals_s
from penstock.store.records import BatchRecord, RunRecords
from penstock.store.totals import Totals


@dataclass(frozen=True)
class Instant:
    """What a run did in one stretch of time; None where nothing was measured.

    Parameters
    ----------
    at_s : float
        Since the start.
    arriving_per_s, throughput_per_s : float or None
        Source tuples that came, and that were taken.
    p50_ms, p95_ms, p99_ms : float or None
    nodes : int
        Nodes that held instances.
    remote_share, lin, lit : float or None
        The LIT of the worst operator.
    waiting : float
        Tuples that waited at its end.
    """

    at_s: float
    arriving_per_s: float | None
    throughput_per_s: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    nodes: float
    remote_share: float | None
    lin: float | None
    lit: float | None
    waiting: float


@dataclass(frozen=True)
class DecisionNote:
    """A decision: when, and what."""

    at_s: float
    text: str


@dataclass(frozen=True)
class Entry:
    """One strategy in a comparison; None where nothing was measured.

    Parameters
    ----------
    strategy : str
    failure : str
        Why there is nothing, or not all of it; empty for a run that came to its end.
    seconds : float or None
        From the first to the last batch.
    throughput_per_s : float or None
        Source tuples that were taken.
    p50_ms, p95_ms, p99_ms : float or None
    nodes, most_nodes : float or None
        On average, and at the most.
    node_seconds : float or None
        Nodes that held instances, over time.
    remote_share : float or None
        Part of what was sent that crossed nodes: bytes on Spark, tuples in a simulation.
    lit, lin : float or None
        Imbalance of the worst operator's instances, and of the nodes in use, on average.
    moves : int or None
        Instances that moved, came or went.
    silent_s : float or None
        The longest time without output.
    decisions, rows_lost, rows_duplicated : int or None
    series : tuple of Instant
    told : tuple of DecisionNote
        The decisions in words.
    """

    strategy: str
    failure: str = ""
    seconds: float | None = None
    throughput_per_s: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    nodes: float | None = None
    most_nodes: int | None = None
    node_seconds: float | None = None
    remote_share: float | None = None
    lit: float | None = None
    lin: float | None = None
    moves: int | None = None
    silent_s: float | None = None
    decisions: int | None = None
    rows_lost: int | None = None
    rows_duplicated: int | None = None
    series: tuple[Instant, ...] = ()
    told: tuple[DecisionNote, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether it came to its end, and no row was lost or doubled."""
        return not (self.failure or self.rows_lost or self.rows_duplicated)

    def to_dict(self) -> dict[str, Any]:
        """Figures as plain values for JSON."""
        figures = {f.name: f.value(self) for f in FIGURES}
        told = [{"at_s": t.at_s, "text": t.text} for t in self.told]
        head = {"strategy": self.strategy, "failure": self.failure or None}
        return {**head, "seconds": self.seconds, **figures, "told": told}


@dataclass(frozen=True)
class ComparisonRow:
    """A row of the table.

    Parameters
    ----------
    name : str
        Of the field of `Entry`.
    label : str
    show : callable
        Writes a value.
    better : int
        1 where more is better, -1 where less is, 0 where that depends.
    """

    name: str
    label: str
    show: Callable[[Any], str]
    better: int = -1

    def value(self, entry: Entry) -> Any:
        """Value of an entry; None when not measured."""
        return getattr(entry, self.name)

    def best(self, entries: Sequence[Entry]) -> frozenset[str]:
        """Strategies that have the best value as it is written, unless all do."""
        known = [e for e in entries if self.value(e) is not None and not e.failure]
        if not self.better or len(known) < 2:
            return frozenset()
        top = self.show(max((self.value(e) for e in known), key=lambda v: v * self.better))
        found = frozenset(e.strategy for e in known if self.show(self.value(e)) == top)
        return found if len(found) < len(known) else frozenset()


def _seconds(value: float | None) -> str:
    return UNKNOWN if value is None else f"{number(value)} s"


#: The table, from top to bottom.
FIGURES = (
    ComparisonRow("throughput_per_s", "throughput /s", number, 1),
    ComparisonRow("p50_ms", "latency p50", milliseconds),
    ComparisonRow("p95_ms", "latency p95", milliseconds),
    ComparisonRow("p99_ms", "latency p99", milliseconds),
    ComparisonRow("nodes", "nodes", number),
    ComparisonRow("most_nodes", "most nodes", whole),
    ComparisonRow("node_seconds", "node-seconds", number),
    ComparisonRow("remote_share", "across nodes", share),
    ComparisonRow("lit", "LIT", number),
    ComparisonRow("lin", "LIN", number),
    ComparisonRow("moves", "moves", whole, 0),
    ComparisonRow("silent_s", "longest without output", _seconds),
    ComparisonRow("decisions", "decisions", whole, 0),
    ComparisonRow("rows_lost", "rows lost", whole),
    ComparisonRow("rows_duplicated", "rows duplicated", whole),
)


def entry_of(records: RunRecords) -> Entry:
    """Make an entry of a run on Spark.

    Raises
    ------
    PenstockError
        When no batch was committed.
    """
    run, batches = records.run, records.batches
    if not batches:
        raise PenstockError(f"run {run.id} of {run.strategy} committed no batch")
    totals, spans = Totals.of(batches), intervals_s(batches)
    seconds = totals.seconds or 0.0
    origin_s = batches[0].started_at_s
    node_seconds = sum(b.nodes_used * span for b, span in zip(batches, spans, strict=True))
    plans = [record.plan for record in records.plans]
    p50, p95, p99 = (totals.latency.percentile(p) for p in (50, 95, 99))
    return Entry(
        run.strategy,
        seconds=seconds,
        throughput_per_s=totals.rows_in / seconds if seconds else None,
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        nodes=node_seconds / sum(spans) if sum(spans) else None,
        most_nodes=totals.nodes_used,
        node_seconds=node_seconds,
        remote_share=totals.remote_share,
        lit=_mean([max(b.lit.values()) for b in batches if b.lit]),
        lin=_mean([b.lin for b in batches if b.lin is not None]),
        moves=sum(len(diff(one, other).moves) for one, other in pairwise(plans)),
        silent_s=_longest_gap(batches),
        decisions=len(records.decisions),
        rows_lost=run.rows_lost,
        rows_duplicated=run.rows_duplicated,
        series=_series(batches, origin_s),
        told=tuple(DecisionNote(e.at_s - origin_s, e.text) for e in records.decisions),
    )


def rows(entries: Sequence[Entry]) -> list[list[str]]:
    """Cells of the table, a row for each figure, without a heading."""
    return [[f.label, *(f.show(f.value(entry)) for entry in entries)] for f in FIGURES]


def _series(batches: Sequence[BatchRecord], origin_s: float) -> tuple[Instant, ...]:
    found = []
    for point in points_of(batches, origin_s):
        p50, p95, p99 = (point.latency.percentile(p) for p in (50, 95, 99))
        found.append(
            Instant(
                point.start_s,
                point.offered_per_s,
                point.taken_per_s,
                p50,
                p95,
                p99,
                point.nodes_used,
                point.remote_share,
                point.lin,
                max(point.lit.values(), default=None),
                point.queue_length,
            )
        )
    return tuple(found)


def _longest_gap(batches: Sequence[BatchRecord]) -> float:
    """Longest time from one commit with output to the next, or from the start to the first."""
    ends = [batches[0].started_at_s, *(b.ended_at_s for b in batches if b.rows_out)]
    ends.append(batches[-1].ended_at_s)
    return max(later - sooner for sooner, later in pairwise(ends))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
