"""The thread that runs the batches of one run, from the first to the last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from penstock.control.events import Event
from penstock.control.loop import Loop
from penstock.control.settings import Settings
from penstock.control.states import State
from penstock.engine.driver.driver import BatchResult, Ranges
from penstock.faults.fault import Fault
from penstock.model import PenstockError
from penstock.runtimes.spark.dataframe_source import drive
from penstock.runtimes.spark.errors import ExecutorLost
from penstock.runtimes.spark.execution import Execution
from penstock.runtimes.spark.file_scan import Scanned
from penstock.runtimes.spark.injector import Injector
from penstock.runtimes.spark.monitor import Observed, Timing, observe
from penstock.runtimes.spark.operator_records import node_records, operator_records, state_of
from penstock.runtimes.spark.recorder import EXECUTORS, FAILURE, told_failure
from penstock.runtimes.spark.recovery import BatchRecovery, Halted
from penstock.runtimes.spark.runtime import SparkRuntime
from penstock.store.records import STATE, RunStatus

#: Seconds to wait for new rows, when there are none.
IDLE_S = 0.002

#: Seconds from one look at the size and the fragments of all state to the next.
STATE_EVERY_S = 1.0

#: Of a run that no control loop steers: one decides only when executors are lost, and may use all.
LOSSES_ONLY = Settings(min_nodes=1, max_nodes=10_000)

Listener = Callable[[Observed], None]


class BatchLoop:
    """Runs batch after batch in a thread, until the sources end, it is stopped, or it fails.

    Parameters
    ----------
    execution : Execution
    listener : callable, optional
        Called with every batch that was committed, in the thread that runs them.
    on_decision : callable, optional
        Called with every decision of the control loop, and again when more is known of it.
    faults : sequence of Fault
        What is to go wrong, and when: for tests and demonstrations on one machine.

    Attributes
    ----------
    control : Loop
        Keeps the plan fitting; of a run with ``control=None`` it only replaces lost executors.
    failure : BaseException or None
        What it failed with.
    over : Event
        Set when the last batch is committed or given up.
    """

    def __init__(
        self,
        execution: Execution,
        listener: Listener | None = None,
        on_decision: Callable[[Event], None] | None = None,
        faults: Sequence[Fault] = (),
    ) -> None:
        self.execution = execution
        options = execution.options
        self._steered = options.control is not None
        settings = (options.control or LOSSES_ONLY).starting_with(
            len(execution.executors.cluster), execution.driver.registry.losses()
        )
        runtime = SparkRuntime(execution)
        self.control = Loop(
            runtime,
            execution.strategy,
            settings,
            clock=time.perf_counter,
            seed=options.seed,
            listener=execution.recorder.of_loop(on_decision),
        )
        self.recovery = BatchRecovery(execution, self.control, runtime)
        self.listener = listener
        self.failure: BaseException | None = None
        self.over = threading.Event()
        self._injector = Injector(execution, faults)
        self._dropped = 0
        self._last_start: float | None = None
        self._promise = ""
        self._state_told = 0.0
        self._state_bytes: dict[str, list[int]] = {}
        self._cause: PenstockError | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-run", daemon=True)

    def begin(self) -> BatchLoop:
        """Warm up, and start the thread."""
        self.execution.warm_up()
        self._thread.start()
        self.execution.executors.watch(self.over, self._no_more_executors)
        return self

    def stop(self, timeout_s: float = 120.0) -> None:
        """Stop after the batch that is running; a listener does not wait for that."""
        self.execution.halt.set()
        if self.execution.mailbox.owned:
            return
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        elif not self.over.is_set():
            # It never began.
            self._end()
        self.over.wait(timeout_s)

    def close(self) -> None:
        """Stop, close the metrics store, and remove the run's own folder if it has one."""
        self.stop()
        self.execution.close()

    # ---- the thread

    def _run(self) -> None:
        self.execution.mailbox.own()
        try:
            if self.execution.frames:
                self._run_stream()
            else:
                self._run_sources()
            self._injector.done()
        except Halted:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self.failure = self._cause or error
        finally:
            self._injector.undo()
            self._end()

    def _run_sources(self) -> None:
        execution = self.execution
        pending = execution.driver.pending()
        if pending is not None:
            for name, cuts in pending.items():
                execution.queues[name].resume(cuts)
            self.batch(pending)
        while not execution.halt.is_set():
            started = time.monotonic()
            ranges = self._take()
            idle_s = 0.0
            if ranges or execution.driver.watermark_moved or execution.driver.timer_due:
                # Without data, it closes windows and calls timers.
                self.batch(ranges)
            elif all(queue.ended for queue in execution.queues.values()):
                return
            else:
                execution.mailbox.serve()
                idle_s = IDLE_S
            rest_s = execution.options.interval_s - (time.monotonic() - started)
            if max(idle_s, rest_s) > 0:
                execution.halt.wait(max(idle_s, rest_s))

    def _take(self) -> Ranges:
        """Take what waits at the sources; one that cannot say is asked again."""
        ranges = {}
        for name, queue in self.execution.queues.items():
            take = partial(queue.take, self.execution.elapsed_s)
            cuts = self.recovery.retried(take, f"source {name!r}")
            if cuts:
                ranges[name] = cuts
        return ranges

    def _run_stream(self) -> None:
        """Let Spark's own query read the sources and hand over batch after batch."""
        execution = self.execution
        driver, backend, frames = execution.driver, execution.backend, execution.frames

        def on_batch(rows: DataFrame, files: Mapping[str, Scanned] | None, batch_id: int) -> None:
            if batch_id <= execution.spark_batch:
                # Committed here before Spark wrote it down: done already.
                return
            if batch_id != execution.spark_batch + 1:
                raise PenstockError(
                    f"Spark goes on with batch {batch_id}, the commit log with "
                    f"{execution.spark_batch + 1}: {execution.folder.checkpoint} is not of this "
                    "query; start with another checkpoint"
                )
            execution.spark_batch, backend.rows, backend.files = batch_id, rows, files
            backend.rows_of = frames[0].name if len(frames) == 1 else None
            # Spark calls this in a thread of its own, the only one that runs batches.
            execution.mailbox.own()
            try:
                self.batch({})
            except PenstockError as error:
                # Spark wraps what is raised here in an error of its own.
                self._cause = error
                raise

        def on_idle() -> None:
            backend.rows = backend.files = None
            execution.mailbox.own()
            while (driver.watermark_moved or driver.timer_due) and not execution.halt.is_set():
                self.batch({})

        drive(
            frames,
            on_batch,
            on_idle,
            f"{execution.folder.checkpoint}/spark",
            execution.halt,
            interval_s=execution.options.interval_s,
            available_now=execution.options.available_now,
        )

    def _end(self) -> None:
        """Say that the run is over; the metrics store hears of it when it can."""
        execution = self.execution
        execution.mailbox.close("the run is over" if self.failure is None else "the run failed")
        try:
            execution.driver.close()
        finally:
            status = RunStatus.STOPPED if execution.halt.is_set() else RunStatus.FINISHED
            if self.failure is not None:
                status = RunStatus.FAILED
                execution.recorder.event(FAILURE, told_failure(self.failure))
            execution.recorder.end(status, compared=bool(execution.queues))
            self.over.set()

    def _no_more_executors(self, error: Exception) -> None:
        text = f"executors that come later are not used: {type(error).__name__}: {error}"
        self.execution.recorder.event(EXECUTORS, text)

    # ---- one batch

    def batch(self, ranges: Ranges) -> Observed:
        """Run, commit and record one batch."""
        execution = self.execution
        self._inject()
        started_at_s, started = time.time(), time.monotonic()
        result = self.recovery.run(ranges)
        observed = self._observe(result, started_at_s, (time.monotonic() - started) * 1000.0)
        # What a batch takes has come since the one before began, however long itself it takes.
        before, self._last_start = self._last_start, started
        spent_s = observed.batch.duration_ms / 1000.0
        interval_s = spent_s if before is None else started - before
        observed = self._with_context(observed, result, interval_s)
        execution.recorder.batch(observed)
        execution.window.add(
            observed,
            interval_s,
            observed.batch.queue_length,
            result.stats,
            state_bytes=self._state_bytes,
        )
        if result.inband is not None:
            if result.inband.failed:
                execution.recorder.plan(execution.plan)
            execution.recorder.moved_with_batch(result.inband)
            # A batch that state came with says little of the plan.
            execution.window.changed()
        self._tell_of_state()
        if self.listener is not None:
            self.listener(observed)
        if self._steered or self.control.state is State.RELEASING:
            # Without a loop that steers, what replaced lost executors is still brought to its end.
            self.control.tick()
        execution.mailbox.serve()
        return observed

    def _observe(self, result: BatchResult, started_at_s: float, duration_ms: float) -> Observed:
        execution = self.execution
        committed_ms = execution.elapsed_s * 1000.0
        queues = execution.queues.values()
        dropped = sum(queue.dropped for queue in queues)
        before, self._dropped = self._dropped, dropped
        timing = Timing(
            started_at_s,
            duration_ms,
            committed_ms,
            queue_length=sum(queue.waiting for queue in queues),
            dropped=dropped - before,
        )
        return observe(
            execution.id,
            execution.job_graph,
            execution.plan,
            result,
            execution.backend.facts(),
            execution.backend.pinned,
            timing,
        )

    def _with_context(self, observed: Observed, result: BatchResult, interval_s: float) -> Observed:
        """Add what nodes and operators did, and now and then where the state is."""
        execution, number = self.execution, observed.batch.batch
        cluster, driver = execution.executors.cluster, execution.driver
        state: dict[str, list[dict[str, Any]]] = {}
        if time.monotonic() - self._state_told >= STATE_EVERY_S:
            self._state_told = time.monotonic()
            ids = execution.executors.executor_ids
            state = state_of(driver.registry, {e: at.rpartition("/")[0] for at, e in ids.items()})
            self._state_bytes = {
                name: [int(one["size_bytes"]) for one in instances]
                for name, instances in state.items()
            }
        return replace(
            observed,
            nodes=node_records(
                execution.id, number, cluster, observed.instances, interval_s, observed.uses
            ),
            operators=operator_records(
                execution.id, execution.job_graph, result, driver.progress.watermarks, state
            ),
        )

    def _tell_of_state(self) -> None:
        """Write down what the state survives, if that has changed."""
        driver, recorder = self.execution.driver, self.execution.recorder
        promise = driver.promise()
        if promise and promise != self._promise:
            self._promise = promise
            recorder.event(STATE, f"state {promise}")
        if why := driver.pop_backup_failure():
            recorder.event(
                STATE, f"backup nodes did not take what the driver holds, for now: {why}"
            )

    def _inject(self) -> None:
        """Let scripted faults happen; a move that they break is given up, or done again."""
        try:
            self._injector.before(self.execution.driver.next_batch)
        except ExecutorLost as loss:
            self.recovery.replace(loss)
