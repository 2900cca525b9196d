"""The state of runs as Prometheus text, written by Prometheus' own client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from penstock.store.histogram import BOUNDS_MS, PER_DECADE, Histogram
from penstock.store.records import BatchRecord, InstanceRecord, RunRecord, RunRecords
from penstock.store.totals import Totals

#: Content type of an HTTP answer that holds the text.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: Bounds that are shown: four in each factor of ten, the rest of the histogram is added to them.
SHOWN = tuple(range(0, len(BOUNDS_MS), PER_DECADE // 4))

#: Labels of every metric.
OF_RUN = ("run", "topology", "strategy")


@dataclass(frozen=True)
class RunState:
    """What is shown of a run.

    Parameters
    ----------
    run : RunRecord
    totals : Totals
        Of the whole run.
    latest : BatchRecord or None
    instances : tuple of InstanceRecord
        Those of the latest batch.
    decisions : int
    """

    run: RunRecord
    totals: Totals
    latest: BatchRecord | None = None
    instances: tuple[InstanceRecord, ...] = ()
    decisions: int = 0

    @classmethod
    def of(cls, records: RunRecords) -> RunState:
        """Take the latest state from stored records."""
        latest = records.batches[-1] if records.batches else None
        return cls(
            run=records.run,
            totals=Totals.of(records.batches),
            latest=latest,
            instances=tuple(i for i in records.instances if latest and i.batch == latest.batch),
            decisions=len(records.decisions),
        )


def render(states: Sequence[RunState]) -> str:
    """Write the state of runs as Prometheus text.

    Totals are counters, the latest batch is gauges, the latency of the whole run is a histogram.
    Every line carries the labels ``run``, ``topology`` and ``strategy``.

    Examples
    --------
    >>> run = RunRecord("r1", "wordcount", "penstock", started_at_s=0.0)
    >>> print(render([RunState(run, Totals(rows_in=5))]).splitlines()[-1])
    penstock_latency_seconds_sum{run="r1",strategy="penstock",topology="wordcount"} 0.0
    """
    registry = CollectorRegistry()
    registry.register(_Collected(states))
    return generate_latest(registry).decode()


class _Collected(Collector):
    """Gives a registry the metrics that have samples."""

    def __init__(self, states: Sequence[RunState]) -> None:
        self._states = states

    def collect(self) -> Iterator[Metric]:
        states = self._states
        families = [*_info(states), *_counters(states), *_latest(states), *_instances(states)]
        for family in (*families, _latency(states)):
            if family.samples:
                yield family


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=[*OF_RUN, *labels])


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, labels=[*OF_RUN, *labels])


def _add(family: GaugeMetricFamily, labels: list[str], value: float | None) -> None:
    """Add a sample; what was not measured has none."""
    if value is not None:
        family.add_metric(labels, value)


def _of(run: RunRecord) -> list[str]:
    return [run.id, run.topology, run.strategy]


def _info(states: Sequence[RunState]) -> Iterable[Metric]:
    info = _gauge("penstock_run_info", "1 for every known run, with its status.", "status")
    for state in states:
        info.add_metric([*_of(state.run), state.run.status.value], 1)
    return [info]


def _counters(states: Sequence[RunState]) -> Iterable[Metric]:
    simple = (
        ("batches", "Micro-batches committed.", "batches"),
        ("rows_in", "Rows taken from the sources.", "rows_in"),
        ("rows_out", "Rows written to the sinks.", "rows_out"),
        ("rows_dropped", "Rows that a full queue turned away.", "dropped"),
        ("tasks", "Tasks that had a planned executor.", "tasks"),
        ("tasks_honoured", "Tasks that ran on their planned executor.", "tasks_honoured"),
    )
    families = []
    for name, text, attribute in simple:
        family = _counter(f"penstock_{name}", text)
        for state in states:
            family.add_metric(_of(state.run), getattr(state.totals, attribute))
        families.append(family)
    decisions = _counter("penstock_decisions", "Decisions of the control loop.")
    shuffled = _counter("penstock_shuffle_bytes", "Shuffle bytes read, by tier.", "tier")
    for state in states:
        decisions.add_metric(_of(state.run), state.decisions)
        for tier in ("local", "host_local", "remote"):
            bytes_read = getattr(state.totals, f"{tier}_bytes")
            shuffled.add_metric([*_of(state.run), tier], bytes_read)
    return [*families, decisions, shuffled]


def _latest(states: Sequence[RunState]) -> Iterable[Metric]:
    number = _gauge("penstock_batch_number", "Number of the latest batch.")
    started = _gauge("penstock_batch_start_time_seconds", "Start of the latest batch.")
    took = _gauge("penstock_batch_duration_seconds", "Duration of the latest batch.")
    queue = _gauge("penstock_queue_length", "Rows waiting at the sources.")
    nodes = _gauge("penstock_nodes_used", "Nodes that ran an instance.")
    lin = _gauge("penstock_lin", "Imbalance of the load over the nodes in use.")
    lit = _gauge("penstock_lit", "Imbalance over the instances of a stateful operator.", "operator")
    for state in states:
        if state.latest is None:
            continue
        labels, latest = _of(state.run), state.latest
        _add(number, labels, latest.batch)
        _add(started, labels, latest.started_at_s)
        _add(took, labels, latest.duration_ms / 1000.0)
        _add(queue, labels, latest.queue_length)
        _add(nodes, labels, latest.nodes_used)
        _add(lin, labels, latest.lin)
        for operator, value in latest.lit.items():
            _add(lit, [*labels, operator], value)
    return [number, started, took, queue, nodes, lin, lit]


def _instances(states: Sequence[RunState]) -> Iterable[Metric]:
    labels = ("operator", "instance", "node", "executor")
    what = "of an instance in the latest batch."
    tuples_in = _gauge("penstock_instance_tuples_in", f"Tuples in {what}", *labels)
    tuples_out = _gauge("penstock_instance_tuples_out", f"Tuples out {what}", *labels)
    cpu = _gauge("penstock_instance_cpu_seconds", f"CPU time {what}", *labels)
    memory = _gauge("penstock_instance_memory_bytes", f"Memory {what}", *labels)
    for state in states:
        for i in state.instances:
            values = [*_of(state.run), i.operator, str(i.index), i.node, i.executor]
            _add(tuples_in, values, i.tuples_in)
            _add(tuples_out, values, i.tuples_out)
            _add(cpu, values, None if i.cpu_ms is None else i.cpu_ms / 1000.0)
            _add(memory, values, i.mem_bytes)
    return [tuples_in, tuples_out, cpu, memory]


def _latency(states: Sequence[RunState]) -> Metric:
    text = "From the stamp at the source to the commit, over the whole run."
    family = HistogramMetricFamily("penstock_latency_seconds", text, labels=OF_RUN)
    for state in states:
        latency = state.totals.latency
        family.add_metric(_of(state.run), _buckets(latency), latency.sum_ms / 1000.0)
    return family


def _buckets(latency: Histogram) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound, in seconds."""
    shown = [(f"{BOUNDS_MS[b] / 1000.0:.6g}", float(latency.at_most(b))) for b in SHOWN]
    return [*shown, ("+Inf", float(latency.count))]
