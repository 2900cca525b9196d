"""Run on a cluster of several processes, in a process of its own; prints JSON.

``python -m tests.runtimes.cluster_checks CHECK ...`` runs the named checks on one embedded cluster,
and with ``--master URL --executors N`` on one that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.runtimes.cluster_nodes import NODES, ROWS, await_executors, process_of
from tests.runtimes.loop_checks import contract, elastic, recommend_only, together
from tests.runtimes.moving_checks import astray, increments_killed, precopy, precopy_killed

from penstock import spark as engine
from penstock.apps import apps
from penstock.apps.commcount import CommCount
from penstock.engine.backend import NO_SENDERS
from penstock.experiments.calibrate import measure as calibrate
from penstock.pipeline import Memory, parquet
from penstock.runtimes.spark.injector import python_worker
from penstock.runtimes.spark.jvm import jvm_of
from penstock.runtimes.spark.nodes import executor_ids
from penstock.runtimes.spark.options import Options
from penstock.runtimes.spark.query import launch, prepare
from penstock.runtimes.spark.session import wait_for_executors


def run_app(
    spark: Any, name: str, strategy: str, listener: Any = None, rows: int = ROWS, **options: Any
) -> dict[str, Any]:
    """Run an application in several batches and compare with what must come out."""
    app = apps.make(name)
    source = app.source(1e6, zipf=1.0, seed=11, rows=rows)
    pipeline = app.pipeline(source, parallelism=NODES, chain=False)
    options = {"queue": engine.QueueOptions(size=rows // 5), "interval_s": 0.0, **options}
    loop = launch(pipeline, spark, strategy, Options(**options), listener)
    with engine.Query(loop) as run:
        run.await_termination(240)
        records = run.records()
    expected = app.expected(source.read(0, rows))
    equal = {}
    for sink in app.keys:
        out = pipeline[sink].sink
        assert isinstance(out, Memory)
        got = app.result(sink, out.table())
        equal[sink] = got.num_rows > 0 and got.equals(app.result(sink, expected[sink]))
    return {
        "equal": equal,
        "tasks": sum(b.tasks for b in records.batches),
        "honoured": sum(b.tasks_honoured for b in records.batches),
        "executors": sorted({i.executor for i in records.instances}),
        "remote_bytes": sum(b.remote_bytes for b in records.batches),
        "local_bytes": sum(b.local_bytes for b in records.batches),
        "near_bytes": sum(
            f.host_local_bytes
            for f in jvm_of(spark.sparkContext).tasks(loop.execution.backend.group)
        ),
        "lost": records.run.rows_lost,
        "duplicated": records.run.rows_duplicated,
        "events": [event.text for event in records.events],
        "batches": len(records.batches),
    }


def applications(spark: Any) -> dict[str, Any]:
    """Every application under another strategy each."""
    names = ("even", "penstock", "ra", "ts", "rstorm", "metis")
    return {app: run_app(spark, app, names[i % len(names)]) for i, app in enumerate(apps.names())}


def pinned(spark: Any) -> dict[str, Any]:
    """Word count, every task where the plan says."""
    return run_app(spark, "wordcount", "even")


def unpinned(spark: Any) -> dict[str, Any]:
    """What Spark does unasked."""
    return run_app(spark, "wordcount", "spark")


def noticed(spark: Any) -> dict[str, Any]:
    """Pin every task one executor further than the plan says; Spark's records must show it."""
    executors = jvm_of(spark.sparkContext).executors()
    turned = {
        home: executors[(i + 1) % len(executors)].id
        for i, home in enumerate(executor_ids(executors, per_node=1))
    }
    wanted = executor_ids(executors, per_node=1)
    app = apps.make("wordcount")
    source = app.source(1e6, seed=11, rows=600)
    pipeline = app.pipeline(source, parallelism=NODES)
    seen: list[tuple[int, int]] = []
    few = Options(queue=engine.QueueOptions(size=200))
    run = prepare(pipeline, spark, "even", few)
    backend = run.execution.backend

    def misplaced(home: str) -> str:
        return turned[home]

    backend.executor_of = misplaced
    inner = backend.run

    def run_and_tell(job_graph: Any, spec: Any, senders: Any = NO_SENDERS) -> Any:
        frames = inner(job_graph, spec, senders)
        # What the plan says, not what the tasks were pinned to.
        backend.pinned = [[wanted[home] for home in places] for places in spec.layer_locations]
        return frames

    backend.run = run_and_tell  # type: ignore[method-assign]
    run.listener = lambda o: seen.append((o.batch.tasks_honoured, o.batch.tasks))
    with engine.Query(run.begin()) as query:
        query.await_termination(120)
    return {"honoured": sum(h for h, _ in seen), "tasks": sum(t for _, t in seen)}


def kill_executor(spark: Any) -> dict[str, Any]:
    """Kill an executor's process in the middle of a batch."""
    return _with_a_kill(spark, "executor")


def kill_worker(spark: Any) -> dict[str, Any]:
    """Kill a Python worker in the middle of a batch."""
    return _with_a_kill(spark, "worker")


def _with_a_kill(spark: Any, what: str) -> dict[str, Any]:
    killed: list[int] = []

    def listener(observed: Any) -> None:
        if observed.batch.batch == 1 and not killed:
            threading.Timer(0.15, strike).start()

    def strike() -> None:
        victim = process_of(jvm_of(spark.sparkContext).executors()[-1].id)
        if what == "worker":
            victim = python_worker(victim)
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)

    result = run_app(
        spark, "wordcount", "even", listener, rows=60_000, queue=engine.QueueOptions(size=6_000)
    )
    return {**result, "killed": len(killed)}


def calibration(spark: Any) -> dict[str, Any]:
    """Three placements of one application, run and simulated, with costs measured just before.

    Its counts wait instead of computing: three executors that share two cores have the capacity of
    three nodes all the same.
    """
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:.0f} s: {text}", file=sys.stderr, flush=True)

    app = CommCount(items=1000, cost_us=1000.0)
    found = calibrate.calibrate(spark, app, sizes=(200, 1200), parallelism=NODES, say=say)
    slowest = min(calibrate.capacity_per_s(found, name) for name in calibrate.PLACEMENTS)
    # One rate that all placements can work on, and one that not all can.
    rates = {"light": 0.4 * slowest, "heavy": 1.5 * slowest}
    rows: dict[str, Any] = {"profile": found.profile.to_dict()}
    for name, rate in rates.items():
        checked = calibrate.check(spark, app, found, rate, seconds=8.0, parallelism=NODES, say=say)
        rows[name] = [{**asdict(one), "rate_per_s": rate} for one in checked]
    return rows


def kill_all(spark: Any) -> dict[str, Any]:
    """Kill all executors at once, in the middle of a batch: the checkpoint has the state."""
    killed: list[int] = []

    def strike() -> None:
        for executor in jvm_of(spark.sparkContext).executors():
            os.kill(process_of(executor.id), signal.SIGKILL)
            killed.append(1)

    def listener(observed: Any) -> None:
        if observed.batch.batch == 1 and not killed:
            threading.Timer(0.15, strike).start()

    with tempfile.TemporaryDirectory(prefix="penstock-checks-") as folder:
        size = engine.QueueOptions(size=6_000)
        result = run_app(
            spark, "wordcount", "even", listener, rows=60_000, queue=size, checkpoint=folder
        )
    await_executors(spark, NODES)
    return {**result, "killed": len(killed)}


def relative(spark: Any) -> dict[str, Any]:
    """Name checkpoint and output by relative paths: executors have other working folders."""
    before = Path.cwd()
    app = apps.make("wordcount")
    source = app.source(1e6, zipf=1.0, seed=11, rows=ROWS)
    with tempfile.TemporaryDirectory(prefix="penstock-checks-") as folder:
        os.chdir(folder)
        try:
            sinks: Any = {"counts": parquet("out")}
            pipeline = app.pipeline(source, sinks, parallelism=NODES)
            with engine.start(pipeline, spark, "even", checkpoint="ck") as run:
                run.await_termination(240)
            files = sorted(Path("out").glob("batch=*/*.parquet"))
            found = pa.concat_tables([pq.read_table(path) for path in files])
            state = [path for path in Path("ck/state").rglob("*") if path.is_file()]
        finally:
            os.chdir(before)
    expected = app.result("counts", app.expected(source.read(0, ROWS))["counts"])
    return {"equal": app.result("counts", found).equals(expected), "state": len(state)}


CHECKS = {
    "applications": applications,
    "pinned": pinned,
    "unpinned": unpinned,
    "noticed": noticed,
    "together": together,
    "precopy": precopy,
    "precopy_killed": precopy_killed,
    "increments_killed": increments_killed,
    "kill_worker": kill_worker,
    "astray": astray,
    "kill_executor": kill_executor,
    "kill_all": kill_all,
    "relative": relative,
    "contract": contract,
    "recommend_only": recommend_only,
    "elastic": elastic,
    "calibration": calibration,
}

#: Checks that only run when they are named.
NAMED = ("pinned", "contract", "recommend_only", "elastic", "calibration")


def main() -> None:
    """Run the checks that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checks", nargs="*", default=[name for name in CHECKS if name not in NAMED])
    parser.add_argument("--master", default=engine.embedded(NODES, 1, 900))
    parser.add_argument("--executors", type=int, default=NODES)
    asked = parser.parse_args()
    results: dict[str, Any] = {}
    started = time.monotonic()
    conf = {}
    if asked.master.startswith("spark:"):
        conf = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
    with engine.cluster(asked.master, conf=conf) as spark:
        wait_for_executors(spark, asked.executors, 60)
        results["seconds_up"] = time.monotonic() - started
        for name in asked.checks:
            begun = time.monotonic()
            results[name] = CHECKS[name](spark)
            results[name]["seconds"] = time.monotonic() - begun
    print("RESULT " + json.dumps(results))


if __name__ == "__main__":
    main()
