"""A pipeline on Spark: started, driven batch by batch, watched, stopped."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from penstock.control.events import Event
from penstock.control.loop import Loop
from penstock.control.recorder import Recorder
from penstock.engine.driver.driver import BatchResult, Driver, MigrationResult, Ranges
from penstock.engine.job_graph import JobGraph, is_source
from penstock.engine.source_queue import SourceQueue
from penstock.faults.fault import Fault
from penstock.model import (
    Cluster,
    InvalidValue,
    Keep,
    Kind,
    Measurements,
    PenstockError,
    Plan,
    Topology,
)
from penstock.pipeline.builder import Pipeline
from penstock.runtimes.spark.backend import SparkBackend
from penstock.runtimes.spark.dataframe_source import drive, frame_steps
from penstock.runtimes.spark.errors import ExecutorLost
from penstock.runtimes.spark.executors import Executors
from penstock.runtimes.spark.injector import Injector
from penstock.runtimes.spark.jvm import Executor, jvm_of
from penstock.runtimes.spark.mailbox import Mailbox
from penstock.runtimes.spark.measurement_window import MeasurementWindow
from penstock.runtimes.spark.monitor import Observed, observe
from penstock.runtimes.spark.options import Options
from penstock.runtimes.spark.runtime import SparkRuntime
from penstock.state.files.filesystem import is_address
from penstock.store.records import STATE, EventRecord, PlanRecord, RunRecord, RunRecords, RunStatus
from penstock.store.store import MetricsStore
from penstock.strategies import Request, Strategy, strategies
from penstock.strategies.replan import stands

#: Seconds to wait for new tuples, and between looks at executors.
IDLE_S, LOOK_S = 0.02, 0.2

#: Why there is a plan before anything ran.
FIRST = "the first plan"

#: Times that one batch is run again after executors were lost.
ATTEMPTS = 5


class Query:
    """One pipeline that runs on one Spark session.

    Made by `start`. A thread drives the batches; `await_end` waits for it and raises what it
    raised.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        strategy: Strategy,
        options: Options,
        listener: Callable[[Observed], None] | None = None,
        on_decision: Callable[[Event], None] | None = None,
        *,
        first: Plan | None = None,
    ) -> None:
        self.id = uuid.uuid4().hex[:12]
        self._counts: dict[str, int] = {}
        self._on_decision = on_decision
        self.job_graph = JobGraph.of(pipeline)
        self.spark = spark
        self.strategy = strategy
        self.options = options
        self.lost = self.duplicated = 0
        self.failure: BaseException | None = None
        self._listener = listener
        self._scratch: str | None = None
        if options.checkpoint is None or is_address(options.checkpoint):
            self._scratch = tempfile.mkdtemp(prefix="penstock-run-")
        self.root = Path(self._scratch or options.checkpoint or "")
        self.root.mkdir(parents=True, exist_ok=True)
        self.checkpoint = str(options.checkpoint or self.root)
        self._pinned = True
        # Without executors of its own a session has no working folders to keep state in.
        alone = str(spark.sparkContext.master).startswith(("local[", "local,")) or (
            spark.sparkContext.master == "local"
        )
        folder = str(self.root / "local") if alone else f"penstock-{self.id}"
        self.pool = Executors(jvm_of(spark.sparkContext), lambda only: self.backend.warm_up(only))
        self.backend = SparkBackend(spark, self._executor_of, folder, self.pool.apart)
        # Declared once: more nodes do not mean more instances by themselves.
        self._topology = self.job_graph.topology(max(2, len(self.cluster)))
        first = first or self._first_plan()
        self._pinned = first.pinned
        self.driver = Driver(
            self.job_graph,
            self.backend,
            self.checkpoint,
            first,
            options.on_error,
            options.state_config(f"{self.checkpoint}/state", len(self.cluster), first.pinned),
        )
        self.store = MetricsStore.open(options.store or self.root / "metrics.sqlite")
        self._record = RunRecord(
            self.id, pipeline.name, strategy.name, time.time(), config={"queue": options.queue}
        )
        self.store.put_run(self._record)
        self._dropped = 0
        self._promise = ""
        self._events = itertools.count()
        self._put_plan(FIRST)
        self._cause: PenstockError | None = None
        self.window = MeasurementWindow()
        self._last_start: float | None = None
        self._recorder = Recorder(
            self.store, self.id, clock=time.time, number=lambda: next(self._events)
        )
        #: What other threads want done between two batches.
        self.mailbox = Mailbox()
        self.loop: Loop | None = None
        if options.control is not None:
            self.loop = Loop(
                SparkRuntime(self),
                strategy,
                options.control.starting_with(len(self.cluster), self.driver.losses()),
                clock=time.perf_counter,
                seed=options.seed,
                listener=self.decided,
            )
        self._injector = Injector(
            self, [f if isinstance(f, Fault) else Fault.parse(f) for f in options.faults]
        )
        self._asked = threading.Event()
        self._halt = threading.Event()
        self._over = threading.Event()
        done = self.driver.commit_log.committed(self.driver.commit_log.last_commit()) or {}
        self._elapsed_before = float(done.get("elapsed_s", 0.0))
        self._began = time.monotonic()
        reached = self.driver.position()
        self.frames = frame_steps(pipeline.steps)
        self.queues = {
            step.name: SourceQueue(
                step.source, options.queue, options.when_full, reached.get(step.name, 0)
            )
            for step in pipeline.steps
            if step.source is not None and is_source(step.source)
        }
        self._thread = threading.Thread(target=self._drive, name="penstock-run", daemon=True)

    # ---- what a user calls

    def await_end(self, timeout_s: float | None = None) -> bool:
        """Wait until the run is over; return whether it is, and raise what it failed with."""
        over = self._over.wait(timeout_s)
        if over and self.failure is not None:
            raise self.failure
        return over

    def over(self, timeout_s: float | None = 0.0) -> bool:
        """Wait until the run is over, and return whether it is; raise nothing."""
        return self._over.wait(timeout_s)

    def ask_to_stop(self) -> None:
        """Have it stop after the batch that is running, and do not wait for that."""
        self._halt.set()

    def stop(self, timeout_s: float = 120.0) -> None:
        """Stop after the batch that is running, and clean up."""
        self._halt.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._over.wait(timeout_s)

    @property
    def plan(self) -> Plan:
        """The plan of the next batch."""
        return self.driver.plan

    @property
    def topology(self) -> Topology:
        """What is planned, with the parallelism that was declared or set by `scale`."""
        return self._topology.with_parallelism(self._counts) if self._counts else self._topology

    @property
    def cluster(self) -> Cluster:
        """The nodes that are there and warm, as they were last looked at."""
        return self.pool.cluster

    def executors(self) -> list[Executor]:
        """Executors that are there, those that were given up left out."""
        return self.pool.executors()

    def replace_plan(self, plan: Plan, why: str = "asked for") -> None:
        """Use another plan from the next batch on; call it from a listener or between batches."""
        took = self.change(plan)
        if took.moved or took.restored or took.repartitioned:
            why += (
                f" ({took.moved} instances moved, {took.restored} restored elsewhere, "
                f"{took.repartitioned} repartitioned: {took.state_bytes / 1e6:.1f} MB in "
                f"{took.seconds:.2f} s, {took.inband_bytes / 1e6:.1f} MB with the next batch)"
            )
        self._put_plan(why)

    def change(self, plan: Plan) -> MigrationResult:
        """Use a plan from the next batch on; the state that it moves comes with that batch."""
        before, self._pinned = self._pinned, plan.pinned
        try:
            took = self.driver.adopt(plan, inband=True)
        except BaseException:
            self._pinned = before
            raise
        self.window.changed()
        self.store.put_plan(PlanRecord(self.id, self.driver.next_batch, self.plan))
        if took.not_precopied:
            self._put_event("move", f"state was not all copied ahead: {took.not_precopied}")
        return took

    def scale(self, operator: str, instances: int) -> None:
        """Change the number of an operator's instances; call it as `replace_plan`."""
        if operator not in self.plan.parallelism:
            allowed = "one of " + ", ".join(self.plan.parallelism)
            raise InvalidValue("operator", "a change of parallelism", allowed, operator)
        before = dict(self._counts)
        self._counts[operator] = instances
        if self.plan.parallelism[operator] == instances:
            # A strategy would answer that there is nothing to change, which is no failure.
            return
        try:
            answer = self.strategy.plan(self._request(self.plan))
            if isinstance(answer, Keep):
                raise PenstockError(f"no plan with {instances} of {operator}: {answer.reasons[0]}")
            self.replace_plan(answer, f"{operator} scaled to {instances}")
        except BaseException:
            self._counts = before
            raise

    def move_all(self) -> None:
        """Move every instance to the next node; call it as `replace_plan`."""
        nodes = (self.plan.node_of + 1) % len(self.plan.nodes)
        processes = np.zeros_like(self.plan.process_of)
        plan = replace(self.plan, node_of=nodes, process_of=processes, active=())
        self.replace_plan(plan, "every instance moved to the next node")

    def holding(self) -> list[str]:
        """Executors that have state, those with the first instances first."""
        held = [i.executor for h in self.driver.handles.values() for i in h.instances if i.executor]
        return list(dict.fromkeys(place for place in held if place in self.backend.alive()))

    def note(self, kind: str, text: str) -> None:
        """Write down something that happened."""
        self._put_event(kind, text)

    def ask_for_plan(self) -> None:
        """Have the strategy look at what was measured, after the batch that is running."""
        self._asked.set()

    def measurements(self) -> Measurements | None:
        """Return what the batches since the last change of plan showed; None of too few."""
        sources = [v.name for v in self.job_graph.vertices if v.kind is Kind.SOURCE]
        cores = {node.name: node.cpu_cores for node in self.cluster.nodes}
        return self.window.measurements(sources, cores)

    def records(self) -> RunRecords:
        """All that the store has of this run."""
        return self.store.read(self.id)

    @property
    def elapsed_s(self) -> float:
        """Time of the stream, in seconds."""
        return self._elapsed_before + time.monotonic() - self._began

    def begin(self) -> Query:
        """Warm up, and start the thread that drives the batches."""
        self.pool.warm_up()
        self._began = time.monotonic()
        self._thread.start()
        self.pool.watch(self._over, self._greeter_failed)
        return self

    # ---- the loop

    def _drive(self) -> None:
        try:
            if self.frames:
                self._stream()
            else:
                self._loop()
            self._injector.done()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self.failure = self._cause or error
        finally:
            self.mailbox.close("the run is over" if self.failure is None else "the run failed")
            self._finish()

    def _loop(self) -> None:
        pending = self.driver.pending()
        if pending is not None:
            for name, cuts in pending.items():
                self.queues[name].taken = max(self.queues[name].taken, cuts[-1][1])
            self.batch(pending)
        while not self._halt.is_set():
            started = time.monotonic()
            ranges = {n: cuts for n, f in self.queues.items() if (cuts := f.take(self.elapsed_s))}
            if ranges:
                self.batch(ranges)
            elif all(source_queue.ended for source_queue in self.queues.values()):
                return
            else:
                self.mailbox.serve()
            rest = max(IDLE_S, self.options.interval_s - (time.monotonic() - started))
            self._halt.wait(rest)

    def _stream(self) -> None:
        """Let Spark's own query read the sources and hand over batch after batch."""

        def on_batch(rows: DataFrame, batch_id: int) -> None:
            if batch_id <= self.driver.batch:
                # Committed here before Spark wrote it down: done already.
                return
            if batch_id != self.driver.next_batch:
                raise PenstockError(
                    f"Spark goes on with batch {batch_id}, the journal with "
                    f"{self.driver.next_batch}: {self.checkpoint} is not of this query"
                )
            self.backend.rows = rows
            self.backend.rows_of = self.frames[0].name if len(self.frames) == 1 else None
            try:
                self.batch({})
            except PenstockError as error:
                # Spark wraps what is raised here in an error of its own.
                self._cause = error
                raise

        drive(
            self.frames,
            on_batch,
            f"{self.checkpoint}/spark",
            self._halt,
            interval_s=self.options.interval_s,
            available_now=self.options.drain,
        )

    def batch(self, ranges: Ranges) -> Observed:
        """Run, commit and record one batch, again if executors are lost on the way."""
        self._inject()
        started_at_s, started = time.time(), time.monotonic()
        result = self._run(ranges)
        duration_ms = (time.monotonic() - started) * 1000.0
        if result.inband is not None:
            self._note_ride(result.inband, result.batch_id)
        committed_ms = self.elapsed_s * 1000.0
        facts = self.backend.facts()
        dropped = sum(source_queue.dropped for source_queue in self.queues.values())
        observed = observe(
            self.id,
            self.job_graph,
            self.plan,
            result,
            facts,
            self.backend.pinned,
            started_at_s=started_at_s,
            duration_ms=duration_ms,
            committed_elapsed_ms=committed_ms,
            queue_length=sum(source_queue.waiting for source_queue in self.queues.values()),
            dropped=dropped - self._dropped,
            figures={},
        )
        self._dropped = dropped
        self.lost += observed.lost
        self.duplicated += observed.duplicated
        self.store.put_batch(observed.batch, observed.instances, observed.edges)
        waiting = observed.batch.queue_length
        # What a batch takes has come since the one before began, however long itself it takes.
        before, self._last_start = self._last_start, started
        interval_s = duration_ms / 1000.0 if before is None else started - before
        self.window.add(observed, interval_s, waiting, result.stats)
        if result.inband is not None:
            # A batch that state came with says little of the plan.
            self.window.changed()
        self._note_promise()
        if self._listener is not None:
            self._listener(observed)
        if self._asked.is_set():
            self._asked.clear()
            self._replan()
        elif self.loop is not None:
            self.loop.tick()
        self.mailbox.serve()
        return observed

    def _note_ride(self, inband: MigrationResult, batch: int) -> None:
        """Write down what came with a batch, or why the plan before it is still in charge."""
        if inband.failed:
            self.store.put_plan(PlanRecord(self.id, batch, self.plan))
            text = f"state could not be moved, the plan before stays in charge: {inband.failed}"
        elif inband.not_precopied:
            text = (
                "state did not come with the batch, and was migrated before it: "
                f"{inband.not_precopied}"
            )
        else:
            text = (
                f"{inband.moved} instances moved and {inband.repartitioned} were repartitioned "
                f"with the batch: {inband.inband_bytes / 1e6:.1f} MB came, "
                f"{inband.precopied_bytes / 1e6:.1f} MB were there"
            )
        self._put_event("move", text)

    def _note_promise(self) -> None:
        """Write down what the state survives, if that has changed."""
        promise = self.driver.promise()
        if promise and promise != self._promise:
            self._promise = promise
            self._put_event(STATE, f"state {promise}")
        if why := self.driver.pop_backup_failure():
            self._put_event(STATE, f"peers did not take what the driver holds, for now: {why}")

    def _run(self, ranges: Ranges) -> BatchResult:
        attempt = 0
        while True:
            try:
                return self.driver.run_batch(ranges, {"elapsed_s": self.elapsed_s})
            except ExecutorLost as loss:
                attempt += 1
                if attempt == ATTEMPTS:
                    raise
                if loss.executors:
                    self._recover(loss)
                else:
                    self._put_event("executors", f"{loss}, which is run again")
                    time.sleep(LOOK_S)

    def _inject(self) -> None:
        """Let scripted faults happen; a move that they break is given up, or done again."""
        try:
            self._injector.before(self.driver.next_batch)
        except ExecutorLost as loss:
            self._recover(loss)

    def _recover(self, loss: ExecutorLost) -> None:
        """Plan without what was lost, again if more is lost meanwhile."""
        for attempt in range(ATTEMPTS):
            try:
                self._replace_lost(loss)
                return
            except ExecutorLost as another:
                if attempt == ATTEMPTS - 1:
                    raise
                loss = another

    def _replace_lost(self, loss: ExecutorLost) -> None:
        """Wait for replacements for a while, then plan on what is there."""
        wanted = len(self.cluster)
        deadline = time.monotonic() + self.options.replaced_s
        while time.monotonic() < deadline:
            found = {executor.id for executor in self.executors()}
            if len(found) >= wanted and not found & set(loss.executors):
                break
            time.sleep(LOOK_S)
        self.pool.warm_up_new()
        self.pool.look()
        answer = self.strategy.plan(self._request(self.plan))
        if isinstance(answer, Keep):
            current = self.plan.node_of_in(self.cluster)
            if not stands(self.cluster, current, self.plan.process_of):
                raise PenstockError(f"{loss}; and no plan without them: {answer.reasons[0]}")
            # Nothing ran on what is lost, or another process came in its place.
            answer = replace(self.plan, nodes=self.cluster.names, node_of=current, active=())
        self.replace_plan(answer, str(loss))

    def _replan(self) -> None:
        measured = self.measurements()
        answer = self.strategy.plan(replace(self._request(self.plan), measurements=measured))
        if isinstance(answer, Keep):
            text = "; ".join(str(reason) for reason in answer.reasons)
            self._put_event("keep", text)
            return
        self.replace_plan(answer, "asked for")

    def _greeter_failed(self, error: Exception) -> None:
        text = f"those that come later are not warmed up any more: {type(error).__name__}: {error}"
        self._put_event("executors", text)

    def decided(self, event: Event) -> None:
        """Write down what a loop decided, and again when more is known of it."""
        self._recorder(event)
        if self._on_decision is not None:
            self._on_decision(event)

    # ---- plans and places

    def _executor_of(self, home: str) -> str:
        return self.pool.executor_of(home) if self._pinned else ""

    def _request(self, running: Plan | None) -> Request:
        return Request(
            self.topology,
            self.cluster,
            measurements=None,
            running=running,
            rng=np.random.default_rng(self.options.seed),
        )

    def _first_plan(self) -> Plan:
        answer = self.strategy.plan(self._request(None))
        assert isinstance(answer, Plan)
        return answer

    def _put_plan(self, why: str) -> None:
        batch = self.driver.next_batch
        if batch == 0 or why == FIRST:
            self.store.put_plan(PlanRecord(self.id, batch, self.plan))
        text = f"{why}: " + "; ".join(str(reason) for reason in self.plan.reasons)
        self._put_event("plan", text)

    def _put_event(self, kind: str, text: str) -> None:
        self.store.put_event(
            EventRecord(
                self.id,
                next(self._events),
                time.time(),
                kind,
                text,
                batch=self.driver.next_batch,
            )
        )

    def _finish(self) -> None:
        try:
            self.driver.close()
        finally:
            self._close()
            self._over.set()

    def _close(self) -> None:
        status = RunStatus.FINISHED if not self._halt.is_set() else RunStatus.STOPPED
        if self.failure is not None:
            status = RunStatus.FAILED
        compared = bool(self.queues)
        self.store.put_run(
            replace(
                self._record,
                ended_at_s=time.time(),
                status=status,
                rows_lost=self.lost if compared else None,
                rows_duplicated=self.duplicated if compared else None,
            )
        )

    def abandon(self) -> None:
        """Give up a run, for instance one that never began."""
        self._halt.set()
        if self._thread.is_alive():
            self.stop()
        elif not self._over.is_set():
            self.mailbox.close("the run never began")
            self._finish()
        self.clean()

    def clean(self) -> None:
        """Close the store, and remove the run's own folder if it has one."""
        self.store.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.clean()


def start(
    pipeline: Pipeline,
    spark: SparkSession,
    strategy: str | Strategy = "penstock",
    *,
    listener: Callable[[Observed], None] | None = None,
    on_decision: Callable[[Event], None] | None = None,
    **options: Any,
) -> Query:
    """Run a pipeline on Spark.

    Parameters
    ----------
    pipeline : Pipeline
    spark : SparkSession
        Best made by `penstock.spark.session`; any session with adaptive execution off will do.
    strategy : str or Strategy
    listener : callable, optional
        Called with every batch that was committed, in the thread that drives them.
    on_decision : callable, optional
        Called with every decision of the control loop, and again when more is known of it.
    **options
        `Options`.

    Returns
    -------
    Run
        Use it in a ``with`` block, or call `stop` and `clean`.
    """
    require_fixed_plans(spark)
    made = strategies.make(strategy) if isinstance(strategy, str) else strategy
    run = Query(pipeline, spark, made, Options(**options), listener, on_decision)
    try:
        return run.begin()
    except BaseException:
        run.abandon()
        raise


def require_fixed_plans(spark: SparkSession) -> None:
    """Raise unless Spark leaves the plans of its own jobs as they are."""
    if str(spark.conf.get("spark.sql.adaptive.enabled")).lower() != "false":
        raise InvalidValue(
            "spark.sql.adaptive.enabled", "the session", "false, or a batch would run twice", "true"
        )
