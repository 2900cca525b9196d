"""The injector against a run that only pretends: what happens when, to whom, and what is undone."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

from penstock.faults.fault import Fault
from penstock.model import PenstockError
from penstock.runtimes.spark import injector
from penstock.runtimes.spark.injector import Injector, NoSuchProcess, master_pid, node_pid


@dataclass
class Jobs:
    """Spark's tracker: the groups that have a running job."""

    running: set[str]

    def getJobIdsForGroup(self, group: str) -> list[int]:  # noqa: N802 - the name of Spark
        return [1] if group in self.running else []

    def getJobInfo(self, job: int) -> Any:  # noqa: N802 - the name of Spark
        return SimpleNamespace(status="RUNNING")


@dataclass
class FakeExecution:
    """A run with two executors, of which the first has state."""

    checkpoint: Path
    running: set[str] = field(default_factory=lambda: {"batch"})
    events: list[str] = field(default_factory=list)
    changed: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        context = SimpleNamespace(
            applicationId="app-1",
            master="spark://127.0.0.1:1",
            statusTracker=lambda: Jobs(self.running),
        )
        self.spark = SimpleNamespace(sparkContext=context)
        self.backend = SimpleNamespace(
            group="batch", moving="move", background="backup", alive=lambda: frozenset("12")
        )
        instances = [SimpleNamespace(executor="1")]
        handles = {"count": SimpleNamespace(instances=instances)}
        self.driver = SimpleNamespace(handles=handles)
        self.folder = SimpleNamespace(checkpoint=str(self.checkpoint))
        self.recorder = SimpleNamespace(event=lambda kind, text: self.events.append(text))
        self.measured: Any = None

    def measurements(self) -> Any:
        return self.measured

    def change(self, plan: Any, why: str = "") -> None:
        self.changed.append(plan)


@pytest.fixture
def execution(tmp_path: Path) -> FakeExecution:
    return FakeExecution(tmp_path)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Signals that were sent; executor 1 is process 11, with processes 111 and 112 below it."""
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.append((pid, number)))
    monkeypatch.setattr(injector, "executor_pid", lambda app, executor: 10 + int(executor))
    monkeypatch.setattr(injector, "python_worker", lambda executor: executor * 10 + 2)
    monkeypatch.setattr(injector, "processes_below", lambda pid: [pid, pid * 10 + 1, pid * 10 + 2])
    monkeypatch.setattr(injector, "AFTER_PAUSE_S", 0.0)
    monkeypatch.setattr(injector, "BEGIN_S", 0.5)
    return signals


def injected(execution: Any, *texts: str) -> Injector:
    made = Injector(execution, [Fault.parse(text) for text in texts])
    for batch in range(5):
        made.before(batch)
    return made


@pytest.mark.parametrize(
    ("text", "during", "killed"),
    [
        ("kill-executor@batch=3", "batch", [11]),
        ("kill-executor@batch=3:of=idle", "batch", [12]),
        ("kill-executor@batch=3:count=all", "batch", [11, 12]),
        ("kill-executor@batch=3:during=move", "move", [11]),
        ("kill-executor@batch=3:during=backup", "backup", [11]),
        ("kill-worker@batch=3", "batch", [112]),
    ],
)
def test_processes_are_killed_while_a_job_runs(
    execution: FakeExecution, sent: list[Any], text: str, during: str, killed: list[int]
) -> None:
    execution.running.clear()
    made = injected(execution, text)
    time.sleep(0.05)
    assert not sent, "no job runs yet"
    execution.running.add(during)
    deadline = time.monotonic() + 60
    while not execution.events:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    made.done()
    assert sent == [(pid, signal.SIGKILL) for pid in killed]
    assert execution.events == [f"{text}: killed {len(killed)}"]


def test_a_fault_whose_moment_does_not_come_fails_the_trial(
    execution: FakeExecution, sent: list[Any]
) -> None:
    made = injected(execution, "kill-executor@batch=3:during=backup")
    with pytest.raises(NoSuchProcess, match="no job began"):
        made.done()
    later = injected(execution, "kill-executor@batch=9")
    later.done()
    assert execution.events == ["kill-executor@batch=9: the run ended before"]


@pytest.mark.parametrize(
    ("text", "stopped"),
    [
        ("pause-executor@batch=3:seconds=1", [11, 111, 112]),
        ("pause-worker@batch=3:seconds=1", [112]),
    ],
)
def test_a_paused_process_goes_on_whether_or_not_the_run_has_ended(
    execution: FakeExecution, sent: list[Any], text: str, stopped: list[int]
) -> None:
    made = injected(execution, text)
    while len(sent) < len(stopped):
        time.sleep(0.005)
    started = time.monotonic()
    made.done()
    assert time.monotonic() - started > 0.5, "a run ends when it was continued, not before"
    order = [signal.SIGSTOP, signal.SIGCONT]
    assert sent == [(pid, number) for number in order for pid in stopped]
    assert execution.events == [f"{text}: stopped {len(stopped)}", f"{text}: went on"]


def test_what_lasts_is_undone_when_a_run_fails(
    execution: FakeExecution, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    limited: list[int] = []

    class Full:
        def __init__(self, pids: list[int]) -> None:
            limited.extend(pids)

        def __len__(self) -> int:
            return len(limited)

        def undo(self) -> None:
            limited.clear()

    monkeypatch.setattr(injector, "FullDisk", Full)
    made = injected(execution, "clock-back@batch=2:seconds=60", "disk-full@batch=3")
    assert time.time is not real
    assert limited == [111, 112, 121, 122], "the Python processes below both executors"
    assert execution.events[1] == "disk-full@batch=3: 4 processes cannot write"
    made.undo()
    assert time.time is real
    assert not limited
    made = injected(execution, "disk-full@batch=3:where=driver")
    assert limited == [os.getpid()]
    made.undo()


def test_the_hottest_keys_are_split_over_all_instances(execution: FakeExecution) -> None:
    @dataclass(frozen=True)
    class FakePlan:
        parallelism: Any
        routing: Any

    run: Any = execution
    run.plan = FakePlan({"rows": 1, "count": 3}, {})
    run.job_graph = SimpleNamespace(
        vertices=[
            SimpleNamespace(name="rows", splittable=False),
            SimpleNamespace(name="count", splittable=True),
        ]
    )
    with pytest.raises(PenstockError, match="no keys were split"):
        injected(run, "split@batch=3")
    execution.measured = SimpleNamespace(hot_keys={"count": {5: 1.0, 6: 9.0, 7: 4.0}})
    injected(run, "split@batch=3")
    table = execution.changed[0].routing["count"]
    assert dict(table.split) == {6: (0, 1, 2), 7: (0, 1, 2)}
    assert set(np.unique(table.partitions)) == {0, 1, 2}


def test_only_a_standalone_cluster_has_a_worker_and_a_master() -> None:
    with pytest.raises(NoSuchProcess, match="standalone"):
        node_pid(os.getpid())
    with pytest.raises(NoSuchProcess, match="not a standalone master"):
        master_pid("spark://127.0.0.1:1")
