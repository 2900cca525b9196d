"""What faults do to processes, files and the clock: it happens, and it is undone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pyspark")

from penstock.runtimes.spark.disturb import (
    ClockSetBack,
    FullDisk,
    NotDisturbed,
    Paused,
    ReadOnly,
)

#: Tries to write a file for every line that it reads, and says what came of it.
WRITER = """
import sys
from pathlib import Path
for line in sys.stdin:
    try:
        Path(line.strip()).write_text("x")
        print("written", flush=True)
    except OSError as error:
        print(type(error).__name__, error.errno, flush=True)
"""


@pytest.fixture
def writer() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def asked(process: subprocess.Popen[str], path: Path) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{path}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_processes_are_stopped_and_go_on(writer: subprocess.Popen[str], tmp_path: Path) -> None:
    assert asked(writer, tmp_path / "a") == "written"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    paused = Paused([writer.pid, gone.pid])
    assert paused.pids == [writer.pid]
    deadline = time.monotonic() + 60
    while psutil.Process(writer.pid).status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    paused.undo()
    assert asked(writer, tmp_path / "b") == "written"
    paused.undo()


def test_nothing_is_written_to_a_full_disk(writer: subprocess.Popen[str], tmp_path: Path) -> None:
    assert asked(writer, tmp_path / "a") == "written"
    full = FullDisk([writer.pid])
    assert len(full) == 1
    assert asked(writer, tmp_path / "b").startswith("OSError")
    full.undo()
    assert asked(writer, tmp_path / "c") == "written"
    full.undo()


def test_permissions_of_a_checkpoint_come_back(tmp_path: Path) -> None:
    inner = tmp_path / "checkpoint" / "commits"
    inner.mkdir(parents=True)
    inner.chmod(0o750)
    if os.geteuid() == 0:
        with pytest.raises(NotDisturbed, match="root"):
            ReadOnly(tmp_path / "checkpoint")
    else:
        folder = ReadOnly(tmp_path / "checkpoint")
        with pytest.raises(PermissionError):
            (inner / "1").write_text("x")
        folder.undo()
    (inner / "1").write_text("x")
    assert inner.stat().st_mode & 0o777 == 0o750


def test_a_clock_goes_back_and_forth() -> None:
    real, before = time.time, time.time()
    clock = ClockSetBack(3600)
    assert time.time() < before - 3000
    clock.undo()
    assert time.time is real
    clock.undo()
