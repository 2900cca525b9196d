"""Several pipelines on one Spark session, planned together; one that fails stops no other.

Every run has the thread that drives its batches. One more thread runs the control loop over all of
them, and asks each run's own thread to act, between two of its batches.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.control.events import Event
from penstock.control.joint.runtime import JointRuntime
from penstock.control.loop import Loop
from penstock.control.runtime import ActionFailed, Applied, Observation, Runtime
from penstock.control.settings import Settings
from penstock.model import Plan, Topology
from penstock.runtimes.spark.batch_loop import BatchLoop
from penstock.runtimes.spark.execution import Execution
from penstock.runtimes.spark.mailbox import Over
from penstock.runtimes.spark.query import Query
from penstock.runtimes.spark.runtime import SparkRuntime
from penstock.strategies import Strategy

#: Seconds that the loop waits at a time for a batch of any run.
LOOK_S = 0.5

#: Seconds that it waits for the end of a run's batch to look at it.
OBSERVE_S = 20.0


class Member:
    """One run of a group as the loop sees it: all is done by the run's own thread.

    Parameters
    ----------
    execution : Execution
    runtime : Runtime
        Of the same run, to be used by its thread only.
    """

    def __init__(self, execution: Execution, runtime: Runtime) -> None:
        self._run, self._runtime = execution, runtime
        self._seen = Observation(0.0, -1, execution.executors.cluster)

    @property
    def topology(self) -> Topology:
        """What is planned."""
        return self._run.topology

    @property
    def plan(self) -> Plan:
        """The plan of the next batch."""
        return self._run.plan

    def observe(self) -> Observation:
        """Say what was measured; the same as before if no batch came to its end since."""
        try:
            self._seen = self._run.mailbox.ask(self._runtime.observe, begin_s=OBSERVE_S)
        except ActionFailed:
            # A stream that is idle has nothing new to show, and is none the worse for that.
            return self._seen
        return self._seen

    def request_nodes(self, total: int) -> None:
        """Ask for nodes."""
        self._run.mailbox.ask(lambda: self._runtime.request_nodes(total))

    def vacate_nodes(self, names: tuple[str, ...], *, undo: bool = False) -> None:
        """Have nodes keep nothing of this run."""
        self._run.mailbox.ask(lambda: self._runtime.vacate_nodes(names, undo=undo))

    def release_nodes(self, names: tuple[str, ...]) -> None:
        """Give up nodes."""
        self._run.mailbox.ask(lambda: self._runtime.release_nodes(names))

    def prepare(self, plan: Plan) -> bool:
        """Pre-copy the state of a plan; where no batch comes to its end, `apply` is to tell."""
        try:
            return self._run.mailbox.ask(lambda: self._runtime.prepare(plan))
        except ActionFailed:
            return True

    def apply(self, plan: Plan) -> Applied:
        """Use a plan from the next batch on."""
        return self._run.mailbox.ask(lambda: self._runtime.apply(plan))


class Group:
    """Runs that share a session, and one loop that plans for all of them.

    Made by `start_together`; use it in a ``with`` block, or call `close` in the end.

    Parameters
    ----------
    runs : mapping of str to BatchLoop
        Not begun yet, and not steered by loops of their own.
    strategy : Strategy
    control : Settings or None
        Of the loop; None: the first plans stay.
    seed : int
    on_decision : callable, optional
    runtime_of : callable, optional
        Makes what the loop acts on of a run; by default a `SparkRuntime`.

    Attributes
    ----------
    planner_failure : Exception or None
        Why nobody plans any more; the runs go on under the plans that they have.
    """

    def __init__(
        self,
        runs: Mapping[str, BatchLoop],
        strategy: Strategy,
        control: Settings | None,
        *,
        seed: int = 0,
        on_decision: Callable[[Event], None] | None = None,
        runtime_of: Callable[[Execution], Runtime] | None = None,
    ) -> None:
        self.runs = dict(runs)
        made = runtime_of or (lambda execution: SparkRuntime(execution, self._released))
        self.planner_failure: Exception | None = None
        self._on_decision = on_decision
        self._ended: set[str] = set()
        self._heard = {name: run.execution.recorder.of_loop() for name, run in runs.items()}
        self._committed, self._halt = threading.Event(), threading.Event()
        self.loop: Loop | None = None
        self._thread: threading.Thread | None = None
        if control is not None:
            members: dict[str, Runtime] = {
                name: Member(run.execution, made(run.execution)) for name, run in self.runs.items()
            }
            self._together = JointRuntime(members, self._dropped)
            self.loop = Loop(
                self._together,
                strategy,
                # A tick comes after the batches of each run.
                replace(control, every=min(10_000, control.every * len(runs))),
                clock=time.perf_counter,
                seed=seed,
                listener=self._decided,
            )
            self._thread = threading.Thread(
                target=self._plan, args=(self.loop,), name="penstock-group", daemon=True
            )

    def __getitem__(self, name: str) -> Query:
        return Query(self.runs[name])

    @property
    def failures(self) -> dict[str, BaseException]:
        """What runs failed with, by their names."""
        return {name: run.failure for name, run in self.runs.items() if run.failure is not None}

    def begin(self) -> Group:
        """Start all runs, and the loop."""
        for run in self.runs.values():
            run.begin()
        if self._thread is not None:
            self._thread.start()
        return self

    def committed(self) -> None:
        """Take note of a batch of any run."""
        self._committed.set()

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until all runs are over, and return whether they are; see `failures` then."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return all(
            run.over.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
            for run in self.runs.values()
        )

    def stop(self, timeout_s: float = 120.0) -> None:
        """Stop the loop, and every run after the batch that is running."""
        self._halt.set()
        self._committed.set()
        # First, because it may wait for a run; and what it asked for is still done.
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(timeout_s)
        for run in self.runs.values():
            run.execution.halt.set()
        for run in self.runs.values():
            run.stop(timeout_s)

    def close(self) -> None:
        """Stop, close the metrics stores, and remove the runs' own folders."""
        self.stop()
        for run in self.runs.values():
            run.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- the thread of the loop

    def _plan(self, loop: Loop) -> None:
        try:
            while not self._halt.is_set():
                self._committed.wait(LOOK_S)
                self._notice_ended()
                if not self._committed.is_set():
                    if self._all_over():
                        return
                    continue
                self._committed.clear()
                if self._halt.is_set() or self._all_over():
                    return
                loop.tick()
        except Exception as error:  # noqa: BLE001 - kept and told; the runs go on without it
            if not self._together.runtimes:
                return
            self.planner_failure = error
            self._note("planner", f"nobody plans any more: {type(error).__name__}: {error}")

    def _all_over(self) -> bool:
        return all(run.over.is_set() for run in self.runs.values())

    def _decided(self, event: Event) -> None:
        for name, run in self.runs.items():
            if not run.over.is_set():
                self._heard[name](event)
        if self._on_decision is not None:
            self._on_decision(event)

    def _notice_ended(self) -> None:
        """Tell the others of a run that ended, whether or not anything is planned again."""
        for name, run in self.runs.items():
            if run.over.is_set() and name not in self._ended:
                self._ended.add(name)
                why = "failed" if run.failure is not None else "is over"
                self._note("member", f"{name} {why}; its share of the nodes is free")

    def _dropped(self, name: str, error: Exception) -> None:
        if isinstance(error, Over):
            self._notice_ended()
            return
        why = f"cannot be planned any more: {type(error).__name__}: {error}"
        self._note("member", f"{name} {why}; its share of the nodes is free")

    def _released(self, executors: list[str]) -> None:
        for run in self.runs.values():
            run.execution.executors.released(executors)

    def _note(self, kind: str, text: str) -> None:
        for run in self.runs.values():
            if not run.over.is_set():
                run.execution.recorder.event(kind, text)
