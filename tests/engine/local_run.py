"""A driver on folders that stand for nodes, and what tests do with it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import functions as F
from penstock.common.arrays import frozen_ints
from penstock.engine.backend import NO_SENDERS, StateSenders
from penstock.engine.driver.driver import Driver, MigrationResult
from penstock.engine.job_graph import JobGraph
from penstock.engine.migration import increments
from penstock.model import Cluster, Plan
from penstock.pipeline import Memory, Pipeline, Rows
from penstock.runtimes.local import LocalBackend
from penstock.state.config import StateConfig
from penstock.state.store import clear_cache
from penstock.strategies import Request, strategies
from penstock.strategies.route.two_tier import resize

DATA = pa.table({"k": [f"w{i % 37}" for i in range(600)], "v": list(range(600))})

SUMS = {f"w{r}": sum(v for v in range(600) if v % 37 == r) for r in range(37)}

NODES = 5


def pipeline(sink: Any) -> Pipeline:
    return (
        Pipeline("sums")
        .source("rows", Rows(DATA), parallelism=2)
        .aggregate("sum", by="k", n=F.count(), t=F.sum("v"), parallelism=3)
        .aggregate("again", by="k", times=F.count(), last=F.sum("t"), parallelism=2)
        .sink("out", sink, after="sum")
        .sink("more", Memory(), after="again")
    )


class LocalRun:
    """A driver on folders that stand for nodes."""

    def __init__(self, root: Path, mode: str, nodes: int = NODES, **state_config: Any) -> None:
        self.sink = Memory()
        self.job_graph = JobGraph.of(pipeline(self.sink))
        self.root, self.position = root, 0
        self.backend = LocalBackend(root / "nodes", Cluster.of(nodes).names)
        # Every batch backs up what it changed, where a test does not say otherwise.
        self.state_config = StateConfig(mode, **{"every": 1, **state_config})
        self.driver = Driver(
            self.job_graph, self.backend, root, self.plan(0, 3), state_config=self.state_config
        )

    def plan(self, turn: int, instances: int) -> Plan:
        cluster = Cluster(tuple(n for n in Cluster.of(NODES).nodes if n.name in self.backend.nodes))
        topology = self.job_graph.topology(2).with_parallelism({"sum": instances})
        made = strategies.make("even").plan(Request(topology, cluster))
        assert isinstance(made, Plan)
        nodes = (np.asarray(made.node_of) + turn) % len(cluster)
        return replace(made, node_of=frozen_ints(nodes), active=(), routing={})

    def batch(self, rows: int = 40) -> None:
        stop = min(600, self.position + rows)
        self.driver.run_batch({"rows": ((self.position, stop),)})
        self.position = stop

    def result(self) -> dict[str, int]:
        while self.position < 600:
            self.batch(100)
        return {row["k"]: row["t"] for row in self.sink.latest("k").to_pylist()}


class Crash(Exception):
    """A driver that dies before it commits."""


def crash_in_next_batch(run: LocalRun) -> None:
    """Run a batch whose tasks do all their work, and no commit."""

    def crashing(job_graph: JobGraph, spec: Any, senders: StateSenders = NO_SENDERS) -> Any:
        list(LocalBackend.run(run.backend, job_graph, spec, senders))
        raise Crash

    run.backend.run = crashing  # type: ignore[method-assign]
    with pytest.raises(Crash):
        run.batch()


def start_again(run: LocalRun) -> None:
    """Start again from the checkpoint, on other nodes."""
    clear_cache()
    shutil.rmtree(run.backend.root, ignore_errors=True)
    run.driver = Driver(
        run.job_graph,
        run.backend,
        run.root,
        run.plan(0, 3),
        state_config=run.state_config,
    )
    run.position = run.driver.positions()["rows"][0]
    pending = run.driver.pending()
    if pending is not None:
        run.driver.run_batch(pending)
        run.position = pending["rows"][-1][1]


def without_copies(run: LocalRun, vertex: str) -> None:
    """Remove a vertex's state from all nodes behind the engine's back, and from memory."""
    folders = list(run.backend.root.glob(f"*/state/{vertex}"))
    assert folders
    for folder in folders:
        shutil.rmtree(folder)
    clear_cache()


def in_increments(
    run: LocalRun, plan: Plan, most: int, *, inband: bool = False
) -> Iterator[MigrationResult]:
    """Adopt a plan with a table, repartitioning so many bytes at a time."""
    held = run.driver.handles["sum"].table
    assert held is not None
    plan = replace(plan, routing={"sum": resize(held, plan.parallelism["sum"])})
    before, increments.INCREMENT_BYTES = increments.INCREMENT_BYTES, most
    try:
        for _ in range(1000):
            part = run.driver.next_increment(plan)
            yield run.driver.adopt(part, inband=inband)
            if part is plan:
                return
    finally:
        increments.INCREMENT_BYTES = before
    raise AssertionError("it does not come to an end")


def await_thread(name: str) -> None:
    """Wait for a background thread."""
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(30)
            assert not thread.is_alive()


def await_backup() -> None:
    await_thread("penstock-async-backup")


def fragment_files(run: LocalRun) -> list[Path]:
    return [p for p in run.backend.root.glob("*/fragments/**/*") if p.is_file()]


def await_precopy() -> None:
    await_thread("penstock-precopy")


def precopied_files(run: LocalRun) -> list[Path]:
    return [p for p in run.backend.root.glob("*/precopied/**/*") if p.is_file()]


def precopied_run(root: Path, mode: str = "peers", **state_config: Any) -> tuple[LocalRun, Plan]:
    """Run some batches, and pre-copy the state that a plan moves."""
    run = LocalRun(root, mode, **state_config)
    run.batch(200)
    run.batch(10)
    plan = run.plan(1, 3)
    assert not run.driver.precopy(plan)
    await_precopy()
    return run, plan


def executors(run: LocalRun) -> list[str]:
    return [instance.executor for instance in run.driver.handles["sum"].instances]


def spoil_gone(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()


def spoil_names(paths: list[Path]) -> None:
    for path in paths:
        path.rename(path.with_name("segment-7-3.arrow"))


def spoil_some(paths: list[Path]) -> None:
    spoil_gone(sorted(paths)[::2])


def spoil_length(paths: list[Path]) -> None:
    for path in paths:
        path.write_bytes(path.read_bytes()[:-8])
