"""What can go wrong between the driver and the executors, in sentences for users."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model import PenstockError
from penstock.runtimes.spark.jvm import RunningTask

#: What marks the part of Spark's message that is Python's own.
PYTHON_TRACE, JAVA_TRACE = "Traceback (most recent call last):", "\n\tat "


class ExecutorLost(PenstockError):
    """Executors that a batch was pinned to are gone; the batch left nothing and can be run again.

    Without any names the executors are there, but were busy when Spark had to repeat a task. Spark
    then gave the task to another executor, which does not have its state.
    """

    def __init__(self, executors: Iterable[str]) -> None:
        self.executors = tuple(sorted(executors))
        lost = f"lost executors {', '.join(self.executors)}"
        super().__init__(f"{lost if self.executors else 'tasks went astray'} during a batch")


class WorkerLost(PenstockError):
    """A Python worker ended in the middle of a task; the batch can be run again."""

    def __init__(self) -> None:
        super().__init__(
            "a Python worker ended in the middle of a task: it was killed, ran out of memory, or a "
            "library ended its process"
        )


class TaskOverdue(PenstockError):
    """A task did not return within its time limit, and its worker was ended."""

    def __init__(self, task: RunningTask, limit_s: float) -> None:
        self.task, self.limit_s = task, limit_s
        super().__init__(
            f"a task did not return within {limit_s:g} s on executor {task.executor}; its worker "
            "was ended"
        )


class TaskFailed(PenstockError):
    """Spark could not run a task; tells what Python said, or else the first line of Spark's error.

    Parameters
    ----------
    text : str
        Spark's error, with the traces of the JVM.
    """

    def __init__(self, text: str) -> None:
        python, found, rest = text.partition(PYTHON_TRACE)
        said = found + rest.split(JAVA_TRACE)[0] if found else python.split("\n")[0]
        super().__init__(f"Spark could not run a task: {said.strip()}")


class NoExecutors(PenstockError):
    """There is no executor, and none came for as long as the run waits."""

    def __init__(self, waited_s: float) -> None:
        super().__init__(
            f"there is no executor, and none came within {waited_s:g} s; the run goes on from its "
            "checkpoint when it is started again, and waits longer with "
            "recovery=RecoveryOptions(no_executors_wait_s=...)"
        )


class FolderUnreachable(PenstockError):
    """Executors cannot use a folder that the driver made."""

    def __init__(self, problems: Iterable[str]) -> None:
        listed = "; ".join(problems)
        super().__init__(
            f"executors cannot use a folder of the run: {listed}. Give a folder that the driver "
            "and all executors share under the same path"
        )
