"""A metrics store with a made-up run of any size, for tests and measurements of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.model import Cluster, Edge, Grouping, Kind, Operator, Plan, Topology
from penstock.store import (
    BatchRecord,
    EdgeRecord,
    EventRecord,
    Histogram,
    InstanceRecord,
    MetricsStore,
    NodeRecord,
    OperatorRecord,
    PlanRecord,
    RunRecord,
    RunStatus,
)
from penstock.store.outline import outline
from penstock.store.records import STATE
from penstock.strategies import Request, strategies

#: When the run began, in seconds since 1970.
STARTED_S = 1_700_000_000.0


def example_topology(parallelism: int) -> Topology:
    """Make the topology: a source, a function, and a step with state."""
    return Topology(
        "shop",
        (
            Operator("clicks", Kind.SOURCE, parallelism=parallelism, rate_per_s=1000.0),
            Operator("parse", parallelism=parallelism, cpu_us_per_tuple=50.0),
            Operator("count", Kind.STATEFUL, parallelism=parallelism, cpu_us_per_tuple=100.0),
        ),
        (Edge("clicks", "parse"), Edge("parse", "count", Grouping.FIELDS)),
    )


def first_plan(topology: Topology, nodes: int) -> Plan:
    """Plan the topology evenly."""
    answer = strategies.make("even").plan(Request(topology, Cluster.of(nodes)))
    if not isinstance(answer, Plan):
        raise TypeError("without a running plan a strategy never keeps it")
    return answer


def fill_store(
    place: str | Path,
    *,
    run: str = "r1",
    parallelism: int = 2,
    nodes: int = 2,
    batches: int = 10,
    detail: int = 10,
    status: RunStatus = RunStatus.FINISHED,
    topology_name: str | None = None,
) -> Plan:
    """Write one run, and return its plan.

    Parameters
    ----------
    place : str or Path
        As in `MetricsStore.open`.
    run : str
    parallelism, nodes : int
        Instances of each operator, and nodes.
    batches, detail : int
        Batches, one every half second, and how many of the last have detail.
    status : RunStatus
    topology_name : str or None
        Another name of the topology, for runs that do not fit together.
    """
    topology = example_topology(parallelism)
    plan = first_plan(topology, nodes)
    ended = STARTED_S + 0.5 * batches if status is not RunStatus.RUNNING else None
    config = {"topology": outline(topology)}
    name = topology_name or topology.name
    with MetricsStore.open(place) as store:
        store.put_run(RunRecord(run, name, "even", STARTED_S, ended, status, config, 0, 0))
        store.put_plan(PlanRecord(run, 0, plan))
        text = "state survives any 1 node"
        store.put_event(EventRecord(run, 0, STARTED_S + 0.6, STATE, text, batch=1))
        latency = Histogram.of([80.0, 120.0, 300.0])
        for number in range(batches):
            record = example_batch(run, number, parallelism, latency)
            if number < batches - detail:
                store.put_batch(record)
                continue
            store.put_batch(record, *example_detail(run, number, plan))
    return plan


def example_batch(run: str, number: int, rows: int, latency: Histogram) -> BatchRecord:
    """Make a batch of so many thousand rows."""
    return BatchRecord(
        run,
        number,
        STARTED_S + 0.5 * number,
        200.0,
        rows_in=1000 * rows,
        rows_out=10 * rows,
        queue_length=number,
        local_bytes=1000,
        remote_bytes=3000,
        tasks=4,
        tasks_honoured=4,
        nodes_used=2,
        lin=0.1,
        lit={"count": 0.4},
        latency=latency,
        figures={"phase_layer 0_ms": 120.0, "phase_driver_ms": 80.0, "late_rows": 1.0},
    )


def example_detail(
    run: str, number: int, plan: Plan
) -> tuple[
    tuple[InstanceRecord, ...],
    tuple[EdgeRecord, ...],
    tuple[NodeRecord, ...],
    tuple[OperatorRecord, ...],
]:
    """Make what instances, edges, nodes and operators did in a batch."""
    instances = tuple(
        InstanceRecord(
            run,
            number,
            operator,
            index,
            spot.node,
            executor=spot.node,
            tuples_in=100 * (index + 1),
            tuples_out=100 * (index + 1),
            cpu_ms=20.0,
            run_ms=40.0,
            mem_bytes=10_000_000,
        )
        for operator, spots in plan.placement.items()
        for index, spot in enumerate(spots)
    )
    count = plan.parallelism["count"]
    even = np.full((count, count), 3, dtype=np.int64)
    edges = (
        EdgeRecord.of(run, number, "clicks", "parse", np.eye(count, dtype=np.int64) * 9),
        EdgeRecord.of(run, number, "parse", "count", even),
    )
    nodes = tuple(NodeRecord(run, number, name, cpu=0.4, mem=0.2) for name in plan.nodes)
    state = [
        {
            "size_bytes": 1000 * (index + 1),
            "data": 1,
            "parity": 1,
            "fragments": [plan.nodes[(index + 1) % len(plan.nodes)], ""],
            "on_driver_bytes": 10,
        }
        for index in range(count)
    ]
    hot: list[dict[str, Any]] = [
        {"hash": "42", "name": "home", "rows": 60},
        {"hash": "7", "name": None, "rows": 30},
    ]
    operators = (
        OperatorRecord(
            run, number, "count", late_rows=1, watermark_us=0, hot_keys=hot, state=state
        ),
    )
    return instances, edges, nodes, operators
