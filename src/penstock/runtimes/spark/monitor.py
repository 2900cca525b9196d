"""From what the tasks said and what Spark recorded to the records of the metrics store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.engine.driver.driver import BatchResult
from penstock.engine.job_graph import JobGraph
from penstock.engine.task.exchange import STAMP_STEP_US
from penstock.model import Kind, Plan
from penstock.runtimes.spark.instance_use import InstanceUse, instance_uses, tuples_by_tier
from penstock.runtimes.spark.jvm import TaskFact
from penstock.store import (
    BatchRecord,
    EdgeRecord,
    InstanceRecord,
    NodeRecord,
    OperatorRecord,
    imbalance,
)
from penstock.store.histogram import EMPTY, Histogram

_SUCCESS = "SUCCESS"


@dataclass(frozen=True, eq=False)
class Observed:
    """One batch as the store keeps it, and the rows that went astray in it.

    Parameters
    ----------
    uses : tuple of InstanceUse
        What instances took; the store does not keep it.
    """

    batch: BatchRecord
    instances: tuple[InstanceRecord, ...]
    edges: tuple[EdgeRecord, ...]
    lost: int
    duplicated: int
    nodes: tuple[NodeRecord, ...] = ()
    operators: tuple[OperatorRecord, ...] = ()
    uses: tuple[InstanceUse, ...] = ()


@dataclass(frozen=True)
class Timing:
    """When a batch ran, and what waited meanwhile.

    Parameters
    ----------
    started_at_s : float
        Seconds since 1970.
    duration_ms : float
    committed_elapsed_ms : float
        Stream time of the commit, on the clock of the stamps.
    queue_length, dropped : int
        As in `BatchRecord`.
    """

    started_at_s: float
    duration_ms: float
    committed_elapsed_ms: float
    queue_length: int = 0
    dropped: int = 0


def observe(
    run: str,
    job_graph: JobGraph,
    plan: Plan,
    result: BatchResult,
    facts: Sequence[TaskFact],
    pinned: Sequence[Sequence[str]],
    timing: Timing,
) -> Observed:
    """Put one batch's records together.

    Parameters
    ----------
    facts : sequence of TaskFact
        What Spark recorded of the batch's job.
    pinned : sequence of sequence of str
        Executor that each partition of each layer was to run on; "" is anywhere.
    """
    ran, tasks, honoured = _ran(facts, pinned)
    instances = _instances(run, plan, result, ran)
    # What backup nodes read are backups of state, counted by themselves.
    nodes = {i.node for i in instances}
    stream = [fact for (layer, _), fact in ran.items() if layer < len(result.spec.layers)]
    local, host_local, remote = tiers(stream, nodes)
    backup = sum(tiers(ran.values(), nodes)) - local - host_local - remote
    stateful = [v.name for v in job_graph.vertices if v.kind is Kind.STATEFUL or v.splittable]
    lin, lit = imbalance(instances, stateful)
    batch = BatchRecord(
        run,
        result.batch_id,
        timing.started_at_s,
        timing.duration_ms,
        rows_in=result.rows_in,
        rows_out=sum(result.rows_to_sinks.values()),
        queue_length=timing.queue_length,
        dropped=timing.dropped,
        local_bytes=local,
        host_local_bytes=host_local,
        remote_bytes=remote,
        tasks=tasks,
        tasks_honoured=honoured,
        nodes_used=len(nodes),
        lin=lin,
        lit=lit,
        latency=_latency(result, timing.committed_elapsed_ms),
        figures={
            "skipped": float(result.skipped),
            "backup_bytes": float(backup),
            "late_rows": float(sum(sum(stats.late.values()) for stats in result.stats)),
            **tuples_by_tier(job_graph, plan, result, ran),
            **_phases(ran, timing.duration_ms),
        },
    )
    lost, duplicated = _astray(job_graph, result)
    edges = _edges(run, job_graph, result)
    uses = instance_uses(job_graph, plan, result, ran)
    return Observed(batch, instances, edges, lost, duplicated, uses=uses)


def _phases(ran: Mapping[tuple[int, int], TaskFact], duration_ms: float) -> dict[str, float]:
    """Split the time of a batch: the busiest executor of each layer, and all that is no task."""
    busy: dict[tuple[int, str], float] = {}
    for (layer, _), fact in ran.items():
        busy[layer, fact.executor] = busy.get((layer, fact.executor), 0.0) + fact.run_ms
    longest: dict[int, float] = {}
    for (layer, _), ms in busy.items():
        longest[layer] = max(longest.get(layer, 0.0), ms)
    phases = {f"phase_layer {layer}_ms": ms for layer, ms in sorted(longest.items())}
    return {**phases, "phase_driver_ms": max(0.0, duration_ms - sum(longest.values()))}


def _ran(
    facts: Sequence[TaskFact], pinned: Sequence[Sequence[str]]
) -> tuple[dict[tuple[int, int], TaskFact], int, int]:
    """Return the tasks that succeeded, and count those that were pinned and ran where they were."""
    stages = sorted({fact.stage for fact in facts})
    ran: dict[tuple[int, int], TaskFact] = {}
    tasks = honoured = 0
    for fact in facts:
        if fact.status != _SUCCESS:
            continue
        layer = stages.index(fact.stage)
        ran[layer, fact.partition] = fact
        wanted = pinned[layer][fact.partition % len(pinned[layer])] if layer < len(pinned) else ""
        if wanted:
            tasks += 1
            honoured += fact.executor == wanted
    return ran, tasks, honoured


def tiers(facts: Collection[TaskFact], nodes: Collection[str]) -> tuple[int, int, int]:
    """Bytes that tasks read within a process, within a node and across nodes.

    Parameters
    ----------
    facts : collection of TaskFact
    nodes : collection of str
        Names of the nodes in use: hosts, or executors that stand for nodes where all are on one
        host. In the latter case what they read of each other crosses nodes.
    """
    local = sum(fact.local_bytes for fact in facts)
    host_local = sum(fact.host_local_bytes for fact in facts)
    remote = sum(fact.remote_bytes for fact in facts)
    if any(fact.host in nodes for fact in facts):
        return local, host_local, remote
    return local, 0, remote + host_local


def _instances(
    run: str, plan: Plan, result: BatchResult, ran: Mapping[tuple[int, int], TaskFact]
) -> tuple[InstanceRecord, ...]:
    records = []
    for stats in result.stats:
        fact = ran.get(result.spec.address(stats.vertex, stats.instance))
        spot = plan.placement[stats.vertex][stats.instance]
        records.append(
            InstanceRecord(
                run,
                result.batch_id,
                stats.vertex,
                stats.instance,
                spot.node,
                executor=fact.executor if fact else "",
                host=fact.host if fact else "",
                tuples_in=stats.rows_in,
                tuples_out=stats.rows_out,
                cpu_ms=stats.cpu_s * 1000.0,
                run_ms=stats.wall_s * 1000.0,
                mem_bytes=stats.rss_bytes,
            )
        )
    return tuple(records)


def _edges(run: str, job_graph: JobGraph, result: BatchResult) -> tuple[EdgeRecord, ...]:
    """Tuples between instances, the wires between two vertices added up."""
    matrices: dict[tuple[str, str], np.ndarray[tuple[int, int], np.dtype[np.int64]]] = {}
    count = result.spec.parallelism
    for stats in result.stats:
        for number, targets in stats.sent.items():
            edge = job_graph.edges[number]
            key = (edge.source, edge.target)
            if key not in matrices:
                matrices[key] = np.zeros((count[edge.source], count[edge.target]), dtype=np.int64)
            for target, rows in targets.items():
                matrices[key][stats.instance, target] += rows
    return tuple(
        EdgeRecord.of(run, result.batch_id, source, target, matrix)
        for (source, target), matrix in matrices.items()
    )


def _astray(job_graph: JobGraph, result: BatchResult) -> tuple[int, int]:
    """Count rows that were sent and not received, and rows received that nobody sent.

    For a source, what the batch's ranges hold stands for what was sent, unless some of its offsets
    hold no row.
    """
    sent: dict[tuple[str, int], int] = {}
    for stats in result.stats:
        for number, targets in stats.sent.items():
            for target, rows in targets.items():
                key = (job_graph.edges[number].target, target)
                sent[key] = sent.get(key, 0) + rows
    received: dict[tuple[str, int], int] = {}
    for stats in result.stats:
        key = (stats.vertex, stats.instance)
        received[key] = received.get(key, 0) + stats.rows_in
    lost = duplicated = 0
    for vertex in job_graph.vertices:
        if vertex.kind is Kind.SOURCE:
            cuts = result.ranges.get(vertex.head)
            dense = getattr(job_graph.pipeline[vertex.head].source, "dense", True)
            if cuts is None or not dense:
                continue
            wanted = sum(stop - start for start, stop in cuts)
            got = sum(rows for (name, _), rows in received.items() if name == vertex.name)
            lost += max(0, wanted - got)
            duplicated += max(0, got - wanted)
            continue
        for instance in range(result.spec.parallelism[vertex.name]):
            key = (vertex.name, instance)
            difference = sent.get(key, 0) - received.get(key, 0)
            lost += max(0, difference)
            duplicated += max(0, -difference)
    return lost, duplicated


def _latency(result: BatchResult, committed_elapsed_ms: float) -> Histogram:
    stamps: dict[int, int] = {}
    for stats in result.stats:
        for step, count in stats.stamps.items():
            stamps[step] = stamps.get(step, 0) + count
    if not stamps:
        return EMPTY
    at_ms = np.array(list(stamps)) * (STAMP_STEP_US / 1000.0)
    return Histogram.of(committed_elapsed_ms - at_ms, np.array(list(stamps.values())))
