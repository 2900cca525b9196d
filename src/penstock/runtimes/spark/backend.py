"""Runs the tasks of a batch on Spark: one job, one stage a layer, one partition an instance."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.backend import NO_SENDERS, Stage, StateSenders
from penstock.engine.batch import BatchSpec
from penstock.engine.errors import StepFailed
from penstock.engine.job_graph import JobGraph
from penstock.runtimes.spark.dataframe_source import first_stage
from penstock.runtimes.spark.errors import FolderUnreachable, TaskOverdue
from penstock.runtimes.spark.file_scan import Scanned, file_rows
from penstock.runtimes.spark.folders import Probe, problem_here
from penstock.runtimes.spark.job import JobRunner, JobStage
from penstock.runtimes.spark.jvm import TaskFact, jvm_of
from penstock.runtimes.spark.nodes import by_node
from penstock.runtimes.spark.serialize import packed
from penstock.runtimes.spark.worker import BatchTask, SharedGraph, StageTask, freeze, key_of


@dataclass(eq=False)
class SparkBackend:
    """Runs batches; remembers where the tasks of the last one ran.

    Parameters
    ----------
    spark : SparkSession
    executor_of : callable
        From a location, as in `BatchSpec.locations`, to the id of an executor; "" is anywhere.
    folder : str
        Where an executor keeps state; a relative one lies in its own working folder.
    per_node : int
        Executors that stand for a node, or 0, as in `by_node`.
    task_timeout_s : float
        Time that a task may take, in seconds; 0 means no limit.
    rows : DataFrame, optional
        What the first layer reads instead of its sources' ranges.
    files : mapping of str to Scanned, optional
        The same rows by source step, where tasks can read them from files.
    rows_of : str, optional
        The one source step that the rows belong to; without it they are (source step, Arrow
        message) pairs.

    Attributes
    ----------
    pinned : list of list of str
        Executor of every partition of every layer of the last batch; "" is anywhere.
    group, moving, background : str
        Job groups of the last batch, of the last job that moved state, and of the last one beside
        the batches.
    """

    spark: SparkSession
    executor_of: Callable[[str], str]
    folder: str = "penstock-state"
    per_node: int = 1
    task_timeout_s: float = 0.0
    rows: DataFrame | None = None
    rows_of: str | None = None
    files: Mapping[str, Scanned] | None = None
    pinned: list[list[str]] = field(default_factory=list)
    group: str = ""
    moving: str = ""
    background: str = ""
    _graph: tuple[JobGraph, SharedGraph] | None = None

    @cached_property
    def _jobs(self) -> JobRunner:
        return JobRunner(self.spark.sparkContext, Path(self.folder), self.task_timeout_s)

    def run(
        self, job_graph: JobGraph, spec: BatchSpec, senders: StateSenders = NO_SENDERS
    ) -> list[bytes]:
        """Run the batch as one job and collect the messages for the driver."""
        graph = self._share(job_graph)
        self.group = f"penstock-{spec.token}-{spec.version}"
        if senders:
            self.moving = self.group
        # Backup nodes remove what is not theirs, and must not do so on another executor, which has
        # no state of other instances either. Spark gives a task that it repeats to whoever is free.
        stateful = {spec.first[vertex][0] for vertex in spec.bases if spec.state_config.by_peers}
        files = None if self.files is None else file_rows(self.files, spec, job_graph)
        stages = [
            JobStage(
                [self.executor_of(location) for location in locations],
                BatchTask(
                    graph,
                    spec,
                    layer,
                    Path(self.folder),
                    self.task_timeout_s,
                    None if layer else files,
                ),
                strict=layer in (*stateful, len(spec.layers)),
            )
            for layer, locations in enumerate(spec.layer_locations)
        ]

        def first(locations: list[str]) -> Any:
            if self.rows is not None and files is None:
                limit_s = self.task_timeout_s
                return first_stage(self.rows, self.rows_of, graph, spec, locations, limit_s)
            assert stages[0].task is not None
            return self._jobs.first(locations, stages[0].task)

        text = f"{job_graph.pipeline.name} batch {spec.batch_id}"
        self.pinned = [list(stage.executors) for stage in stages]
        try:
            self.pinned, messages = self._jobs.run(text, self.group, stages, first, senders)
        except TaskOverdue as overdue:
            raise _named(overdue, spec) from overdue
        return messages

    def job(self, name: str, stages: Sequence[Stage], *, background: bool = False) -> list[bytes]:
        """Run stages of any kind as one job."""
        group = f"penstock-{name}-{uuid.uuid4().hex}"
        if background:
            self.background = group
        else:
            self.moving = group
        made = [
            JobStage(
                list(stage.executors),
                StageTask(stage.body, Path(self.folder), self.task_timeout_s),
            )
            for stage in stages
        ]

        def first(locations: list[str]) -> Any:
            assert made[0].task is not None
            return self._jobs.first(locations, made[0].task, stages[0].inputs)

        return self._jobs.run(name, group, made, first)[1]

    def cancel_background(self) -> None:
        """Cancel the job that runs beside batches."""
        sc = self.spark.sparkContext
        try:
            if self.background:
                sc.cancelJobGroup(self.background)
        except Exception:
            if not jvm_of(sc).stopped:
                raise

    def executor_at(self, location: str) -> str:
        """Return the executor at a location; ids are never used again."""
        return self.executor_of(location)

    def backup_nodes(self) -> Mapping[str, str]:
        """Return the first process of each node that plans know of."""
        executors = jvm_of(self.spark.sparkContext).executors()
        alive = {executor.id for executor in executors}
        first = {node: f"{node}/0" for node in by_node(executors, self.per_node)}
        return {node: at for node, at in first.items() if self.executor_of(at) in alive}

    def alive(self) -> frozenset[str]:
        """Return the executors that are there."""
        return frozenset(e.id for e in jvm_of(self.spark.sparkContext).executors())

    def warm_up(self, only: Collection[str] | None = None, probes: Iterable[Probe] = ()) -> None:
        """Have executors start their Python workers and load what a task needs, once.

        Without it the first batch would wait for that, and all tuples that come meanwhile.

        Parameters
        ----------
        only : collection of str, optional
            Executors; all by default.
        probes : iterable of Probe
            Folders that they must be able to read and write.

        Raises
        ------
        FolderUnreachable
            When an executor cannot use one of the folders.
        """
        executors = jvm_of(self.spark.sparkContext).executors()
        slots = [e.id for e in executors if only is None or e.id in only for _ in range(e.cores)]
        if not slots:
            return
        asked = tuple(probes)

        def look(partition: int, arrived: Iterator[bytes]) -> Iterator[bytes]:
            freeze()
            for _ in arrived:
                pass
            for probe in asked:
                problem = problem_here(probe)
                if problem:
                    yield key_of(0)
                    yield f"executor {slots[partition]}: {problem}".encode()
            yield key_of(0)
            yield b""

        def hand_on(partition: int, arrived: Iterator[bytes]) -> Iterator[bytes]:
            for told in arrived:
                yield key_of(0)
                yield told

        group = f"penstock-warm-up-{uuid.uuid4().hex}"
        stages = [JobStage(slots, look, strict=False), JobStage(slots[:1], hand_on, strict=False)]
        told = self._jobs.run("warm up", group, stages, lambda at: self._jobs.first(at, look))[1]
        problems = sorted({bytes(one).decode() for one in told if one})
        if problems:
            raise FolderUnreachable(problems)

    def facts(self) -> list[TaskFact]:
        """Tasks of the last batch, as Spark recorded them."""
        return jvm_of(self.spark.sparkContext).tasks(self.group)

    def _share(self, job_graph: JobGraph) -> SharedGraph:
        """Send the job graph to the workers once, not with every batch."""
        if self._graph is None or self._graph[0] is not job_graph:
            sent = self.spark.sparkContext.broadcast(packed(job_graph))
            self._graph = (job_graph, SharedGraph(sent))
        return self._graph[1]


def _named(overdue: TaskOverdue, spec: BatchSpec) -> StepFailed | TaskOverdue:
    """Say which instance did not return, where it was one."""
    task = overdue.task
    if task.layer >= len(spec.layers) or task.partition >= spec.width(task.layer):
        return overdue
    vertex, instance = spec.instance_at(task.layer, task.partition)
    cause = f"it did not return within {overdue.limit_s:g} s, and its worker was ended"
    return StepFailed(vertex, instance, spec.batch_id, cause, "[]")
