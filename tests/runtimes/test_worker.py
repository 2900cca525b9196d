"""What runs around the body of a task in a Python worker."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from penstock.engine.errors import TaskTimedOut
from penstock.runtimes.spark.errors import TaskFailed
from penstock.runtimes.spark.folders import Probe, RunFolder, probed, problem_here
from penstock.runtimes.spark.worker import as_pairs, time_limit


def test_a_task_that_sleeps_is_interrupted() -> None:
    started = time.monotonic()
    with pytest.raises(TaskTimedOut, match=r"did not return within 0\.1 s"), time_limit(0.1):
        time.sleep(30)
    assert time.monotonic() - started < 10


def test_so_is_one_that_computes_and_catches_everything() -> None:
    def stubborn() -> None:
        while True:
            try:
                sum(range(100))
            except Exception:  # noqa: BLE001, S112 - what a user may write
                continue

    with pytest.raises(TaskTimedOut), time_limit(0.1):
        stubborn()


def test_a_task_in_time_is_left_alone() -> None:
    with time_limit(0.1):
        pass
    with time_limit(0.0):
        time.sleep(0.15)


def test_messages_are_written_after_their_partition() -> None:
    assert list(as_pairs([(258, b"x")])) == [b"\0\0\0\0\0\0\1\2", b"x"]


def test_a_failure_of_spark_tells_what_python_said() -> None:
    text = (
        "org.apache.spark.SparkException: Job aborted: Task 0 in stage 1.0 failed\n"
        "Traceback (most recent call last):\n  File x\nImportError: no module\n"
        "\n\tat org.apache.spark.api.python.Base.read(Base.scala:1)\n\tat more"
    )
    told = str(TaskFailed(text))
    assert told.endswith("ImportError: no module")
    assert "scala" not in told
    assert str(TaskFailed("no heap\n\tat x")) == "Spark could not run a task: no heap"


def test_a_relative_checkpoint_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder("ck")
    assert folder.checkpoint == str(tmp_path / "ck")
    folder.remove()
    assert (tmp_path / "ck").is_dir(), "it is the user's"
    own = RunFolder(None)
    own.remove()
    assert not own.path.exists()


def test_a_folder_that_is_not_the_drivers_is_told(tmp_path: Path) -> None:
    with probed([tmp_path / "shared"]) as (probe,):
        assert problem_here(probe) == ""
        elsewhere = Probe(str(tmp_path / "other"), probe.name, probe.content)
        assert "does not show what the driver wrote" in problem_here(elsewhere)
        assert "is not the driver's" in problem_here(Probe(probe.folder, probe.name, "another"))
    assert list((tmp_path / "shared").iterdir()) == []
