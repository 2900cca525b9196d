"""What instances take besides time: memory, bytes sent and received, disk traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.common.arrays import FloatArray
from penstock.engine.driver.driver import BatchResult
from penstock.engine.job_graph import JobGraph
from penstock.model import Cluster, Plan, Utilisation
from penstock.model.measurements import attributed_share
from penstock.runtimes.spark.jvm import TaskFact
from penstock.store import InstanceRecord


@dataclass(frozen=True)
class InstanceUse:
    """What one instance took in one batch besides time.

    Parameters
    ----------
    operator : str
    index : int
    node : str
    worker : tuple of (str, int)
        Executor, and the process in it that ran the task: one process runs several instances.
    worker_bytes : int
        Memory of that process beyond what it took before its first task.
    cpu_ms : float
        Time in which a processor worked for it.
    sent_bytes, received_bytes : int
        To and from other instances.
    crossed_in_bytes, crossed_out_bytes : int
        Part of them that came from, or went to, other nodes.
    disk_bytes : int or None
        Read from and written to disks; None where nobody counts.
    """

    operator: str
    index: int
    node: str
    worker: tuple[str, int]
    worker_bytes: int = 0
    cpu_ms: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    crossed_in_bytes: int = 0
    crossed_out_bytes: int = 0
    disk_bytes: int | None = None


@dataclass(frozen=True, eq=False)
class Resources:
    """What the instances of each operator took in a batch, in MB."""

    mem_mb: Mapping[str, FloatArray] = field(default_factory=dict)
    state_mb: Mapping[str, FloatArray] = field(default_factory=dict)
    sent_mb: Mapping[str, FloatArray] = field(default_factory=dict)
    received_mb: Mapping[str, FloatArray] = field(default_factory=dict)
    io_mb: Mapping[str, FloatArray] = field(default_factory=dict)


def instance_uses(
    job_graph: JobGraph,
    plan: Plan,
    result: BatchResult,
    ran: Mapping[tuple[int, int], TaskFact],
) -> tuple[InstanceUse, ...]:
    """Say what instances took; what crossed nodes is reckoned by where the rows went and came from.

    Spark knows how many bytes a task received and not from which node each of them came.
    """
    placed = plan.placement
    received: dict[tuple[str, int], float] = {}
    crossed: dict[tuple[str, int, str], float] = {}
    for stats in result.stats:
        here = placed[stats.vertex][stats.instance].node
        rows = max(sum(sum(targets.values()) for targets in stats.sent.values()), 1)
        for number, targets in stats.sent.items():
            to = job_graph.edges[number].target
            for target, count in targets.items():
                size = stats.sent_bytes * count / rows
                received[to, target] = received.get((to, target), 0.0) + size
                if placed[to][target].node != here:
                    for end in ((to, target, "in"), (stats.vertex, stats.instance, "out")):
                        crossed[end] = crossed.get(end, 0.0) + size
    uses = []
    for stats in result.stats:
        at = (stats.vertex, stats.instance)
        fact = ran.get(result.spec.address(*at))
        uses.append(
            InstanceUse(
                *at,
                placed[stats.vertex][stats.instance].node,
                (fact.executor if fact else "", stats.process),
                stats.grown_bytes,
                stats.cpu_s * 1000.0,
                stats.sent_bytes,
                round(received.get(at, 0.0)),
                round(crossed.get((*at, "in"), 0.0)),
                round(crossed.get((*at, "out"), 0.0)),
                stats.disk_bytes,
            )
        )
    return tuple(uses)


def tuples_by_tier(
    job_graph: JobGraph,
    plan: Plan,
    result: BatchResult,
    ran: Mapping[tuple[int, int], TaskFact],
) -> dict[str, float]:
    """Count tuples that stayed in an executor, stayed on a node and crossed nodes, as they ran.

    Spark counts bytes, and on an embedded cluster cannot tell executors of one node from others.
    """
    found = {"tuples_in_process": 0.0, "tuples_in_node": 0.0, "tuples_across": 0.0}

    def executor(vertex: str, instance: int) -> str:
        fact = ran.get(result.spec.address(vertex, instance))
        return fact.executor if fact else ""

    for stats in result.stats:
        here = plan.placement[stats.vertex][stats.instance].node
        own = executor(stats.vertex, stats.instance)
        for number, targets in stats.sent.items():
            to = job_graph.edges[number].target
            for target, count in targets.items():
                tier = "across"
                if own and own == executor(to, target):
                    tier = "in_process"
                elif plan.placement[to][target].node == here:
                    tier = "in_node"
                found[f"tuples_{tier}"] += count
    return found


def resources(uses: Sequence[InstanceUse], state_bytes: Mapping[str, Sequence[int]]) -> Resources:
    """Put together what instances took.

    Bytes, disk traffic and state are counted for each instance. Memory is measured of a process,
    which runs several instances: what it has grown by is attributed to them by the bytes that they
    hold, get and send (Sl eq. 3-4).

    Parameters
    ----------
    uses : sequence of InstanceUse
    state_bytes : mapping of str to sequence of int
        State of each instance, of operators that have any.
    """
    if not uses:
        return Resources(state_mb=_in_mb(state_bytes))
    ordered = sorted(uses, key=lambda use: (use.operator, use.index))
    held = np.array([_state_of(use, state_bytes) for use in ordered], dtype=np.float64)
    moved = np.array([use.sent_bytes + use.received_bytes for use in ordered], dtype=np.float64)
    workers = {worker: i for i, worker in enumerate(dict.fromkeys(u.worker for u in ordered))}
    grown = np.zeros(len(workers))
    for use in ordered:
        grown[workers[use.worker]] = max(grown[workers[use.worker]], use.worker_bytes)
    in_worker = np.array([workers[use.worker] for use in ordered], dtype=np.int64)
    # One more, so that instances that got nothing share what their process took.
    memory = attributed_share(held + moved + 1.0, in_worker, grown, np.ones(len(ordered)))
    disk = [use.disk_bytes for use in ordered]

    def by_operator(values: Sequence[float] | FloatArray) -> dict[str, FloatArray]:
        found: dict[str, list[float]] = {}
        for use, value in zip(ordered, values, strict=True):
            found.setdefault(use.operator, []).append(value / 1e6)
        return {name: np.array(each) for name, each in found.items()}

    return Resources(
        mem_mb=by_operator(memory),
        state_mb=_in_mb(state_bytes),
        sent_mb=by_operator([use.sent_bytes for use in ordered]),
        received_mb=by_operator([use.received_bytes for use in ordered]),
        io_mb={} if None in disk else by_operator([size or 0 for size in disk]),
    )


def busy_share(
    uses: Sequence[InstanceUse], instances: Sequence[InstanceRecord]
) -> dict[str, float]:
    """Part of the time of an operator's instances in which a processor worked (Sra eq. 22, `C`)."""
    run_ms: dict[str, float] = {}
    for one in instances:
        run_ms[one.operator] = run_ms.get(one.operator, 0.0) + (one.run_ms or 0.0)
    cpu_ms: dict[str, float] = {}
    for use in uses:
        cpu_ms[use.operator] = cpu_ms.get(use.operator, 0.0) + use.cpu_ms
    return {
        name: min(cpu_ms[name] / ms, 1.0)
        for name, ms in run_ms.items()
        if ms > 0 and name in cpu_ms
    }


def node_use(
    uses: Sequence[InstanceUse], cpu: Mapping[str, float], cluster: Cluster, interval_s: float
) -> dict[str, Utilisation]:
    """Say what part of each node was used: CPU as given, memory, disk and link as counted."""
    found: dict[str, Utilisation] = {}
    for name, part in cpu.items():
        here = [use for use in uses if use.node == name]
        if not here or name not in cluster.index:
            found[name] = Utilisation(cpu=part)
            continue
        node = cluster.nodes[cluster.index[name]]
        workers: dict[tuple[str, int], int] = {}
        for use in here:
            workers[use.worker] = max(workers.get(use.worker, 0), use.worker_bytes)
        disk = [use.disk_bytes for use in here]
        crossed = max(
            sum(use.crossed_in_bytes for use in here), sum(use.crossed_out_bytes for use in here)
        )
        found[name] = Utilisation(
            cpu=part,
            mem=_part(sum(workers.values()), node.mem_mb),
            io=None
            if None in disk
            else _part(sum(size or 0 for size in disk) / interval_s, node.io_mb_s),
            network=_part(crossed / interval_s, node.bandwidth_mb_s),
        )
    return found


def _part(size_bytes: float, capacity_mb: float) -> float | None:
    return size_bytes / 1e6 / capacity_mb if capacity_mb > 0 else None


def _in_mb(state_bytes: Mapping[str, Sequence[int]]) -> dict[str, FloatArray]:
    return {name: np.array(sizes, dtype=np.float64) / 1e6 for name, sizes in state_bytes.items()}


def _state_of(use: InstanceUse, state_bytes: Mapping[str, Sequence[int]]) -> int:
    sizes = state_bytes.get(use.operator, ())
    return sizes[use.index] if use.index < len(sizes) else 0
