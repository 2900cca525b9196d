"""Several runs under one loop, without Spark: threads, drop-outs, stopping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from tests.control.scene import WORDS, first_plan, small_nodes

from penstock.control.events import Event
from penstock.control.runtime import Applied, Runtime
from penstock.control.settings import Settings
from penstock.model import Cluster, Plan, Topology
from penstock.runtimes.spark import group as module
from penstock.runtimes.spark.batch_loop import BatchLoop
from penstock.runtimes.spark.group import Group
from penstock.runtimes.spark.mailbox import Mailbox
from penstock.strategies import strategies
from penstock.testing import FakeRuntime

#: Seconds for anything to happen, on a machine that is busy with other things.
WAIT_S = 60.0

ENDLESS = 10**9


class Busy(FakeRuntime):
    """Notes when it is touched while a batch runs, or by a thread that is not its own."""

    working = False
    owner: threading.Thread | None = None
    intruded = 0

    def run(self, batches: int = 1) -> None:
        self.working = True
        super().run(batches)
        time.sleep(0.0005)
        self.working = False

    def observe(self) -> Any:
        self._check()
        return super().observe()

    def prepare(self, plan: Plan) -> bool:
        self._check()
        return super().prepare(plan)

    def apply(self, plan: Plan) -> Applied:
        self._check()
        return super().apply(plan)

    def _check(self) -> None:
        self.intruded += self.working or threading.current_thread() is not self.owner


class FakeRecorder:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.notes: list[str] = []

    def of_loop(self) -> Callable[[Event], None]:
        return self.events.append

    def event(self, kind: str, text: str) -> None:
        self.notes.append(text)


class FakeRun:
    """Stands in for `BatchLoop` and its `Execution`: a thread that lets batches pass."""

    def __init__(self, rate: float, batches: int, fails_at: int = -1) -> None:
        cluster = small_nodes(4)
        self.runtime = Busy(
            WORDS, first_plan("even", cluster), cluster, lambda _: rate, ahead_batches=2
        )
        self.execution = self.executors = self
        self.recorder = FakeRecorder()
        self.mailbox = Mailbox()
        self.failure: BaseException | None = None
        self.group: Group | None = None
        self.closed = False
        self.batches = 0
        self._most, self._fails_at = batches, fails_at
        self.halt, self.over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._drive, daemon=True)
        self.runtime.owner = self._thread

    @property
    def topology(self) -> Topology:
        return self.runtime.topology

    @property
    def plan(self) -> Plan:
        return self.runtime.plan

    @property
    def cluster(self) -> Cluster:
        return self.runtime.cluster

    @property
    def events(self) -> list[Event]:
        return self.recorder.events

    @property
    def notes(self) -> list[str]:
        return self.recorder.notes

    def begin(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 120.0) -> None:
        self.halt.set()
        self._thread.join(timeout_s)

    def close(self) -> None:
        self.closed = True

    def _drive(self) -> None:
        assert self.group is not None
        try:
            while not self.halt.is_set() and self.batches < self._most:
                self.runtime.run(1)
                self.batches += 1
                if self.batches == self._fails_at:
                    raise RuntimeError("a function of the user's raised")
                self.group.committed()
                self.mailbox.serve()
        except RuntimeError as error:
            self.failure = error
        finally:
            self.mailbox.close("the run is over")
            self.over.set()


def grouped(**runs: FakeRun) -> Group:
    group = Group(
        cast(dict[str, BatchLoop], runs),
        strategies.make("penstock"),
        Settings(every=1, cooldown=0, stable_rounds=1),
        runtime_of=lambda run: cast(Runtime, cast(Any, run).runtime),
    )
    for run in runs.values():
        run.group = group
    return group


def until(reached: Callable[[], bool]) -> None:
    """Wait for another thread: how many batches it takes depends on who gets to run."""
    deadline = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)


def test_each_run_acts_in_its_own_thread_between_its_batches() -> None:
    a, b = FakeRun(500.0, ENDLESS), FakeRun(500.0, ENDLESS)

    def packed() -> bool:
        # The first plans are even; both are packed together.
        nodes = set(a.plan.node_of.tolist()) | set(b.plan.node_of.tolist())
        return len(nodes) < 4 and bool({e.number for e in a.events} & {e.number for e in b.events})

    with grouped(a=a, b=b).begin() as group:
        until(packed)
        assert not group.failures
        assert group.planner_failure is None
    assert [run.runtime.intruded for run in (a, b)] == [0, 0]
    assert a.closed
    assert b.closed


def test_one_that_fails_stops_no_other() -> None:
    runs = {"a": FakeRun(500.0, ENDLESS), "bad": FakeRun(500.0, ENDLESS, fails_at=20)}
    with grouped(**runs).begin() as group:
        until(lambda: "bad failed; its share of the nodes is free" in runs["a"].notes)
        assert set(group.failures) == {"bad"}
        after = runs["a"].batches + 20
        until(lambda: runs["a"].batches > after)
        assert group.planner_failure is None


def test_stopping_stops_all_after_their_batches() -> None:
    runs = {name: FakeRun(500.0, ENDLESS) for name in ("a", "b", "c")}
    with grouped(**runs).begin() as group:
        until(lambda: all(run.batches > 1 for run in runs.values()))
        assert not group.await_termination(0.01)
        assert not group.runs["a"].over.is_set()
    assert all(run.over.is_set() for run in runs.values())


def test_runs_go_on_when_the_planner_fails() -> None:
    class Foolish:
        name = "foolish"

        def plan(self, request: object) -> Plan:
            raise ZeroDivisionError("by nothing")

    a, b = FakeRun(8000.0, ENDLESS), FakeRun(8000.0, ENDLESS)
    group = grouped(a=a, b=b)
    assert group.loop is not None
    group.loop.strategy = cast(Any, Foolish())
    with group.begin():
        until(lambda: any("nobody plans any more" in text for text in a.notes))
        assert isinstance(group.planner_failure, ZeroDivisionError)
        after = max(a.batches, b.batches) + 20
        until(lambda: min(a.batches, b.batches) > after)


def test_an_idle_run_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle(FakeRun):
        def _drive(self) -> None:
            self.halt.wait()
            self.mailbox.close("the run is over")
            self.over.set()

    monkeypatch.setattr(module, "OBSERVE_S", 0.01)
    a, idle = FakeRun(500.0, ENDLESS), Idle(500.0, 0)
    with grouped(a=a, idle=idle).begin() as group:
        loop = group.loop
        assert loop is not None
        until(lambda: loop.ticks >= 5)
    assert group.planner_failure is None
    assert not [text for text in a.notes if "idle" in text]
