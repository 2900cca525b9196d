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
