"""One Spark job of pinned stages: how it is put together, run, and what its failure means."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext

from penstock.engine.backend import NO_SENDERS, StateSenders
from penstock.runtimes.spark.errors import ExecutorLost, TaskFailed, TaskOverdue, WorkerLost
from penstock.runtimes.spark.jvm import Executor, jvm_of
from penstock.runtimes.spark.python_function import PythonFunctions
from penstock.runtimes.spark.watch import JobWatch
from penstock.runtimes.spark.worker import FirstTask, StageTask, TaskFunction

#: What PinnedRDD.java says of a task that is not where it must be.
ASTRAY = "was given to executor"

#: What Spark says when a Python worker ended without an exception.
CRASHED = ("Python worker exited unexpectedly", "Python worker failed to connect back")

#: Makes the first stage of a job at the given locations.
FirstStage = Callable[[list[str]], Any]


@dataclass(frozen=True, eq=False)
class JobStage:
    """One stage of a job.

    Parameters
    ----------
    executors : list of str
        Where each task runs; "" is anywhere.
    task : callable or None
        The function of its tasks; None in a first stage that is made otherwise.
    strict : bool
        Whether its tasks fail on any other executor.
    """

    executors: list[str]
    task: TaskFunction | None
    strict: bool = True


@dataclass(eq=False)
class JobRunner:
    """Runs jobs of pinned stages in one SparkContext.

    Parameters
    ----------
    sc : SparkContext
    folder : Path
        Where an executor keeps state.
    limit_s : float
        Time that a task may take, in seconds; 0 means no limit.
    """

    sc: SparkContext
    folder: Path
    limit_s: float = 0.0
    _bases: dict[int, Any] = field(default_factory=dict)

    @cached_property
    def _functions(self) -> PythonFunctions:
        return PythonFunctions(self.sc)

    def run(
        self,
        text: str,
        group: str,
        stages: Sequence[JobStage],
        first: FirstStage,
        senders: StateSenders = NO_SENDERS,
    ) -> tuple[list[list[str]], list[bytes]]:
        """Run a job, and return where its tasks were pinned and the messages for the driver.

        Raises
        ------
        ExecutorLost
            When an executor that it needs is gone, or goes while it runs.
        TaskOverdue
            When a task took longer than the limit.
        WorkerLost, TaskFailed
            When a Python worker ended, or raised.
        """
        jvm = jvm_of(self.sc)
        alive = {executor.id: executor for executor in jvm.executors()}
        wanted = {e for stage in stages for e in stage.executors if e}
        wanted |= {e for layer in senders.values() for stage in layer for e in stage.executors}
        if wanted - set(alive):
            raise ExecutorLost(wanted - set(alive))
        pinned, rdd = self._put_together(stages, first, senders, alive)
        with JobWatch(self.sc, group, wanted, self.limit_s) as watch:
            try:
                pairs = jvm.collect(rdd, group, text)
            except Py4JJavaError as error:
                lost = watch.lost | jvm.gone(wanted)
                if watch.overdue is not None and not lost:
                    raise TaskOverdue(watch.overdue, self.limit_s) from None
                raise _explained(error, lost) from error
        lost = jvm.gone(wanted)
        if lost:
            # Spark was faster than the watch and ran their tasks elsewhere, without their state.
            raise ExecutorLost(lost)
        return pinned, pairs[1::2]

    def _put_together(
        self,
        stages: Sequence[JobStage],
        first: FirstStage,
        senders: StateSenders,
        alive: dict[str, Executor],
    ) -> tuple[list[list[str]], Any]:
        def located(executors: Iterable[str], must: bool) -> list[str]:
            return ["!" * must + alive[e].location if e else "" for e in executors]

        pinned = [list(stage.executors) for stage in stages]
        current: Any = None
        for layer, stage in enumerate(stages):
            where = located(stage.executors, stage.strict)
            if layer:
                assert stage.task is not None
                current = jvm_of(self.sc).next(current, where, *self._functions.of(stage.task))
            else:
                current = first(where)
            for sender in senders.get(layer, ()):
                # Their partitions come after those of the layer, which may be fewer than it has
                # instances where they are those of a DataFrame.
                count = int(current.getNumPartitions())
                tasks = [pinned[layer][i % len(pinned[layer])] for i in range(count)]
                pinned[layer] = [*tasks, *sender.executors]
                task = StageTask(sender.body, self.folder, self.limit_s)
                current = current.union(self.first(located(sender.executors, True), task))
        return pinned, current

    def first(
        self, locations: list[str], task: TaskFunction, inputs: Sequence[Sequence[bytes]] = ()
    ) -> Any:
        """Return a first stage, whose tasks get what the driver gives them, mostly nothing."""
        width = len(locations)
        if any(inputs):
            base = self.sc.parallelize(list(inputs), width)._jrdd
        else:
            base = self._bases.get(width)
            if base is None:
                base = self._bases[width] = self.sc.parallelize([()] * width, width)._jrdd
        function = self._functions.of(FirstTask(task))
        return jvm_of(self.sc).first(base, locations, *function)


def _explained(error: Py4JJavaError, lost: set[str]) -> ExecutorLost | WorkerLost | TaskFailed:
    """Say what the failure of a job means, without the JVM's trace."""
    text = str(error.java_exception)
    if lost or ASTRAY in text:
        return ExecutorLost(lost)
    if any(phrase in text for phrase in CRASHED):
        return WorkerLost()
    return TaskFailed(text)
