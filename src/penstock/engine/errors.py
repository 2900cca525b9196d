"""Errors of a batch."""

from __future__ import annotations

from typing import Any

from penstock.model import PenstockError


class StepFailed(PenstockError):
    """A function of the user's failed; says which, where and on what."""

    def __init__(self, step: str, instance: int, batch_id: int, cause: str, sample: Any) -> None:
        super().__init__(
            f"step {step!r} failed in instance {instance}, batch {batch_id}: {cause}; "
            f"first rows: {sample}"
        )
        self.step, self.instance, self.batch_id = step, instance, batch_id
        self.cause, self.sample = cause, sample

    def __reduce__(self) -> tuple[type[StepFailed], tuple[Any, ...]]:
        return (StepFailed, (self.step, self.instance, self.batch_id, self.cause, self.sample))


class SinkFailed(PenstockError):
    """A sink did not take a batch; says which sink and why."""

    def __init__(self, step: str, batch_id: int, cause: str) -> None:
        super().__init__(f"sink {step!r} did not take batch {batch_id}: {cause}")
        self.step, self.batch_id, self.cause = step, batch_id, cause

    def __reduce__(self) -> tuple[type[SinkFailed], tuple[Any, ...]]:
        return (SinkFailed, (self.step, self.batch_id, self.cause))


class TaskTimedOut(BaseException):
    """Raised in the middle of a function that takes longer than a task may take."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"it did not return within {limit_s:g} s")
