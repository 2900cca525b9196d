"""Calls of the user's functions, and the error that says which one failed, where and on what."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from penstock.model import PenstockError

#: Rows of a batch that an error shows.
SAMPLE_ROWS = 3

T = TypeVar("T")


class StepFailed(PenstockError):
    """A function of the user's failed; says which, where and on what.

    `trace` is the traceback of the user's function as text, for those who show it.
    """

    def __init__(
        self, step: str, instance: int, batch_id: int, cause: str, sample: Any, trace: str = ""
    ) -> None:
        super().__init__(
            f"step {step!r} failed in instance {instance}, batch {batch_id}: {cause}; "
            f"first rows: {sample}"
        )
        self.step, self.instance, self.batch_id = step, instance, batch_id
        self.cause, self.sample, self.trace = cause, sample, trace

    def __reduce__(self) -> tuple[type[StepFailed], tuple[Any, ...]]:
        values = (self.step, self.instance, self.batch_id, self.cause, self.sample, self.trace)
        return (StepFailed, values)


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


@dataclass(frozen=True)
class UserCode:
    """Calls functions of the user's in one task.

    Parameters
    ----------
    instance, batch_id : int
        What an error says of the task.
    """

    instance: int
    batch_id: int

    def call(self, step: str, function: Callable[[], T], batch: pa.RecordBatch | None = None) -> T:
        """Call a function; raise `StepFailed` if it fails.

        Parameters
        ----------
        step : str
            The step that the function belongs to.
        function : callable
        batch : RecordBatch, optional
            What it works on; the error shows its first rows.
        """
        try:
            return function()
        except StepFailed:
            raise
        except (Exception, SystemExit, TaskTimedOut) as error:
            sample = [] if batch is None else batch.slice(0, SAMPLE_ROWS).to_pylist()
            # The last frame of a function that took too long is that of the alarm.
            where = traceback.extract_tb(error.__traceback__)[-1 - isinstance(error, TaskTimedOut)]
            cause = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
            trace = "".join(traceback.format_exception(error))
            raise self.failed(step, cause, repr(sample), trace) from error

    def failed(self, step: str, cause: str, sample: str = "[]", trace: str = "") -> StepFailed:
        """Return the error of a step that failed in this task."""
        return StepFailed(step, self.instance, self.batch_id, cause, sample, trace)

    def together(self, step: str, tables: list[pa.Table]) -> pa.Table:
        """Return the parts of a stream as one table; they must have the same columns."""
        first = tables[0].schema
        for table in tables[1:]:
            if table.schema.names != first.names:
                names = f"{first.names} and {table.schema.names}"
                raise self.failed(step, f"its batches have different columns: {names}")
        return self.call(step, lambda: pa.concat_tables(tables, promote_options="permissive"))
