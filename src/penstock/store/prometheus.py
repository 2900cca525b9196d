"""The state of runs as Prometheus text, version 0.0.4 of the exposition format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.store.histogram import BOUNDS_MS, PER_DECADE, Histogram
from penstock.store.records import BatchRecord, InstanceRecord, RunRecord, RunRecords
from penstock.store.totals import Totals

#: Content type of an HTTP answer that holds the text.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: Bounds that are shown: four in each factor of ten, the rest of the histogram is added to them.
SHOWN = tuple(range(0, len(BOUNDS_MS), PER_DECADE // 4))

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RunState:
    """What is shown of a run.

    Parameters
    ----------
    run : RunRecord
    totals : Totals
        Of the whole run; a running one adds each batch to them instead of reading all again.
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


@dataclass
class _Family:
    """One metric: its name, type, help and lines."""

    name: str
    kind: str
    text: str
    lines: list[str] = field(default_factory=list)

    def add(self, labels: Labels, value: float | None, suffix: str = "") -> None:
        """Add a sample; what was not measured has none."""
        if value is not None:
            self.lines.append(f"{self.name}{suffix}{_labels(labels)} {_number(value)}")

    def add_histogram(self, labels: Labels, histogram: Histogram) -> None:
        """Add the cumulative buckets, sum and count of a histogram in ms, in seconds."""
        for bound in SHOWN:
            le = f"{float(BOUNDS_MS[bound]) / 1000.0:.6g}"
            self.add((*labels, ("le", le)), histogram.at_most(bound), "_bucket")
        self.add((*labels, ("le", "+Inf")), histogram.count, "_bucket")
        self.add(labels, histogram.sum_ms / 1000.0, "_sum")
        self.add(labels, histogram.count, "_count")


def render(states: Sequence[RunState]) -> str:
    """Write the state of runs as Prometheus text.

    Totals are counters, the latest batch is gauges, the latency of the whole run is a histogram.
    Every line carries the labels ``run``, ``topology`` and ``strategy``.

    Examples
    --------
    >>> run = RunRecord("r1", "wordcount", "penstock", started_at_s=0.0)
    >>> print(render([RunState(run, Totals(rows_in=5))]).splitlines()[-1])
    penstock_latency_seconds_count{run="r1",topology="wordcount",strategy="penstock"} 0
    """
    families = [*_info(states), *_counters(states), *_latest(states), *_instances(states)]
    families.append(_latency(states))
    return "".join(
        f"# HELP {f.name} {_help(f.text)}\n# TYPE {f.name} {f.kind}\n" + "\n".join(f.lines) + "\n"
        for f in families
        if f.lines
    )


def _of(run: RunRecord) -> Labels:
    return (("run", run.id), ("topology", run.topology), ("strategy", run.strategy))


def _info(states: Sequence[RunState]) -> Iterable[_Family]:
    info = _Family("penstock_run_info", "gauge", "1 for every known run, with its status.")
    for state in states:
        info.add((*_of(state.run), ("status", state.run.status.value)), 1)
    return [info]


def _counters(states: Sequence[RunState]) -> Iterable[_Family]:
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
        family = _Family(f"penstock_{name}_total", "counter", text)
        for state in states:
            family.add(_of(state.run), getattr(state.totals, attribute))
        families.append(family)
    decisions = _Family("penstock_decisions_total", "counter", "Decisions of the control loop.")
    shuffled = _Family("penstock_shuffle_bytes_total", "counter", "Shuffle bytes read, by tier.")
    for state in states:
        decisions.add(_of(state.run), state.decisions)
        for tier in ("local", "host_local", "remote"):
            bytes_read = getattr(state.totals, f"{tier}_bytes")
            shuffled.add((*_of(state.run), ("tier", tier)), bytes_read)
    return [*families, decisions, shuffled]


def _latest(states: Sequence[RunState]) -> Iterable[_Family]:
    number = _Family("penstock_batch_number", "gauge", "Number of the latest batch.")
    started = _Family("penstock_batch_start_time_seconds", "gauge", "Start of the latest batch.")
    took = _Family("penstock_batch_duration_seconds", "gauge", "Duration of the latest batch.")
    queue = _Family("penstock_queue_length", "gauge", "Rows waiting at the sources.")
    nodes = _Family("penstock_nodes_used", "gauge", "Nodes that ran an instance.")
    lin = _Family("penstock_lin", "gauge", "Imbalance of the load over the nodes in use.")
    lit = _Family("penstock_lit", "gauge", "Imbalance over the instances of a stateful operator.")
    for state in states:
        if state.latest is None:
            continue
        labels, latest = _of(state.run), state.latest
        number.add(labels, latest.batch)
        started.add(labels, latest.started_at_s)
        took.add(labels, latest.duration_ms / 1000.0)
        queue.add(labels, latest.queue_length)
        nodes.add(labels, latest.nodes_used)
        lin.add(labels, latest.lin)
        for operator, value in latest.lit.items():
            lit.add((*labels, ("operator", operator)), value)
    return [number, started, took, queue, nodes, lin, lit]


def _instances(states: Sequence[RunState]) -> Iterable[_Family]:
    place = "of an instance in the latest batch"
    tuples_in = _Family("penstock_instance_tuples_in", "gauge", f"Tuples in {place}.")
    tuples_out = _Family("penstock_instance_tuples_out", "gauge", f"Tuples out {place}.")
    cpu = _Family("penstock_instance_cpu_seconds", "gauge", f"CPU time {place}.")
    memory = _Family("penstock_instance_memory_bytes", "gauge", f"Memory {place}.")
    for state in states:
        for i in state.instances:
            labels = (
                *_of(state.run),
                ("operator", i.operator),
                ("instance", str(i.index)),
                ("node", i.node),
                ("executor", i.executor),
            )
            tuples_in.add(labels, i.tuples_in)
            tuples_out.add(labels, i.tuples_out)
            cpu.add(labels, None if i.cpu_ms is None else i.cpu_ms / 1000.0)
            memory.add(labels, i.mem_bytes)
    return [tuples_in, tuples_out, cpu, memory]


def _latency(states: Sequence[RunState]) -> _Family:
    text = "From the stamp at the source to the commit, over the whole run."
    family = _Family("penstock_latency_seconds", "histogram", text)
    for state in states:
        family.add_histogram(_of(state.run), state.totals.latency)
    return family


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_value(value)}"' for name, value in labels) + "}"


def _value(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
