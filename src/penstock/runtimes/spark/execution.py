"""What one run consists of, and how its plan is changed."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from penstock.engine.driver.driver import Driver, MigrationResult
from penstock.engine.job_graph import JobGraph, is_source
from penstock.engine.source_queue import queue_of
from penstock.model import InvalidValue, Keep, Kind, Measurements, PenstockError, Plan, Topology
from penstock.pipeline.builder import Pipeline
from penstock.runtimes.spark.backend import SparkBackend
from penstock.runtimes.spark.dataframe_source import frame_steps, pruned
from penstock.runtimes.spark.executors import Executors
from penstock.runtimes.spark.folders import Probe, RunFolder, probed
from penstock.runtimes.spark.jvm import jvm_of
from penstock.runtimes.spark.mailbox import Mailbox
from penstock.runtimes.spark.measurement_window import MeasurementWindow
from penstock.runtimes.spark.options import Options
from penstock.runtimes.spark.recorder import PLAN, MetricsRecorder
from penstock.state.files.filesystem import is_address
from penstock.store.outline import outline
from penstock.store.records import STATE, RunRecord
from penstock.strategies import Request, Strategy

#: Why there is a plan before anything ran.
FIRST = "the first plan"


class Execution:
    """All parts of one run: what is planned, where it runs, what was measured.

    Only the thread that runs the batches changes anything here; others ask it through `mailbox`.

    Parameters
    ----------
    pipeline : Pipeline
    spark : SparkSession
    strategy : Strategy
    options : Options
    first : Plan, optional
        The first plan; by default the strategy makes it.

    Attributes
    ----------
    id, name : str
        Of the run, and of the pipeline.
    mailbox : Mailbox
        What other threads want done between two batches.
    halt : Event
        Set when the run is to stop after the batch that is running.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        strategy: Strategy,
        options: Options,
        first: Plan | None = None,
    ) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.name = pipeline.name
        self.spark, self.strategy, self.options = spark, strategy, options
        self.job_graph = JobGraph.of(pipeline)
        self.frames = pruned(frame_steps(pipeline.steps), self.job_graph.pipeline)
        self.mailbox, self.halt = Mailbox(), threading.Event()
        self.window = MeasurementWindow()
        self._scaled: dict[str, int] = {}
        self._pinned = True
        self._probes: tuple[Probe, ...] = ()
        self.folder = RunFolder(options.checkpoint)
        try:
            self._build(first)
        except BaseException:
            self.folder.remove()
            raise

    def _build(self, first: Plan | None) -> None:
        options, checkpoint = self.options, self.folder.checkpoint
        jvm = jvm_of(self.spark.sparkContext)
        self.executors = Executors(
            jvm, lambda only: self.backend.warm_up(only, self._probes), jvm.processes
        )
        # Without executors of its own a session has no working folders to keep state in.
        local = str(self.folder.path / "local") if jvm.local else f"penstock-{self.id}"
        self.backend = SparkBackend(
            self.spark,
            self._executor_of,
            local,
            self.executors.per_node,
            options.recovery.task_timeout_s,
        )
        nodes = len(self.executors.cluster)
        # Declared once: more nodes do not mean more instances by themselves.
        self._topology = self.job_graph.topology(max(2, nodes))
        plan = first or self._first_plan()
        self._pinned = plan.pinned
        self.driver = Driver(
            self.job_graph,
            self.backend,
            checkpoint,
            plan,
            options.on_error,
            options.state.config(
                f"{checkpoint}/state",
                nodes,
                pinned=plan.pinned,
                checkpoint=options.checkpoint is not None,
            ),
            options.rename,
            options.forget,
        )
        self.recorder = self._recorder()
        done = self.driver.progress.last_commit()
        self._elapsed_before = float(done.get("elapsed_s", 0.0))
        #: Number that Spark gave to the last batch of a streaming DataFrame.
        self.spark_batch = int(done.get("spark_batch", -1))
        self._began = time.monotonic()
        reached, queue = self.driver.positions(), options.queue
        self.queues = {
            step.name: queue_of(
                step.source, queue.size, queue.when_full, reached.get(step.name, ())
            )
            for step in self.job_graph.pipeline.steps
            if step.source is not None and is_source(step.source)
        }

    def _recorder(self) -> MetricsRecorder:
        """Make what writes metrics and events beside the run."""
        options = self.options
        config = {"queue": options.queue.size, "topology": outline(self._topology)}
        recorder = MetricsRecorder(
            RunRecord(self.id, self.name, self.strategy.name, time.time(), config=config),
            options.store or self.folder.path / "metrics.sqlite",
            own=options.store is None,
            next_batch=lambda: self.driver.next_batch,
        )
        recorder.plan(self.plan, FIRST)
        for note in self.driver.progress.commit_log.notes:
            recorder.event(STATE, note)
        return recorder

    def warm_up(self) -> None:
        """Start the Python workers, and see that all executors reach the folders of the run."""
        with probed(self._shared_folders()) as self._probes:
            self.executors.warm_up()
        self._probes = ()
        self._began = time.monotonic()

    def _shared_folders(self) -> list[Path]:
        """Folders that tasks write into and the driver reads."""
        if jvm_of(self.spark.sparkContext).local:
            return []
        folders = []
        config = self.driver.registry.state_config
        if config.in_checkpoint and not is_address(config.shared):
            folders.append(Path(config.shared))
        for _, sink in self.job_graph.sinks:
            path = getattr(sink, "path", None)
            if sink.on_workers and path is not None:
                folders.append(Path(path))
        return folders

    # ---- what there is

    @property
    def plan(self) -> Plan:
        """The plan of the next batch."""
        return self.driver.plan

    @property
    def topology(self) -> Topology:
        """What is planned, with the parallelism that was declared or set by `scale`."""
        return self._topology.with_parallelism(self._scaled) if self._scaled else self._topology

    @property
    def elapsed_s(self) -> float:
        """Time of the stream, in seconds."""
        return self._elapsed_before + time.monotonic() - self._began

    def measurements(self) -> Measurements | None:
        """Return what the batches since the last change of plan showed; None of too few."""
        sources = [v.name for v in self.job_graph.vertices if v.kind is Kind.SOURCE]
        return self.window.measurements(sources, self.executors.cluster)

    def request(self, running: Plan | None) -> Request:
        """Put the question for a plan to a strategy, without measurements."""
        return Request(
            self.topology,
            self.executors.cluster,
            measurements=None,
            running=running,
            rng=np.random.default_rng(self.options.seed),
        )

    # ---- changes, by the thread that runs the batches

    def change(self, plan: Plan, why: str = "") -> MigrationResult:
        """Use a plan from the next batch on; the state that it moves comes with that batch."""
        before, self._pinned = self._pinned, plan.pinned
        try:
            took = self.driver.adopt(plan, inband=True)
        except BaseException:
            self._pinned = before
            raise
        self.window.changed()
        self.recorder.plan(self.plan, why)
        self.recorder.moved(took)
        return took

    def scale(self, operator: str, instances: int) -> bool:
        """Change the number of an operator's instances, and return whether the plan has it now.

        A strategy may keep the plan that it has; an event says why, and the number that was asked
        for stays what later plans are made for.
        """
        if operator not in self.plan.parallelism:
            allowed = "one of " + ", ".join(self.plan.parallelism)
            raise InvalidValue("operator", "a change of parallelism", allowed, operator)
        before = dict(self._scaled)
        self._scaled[operator] = instances
        if self.plan.parallelism[operator] == instances:
            return True
        try:
            answer = self.strategy.plan(self.request(self.plan))
            if isinstance(answer, Keep):
                text = f"the strategy keeps the plan when {operator} is to have {instances}"
                self.recorder.event(PLAN, f"{text} instances: {answer.reasons[0]}")
                return False
            self.change(answer, f"{operator} scaled to {instances}")
        except BaseException:
            self._scaled = before
            raise
        return True

    def rebase(self) -> None:
        """Name the nodes of the plan as they are now, and have its state where it runs.

        For a loss that the plan survives: nothing ran on what was lost, or another process came in
        its place.
        """
        cluster = self.executors.cluster
        node_of = self.plan.node_of_in(cluster)
        self.change(replace(self.plan, nodes=cluster.names, node_of=node_of, active=()))

    def close(self) -> None:
        """Close the metrics store, and remove the run's own folder if it has one."""
        self.recorder.close()
        self.folder.remove()

    # ---- plans and locations

    def _executor_of(self, location: str) -> str:
        return self.executors.executor_of(location) if self._pinned else ""

    def _first_plan(self) -> Plan:
        answer = self.strategy.plan(self.request(None))
        if isinstance(answer, Keep):
            raise PenstockError(f"the strategy has no first plan: {answer.reasons[0]}")
        return answer
