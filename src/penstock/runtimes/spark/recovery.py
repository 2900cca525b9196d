"""What is done when a batch cannot be run: executors are replaced, sources and sinks tried again.

1. An executor is lost. Replacements are waited for, as long as configured; at least one executor
   must be there in the end.
2. If the plan uses what is gone, the control loop decides and applies another plan, with an event,
   as it does for any other change. Without a control loop that steers the run there is still one
   for this. If the plan stands, only the state of what is gone is restored.
3. The batch is run again: it left nothing behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from penstock.control.loop import Loop
from penstock.engine.driver.driver import BatchResult, Ranges
from penstock.engine.errors import SinkFailed, StepFailed
from penstock.model import PenstockError
from penstock.runtimes.spark.errors import ExecutorLost, NoExecutors, WorkerLost
from penstock.runtimes.spark.execution import Execution
from penstock.runtimes.spark.recorder import EXECUTORS, RETRY
from penstock.runtimes.spark.runtime import SparkRuntime
from penstock.strategies.replan import stands

#: Times that one batch is run again after executors or workers were lost.
ATTEMPTS = 5

#: Seconds between two looks at executors, and the longest pause before a source is tried again.
LOOK_S, LONGEST_PAUSE_S = 0.2, 60.0

T = TypeVar("T")


class Halted(Exception):
    """The run is to stop while a batch waits to be tried again; a later run begins with it."""


class BatchRecovery:
    """Runs batches of one run, again and again if need be.

    Parameters
    ----------
    execution : Execution
    loop : Loop
        Decides and applies plans when the plan in force uses what is gone.
    runtime : SparkRuntime
        That the loop acts on.
    """

    def __init__(self, execution: Execution, loop: Loop, runtime: SparkRuntime) -> None:
        self._execution, self._loop, self._runtime = execution, loop, runtime

    def run(self, ranges: Ranges) -> BatchResult:
        """Run and commit one batch, again if executors, a source or a sink fail on the way."""
        execution, lost = self._execution, 0

        def attempt() -> BatchResult:
            extra = {"elapsed_s": execution.elapsed_s, "spark_batch": execution.spark_batch}
            return execution.driver.run_batch(ranges, extra)

        while True:
            try:
                return self.retried(attempt)
            except (ExecutorLost, WorkerLost) as loss:
                lost += 1
                if lost == ATTEMPTS:
                    raise
                if isinstance(loss, ExecutorLost) and loss.executors:
                    self.replace(loss)
                else:
                    execution.recorder.event(EXECUTORS, f"{loss}, which is run again")
                    time.sleep(LOOK_S)

    def retried(self, action: Callable[[], T], what: str = "") -> T:
        """Do something that uses sources and sinks, again with longer and longer pauses.

        Parameters
        ----------
        action : callable
        what : str
            The source that it asks, if it is no batch: any error counts then.
        """
        options, recorder = self._execution.options.recovery, self._execution.recorder
        failures = 0
        while True:
            try:
                return action()
            except Exception as error:
                failures += 1
                if not (what or self._mends(error)) or failures > options.retries:
                    raise
                pause_s = min(options.retry_pause_s * 2 ** (failures - 1), LONGEST_PAUSE_S)
                told = str(error) if not what else f"{what}: {type(error).__name__}: {error}"
                recorder.retries += 1
                recorder.event(
                    RETRY, f"{told}; try {failures} of {options.retries} follows in {pause_s:g} s"
                )
                if self._execution.halt.wait(pause_s):
                    raise Halted from error

    def _mends(self, error: Exception) -> bool:
        """Whether an error may be gone the next time: a source or a sink failed, not a function."""
        if isinstance(error, StepFailed):
            names = {step.name for step in self._execution.job_graph.pipeline.steps if step.source}
            return error.step in names
        return isinstance(error, SinkFailed)

    # ---- lost executors

    def replace(self, loss: ExecutorLost) -> None:
        """Go on without what was lost, again if more is lost meanwhile."""
        for attempt in range(ATTEMPTS):
            self._execution.recorder.event(EXECUTORS, str(loss))
            try:
                self._replace(loss)
                return
            except ExecutorLost as another:
                if attempt == ATTEMPTS - 1:
                    raise
                loss = another

    def _replace(self, loss: ExecutorLost) -> None:
        executors = self._execution.executors
        self._await(loss)
        executors.warm_up_new()
        if not executors.ready():
            # What came went again while it was warmed up.
            raise ExecutorLost(loss.executors)
        executors.look()
        if self._stands():
            self._execution.rebase()
            return
        self._runtime.at_once, self._runtime.failure = True, None
        try:
            self._loop.tick(urgent=True, must_act=True)
        finally:
            self._runtime.at_once = False
        if self._stands():
            return
        if self._runtime.failure is not None:
            raise self._runtime.failure
        decision = self._loop.decision
        why = decision.reasons[-1] if decision is not None else "nothing was decided"
        raise PenstockError(f"{loss}; and there is no plan without them: {why}")

    def _await(self, loss: ExecutorLost) -> None:
        """Wait for replacements for a while, and for any executor as long as there is none."""
        execution, options = self._execution, self._execution.options.recovery
        wanted, started = len(execution.executors.cluster), time.monotonic()
        there_since = started
        while True:
            found = {executor.id for executor in execution.executors.executors()}
            found -= set(loss.executors)
            now = time.monotonic()
            there_since = there_since if found else now
            if len(found) >= wanted:
                return
            if found and now - there_since >= options.replacement_wait_s:
                return
            if not found and now - started >= options.no_executors_wait_s:
                raise NoExecutors(options.no_executors_wait_s)
            if execution.halt.wait(LOOK_S):
                raise Halted

    def _stands(self) -> bool:
        """Whether the plan in force uses nodes and processes that are there."""
        plan, cluster = self._execution.plan, self._execution.executors.cluster
        return stands(cluster, plan.node_of_in(cluster), plan.process_of)
