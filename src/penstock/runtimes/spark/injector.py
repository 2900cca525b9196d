"""Makes scripted faults happen to a run on this machine: real signals to real processes."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil

from penstock.faults.fault import Fault
from penstock.model import Kind, PenstockError
from penstock.runtimes.spark.recorder import FAULT

if TYPE_CHECKING:
    from penstock.runtimes.spark.execution import Execution

#: Seconds to wait for a job to begin, and into it before something is killed.
BEGIN_S, INTO_S = 60.0, 0.05


class NoSuchProcess(PenstockError):
    """What was to be killed is not on this machine."""


class Injector:
    """Makes the faults of one run happen.

    Parameters
    ----------
    execution : Execution
    faults : sequence of Fault
    """

    def __init__(self, execution: Execution, faults: Sequence[Fault]) -> None:
        self.run = execution
        self.faults = list(faults)
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()
        self.failures: list[BaseException] = []

    def before(self, batch: int) -> None:
        """Let happen what is due before a batch, and arm what is due in the middle of it."""
        due = [fault for fault in self.faults if fault.batch == batch]
        self.faults = [fault for fault in self.faults if fault.batch != batch]
        for fault in due:
            if fault.kind.endswith("-fragment"):
                self._spoil(fault)
            elif fault.kind.startswith("kill-"):
                self._arm(fault)
        for fault in due:
            if fault.kind == "move":
                move_all(self.run)
            elif fault.kind == "scale":
                self._scale(fault)

    def done(self) -> None:
        """Wait for what was armed; raise what it failed with, and note what was never due."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        for fault in self.faults:
            self.run.recorder.event(FAULT, f"{fault}: the run ended before")

    def _scale(self, fault: Fault) -> None:
        job_graph = self.run.job_graph
        stateful = [v.name for v in job_graph.vertices if v.kind is Kind.STATEFUL]
        self.run.scale(fault.options["operator"] or stateful[0], int(fault.options["to"]))

    def _spoil(self, fault: Fault) -> None:
        """Corrupt or remove one fragment of every run, wherever it is on this machine."""
        spoilt = 0
        for folder in self._folders():
            for path in (folder / "fragments").rglob(f"*.{fault.options['index']}"):
                if fault.kind == "delete-fragment":
                    path.unlink()
                else:
                    content = bytearray(path.read_bytes())
                    content[len(content) // 2] ^= 0xFF
                    path.write_bytes(content)
                spoilt += 1
        self.run.recorder.event(FAULT, f"{fault}: {spoilt} fragments")

    def _folders(self) -> list[Path]:
        """Folders in which the executors keep state."""
        folder = Path(self.run.backend.folder)
        if folder.is_absolute():
            return [folder]
        found = []
        for executor in self.run.backend.alive():
            process = psutil.Process(executor_pid(self._app, executor))
            found.append(Path(process.cwd()) / folder)
        return found

    @property
    def _app(self) -> str:
        return str(self.run.spark.sparkContext.applicationId)

    def _arm(self, fault: Fault) -> None:
        thread = threading.Thread(target=self._strike, args=(fault,), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _strike(self, fault: Fault) -> None:
        try:
            self._await_job(fault)
            if fault.kind == "kill-driver":
                os.kill(os.getpid(), signal.SIGKILL)
            victims = self._victims(fault)
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            self.run.recorder.event(FAULT, f"{fault}: killed {len(victims)}")
        except BaseException as error:  # noqa: BLE001 - raised again by `done`
            self.failures.append(error)

    def _await_job(self, fault: Fault) -> None:
        """Wait until tasks of the batch, or of a move, run."""
        jobs = self.run.spark.sparkContext.statusTracker()
        moving = fault.options.get("during") == "move"
        deadline = time.monotonic() + BEGIN_S
        while time.monotonic() < deadline and not self._over.is_set():
            group = self.run.backend.moving if moving else self.run.backend.group
            if group and any(
                (info := jobs.getJobInfo(job)) is not None and info.status == "RUNNING"
                for job in jobs.getJobIdsForGroup(group)
            ):
                time.sleep(INTO_S)
                return
            time.sleep(0.005)
        raise NoSuchProcess(f"{fault}: no job began within {BEGIN_S:g} s, or before the end")

    def _victims(self, fault: Fault) -> list[int]:
        stateful = holding(self.run)
        idle = sorted(self.run.backend.alive() - set(stateful))
        executors = [*idle, *stateful] if fault.options.get("of") == "idle" else [*stateful, *idle]
        if fault.kind == "kill-executor":
            count = min(int(fault.options["count"]), len(executors))
            return [executor_pid(self._app, executor) for executor in executors[:count]]
        return [python_worker(executor_pid(self._app, executors[0]))]


def holding(execution: Execution) -> list[str]:
    """Executors that have state, those with the first instances first."""
    alive = execution.backend.alive()
    found = [
        one.executor
        for handle in execution.driver.handles.values()
        for one in handle.instances
        if one.executor in alive
    ]
    return list(dict.fromkeys(found))


def move_all(execution: Execution) -> None:
    """Move every instance to the next node."""
    plan = execution.plan
    nodes = (plan.node_of + 1) % len(plan.nodes)
    moved = replace(plan, node_of=nodes, process_of=np.zeros_like(plan.process_of), active=())
    execution.change(moved, "every instance moved to the next node")


def python_worker(executor: int) -> int:
    """Find the Python worker of an executor's process that was started last, or its daemon."""
    daemons = psutil.Process(executor).children()
    workers = [worker for daemon in daemons for worker in daemon.children()]
    if not (workers or daemons):
        raise NoSuchProcess(f"process {executor} has no Python worker")
    return (workers or daemons)[-1].pid


def executor_pid(app: str, executor: str) -> int:
    """Find the process of an executor on this machine."""
    for process in psutil.process_iter(["cmdline"]):
        pairs = dict(itertools.pairwise(process.info["cmdline"] or ()))
        if pairs.get("--executor-id") == executor and pairs.get("--app-id") == app:
            return process.pid
    raise NoSuchProcess(f"executor {executor} is not a process of this machine")


def processes_below(pid: int) -> list[int]:
    """List a process of this machine and all that it has started; none when it is gone."""
    try:
        process = psutil.Process(pid)
        return [pid, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []
