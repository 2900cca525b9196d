"""What can go wrong between the driver and the executors, in sentences for users."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model import PenstockError


class ExecutorLost(PenstockError):
    """Executors that a batch was pinned to are gone; the batch left nothing and can be run again.

    Without any names the executors are there, but were busy when Spark had to repeat a task. Spark
    then gave the task to another executor, which does not have its state.
    """

    def __init__(self, executors: Iterable[str]) -> None:
        self.executors = tuple(sorted(executors))
        lost = f"lost executors {', '.join(self.executors)}"
        super().__init__(f"{lost if self.executors else 'tasks went astray'} during a batch")
