"""Checks of a run as the control loop sees it, and of runs that share a cluster."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from tests.runtimes.cluster_nodes import NODES, WAIT_S, ask_for, await_executors

from penstock import spark as engine
from penstock.apps import apps
from penstock.apps.commcount import CommCount
from penstock.control import Settings
from penstock.pipeline import Discard, Memory, Pipeline
from penstock.runtimes.spark.jvm import jvm_of
from penstock.runtimes.spark.options import Options
from penstock.runtimes.spark.query import launch, prepare
from penstock.runtimes.spark.runtime import SparkRuntime
from penstock.testing import RUNTIME_CHECKS, Driven


def contract(spark: Any) -> dict[str, Any]:
    """What any runtime must do for the loop, on two nodes and the room for a third."""
    sc = spark.sparkContext
    extra = [executor.id for executor in jvm_of(sc).executors()][NODES - 1 :]
    assert sc._jsc.sc().killExecutors(sc._jvm.PythonUtils.toSeq(extra))
    await_executors(spark, NODES - 1)
    found = {}
    for name, check in RUNTIME_CHECKS.items():
        try:
            check(lambda: driven(spark))
        except Exception:  # noqa: BLE001 - told to the test, and the other checks are made
            found[name] = traceback.format_exc()
        else:
            found[name] = ""
    ask_for(spark, NODES)
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
    await_executors(spark, NODES)
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
        reached = execution.driver.positions()["behaviors"][0]
        changed = execution.plan is not first
        lost, duplicated = execution.recorder.lost, execution.recorder.duplicated
    ask_for(spark, NODES)
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
    ask_for(spark, NODES)
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
