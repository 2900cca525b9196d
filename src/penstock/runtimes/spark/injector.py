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
from penstock.runtimes.spark.disturb import ClockSetBack, Disturbance, FullDisk, Paused, ReadOnly
from penstock.runtimes.spark.recorder import FAULT
from penstock.strategies.route.two_tier import TwoTier

if TYPE_CHECKING:
    from penstock.runtimes.spark.execution import Execution

#: Seconds to wait for a job to begin, and into it before something is killed.
BEGIN_S, INTO_S = 120.0, 0.05

#: Seconds that a process has after a pause to do what it was doing, before a run may end.
AFTER_PAUSE_S = 2.0

#: Faults that happen in the middle of a batch; all others happen before it.
IN_THE_MIDDLE = ("kill-", "pause-", "read-only")

#: Main classes of the processes of a standalone cluster.
WORKER, MASTER = "org.apache.spark.deploy.worker.Worker", "org.apache.spark.deploy.master.Master"


class NoSuchProcess(PenstockError):
    """What was to be killed or stopped is not on this machine."""


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
        self._lasting: list[Disturbance] = []
        self.failures: list[BaseException] = []

    def before(self, batch: int) -> None:
        """Let happen what is due before a batch, and arm what is due in the middle of it."""
        due = [fault for fault in self.faults if fault.batch == batch]
        self.faults = [fault for fault in self.faults if fault.batch != batch]
        for fault in due:
            if fault.kind.startswith(IN_THE_MIDDLE):
                self._arm(fault)
            elif fault.kind.endswith("-fragment"):
                self._spoil(fault)
            elif fault.kind == "disk-full":
                self._fill(fault)
            elif fault.kind == "clock-back":
                self._last(fault, ClockSetBack(float(fault.options["seconds"])))
        for fault in due:
            if fault.kind == "move":
                move_all(self.run)
            elif fault.kind == "scale":
                self._scale(fault)
            elif fault.kind == "split":
                split_hottest(self.run, int(fault.options["keys"]))

    def done(self) -> None:
        """Wait for what was armed; raise what it failed with, and note what was never due."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        for fault in self.faults:
            self.run.recorder.event(FAULT, f"{fault}: the run ended before")

    def undo(self) -> None:
        """Put back what faults changed on this machine, however the run ended."""
        self._over.set()
        for one in self._lasting:
            one.undo()

    def _last(self, fault: Fault, disturbance: Disturbance, text: str = "to the end") -> None:
        self._lasting.append(disturbance)
        self.run.recorder.event(FAULT, f"{fault}: {text}")

    def _fill(self, fault: Fault) -> None:
        """Let every write to a file fail in Python, on the executors or in the driver."""
        pids = [os.getpid()]
        if fault.options["where"] == "executors":
            executors = [executor_pid(self._app, one) for one in sorted(self.run.backend.alive())]
            pids = [pid for executor in executors for pid in processes_below(executor)[1:]]
        full = FullDisk(pids)
        self._last(fault, full, f"{len(full)} processes cannot write")

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
            elif fault.kind == "pause-driver":
                self.run.recorder.event(FAULT, f"{fault}: stopped")
                pause_driver()
            elif fault.kind == "read-only":
                self._last(fault, ReadOnly(Path(self.run.folder.checkpoint)))
            elif fault.kind.startswith("pause-"):
                self._pause(fault)
            else:
                victims = self._victims(fault)
                for pid in victims:
                    os.kill(pid, signal.SIGKILL)
                self.run.recorder.event(FAULT, f"{fault}: killed {len(victims)}")
        except BaseException as error:  # noqa: BLE001 - raised again by `done`
            self.failures.append(error)

    def _pause(self, fault: Fault) -> None:
        """Stop processes for a while, whether the run needs them or not."""
        paused = Paused(self._victims(fault))
        self._last(fault, paused, f"stopped {len(paused.pids)}")
        time.sleep(float(fault.options["seconds"]))
        paused.undo()
        self.run.recorder.event(FAULT, f"{fault}: went on")
        time.sleep(AFTER_PAUSE_S)

    def _await_job(self, fault: Fault) -> None:
        """Wait until tasks of the batch, of a move, or of a backup run."""
        jobs = self.run.spark.sparkContext.statusTracker()
        during = fault.options.get("during", "batch")
        deadline = time.monotonic() + BEGIN_S
        while time.monotonic() < deadline and not self._over.is_set():
            backend = self.run.backend
            groups = {"batch": backend.group, "move": backend.moving, "backup": backend.background}
            if groups[during] and any(
                (info := jobs.getJobInfo(job)) is not None and info.status == "RUNNING"
                for job in jobs.getJobIdsForGroup(groups[during])
            ):
                # A backup may take less time than that.
                time.sleep(INTO_S if during != "backup" else 0.0)
                return
            time.sleep(0.005)
        raise NoSuchProcess(f"{fault}: no job began within {BEGIN_S:g} s, or before the end")

    def _victims(self, fault: Fault) -> list[int]:
        """Find the processes that a fault happens to."""
        if fault.kind == "kill-master":
            return [master_pid(str(self.run.spark.sparkContext.master))]
        stateful = holding(self.run)
        idle = sorted(self.run.backend.alive() - set(stateful))
        executors = [*idle, *stateful] if fault.options.get("of") == "idle" else [*stateful, *idle]
        if fault.kind.endswith("-executor"):
            chosen = executors[: fault.count(len(executors))]
            pids = [executor_pid(self._app, executor) for executor in chosen]
            if fault.kind == "kill-executor":
                return pids
            return [pid for executor in pids for pid in processes_below(executor)]
        first = executor_pid(self._app, executors[0])
        return [node_pid(first) if fault.kind == "kill-node" else python_worker(first)]


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


def split_hottest(execution: Execution, keys: int) -> None:
    """Split the hottest keys of every operator that may split some over all its instances.

    Raises
    ------
    PenstockError
        When no keys were measured.
    """
    measured = execution.measurements()
    hot = {} if measured is None else measured.hot_keys
    plan = execution.plan
    routing = dict(plan.routing)
    for vertex in execution.job_graph.vertices:
        found = hot.get(vertex.name, {}) if vertex.splittable else {}
        instances = plan.parallelism[vertex.name]
        if not found or instances < 2:
            continue
        chosen = sorted(found, key=lambda key: (-found[key], key))[:keys]
        table = routing.get(vertex.name) or TwoTier().table(instances)
        split = dict.fromkeys(chosen, tuple(range(instances)))
        routing[vertex.name] = replace(table, split=split)
    if not any(table.split for table in routing.values()):
        raise PenstockError(
            "no keys were split: none was measured to be hot in the last batches, or no step of "
            "the pipeline splits keys"
        )
    execution.change(replace(plan, routing=routing), "the hottest keys are split")


def pause_driver() -> None:
    """Stop the JVM of this process, and this process with it."""
    java = [child.pid for child in psutil.Process().children() if "java" in child.name()]
    Paused(java)
    os.kill(os.getpid(), signal.SIGSTOP)


def node_pid(executor: int) -> int:
    """Find the Worker process of a standalone cluster that started an executor."""
    parent = psutil.Process(executor).parent()
    if parent is None or WORKER not in parent.cmdline():
        raise NoSuchProcess(
            f"process {executor} was not started by a Worker process of its own: only a standalone "
            "cluster has such"
        )
    return parent.pid


def master_pid(master: str) -> int:
    """Find the Master process of a standalone cluster on this machine."""
    port = master.rpartition(":")[2]
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or ()
        if MASTER in words and dict(itertools.pairwise(words)).get("--port") == port:
            return process.pid
    raise NoSuchProcess(f"{master} is not a standalone master on this machine")


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
