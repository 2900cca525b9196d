"""Watches a job while it runs, and cancels it when an executor is gone or a task takes too long."""

from __future__ import annotations

import threading
import time

from pyspark import SparkContext

from penstock.runtimes.spark.jvm import RunningTask, jvm_of

#: Seconds between two looks at the executors, and at the tasks once the time limit is over.
LOOK_S, TASKS_S = 0.25, 1.0

#: Seconds after its time limit in which a task is left to end by itself and to tell of it.
GRACE_S = 5.0


class JobWatch:
    """Cancels a job when an executor that it is pinned to is gone, or a task takes too long.

    Left alone, its tasks would wait for that executor as long as they may wait for any, and for a
    function that never returns for ever. Spark ends the Python worker of a cancelled task.

    Parameters
    ----------
    sc : SparkContext
    group : str
        Job group of the job.
    executors : set of str
    limit_s : float
        Time that a task may take, in seconds; 0 means no limit.

    Attributes
    ----------
    lost : set of str
        Executors that were missed.
    overdue : RunningTask or None
        The task that took too long.
    """

    def __init__(self, sc: SparkContext, group: str, executors: set[str], limit_s: float) -> None:
        self._sc, self._group, self._executors = sc, group, executors
        self._limit_s = limit_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="penstock-watch")
        self.lost: set[str] = set()
        self.overdue: RunningTask | None = None

    def __enter__(self) -> JobWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        jvm = jvm_of(self._sc)
        # No task can be overdue before the job has run for so long.
        next_look = time.monotonic() + self._limit_s + GRACE_S
        while not self._done.wait(LOOK_S):
            try:
                self.lost = self._executors - {executor.id for executor in jvm.executors()}
                if self._limit_s and time.monotonic() >= next_look:
                    next_look = time.monotonic() + TASKS_S
                    self.overdue = self._overdue()
                if self.lost or self.overdue:
                    self._sc.cancelJobGroup(self._group)
                    return
            except Exception:
                if jvm.stopped:
                    # The job ends by itself, and tells.
                    return
                raise

    def _overdue(self) -> RunningTask | None:
        running = jvm_of(self._sc).running(self._group)
        late = [task for task in running if task.seconds > self._limit_s + GRACE_S]
        return max(late, key=lambda task: task.seconds, default=None)
