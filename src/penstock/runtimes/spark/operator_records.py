"""What is told of nodes and operators beside each batch: use, hot keys, state, watermarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.engine.job_graph import JobGraph
from penstock.engine.results import BatchResult
from penstock.engine.state.registry import StateRegistry
from penstock.model import Cluster
from penstock.runtimes.spark.instance_use import InstanceUse, node_use
from penstock.state.backup.catalog import DRIVER, LOST
from penstock.store import InstanceRecord, NodeRecord, OperatorRecord

#: Hot keys of an operator that are written down.
KEPT_KEYS = 10


def operator_records(
    run: str,
    job_graph: JobGraph,
    result: BatchResult,
    watermarks: Mapping[str, int],
    state: Mapping[str, Sequence[dict[str, Any]]],
) -> tuple[OperatorRecord, ...]:
    """Put together what is known of the operators of which anything is.

    Parameters
    ----------
    run : str
    job_graph : JobGraph
    result : BatchResult
    watermarks : mapping of str to int
        By step, after the batch, in microseconds.
    state : mapping of str to sequence of dict
        As `state_of` gives it; empty where it was not looked at.
    """
    rows: dict[str, dict[int, int]] = {}
    names: dict[str, dict[int, str]] = {}
    late: dict[str, int] = {}
    for stats in result.stats:
        for target, keys in stats.hot_keys.items():
            own = rows.setdefault(target, {})
            for key, count in keys.items():
                own[key] = own.get(key, 0) + count
        for target, found in stats.key_names.items():
            names.setdefault(target, {}).update(found)
        for step, count in stats.late.items():
            late[step] = late.get(step, 0) + count
    records = []
    for vertex in job_graph.vertices:
        hot = sorted(rows.get(vertex.name, {}).items(), key=lambda kv: (-kv[1], kv[0]))[:KEPT_KEYS]
        marks = [watermarks[step] for step in vertex.steps if step in watermarks]
        record = OperatorRecord(
            run,
            result.batch_id,
            vertex.name,
            late_rows=sum(late.get(step, 0) for step in vertex.steps),
            watermark_us=max(0, min(marks)) if marks else None,
            hot_keys=[
                {"hash": str(key), "name": names.get(vertex.name, {}).get(key), "rows": count}
                for key, count in hot
            ],
            state=state.get(vertex.name, ()),
        )
        if record.hot_keys or record.state or record.late_rows or marks:
            records.append(record)
    return tuple(records)


def state_of(
    registry: StateRegistry, node_of: Mapping[str, str]
) -> dict[str, list[dict[str, Any]]]:
    """Say of each stateful instance how large its state is, and where its fragments are.

    Parameters
    ----------
    registry : StateRegistry
    node_of : mapping of str to str
        Node of each executor that is there; fragments of others are lost.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for name, handle in registry.handles.items():
        own = found.setdefault(name, [])
        for index in range(len(handle.instances)):
            segments = registry.segments(name, index)
            stored = [s for s in segments if DRIVER not in s.backup_nodes]
            first = stored[0] if stored else None
            fragments = first.backup_nodes if first else ()
            own.append(
                {
                    "size_bytes": sum(s.size_bytes for s in segments),
                    "data": first.r if first else 0,
                    "parity": first.c if first else 0,
                    "fragments": [node_of.get(executor, LOST) for executor in fragments],
                    "on_driver_bytes": sum(s.size_bytes for s in segments if s not in stored),
                }
            )
    return found


def node_records(
    run: str,
    batch: int,
    cluster: Cluster,
    instances: Sequence[InstanceRecord],
    interval_s: float,
    uses: Sequence[InstanceUse] = (),
) -> tuple[NodeRecord, ...]:
    """Say of each node that is there how much of its CPU, memory and disk the batch used.

    Memory is the largest Python worker of each executor, over the memory of the node.

    Parameters
    ----------
    uses : sequence of InstanceUse
        Without them, nothing is said of disks.
    """
    busy_ms: dict[str, float] = {}
    memory: dict[str, dict[str, int]] = {}
    for one in instances:
        busy_ms[one.node] = busy_ms.get(one.node, 0.0) + (one.cpu_ms or 0.0)
        workers = memory.setdefault(one.node, {})
        workers[one.executor] = max(workers.get(one.executor, 0), one.mem_bytes or 0)
    disks = {name: use.io for name, use in node_use(uses, busy_ms, cluster, interval_s).items()}
    records = []
    for node in cluster.nodes:
        able_ms = node.cpu_cores * interval_s * 1000.0
        held = sum(memory.get(node.name, {}).values())
        records.append(
            NodeRecord(
                run,
                batch,
                node.name,
                cpu=busy_ms.get(node.name, 0.0) / able_ms if able_ms > 0 else None,
                mem=held / (node.mem_mb * 1e6) if node.mem_mb > 0 and held else None,
                io=disks.get(node.name),
            )
        )
    return tuple(records)
