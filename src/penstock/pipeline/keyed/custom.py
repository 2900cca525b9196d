"""Keyed reduction by functions of the user's own: one makes parts, one merges them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common.arrow_keys import normal_keys
from penstock.common.key_hashing import key_hashes
from penstock.model import NotAllowed
from penstock.pipeline.keyed.reduce import merge_into


@dataclass(frozen=True)
class CustomReduce:
    """A reduction of the user's own; see `custom`."""

    by: tuple[str, ...]
    state: pa.Schema
    make: Callable[[pa.RecordBatch], pa.Table]
    merge: Callable[[pa.Table], pa.Table]
    finish: Callable[[pa.Table], pa.Table] | None = None
    ordered: bool = False

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        """Call `make`."""
        return self._checked("make", self.make(batch))

    def merged(self, parts: pa.Table) -> pa.Table:
        """Call `merge`."""
        rows = self._checked("merge", self.merge(parts))
        hashes = key_hashes(rows, self.by)
        if len(np.unique(hashes)) != len(hashes):
            raise NotAllowed(
                "'merge' of an aggregation must return one row for each key; it returned "
                f"{rows.num_rows} rows for {len(np.unique(hashes))} of them"
            )
        return rows

    def finished(self, rows: pa.Table) -> pa.Table:
        """Call `finish`, if there is one."""
        if self.finish is None:
            return rows
        made = self.finish(rows)
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        if not isinstance(made, pa.Table):
            raise NotAllowed(
                "'finish' of an aggregation must return a table or a batch; it returned a value of "
                f"type {type(made).__name__}"
            )
        return made

    def update(self, batch: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Merge parts into the state."""
        rows = merge_into(self, batch, state)
        return self.finished(rows), rows

    def _checked(self, name: str, rows: Any) -> pa.Table:
        if isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        wanted = [*self.by, *self.state.names]
        if not isinstance(rows, pa.Table) or set(rows.column_names) != set(wanted):
            got = type(rows).__name__
            if isinstance(rows, pa.Table):
                got = "the columns " + ", ".join(rows.column_names)
            raise NotAllowed(
                f"{name!r} of an aggregation must return a table with the columns "
                f"{', '.join(wanted)}; it returned {got}"
            )
        rows = normal_keys(rows.select(wanted), self.by)
        keys = [rows.schema.field(key) for key in self.by]
        return rows.cast(pa.schema([*keys, *self.state]))


@dataclass(frozen=True)
class CustomAggregate:
    """A custom reduction before its key is known; see `custom`."""

    make: Callable[[pa.RecordBatch], pa.Table]
    merge: Callable[[pa.Table], pa.Table]
    state: pa.Schema
    finish: Callable[[pa.Table], pa.Table] | None = None
    ordered: bool = False

    def keyed_by(self, by: tuple[str, ...]) -> CustomReduce:
        """Give it its key."""
        return CustomReduce(by, self.state, self.make, self.merge, self.finish, self.ordered)


def custom(
    make: Callable[[pa.RecordBatch], pa.Table],
    merge: Callable[[pa.Table], pa.Table],
    state: pa.Schema,
    *,
    finish: Callable[[pa.Table], pa.Table] | None = None,
    ordered: bool = False,
) -> CustomAggregate:
    """Reduce by functions of your own, for ``reduce`` of `Pipeline.aggregate`.

    Parameters
    ----------
    make : callable
        Gets a batch of tuples, returns a table of parts with the columns of key and state.
    merge : callable
        Gets parts, of which several may have the same key, and returns each key once. The older
        ones of a key come first. However parts are put together, the result must be the same.
    state : pyarrow.Schema
        Columns of the state besides the key.
    finish : callable, optional
        Turns rows of key and state into what is emitted, such as a quotient of two columns.
    ordered : bool
        Whether the order of parts matters to `merge`; then keys cannot be split.
    """
    return CustomAggregate(make, merge, state, finish, ordered)
