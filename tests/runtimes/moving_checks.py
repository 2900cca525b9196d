"""Checks that move state, and kill executors on the way."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from tests.runtimes.cluster_nodes import NODES, ROWS, ask_for, await_executors, process_of

from penstock.apps.commcount import CommCount
from penstock.common.key_hashing import key_hashes
from penstock.engine.backend import Stage
from penstock.engine.migration import increments as repartitioning
from penstock.engine.migration import precopy as copying
from penstock.pipeline import Memory
from penstock.runtimes.spark.injector import holding
from penstock.runtimes.spark.options import Options
from penstock.runtimes.spark.query import prepare
from penstock.runtimes.spark.runtime import SparkRuntime


def astray(spark: Any) -> dict[str, Any]:
    """Kill a worker when its executor has something else to do: Spark runs the task elsewhere."""
    app = CommCount(items=500, cost_us=1000.0)
    source = app.source(1e6, zipf=0.2, seed=11, rows=2 * ROWS)
    pipeline = app.pipeline(source, parallelism=NODES)
    run = prepare(pipeline, spark, "even", Options(control=None))
    execution = run.execution
    struck: list[int] = []

    # In here, so that it goes to workers by value.
    def wait(partition: int, arrived: Any, folder: Path) -> Iterator[tuple[int, bytes]]:
        for _ in arrived:
            pass
        time.sleep(1.0)
        yield from ()

    busy = threading.Thread(target=lambda: execution.backend.job("busy", [Stage(at, wait)]))

    def strike() -> None:
        # It waits for the slot of the task, and has it before that is repeated.
        busy.start()
        time.sleep(0.2)
        for daemon in psutil.Process(process_of(at[0])).children():
            for worker in daemon.children():
                worker.kill()
                struck.append(worker.pid)

    try:
        run.batch({"behaviors": ((0, ROWS),)})
        at = (holding(execution)[-1],)
        timer = threading.Timer(0.5, strike)
        timer.start()
        run.batch({"behaviors": ((ROWS, 2 * ROWS),)})
        timer.join()
        busy.join()
        texts = [event.text for event in execution.recorder.records().events]
    finally:
        run.close()
    out = pipeline["counts"].sink
    assert isinstance(out, Memory)
    expected = app.expected(source.read(0, 2 * ROWS))["counts"]
    return {
        "equal": app.result("counts", out.table()).equals(app.result("counts", expected)),
        "struck": len(struck),
        "events": texts,
    }


def precopy(spark: Any) -> dict[str, Any]:
    """Move all state after it was pre-copied, while batches go on."""
    return _precopied(spark)


def precopy_killed(spark: Any) -> dict[str, Any]:
    """Kill an executor that state is just pre-copied to."""
    found = _precopied(spark, kill=True)
    await_executors(spark, NODES)
    return found


def _precopied(spark: Any, *, kill: bool = False) -> dict[str, Any]:
    # The check before it may have given some up.
    ask_for(spark, NODES)
    app = CommCount(items=20_000)
    # Much state, of which a batch changes little: otherwise each would write all of it anew.
    ends = (20 * ROWS, *range(20 * ROWS + 300, 21 * ROWS + 1, 300))
    source = app.source(1e6, zipf=0.2, seed=11, rows=ends[-1])
    pipeline = app.pipeline(source, parallelism=NODES)
    run = prepare(pipeline, spark, "even", Options(control=None))
    execution = run.execution
    runtime, job, killed = SparkRuntime(execution), execution.backend.job, list[int]()

    def fatal(name: str, stages: Any, *, background: bool = False) -> Any:
        if background and not killed:
            killed.append(process_of(stages[1].executors[0]))
            os.kill(killed[0], signal.SIGKILL)
        return job(name, stages, background=background)

    if kill:
        execution.backend.job = fatal  # type: ignore[method-assign]
    waited = 0
    applied = target = None
    least, copying.SMALL_BYTES = copying.SMALL_BYTES, 1
    try:
        for start, end in pairwise((0, *ends)):
            run.batch({"behaviors": ((start, end),)})
            if applied is not None:
                continue
            if target is None or target.nodes != execution.plan.nodes:
                nodes = (execution.plan.node_of + 1) % len(execution.plan.nodes)
                target = replace(execution.plan, node_of=nodes, active=())
            if runtime.prepare(target):
                applied = runtime.apply(target)
            else:
                waited += 1
        counts = execution.recorder.lost, execution.recorder.duplicated
        texts = [event.text for event in execution.recorder.records().events]
        left = [t.name for t in threading.enumerate() if t.name == "penstock-ahead"]
    finally:
        copying.SMALL_BYTES = least
        run.close()
    out = pipeline["counts"].sink
    assert isinstance(out, Memory)
    expected = app.expected(source.read(0, ends[-1]))["counts"]
    return {
        "equal": app.result("counts", out.table()).equals(app.result("counts", expected)),
        "lost_or_twice": counts,
        "waited": waited,
        "applied": None if applied is None else asdict(applied),
        "killed": len(killed),
        "threads": left,
        "events": texts,
    }


def increments_killed(spark: Any) -> dict[str, Any]:
    """Repartition all router partitions, some after each batch; an executor dies on the way.

    The hottest keys are split all the while.
    """
    ask_for(spark, NODES)
    app = CommCount(items=20_000, split=True, cost_us=0.1)
    ends = (10 * ROWS, *range(10 * ROWS + 300, 11 * ROWS + 1, 300))
    source = app.source(1e6, zipf=1.0, seed=11, rows=ends[-1])
    items = source.read(0, ROWS).column("item").value_counts().to_pylist()
    hot = sorted(items, key=lambda one: -one["counts"])[:3]
    hashes = key_hashes(pa.table({"item": [one["values"] for one in hot]}), ("item",))
    ways = {int(one): tuple(range(NODES)) for one in hashes}
    pipeline = app.pipeline(source, parallelism=NODES)
    run = prepare(pipeline, spark, "even", Options(control=None))
    execution = run.execution
    runtime, wanted = SparkRuntime(execution), tuple[int, ...]()
    applied: list[Any] = []
    shared = 0
    most, repartitioning.INCREMENT_BYTES = repartitioning.INCREMENT_BYTES, 40_000
    try:
        for start, end in pairwise((0, *ends)):
            run.batch({"behaviors": ((start, end),)})
            table = execution.plan.routing["count"]
            wanted = wanted or tuple((home + 1) % NODES for home in table.partitions)
            if applied and not applied[-1].left:
                continue
            target = replace(table, partitions=wanted, split=ways)
            plan = replace(execution.plan, routing={**execution.plan.routing, "count": target})
            applied.append(runtime.apply(plan))
            shared += bool(execution.driver.progress.shares)
            if len(applied) == 2:
                os.kill(process_of(holding(execution)[0]), signal.SIGKILL)
        counts, reached = (
            (execution.recorder.lost, execution.recorder.duplicated),
            execution.plan.routing["count"].partitions,
        )
        texts = [event.text for event in execution.recorder.records().events]
    finally:
        repartitioning.INCREMENT_BYTES = most
        run.close()
    await_executors(spark, NODES)
    out = pipeline["counts"].sink
    assert isinstance(out, Memory)
    expected = app.expected(source.read(0, ends[-1]))["counts"]
    return {
        "equal": app.result("counts", out.table()).equals(app.result("counts", expected)),
        "lost_or_twice": counts,
        "applied": [asdict(one) for one in applied],
        "reached": reached == wanted,
        "shared": shared,
        "events": texts,
    }
