"""Makes scripted faults happen to a run on this machine: real signals to real processes."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.faults.fault import Fault
from penstock.model import Kind, PenstockError

if TYPE_CHECKING:
    from penstock.runtimes.spark.query import Query

#: Seconds to wait for a job to begin, and into it before something is killed.
BEGIN_S, INTO_S = 60.0, 0.05


class NoSuchProcess(PenstockError):
    """What was to be killed is not on this machine."""


class Injector:
    """Makes the faults of one run happen.

    Parameters
    ----------
    run : Query
    faults : sequence of Fault
    """

    def __init__(self, run: Query, faults: Sequence[Fault]) -> None:
        self.run = run
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
                self.run.move_all()
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
            self.run.note("fault", f"{fault}: the run ended before")

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
        self.run.note("fault", f"{fault}: {spoilt} fragments")

    def _folders(self) -> list[Path]:
        """Folders in which the executors keep state."""
        folder = Path(self.run.backend.folder)
        if folder.is_absolute():
            return [folder]
        found = []
        for executor in self.run.backend.alive():
            pid = executor_pid(self._app, executor)
            found.append(Path(f"/proc/{pid}/cwd").resolve() / folder)
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
            self.run.note("fault", f"{fault}: killed {len(victims)}")
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
        holding = self.run.holding()
        idle = sorted(self.run.backend.alive() - set(holding))
        executors = [*idle, *holding] if fault.options.get("of") == "idle" else [*holding, *idle]
        if fault.kind == "kill-executor":
            count = min(int(fault.options["count"]), len(executors))
            return [executor_pid(self._app, executor) for executor in executors[:count]]
        parent = executor_pid(self._app, executors[0])
        daemons = [pid for pid in _processes() if _parent(pid) == parent]
        workers = [pid for pid in _processes() if _parent(pid) in daemons]
        if not (workers or daemons):
            raise NoSuchProcess(f"executor {executors[0]} has no Python worker")
        return (workers or daemons)[-1:]


def executor_pid(app: str, executor: str) -> int:
    """Find the process of an executor on this machine."""
    for pid in _processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        pairs = dict(itertools.pairwise(words))
        if pairs.get("--executor-id") == executor and pairs.get("--app-id") == app:
            return pid
    raise NoSuchProcess(f"executor {executor} is not a process of this machine")


def processes_below(pid: int) -> list[int]:
    """List a process of this machine and all that it has started; none when it is gone."""
    parents = {found: _parent(found) for found in _processes()}
    if pid not in parents:
        return []
    below = [pid]
    for one in below:
        below += [child for child, parent in parents.items() if parent == one]
    return below


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rsplit(")", 1)[1].split()[1])
