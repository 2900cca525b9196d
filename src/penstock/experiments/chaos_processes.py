"""Trials that take more than one session: drivers that end, and clusters of their own.

1. A driver in a process of its own is killed, stopped, or fails, as `Schedule.first_driver` says.
2. The driver of this process goes on from its checkpoint, to the end.
3. A driver that was stopped wakes up, and must find that it was fenced.
4. What all have written together is compared to the row.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from penstock.experiments.chaos_trial import (
    LIMIT_S,
    TRIAL_CONF,
    TrialOutcome,
    app_of,
    compared,
    emitted,
    trial,
)
from penstock.experiments.standalone_cluster import standalone
from penstock.faults.schedules import BATCHES, Schedule
from penstock.model import PenstockError
from penstock.pipeline.file_sinks import parquet
from penstock.runtimes.spark.injector import processes_below
from penstock.runtimes.spark.session import SparkSession, cluster, embedded

#: Memory of an executor, in MB.
MEMORY_MB = 900

#: Workers of a standalone cluster, and seconds to wait there for the replacement of one that is
#: gone: none comes.
WORKERS, NONE_COMES_S = 3, 5.0

#: Seconds between two looks at another process.
LOOK_S = 0.1

#: The file in which a driver tells how it ended, and what it wrote to the terminal.
OUTCOME, OUTPUT = "outcome.json", "output.txt"

#: Numbers of Linux: drop a capability of what is executed later; the one that permissions do not
#: hold for.
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1


def outcome_of(spark: SparkSession, schedule: Schedule, nodes: int) -> TrialOutcome:
    """Run a schedule with whatever processes it takes.

    Parameters
    ----------
    spark : SparkSession
        An embedded cluster, of which every schedule uses all executors.
    schedule : Schedule
    nodes : int
        Nodes of that cluster, and of one for another driver.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-trial-") as made:
        if schedule.standalone:
            return _alone(schedule, Path(made))
        if schedule.first_driver:
            return two_drivers(spark, schedule, nodes, Path(made))
        files = schedule.load == "drop" or any(kind.startswith("pause-") for kind in schedule.kinds)
        return trial(spark, schedule, folder=Path(made) if files else None)


def two_drivers(spark: SparkSession, schedule: Schedule, nodes: int, folder: Path) -> TrialOutcome:
    """Let a driver in another process begin and end as it must; go on here from its checkpoint."""
    started = time.monotonic()
    first = _Driver(schedule, folder, nodes)
    try:
        ended = first.await_stop() if schedule.first_driver == "fenced" else first.await_exit()
        committed = len(list((folder / "checkpoint" / "commit-log" / "commits").glob("*.json")))
        story = [f"the first driver {ended} after {committed} commits", *first.told()]
        after = trial(spark, schedule.undisturbed(), folder=folder)
        equal = after.equal
        if schedule.first_driver == "fenced":
            story.append(f"woken up, the first driver {first.wake()}")
            # Once more: it may have written, or removed, what is not its own any more.
            sinks = {name: parquet(folder / name) for name in app_of(schedule).keys}
            got = {name: emitted(sink) for name, sink in sinks.items()}
            equal = {} if after.error else {**equal, **compared(schedule, got, folder)}
    finally:
        first.end()
    equal = {
        **equal,
        "the first driver ended as it must": first.ended_as_it_must(),
        "it was in the middle": 0 < committed < BATCHES,
    }
    return replace(
        after,
        schedule=str(schedule),
        equal=equal,
        seconds=round(time.monotonic() - started, 1),
        happened=[*story, *after.happened],
    )


def _alone(schedule: Schedule, folder: Path) -> TrialOutcome:
    """Run a schedule on a cluster of its own, in another process."""
    driver = _Driver(schedule, folder, WORKERS)
    try:
        ended = driver.await_exit()
        outcome = driver.outcome()
    finally:
        driver.end()
    if outcome is None:
        raise PenstockError(f"the driver {ended}: {driver.output()}")
    return outcome


class _Driver:
    """A driver in a process of its own."""

    def __init__(self, schedule: Schedule, folder: Path, nodes: int) -> None:
        self._schedule, self._folder = schedule, folder
        asked = {"schedule": schedule.to_dict(), "folder": str(folder), "nodes": nodes}
        # Not through pipes: what the driver leaves behind would hold them for a while.
        with (folder / OUTPUT).open("w", encoding="utf-8") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, json.dumps(asked)],
                stdout=out,
                stderr=out,
                preexec_fn=_obey_permissions() if "read-only" in schedule.kinds else None,
            )

    def await_exit(self) -> str:
        """Wait until it ended, and say how."""
        code = self._process.wait(LIMIT_S)
        return "was killed" if code == -signal.SIGKILL else f"ended with code {code}"

    def await_stop(self) -> str:
        """Wait until it is stopped."""
        process, deadline = psutil.Process(self._process.pid), time.monotonic() + LIMIT_S
        while self._process.poll() is None and time.monotonic() < deadline:
            if process.status() == psutil.STATUS_STOPPED:
                return "was stopped"
            time.sleep(LOOK_S)
        raise PenstockError(f"the driver that was to be stopped was not: {self.output()}")

    def wake(self) -> str:
        """Let it go on, and wait until it ended."""
        for pid in reversed(processes_below(self._process.pid)):
            os.kill(pid, signal.SIGCONT)
        return self.await_exit()

    def outcome(self) -> TrialOutcome | None:
        """Return what it found; None if it did not come to that."""
        path = self._folder / OUTCOME
        if not path.exists():
            return None
        values = json.loads(path.read_text(encoding="utf-8"))
        return TrialOutcome(**{k: v for k, v in values.items() if k != "passed"})

    def told(self) -> list[str]:
        """List what happened to it, as far as it could tell."""
        outcome = self.outcome()
        return [] if outcome is None else [*outcome.happened, outcome.error]

    def ended_as_it_must(self) -> bool:
        """Whether it was killed, fenced, or failed with an error of its own."""
        outcome, wanted = self.outcome(), self._schedule.first_driver
        if wanted == "killed":
            return self._process.returncode == -signal.SIGKILL
        error = "" if outcome is None else outcome.error
        return error.startswith("Fenced") if wanted == "fenced" else bool(error)

    def output(self) -> str:
        """Return the end of what it wrote to the terminal."""
        return (self._folder / OUTPUT).read_text(encoding="utf-8")[-2000:]

    def end(self) -> None:
        """End it, and all that it started."""
        for pid in processes_below(self._process.pid) if self._process.poll() is None else ():
            os.kill(pid, signal.SIGKILL)
        self._process.wait()


def _obey_permissions() -> Callable[[], object] | None:
    """Return what makes permissions hold for a process that root starts."""
    if os.geteuid() != 0:
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return lambda: library.prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)


def main(asked: dict[str, Any]) -> None:
    """Run a schedule with a checkpoint, and write down what came of it."""
    schedule, folder = Schedule.from_dict(asked["schedule"]), Path(asked["folder"])
    nodes = int(asked["nodes"])
    if schedule.standalone:
        conf = {**TRIAL_CONF, "spark.executor.memory": f"{MEMORY_MB}m"}
        with (
            standalone(folder / "cluster", nodes, MEMORY_MB) as master,
            cluster(master, conf=conf) as spark,
        ):
            outcome = trial(spark, schedule, folder=folder, executors=nodes, back_s=NONE_COMES_S)
    else:
        with cluster(embedded(nodes, 1, MEMORY_MB), conf=TRIAL_CONF) as spark:
            outcome = trial(spark, schedule, folder=folder)
    (folder / OUTCOME).write_text(json.dumps(outcome.to_dict()), encoding="utf-8")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
