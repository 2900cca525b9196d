"""Sinks in the driver: memory, console, a function. Each takes a batch twice and keeps it once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.common.arrow_keys import distinct_keys, normal_keys
from penstock.common.keywords import class_keywords
from penstock.pipeline.steps import Attempt, StagedFile


class DriverSink:
    """Base of sinks that take a whole batch in the driver: `commit` is what they differ in."""

    on_workers = False

    def start(self, checkpoint: str) -> None:
        """Do nothing."""

    def stage(self, attempt: Attempt, instance: int, table: pa.Table) -> None:
        """Do nothing: rows come to the driver."""

    def recover(self, committed: int) -> None:
        """Do nothing: what was printed, or given to a function, is known by the batch's number."""


@class_keywords
@dataclass(eq=False)
class Memory(DriverSink):
    """Keeps the rows of every batch in the driver."""

    batches: dict[int, pa.Table] = field(default_factory=dict)

    def commit(
        self, attempt: Attempt, table: pa.Table | None, staged: Sequence[StagedFile] = ()
    ) -> None:
        """Keep the batch, in place of an earlier one of the same number."""
        if table is not None:
            self.batches[attempt.batch_id] = table

    def recover(self, committed: int) -> None:
        """Forget later batches."""
        self.batches = {b: t for b, t in self.batches.items() if b <= committed}

    def table(self) -> pa.Table:
        """All rows, in the order of the batches; empty without columns before the first."""
        tables = [self.batches[b] for b in sorted(self.batches)]
        return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})

    def latest(self, *by: str) -> pa.Table:
        """Last row of each key: what a keyed step's state came to."""
        table = self.table()
        if not table.num_rows:
            return table
        keys = distinct_keys(normal_keys(table.select(list(by)), by), by)
        last = np.zeros(len(keys.hashes), dtype=np.int64)
        np.maximum.at(last, keys.of_row, np.arange(table.num_rows))
        return table.take(pa.array(np.sort(last)))


@class_keywords
@dataclass(eq=False)
class Discard:
    """Keeps nothing: the rows are counted where they are made, and not even sent."""

    on_workers = True

    def start(self, checkpoint: str) -> None:
        """Do nothing."""

    def stage(self, attempt: Attempt, instance: int, table: pa.Table) -> None:
        """Do nothing."""

    def commit(
        self, attempt: Attempt, table: pa.Table | None, staged: Sequence[StagedFile] = ()
    ) -> None:
        """Do nothing."""

    def recover(self, committed: int) -> None:
        """Do nothing."""


@class_keywords
@dataclass(eq=False)
class Console(DriverSink):
    """Prints the first rows of every batch."""

    rows: int = 10

    def commit(
        self, attempt: Attempt, table: pa.Table | None, staged: Sequence[StagedFile] = ()
    ) -> None:
        """Print."""
        if table is None or not table.num_rows:
            return
        shown = table.slice(0, self.rows).to_pylist()
        lines = [f"batch {attempt.batch_id}: {table.num_rows} rows", *(f"  {row}" for row in shown)]
        sys.stdout.write("\n".join(lines) + "\n")


@class_keywords
@dataclass(eq=False)
class Call(DriverSink):
    """Calls a function with the number and the rows of every batch.

    After a crash between the call and the commit the function is called again with the same number
    and the same rows: it must be idempotent by that number.
    """

    function: Callable[[int, pa.Table], None]

    def commit(
        self, attempt: Attempt, table: pa.Table | None, staged: Sequence[StagedFile] = ()
    ) -> None:
        """Call the function."""
        if table is not None:
            self.function(attempt.batch_id, table)
