"""From one batch of an attached query to the records of the metrics store. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from penstock.common.arrays import FloatArray
from penstock.model import Kind, Plan
from penstock.runtimes.attached.placement import Partition
from penstock.runtimes.attached.progress import Batch, TaskRun, rows_behind
from penstock.runtimes.attached.topic_partitions import topic_figures
from penstock.runtimes.attached.topology import QueryGraph
from penstock.runtimes.spark.monitor import Observed
from penstock.store.derived import imbalance
from penstock.store.edge_record import EdgeRecord
from penstock.store.histogram import EMPTY, Histogram
from penstock.store.operator_record import OperatorRecord
from penstock.store.records import BatchRecord, InstanceRecord, NodeRecord

#: Points that stand for the rows of a batch in the latency's histogram.
POINTS = 20

Tasks = Mapping[str, Mapping[int, TaskRun]]


def observe(
    run: str,
    graph: QueryGraph,
    batch: Batch,
    tasks: Tasks,
    wanted: Mapping[Partition, str],
    node_of: Mapping[str, str],
    interval_s: float,
) -> Observed:
    """Put one batch's records together.

    Parameters
    ----------
    run : str
        Under which the store keeps it.
    tasks : mapping
        As `QueryGraph.tasks` finds them.
    wanted : mapping of (str, int) to str
        Executor that each state partition was to run on.
    node_of : mapping of str to str
        Node of each executor.
    interval_s : float
        From the start of the batch before to the start of this one.
    """
    instances = _instances(run, graph, batch, tasks, node_of)
    stateful = [stage.name for stage in graph.stateful]
    lin, lit = imbalance(instances, stateful)
    ran = [task for own in tasks.values() for task in own.values()]
    asked = [(s, n) for s in stateful for n in tasks.get(s, {}) if (s, n) in wanted]
    record = BatchRecord(
        run,
        batch.number,
        batch.started_at_s,
        batch.duration_ms,
        rows_in=batch.rows_in,
        rows_out=max(0, int(batch.progress.get("sink", {}).get("numOutputRows", 0) or 0)),
        queue_length=rows_behind(batch.progress),
        local_bytes=sum(task.local_bytes for task in ran),
        remote_bytes=sum(task.remote_bytes for task in ran),
        tasks=len(asked),
        tasks_honoured=sum(tasks[s][n].executor == wanted[s, n] for s, n in asked),
        nodes_used=len({one.node for one in instances}),
        lin=lin,
        lit=lit,
        latency=_latency(batch, interval_s),
        figures=_figures(batch, ran, node_of, interval_s) | _stage_times(tasks),
    )
    return Observed(
        record,
        instances,
        _edges(run, graph, batch, tasks),
        0,
        0,
        nodes=_nodes(run, batch, ran, node_of, interval_s),
        operators=_operators(run, graph, batch, tasks),
    )


def _nodes(
    run: str, batch: Batch, ran: Sequence[TaskRun], node_of: Mapping[str, str], interval_s: float
) -> tuple[NodeRecord, ...]:
    """Say how much of its cores each node computed; executors that ran nothing are there, too."""
    busy_s: dict[str, float] = {}
    cores: dict[str, int] = {}
    for executor in batch.executors:
        name = node_of.get(executor.id, "")
        cores[name] = cores.get(name, 0) + executor.cores
    for task in ran:
        name = node_of.get(task.executor, "")
        busy_s[name] = busy_s.get(name, 0.0) + task.cpu_ns / 1e9
    return tuple(
        NodeRecord(
            run,
            batch.number,
            node,
            cpu=busy_s.get(node, 0.0) / interval_s / cores[node] if cores.get(node) else None,
        )
        for node in sorted(set(node_of.values()))
    )


def _operators(
    run: str, graph: QueryGraph, batch: Batch, tasks: Tasks
) -> tuple[OperatorRecord, ...]:
    """Give the state of each partition, and the watermark of the query."""
    text = batch.progress.get("eventTime", {}).get("watermark")
    watermark = datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None
    records = []
    for stage in graph.stateful:
        sizes = [0] * stage.partitions
        for number, task in tasks.get(stage.name, {}).items():
            sizes[number % stage.partitions] = task.state_bytes
        state = [
            {"size_bytes": size, "data": 0, "parity": 0, "fragments": [], "on_driver_bytes": 0}
            for size in sizes
        ]
        mark_us = max(0, int(watermark.timestamp() * 1e6)) if watermark else None
        records.append(
            OperatorRecord(run, batch.number, stage.name, watermark_us=mark_us, state=state)
        )
    return tuple(records)


def _instances(
    run: str, graph: QueryGraph, batch: Batch, tasks: Tasks, node_of: Mapping[str, str]
) -> tuple[InstanceRecord, ...]:
    sources = sum(len(tasks[s.name]) for s in graph.stages if s.kind is Kind.SOURCE)
    records = []
    for stage in graph.stages:
        for number, task in sorted(tasks[stage.name].items()):
            rows = task.rows_read
            if stage.kind is Kind.SOURCE:
                # Spark does not say which task read how many rows of a source.
                rows = batch.rows_in // max(1, sources)
            records.append(
                InstanceRecord(
                    run,
                    batch.number,
                    stage.name,
                    number,
                    node_of.get(task.executor, task.host or task.executor),
                    executor=task.executor,
                    host=task.host,
                    tuples_in=rows,
                    tuples_out=task.rows_written,
                    cpu_ms=task.cpu_ns / 1e6,
                    run_ms=float(task.run_ms),
                    mem_bytes=task.state_bytes or task.peak_memory_bytes,
                )
            )
    return tuple(records)


def _edges(run: str, graph: QueryGraph, batch: Batch, tasks: Tasks) -> tuple[EdgeRecord, ...]:
    """Rows between stages; each task of a stage is taken to send every partition the same part."""
    written = {name: sum(t.rows_written for t in own.values()) for name, own in tasks.items()}
    edges = []
    for stage in graph.stages:
        came = np.zeros(stage.partitions)
        for number, task in tasks[stage.name].items():
            came[number % stage.partitions] += task.rows_read
        total = sum(written[parent] for parent in stage.parents)
        counts = {s.name: s.partitions for s in graph.stages}
        for parent in stage.parents:
            part = written[parent] / total if total else 1.0 / len(stage.parents)
            matrix = _evenly(came * part, counts[parent])
            edges.append(EdgeRecord.of(run, batch.number, parent, stage.name, matrix))
    return tuple(edges)


def _evenly(rows: FloatArray, senders: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Split each partition's rows over the senders, in whole rows that add up."""
    cuts = np.round(np.outer(np.arange(senders + 1) / senders, rows))
    return np.diff(cuts, axis=0).astype(np.int64)


def _latency(batch: Batch, interval_s: float) -> Histogram:
    """From arrival to commit, for rows that came evenly since the batch before was triggered."""
    if not batch.rows_in:
        return EMPTY
    waited = np.linspace(0.0, interval_s * 1000.0, POINTS)
    weight = np.full(POINTS, max(1, batch.rows_in // POINTS))
    return Histogram.of(batch.duration_ms + waited, weight)


def _figures(
    batch: Batch, ran: Sequence[TaskRun], node_of: Mapping[str, str], interval_s: float
) -> dict[str, float]:
    """Give every phase of the batch, what state and memory did, and what nodes were used for."""
    progress = batch.progress
    figures = {f"phase_{name}_ms": float(ms) for name, ms in progress["durationMs"].items()}
    operators = progress.get("stateOperators", ())
    figures |= {
        "state_rows": float(sum(o["numRowsTotal"] for o in operators)),
        "state_bytes": float(sum(o["memoryUsedBytes"] for o in operators)),
        "state_update_ms": float(sum(task.update_ms for task in ran)),
        "state_commit_ms": float(sum(task.commit_ms for task in ran)),
        "state_load_ms": float(sum(task.load_ms for task in ran)),
        "late_rows": float(sum(o["numRowsDroppedByWatermark"] for o in operators)),
        "gc_ms": float(sum(task.gc_ms for task in ran)),
        "spilled_bytes": float(sum(task.spilled_bytes for task in ran)),
    }
    figures |= topic_figures(progress)
    for executor, heap in batch.heap_bytes.items():
        if executor in node_of:
            figures[f"heap_bytes_{node_of[executor]}"] = float(heap)
    for task in ran:
        if task.executor in node_of:
            name = f"cpu_cores_{node_of[task.executor]}"
            figures[name] = figures.get(name, 0.0) + task.cpu_ns / 1e9 / interval_s
    return figures


def _stage_times(tasks: Tasks) -> dict[str, float]:
    """Give the time of each stage, from the launch of its first task to the end of its last."""
    return {
        f"stage_{name}_ms": float(
            max(task.finished_ms for task in own.values())
            - min(task.launched_ms for task in own.values())
        )
        for name, own in tasks.items()
        if own
    }


def charged(observed: Observed, graph: QueryGraph, plan: Plan) -> tuple[InstanceRecord, ...]:
    """Charge the time of all stages to the state partitions, each in proportion to its own.

    Spark gives the tasks of other stages to whichever executor is free, so that no plan can move
    them. They count for how many nodes are needed, and where state partitions are balanced they
    are, too.
    """
    own = {stage.name: stage for stage in graph.stages}
    stateful = {stage.name for stage in graph.stateful}
    if not stateful:
        return observed.instances
    total = sum(one.run_ms or 0.0 for one in observed.instances)
    kept = sum(one.run_ms or 0.0 for one in observed.instances if one.operator in stateful)
    factor = total / kept if kept else 1.0
    records = [
        replace(one, run_ms=(one.run_ms or 0.0) * factor)
        for one in observed.instances
        if one.operator in stateful
    ]
    for name in own.keys() - stateful:
        rows = sum(one.tuples_in for one in observed.instances if one.operator == name)
        spots = plan.placement[name]
        records += [
            InstanceRecord(
                observed.batch.run,
                observed.batch.batch,
                name,
                number,
                spot.node,
                tuples_in=rows // len(spots),
                run_ms=0.0,
            )
            for number, spot in enumerate(spots)
        ]
    return tuple(records)
