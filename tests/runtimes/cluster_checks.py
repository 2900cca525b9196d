"""Run on a cluster of several processes, in a process of its own; prints JSON.

``python cluster_checks.py CHECK ...`` runs the named checks on one embedded cluster, and with
``--master URL --executors N`` on one that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from penstock import spark as engine
from penstock.apps import apps
from penstock.pipeline import Memory
from penstock.runtimes.spark.jvm import jvm_of
from penstock.runtimes.spark.nodes import executor_ids
from penstock.runtimes.spark.session import wait_for_executors
from penstock.strategies import strategies

NODES = 3
ROWS = 3000


def run_app(
    spark: Any, name: str, strategy: str, listener: Any = None, rows: int = ROWS, **options: Any
) -> dict[str, Any]:
    """Run an application in several batches and compare with what must come out."""
    app = apps.make(name)
    source = app.source(1e6, zipf=1.0, seed=11, rows=rows)
    pipeline = app.pipeline(source, parallelism=NODES, chain=False)
    options = {"queue": rows // 5, "interval_s": 0.0, **options}
    with engine.start(pipeline, spark, strategy, listener=listener, **options) as run:
        run.await_end(240)
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
            f.host_local_bytes for f in jvm_of(spark.sparkContext).tasks(run.backend.group)
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
        for i, home in enumerate(executor_ids(executors, apart=True))
    }
    wanted = executor_ids(executors, apart=True)
    app = apps.make("wordcount")
    source = app.source(1e6, seed=11, rows=600)
    pipeline = app.pipeline(source, parallelism=NODES)
    seen: list[tuple[int, int]] = []
    run = engine.Run(pipeline, spark, strategies.make("even"), engine.Options(queue=200))

    def misplaced(home: str) -> str:
        return turned[home]

    run.backend.executor_of = misplaced
    inner = run.backend.run

    def run_and_tell(layout: Any, wave: Any) -> Any:
        frames = inner(layout, wave)
        # What the plan says, not what the tasks were pinned to.
        run.backend.pinned = [[wanted[home] for home in places] for places in wave.places]
        return frames

    run.backend.run = run_and_tell  # type: ignore[method-assign]
    run._listener = lambda o: seen.append((o.batch.tasks_honoured, o.batch.tasks))
    with run.begin():
        run.await_end(120)
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
        victim = _executor_pid(jvm_of(spark.sparkContext).executors()[-1].id)
        if what == "worker":
            children = [p for p in _processes() if _parent(p) == victim]
            workers = [p for p in _processes() if _parent(p) in children]
            victim = workers[-1] if workers else children[-1]
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)

    result = run_app(spark, "wordcount", "even", listener, rows=60_000, queue=6_000)
    return {**result, "killed": len(killed)}


def _executor_pid(executor: str) -> int:
    for pid in _processes():
        if not _ancestor(pid, os.getpid()):
            continue
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if words[0].endswith("java") and f"--executor-id\0{executor}" in "\0".join(words):
            return pid
    raise LookupError(executor)


def _processes() -> list[int]:
    return [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(text.rsplit(")", 1)[1].split()[1])


def _ancestor(pid: int, wanted: int) -> bool:
    while pid > 1:
        if pid == wanted:
            return True
        pid = _parent(pid)
    return False


CHECKS = {
    "applications": applications,
    "pinned": pinned,
    "unpinned": unpinned,
    "noticed": noticed,
    "kill_worker": kill_worker,
    "kill_executor": kill_executor,
}


def main() -> None:
    """Run the checks that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("checks", nargs="*", default=[name for name in CHECKS if name != "pinned"])
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
