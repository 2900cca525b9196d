"""Lost executors, failing sources and sinks: what a run does about them, without Spark."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from tests.control.scene import WORDS, first_plan, small_nodes

from penstock.control.decision import LOST
from penstock.control.events import DecisionStatus, Event
from penstock.control.loop import Loop
from penstock.control.settings import Settings
from penstock.control.states import State
from penstock.engine.errors import SinkFailed, StepFailed
from penstock.model import Cluster, PenstockError
from penstock.runtimes.spark.batch_loop import LOSSES_ONLY
from penstock.runtimes.spark.errors import ExecutorLost, NoExecutors, WorkerLost
from penstock.runtimes.spark.options import Options, RecoveryOptions
from penstock.runtimes.spark.recovery import ATTEMPTS, BatchRecovery, Halted
from penstock.state.versions import StateLost
from penstock.strategies import Strategy, strategies
from penstock.testing import FakeRuntime


class FakeExecutors:
    """Stands in for `Executors`: nodes that come and go."""

    def __init__(self, all_nodes: Cluster, runtime: FakeRuntime) -> None:
        self.all, self.runtime = all_nodes, runtime
        self.left: list[str] = []

    @property
    def cluster(self) -> Cluster:
        return self.runtime.cluster

    def executors(self) -> list[Any]:
        return [SimpleNamespace(id=name) for name in self.left]

    def warm_up_new(self) -> None:
        pass

    def ready(self) -> list[Any]:
        return self.executors()

    def look(self) -> None:
        left = tuple(node for node in self.all.nodes if node.name in self.left)
        self.runtime.cluster = Cluster(left)


class FakeExecution:
    """Stands in for `Execution`: nodes that come and go, and a list of what happens to batches."""

    def __init__(self, strategy: str = "even", **options: Any) -> None:
        self.all = small_nodes(4)
        plan = first_plan("even", self.all)
        self.runtime = FakeRuntime(WORDS, plan, self.all, lambda _: 2000.0)
        self.runtime.at_once, self.runtime.failure = False, None  # type: ignore[attr-defined]
        self.options = Options(recovery=RecoveryOptions(**{"replacement_wait_s": 0.0, **options}))
        self.halt = threading.Event()
        self.told: list[tuple[str, str]] = []
        self.retries = 0
        self.driver = self.recorder = self
        self.executors = FakeExecutors(self.all, self.runtime)
        self.elapsed_s, self.spark_batch = 0.0, -1
        self.rebased = 0
        self.outcomes: list[Exception | str] = ["done"]
        source = SimpleNamespace(name="lines", source=object())
        step = SimpleNamespace(name="split", source=None)
        self.job_graph = SimpleNamespace(pipeline=SimpleNamespace(steps=(source, step)))
        self.events: dict[int, Event] = {}
        self.loop = Loop(
            self.runtime,
            cast(Strategy, strategies.make(strategy)),
            LOSSES_ONLY,
            clock=time.perf_counter,
            listener=lambda event: self.events.update({event.number: event}),
        )
        self.recovery = BatchRecovery(cast(Any, self), self.loop, cast(Any, self.runtime))

    @property
    def plan(self) -> Any:
        return self.runtime.plan

    def lose(self, *names: str) -> None:
        """Have nodes be gone."""
        self.executors.left = [name for name in self.all.names if name not in names]

    def run_batch(self, ranges: Any, extra: Any) -> str:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def event(self, kind: str, text: str) -> None:
        self.told.append((kind, text))

    def rebase(self) -> None:
        self.rebased += 1


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> FakeExecution:
    monkeypatch.setattr("penstock.runtimes.spark.recovery.LOOK_S", 0.001)
    return made()


def made(**options: Any) -> FakeExecution:
    fake = FakeExecution(**options)
    fake.lose()
    return fake


def test_a_lost_executor_is_a_decision_with_an_event(run: FakeExecution) -> None:
    victim = run.plan.nodes[1]
    run.lose(victim)
    run.outcomes = [ExecutorLost([victim]), "done"]
    assert cast(Any, run.recovery.run({})) == "done"
    assert victim not in {run.plan.nodes[i] for i in run.plan.node_of}
    assert run.loop.state is State.RELEASING
    run.loop.tick()
    (event,) = run.events.values()
    assert event.key == LOST
    assert event.status is DecisionStatus.VERIFYING
    assert victim in event.reasons[0].text
    assert [kind for kind, _ in run.told] == ["executors"]
    assert not run.runtime.at_once  # type: ignore[attr-defined]


def test_a_loss_that_the_plan_survives_changes_no_plan(run: FakeExecution) -> None:
    run.outcomes = [ExecutorLost(["9"]), "done"]
    assert cast(Any, run.recovery.run({})) == "done"
    assert run.rebased == 1
    assert not run.events


def test_state_that_is_lost_is_told_as_such(
    run: FakeExecution, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.control.runtime import ActionFailed

    def apply(plan: Any) -> Any:
        run.runtime.failure = StateLost("count")  # type: ignore[attr-defined]
        raise ActionFailed("count")

    monkeypatch.setattr(run.runtime, "apply", apply)
    run.lose(run.plan.nodes[0])
    run.outcomes = [ExecutorLost([run.plan.nodes[0]]), "done"]
    with pytest.raises(StateLost):
        run.recovery.run({})
    assert next(iter(run.events.values())).status is DecisionStatus.FAILED


def test_without_a_plan_the_run_says_why(run: FakeExecution) -> None:
    class Helpless:
        name = "helpless"

        def plan(self, request: Any) -> Any:
            raise PenstockError("nothing fits")

    run.loop.strategy = cast(Any, Helpless())
    run.lose(run.plan.nodes[0])
    run.outcomes = [ExecutorLost([run.plan.nodes[0]])]
    with pytest.raises(PenstockError, match=r"lost executors .* no plan without them: .*nothing"):
        run.recovery.run({})


def test_all_executors_may_be_gone_for_a_while(run: FakeExecution) -> None:
    names = run.plan.nodes
    run.lose(*names)
    threading.Timer(0.2, run.lose, names[:3]).start()
    run.outcomes = [ExecutorLost(names[:3]), "done"]
    assert cast(Any, run.recovery.run({})) == "done"
    assert {run.plan.nodes[i] for i in run.plan.node_of} == {names[3]}


def test_but_not_for_ever() -> None:
    run = made(no_executors_wait_s=0.05)
    run.lose(*run.plan.nodes)
    run.outcomes = [ExecutorLost(run.plan.nodes)]
    with pytest.raises(NoExecutors, match=r"none came within 0\.05 s"):
        run.recovery.run({})


def test_a_run_that_is_to_stop_does_not_wait(run: FakeExecution) -> None:
    run.lose(*run.plan.nodes)
    run.halt.set()
    run.outcomes = [ExecutorLost(run.plan.nodes)]
    with pytest.raises(Halted):
        run.recovery.run({})


@pytest.mark.parametrize("loss", [ExecutorLost([]), WorkerLost()])
def test_a_batch_that_lost_a_worker_is_run_again_some_times(
    run: FakeExecution, loss: Exception
) -> None:
    run.outcomes = [*[loss] * (ATTEMPTS - 1), "done"]
    assert cast(Any, run.recovery.run({})) == "done"
    run.outcomes = [loss] * ATTEMPTS
    with pytest.raises(type(loss)):
        run.recovery.run({})


def test_only_sources_and_sinks_are_tried_again() -> None:
    run = made(retry_pause_s=0.0, retries=2)
    source = StepFailed("lines", 0, 0, "ConnectionError", "[]")
    sink = SinkFailed("out", 0, "OSError")
    run.outcomes = [source, sink, "done"]
    assert cast(Any, run.recovery.run({})) == "done"
    assert run.retries == 2
    assert [kind for kind, _ in run.told] == ["retry", "retry"]
    run.outcomes = [sink, sink, sink]
    with pytest.raises(SinkFailed):
        run.recovery.run({})
    run.outcomes = [StepFailed("split", 0, 0, "ValueError", "[]")]
    with pytest.raises(StepFailed):
        run.recovery.run({})


def test_a_pause_ends_with_the_run() -> None:
    run = made(retry_pause_s=30.0)
    run.halt.set()
    run.outcomes = [SinkFailed("out", 0, "OSError")]
    with pytest.raises(Halted):
        run.recovery.run({})


def test_losses_are_answered_where_all_else_is_only_recommended(run: FakeExecution) -> None:
    run.loop.settings = Settings(recommend_only=True, min_nodes=1, max_nodes=4)
    victim = run.plan.nodes[2]
    run.lose(victim)
    run.outcomes = [ExecutorLost([victim]), "done"]
    assert cast(Any, run.recovery.run({})) == "done"
    assert victim not in run.plan.active
