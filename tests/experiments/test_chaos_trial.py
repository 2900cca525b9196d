"""What trials are made of, without Spark: sources, options, what is compared, other processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from penstock.engine.driver.commit_log import FOLDER, CommitLog
from penstock.experiments.chaos_processes import OUTCOME, _Driver, _obey_permissions
from penstock.experiments.chaos_trial import (
    LOAD_QUEUE,
    LOAD_ROWS,
    ROWS,
    TrialOutcome,
    app_of,
    bounded,
    compared,
    options_of,
    source_of,
    taken,
)
from penstock.faults.schedules import BATCHES, Schedule, matrix
from penstock.model import PenstockError
from penstock.store.records import BatchRecord

WAIT, DROP = Schedule("a", "wordcount", load="wait"), Schedule("a", "wordcount", load="drop")


def test_ten_times_as_many_rows_come_as_a_run_under_load_takes() -> None:
    for schedule in (WAIT, DROP):
        options, source = options_of(schedule, None), source_of(schedule)
        most = options.queue.size / options.interval_s
        assert source.available(1.0) == pytest.approx(10 * most, rel=0.01)
        assert options.queue.when_full == schedule.load
    calm = Schedule("a", "wordcount")
    assert source_of(calm).available(1.0) >= ROWS
    assert options_of(calm, None).queue.size == ROWS // BATCHES
    assert options_of(calm, None).queue.when_full == "wait"


def batches(*pairs: tuple[int, int]) -> tuple[BatchRecord, ...]:
    """Batches that read and dropped so many rows."""
    return tuple(
        BatchRecord("r", i, 0.0, 1.0, rows_in=read, dropped=dropped)
        for i, (read, dropped) in enumerate(pairs)
    )


def test_a_queue_that_loses_count_is_noticed() -> None:
    rest = LOAD_ROWS - LOAD_QUEUE
    assert all(bounded(batches((LOAD_QUEUE, rest)), "drop").values())
    assert not all(bounded(batches((LOAD_QUEUE, rest - 1)), "drop").values())
    assert not all(bounded(batches((LOAD_QUEUE + 1, rest - 1)), "drop").values())
    every = batches(*[(LOAD_QUEUE, 0)] * (LOAD_ROWS // LOAD_QUEUE))
    assert all(bounded(every, "wait").values())
    assert not all(bounded(every, "drop").values()), "nothing was dropped: there was no load"
    assert not all(bounded(batches((LOAD_QUEUE, rest)), "wait").values())


def test_what_was_dropped_is_not_expected(tmp_path: Path) -> None:
    log = CommitLog(tmp_path / "checkpoint" / FOLDER)
    log.take_epoch()
    cuts = [(0, 100), (300, 400), (900, 950)]
    for number, cut in enumerate(cuts):
        log.begin(number, {"ranges": {"lines": [list(cut)]}})
        if number < 2:
            log.commit(number, {"batch": number})
    assert taken(tmp_path) == cuts[:2], "a batch that was not committed does not count"
    app, source = app_of(DROP), source_of(DROP)
    read = pa.concat_tables([source.read(0, 100), source.read(300, 400)])
    assert compared(DROP, app.expected(read), tmp_path) == {"counts": True}
    assert compared(DROP, app.expected(source.read(0, 400)), tmp_path) == {"counts": False}
    assert compared(DROP, {"counts": pa.table({})}, tmp_path) == {"counts": False}
    with pytest.raises(PenstockError, match="checkpoint"):
        taken(None)


def test_a_schedule_that_splits_keys_has_an_application_that_does() -> None:
    (schedule,) = matrix(["commcount"], only="kill-while-split")
    steps = app_of(schedule).pipeline(source_of(schedule), parallelism=2).steps
    assert any(step.splittable for step in steps)


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Let a process that does what a script says stand for a driver."""

    def made(kind: str, script: str) -> _Driver:
        (schedule,) = matrix(["wordcount"], only=kind)
        shell = tmp_path / "python"
        shell.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{script}' {tmp_path / OUTCOME}\n")
        shell.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(shell))
        return _Driver(schedule, tmp_path, 3)

    return made


def outcome(error: str) -> str:
    """Return a script that writes an outcome with an error down."""
    told = TrialOutcome("s", "wordcount", "n", {}, 1.0, error, ["something"]).to_dict()
    text = json.dumps(json.dumps(told))
    return f"import sys; from pathlib import Path; Path(sys.argv[1]).write_text({text})"


KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
STOP = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP); "


@pytest.mark.parametrize(
    ("kind", "script", "good"),
    [
        ("kill-driver", KILL, True),
        ("kill-driver", outcome(""), False),
        ("read-only", outcome("PermissionError: no"), True),
        ("read-only", outcome(""), False),
        ("read-only", KILL, False),
    ],
)
def test_a_driver_must_end_as_its_fault_ends_it(
    child: Any, kind: str, script: str, good: bool
) -> None:
    driver = child(kind, script)
    assert ("was killed" in driver.await_exit()) == (script == KILL)
    assert driver.ended_as_it_must() is good
    driver.end()


@pytest.mark.parametrize(("error", "good"), [("Fenced: by", True), ("", False), ("Late", False)])
def test_a_driver_that_wakes_up_must_be_fenced(child: Any, error: str, good: bool) -> None:
    driver = child("pause-driver", STOP + outcome(error))
    assert driver.await_stop() == "was stopped"
    assert driver.wake() == "ended with code 0"
    assert driver.ended_as_it_must() is good


def test_a_driver_that_is_not_stopped_in_time_is_told_with_its_output(child: Any) -> None:
    driver = child("pause-driver", "print(1 + 41)")
    with pytest.raises(PenstockError, match="42"):
        driver.await_stop()


def test_a_stopped_driver_does_not_stay_behind(child: Any) -> None:
    driver = child("pause-driver", STOP)
    driver.await_stop()
    driver.end()
    assert driver.await_exit() == "was killed"
    assert driver._process.returncode == -signal.SIGKILL


def test_permissions_hold_for_what_root_starts(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from penstock.runtimes.spark.disturb import ReadOnly

path = Path(sys.argv[1])
folder = ReadOnly(path)
try:
    (path / "a").write_text("x")
except PermissionError:
    folder.undo()
    (path / "b").write_text("x")
"""
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=True,
        preexec_fn=_obey_permissions(),
    )
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
