"""Run on a cluster of several processes, in a process of its own; prints JSON.

``python cluster_checks.py CHECK ...`` runs the named checks on one embedded cluster, and with
``--master URL --executors N`` on one that is there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark import SparkContext

from penstock import spark as engine
from penstock.apps import apps
from penstock.apps.commcount import CommCount
from penstock.common.key_hashing import key_hashes
from penstock.control import Settings
from penstock.engine.backend import NO_SENDERS, Stage
from penstock.engine.migration import increments as repartitioning
from penstock.engine.migration import precopy as copying
from penstock.experiments.calibrate import measure as calibrate
from penstock.pipeline import Discard, Memory, Pipeline
from penstock.runtimes.spark.injector import executor_pid, holding, python_worker
from penstock.runtimes.spark.jvm import jvm_of
from penstock.runtimes.spark.nodes import executor_ids
from penstock.runtimes.spark.options import Options
from penstock.runtimes.spark.query import launch, prepare
from penstock.runtimes.spark.runtime import SparkRuntime
from penstock.runtimes.spark.session import wait_for_executors
from penstock.testing import RUNTIME_CHECKS, Driven

NODES = 3
ROWS = 3000

#: Seconds that executors may take to come or to go.
WAIT_S = 90.0


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
        for i, home in enumerate(executor_ids(executors, apart=True))
    }
    wanted = executor_ids(executors, apart=True)
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
        victim = _executor_pid(jvm_of(spark.sparkContext).executors()[-1].id)
        if what == "worker":
            victim = python_worker(victim)
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)

    result = run_app(
        spark, "wordcount", "even", listener, rows=60_000, queue=engine.QueueOptions(size=6_000)
    )
    return {**result, "killed": len(killed)}


def astray(spark: Any) -> dict[str, Any]:
    """Kill a worker when its executor has something else to do: Spark runs the task elsewhere."""
    app = CommCount(items=500, cost_us=1000.0)
    source = app.source(1e6, zipf=0.2, seed=11, rows=2 * ROWS)
    pipeline = app.pipeline(source, parallelism=NODES)
    run = prepare(pipeline, spark, "even", Options(control=None))
    execution = run.execution
    struck: list[int] = []
    busy = threading.Thread(target=lambda: execution.backend.job("busy", [Stage(place, _wait)]))

    def strike() -> None:
        # It waits for the slot of the task, and has it before that is repeated.
        busy.start()
        time.sleep(0.2)
        for daemon in psutil.Process(_executor_pid(place[0])).children():
            for worker in daemon.children():
                worker.kill()
                struck.append(worker.pid)

    try:
        run.batch({"behaviors": ((0, ROWS),)})
        place = (holding(execution)[-1],)
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


def _wait(partition: int, arrived: Any, place: Path) -> Iterator[tuple[int, bytes]]:
    for _ in arrived:
        pass
    time.sleep(1.0)
    yield from ()


def ahead(spark: Any) -> dict[str, Any]:
    """Move all state after copying it ahead, while batches go on."""
    return _ahead(spark)


def ahead_killed(spark: Any) -> dict[str, Any]:
    """Kill an executor that state is just copied to."""
    found = _ahead(spark, kill=True)
    _await_executors(spark, NODES)
    return found


def _ahead(spark: Any, *, kill: bool = False) -> dict[str, Any]:
    # The check before it may have given some up.
    _ask_for(spark, NODES)
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
            killed.append(_executor_pid(stages[1].executors[0]))
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


def portions_killed(spark: Any) -> dict[str, Any]:
    """Deal all router partitions anew, a portion after each batch; an executor dies on the way.

    The hottest keys are split all the while.
    """
    _ask_for(spark, NODES)
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
    most, repartitioning.PORTION_BYTES = repartitioning.PORTION_BYTES, 40_000
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
            shared += bool(execution.driver.shares)
            if len(applied) == 2:
                os.kill(_executor_pid(holding(execution)[0]), signal.SIGKILL)
        counts, reached = (
            (execution.recorder.lost, execution.recorder.duplicated),
            execution.plan.routing["count"].partitions,
        )
        texts = [event.text for event in execution.recorder.records().events]
    finally:
        repartitioning.PORTION_BYTES = most
        run.close()
    _await_executors(spark, NODES)
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


def contract(spark: Any) -> dict[str, Any]:
    """What any runtime must do for the loop, on two nodes and the room for a third."""
    sc = spark.sparkContext
    extra = [executor.id for executor in jvm_of(sc).executors()][NODES - 1 :]
    assert sc._jsc.sc().killExecutors(sc._jvm.PythonUtils.toSeq(extra))
    _await_executors(spark, NODES - 1)
    found = {}
    for name, check in RUNTIME_CHECKS.items():
        try:
            check(lambda: driven(spark))
        except Exception:  # noqa: BLE001 - told to the test, and the other checks are made
            found[name] = traceback.format_exc()
        else:
            found[name] = ""
    _ask_for(spark, NODES)
    return {"broken": found}


class Patient(SparkRuntime):
    """Remembers how many nodes are to come or to stay."""

    wanted = 0

    def request_nodes(self, total: int) -> None:
        super().request_nodes(total)
        self.wanted = total

    def release_nodes(self, names: tuple[str, ...]) -> None:
        super().release_nodes(names)
        self.wanted -= len(names)


@contextmanager
def driven(spark: Any) -> Iterator[Driven]:
    """Make a run whose batches are made one by one, in this thread."""
    app = apps.make("wordcount")
    source = app.source(2000.0, zipf=1.0, seed=11)
    pipeline = app.pipeline(source, {"counts": Discard()}, parallelism=NODES)
    run = prepare(pipeline, spark, "even", Options(control=None))
    execution = run.execution
    runtime = Patient(execution)

    def batch() -> None:
        time.sleep(0.05)
        run.batch(
            {
                name: source_queue.take(execution.elapsed_s)
                for name, source_queue in execution.queues.items()
            }
        )
        execution.executors.warm_up_new()

    def advance(batches: int) -> None:
        deadline = time.monotonic() + WAIT_S
        for _ in range(min(batches, 12)):
            batch()
        # Nodes come in seconds, not in batches.
        while (
            runtime.wanted not in (0, len(execution.executors.look()))
            and time.monotonic() < deadline
        ):
            batch()

    execution.backend.warm_up()
    try:
        yield Driven(runtime, advance)
    finally:
        run.close()


class Steered:
    """A source whose rate is raised when a test says so: machines differ in how fast they react."""

    stamp = None
    end = None

    def __init__(self, inner: Any, low: float, high: float) -> None:
        self.inner, self.low, self.high = inner, low, high
        self.schema, self.rate_per_s = inner.schema, low
        self.raised_s = float("inf")

    def available(self, elapsed_s: float) -> int:
        late_s = max(0.0, elapsed_s - self.raised_s)
        return int(self.low * (elapsed_s - late_s) + self.high * late_s)

    def read(self, start: int, stop: int) -> Any:
        return self.inner.read(start, stop)


def recommend_only(spark: Any) -> dict[str, Any]:
    """A stream that needs fewer nodes than it has, and a loop that may only say so."""
    return _waiting(spark, recommend_only=True)


def elastic(spark: Any) -> dict[str, Any]:
    """A stream that needs one node, and later two."""
    return _waiting(spark)


def _waiting(spark: Any, **control: Any) -> dict[str, Any]:
    _await_executors(spark, NODES)
    app = CommCount(items=1000, cost_us=2000.0)
    source = Steered(app.source(1e6, zipf=0.2, seed=4), 100.0, 650.0)
    pipeline = app.pipeline(source, parallelism={"behaviors": 1, "count": 2 * NODES})
    nodes: list[int] = []
    events: dict[int, Any] = {}
    settings = Settings(
        every=2, cooldown=2, stable_rounds=1, min_nodes=1, max_nodes=NODES, **control
    )
    loop = launch(
        pipeline,
        spark,
        "penstock",
        Options(control=settings, interval_s=0.4),
        on_decision=lambda event: events.update({event.number: event}),
    )
    execution = loop.execution
    with engine.Query(loop) as run:
        first = execution.plan

        def until(reached: Callable[[], bool]) -> None:
            deadline = time.monotonic() + 2 * WAIT_S
            while not reached() and time.monotonic() < deadline and not run.await_termination(0.1):
                nodes.append(len(execution.executors.executors()))
            nodes.append(len(execution.executors.executors()))

        if settings.recommend_only:
            until(lambda: bool(events))
            heard = execution.driver.batch
            until(lambda: execution.driver.batch > heard + 4)
        else:
            until(lambda: len(execution.executors.executors()) == 1)
            source.raised_s = execution.elapsed_s
            until(lambda: len(execution.plan.active) > 1)
        run.stop()
        run.await_termination(1)
        reached = execution.driver.position()["behaviors"]
        changed = execution.plan is not first
        lost, duplicated = execution.recorder.lost, execution.recorder.duplicated
    _ask_for(spark, NODES)
    out = pipeline["counts"].sink
    assert isinstance(out, Memory)
    expected = app.expected(source.read(0, reached))["counts"]
    return {
        "equal": app.result("counts", out.table()).equals(app.result("counts", expected)),
        "lost": lost,
        "duplicated": duplicated,
        "nodes": [number for number, _ in groupby(nodes)],
        "changed": changed,
        "decisions": [(event.status.value, event.text) for event in events.values()],
    }


def _ask_for(spark: Any, executors: int) -> None:
    sc = spark.sparkContext
    sc._jsc.sc().requestTotalExecutors(executors, 0, sc._jvm.PythonUtils.toScalaMap({}))
    _await_executors(spark, executors)


def _await_executors(spark: Any, count: int) -> None:
    jvm, deadline = jvm_of(spark.sparkContext), time.monotonic() + WAIT_S
    while True:
        there = {executor.id for executor in jvm.executors()}
        if len(there) == count and not jvm.gone(there):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"there are not {count} executors after {WAIT_S:g} s")
        time.sleep(0.1)


def together(spark: Any) -> dict[str, Any]:
    """Two applications at once that share the nodes, and a third that fails."""
    parts: dict[str, Any] = {}
    for name, app_name in (("words", "wordcount"), ("views", "commcount")):
        app = apps.make(app_name)
        source = app.source(2000.0, zipf=1.0, seed=11, rows=12_000)
        parts[name] = (app, source, app.pipeline(source, parallelism=2, chain=False))
    bad = apps.make("wordcount").source(2000.0, seed=11, rows=12_000)
    pipelines = {name: part[2] for name, part in parts.items()}
    pipelines["bad"] = _failing(bad)
    decisions: set[int] = set()
    seen: dict[str, int] = {}
    with engine.start_together(
        pipelines,
        spark,
        control=Settings(every=2, cooldown=2, stable_rounds=1),
        listener=lambda name, _: seen.update({name: seen.get(name, 0) + 1}),
        on_decision=lambda event: decisions.add(event.number),
        interval_s=0.2,
    ) as group:
        ended = group.await_termination(180)
        failures = {name: str(error) for name, error in group.failures.items()}
        records = {name: group[name].records() for name in group.runs}
        planner = repr(group.planner_failure) if group.planner_failure else ""
        left = len(jvm_of(spark.sparkContext).executors())
    _ask_for(spark, NODES)
    equal = {}
    for name, (app, source, pipeline) in parts.items():
        expected = app.expected(source.read(0, 12_000))
        for sink in app.keys:
            got = app.result(sink, pipeline[sink].sink.table())
            same = got.equals(app.result(sink, expected[sink]))
            equal[f"{name}/{sink}"] = got.num_rows > 0 and same
    return {
        "ended": ended,
        "equal": equal,
        "failures": failures,
        "planner": planner,
        "decisions": len(decisions),
        "batches": seen,
        "left": left,
        "rows": {
            n: [r.run.rows_lost, r.run.rows_duplicated, r.run.status.value]
            for n, r in records.items()
        },
        "events": {n: [e.text for e in r.events] for n, r in records.items()},
    }


def _failing(source: Any) -> Any:
    def fail(table: Any) -> Any:
        raise ValueError("a function that fails")

    return Pipeline("bad").source("lines", source).map("fail", fail).sink("out", Memory())


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


def _executor_pid(executor: str) -> int:
    context = SparkContext._active_spark_context
    assert context is not None
    return executor_pid(str(context.applicationId), executor)


CHECKS = {
    "applications": applications,
    "pinned": pinned,
    "unpinned": unpinned,
    "noticed": noticed,
    "together": together,
    "ahead": ahead,
    "ahead_killed": ahead_killed,
    "portions_killed": portions_killed,
    "kill_worker": kill_worker,
    "astray": astray,
    "kill_executor": kill_executor,
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
