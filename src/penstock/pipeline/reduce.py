"""Keyed reduction over Arrow: partial on the sender, merged into the state on the receiver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model import InvalidValue


@dataclass(frozen=True)
class Aggregate:
    """One column of a keyed state: how it is made from tuples, and how two of them are merged.

    Parameters
    ----------
    column : str or None
        Column of the tuples that is read; None for a count.
    make, merge : str
        Arrow aggregations for the first and for every later step.
    type : pyarrow.DataType
    """

    column: str | None
    make: str
    merge: str
    type: pa.DataType


def count() -> Aggregate:
    """Count the tuples of a key."""
    return Aggregate(None, "count_all", "sum", pa.int64())


def total(column: str, type: pa.DataType | None = None) -> Aggregate:
    """Add up a column; `type` is int64 unless given."""
    return Aggregate(column, "sum", "sum", type or pa.int64())


def smallest(column: str, type: pa.DataType | None = None) -> Aggregate:
    """Keep the smallest value of a column."""
    return Aggregate(column, "min", "min", type or pa.int64())


def largest(column: str, type: pa.DataType | None = None) -> Aggregate:
    """Keep the largest value of a column."""
    return Aggregate(column, "max", "max", type or pa.int64())


@dataclass(frozen=True)
class Reduce:
    """A keyed step made of aggregates; emits the key and all columns of what changed.

    Examples
    --------
    >>> counting = Reduce(("word",), (("n", count()),))
    >>> seen = counting.partial(pa.record_batch({"word": ["a", "b", "a"]}))
    >>> state = pa.table({"word": ["a"], "n": [5]})
    >>> out, changed = counting.update(seen, state)
    >>> sorted(out.to_pylist(), key=lambda row: row["word"])
    [{'word': 'a', 'n': 7}, {'word': 'b', 'n': 1}]
    """

    by: tuple[str, ...]
    columns: tuple[tuple[str, Aggregate], ...]

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidValue("reduce", "a keyed step", "at least one column", {})
        clash = set(self.by) & {name for name, _ in self.columns}
        if clash:
            raise InvalidValue("reduce", "a keyed step", "named unlike the key", sorted(clash))

    @cached_property
    def state(self) -> pa.Schema:
        """Columns of the state besides the key."""
        return pa.schema([(name, aggregate.type) for name, aggregate in self.columns])

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        """Aggregate the tuples of one sender."""
        table = pa.Table.from_batches([batch])
        made = table.group_by(list(self.by), use_threads=False).aggregate(
            [([] if a.column is None else a.column, a.make) for _, a in self.columns]
        )
        return self._named(made, [_made_name(a) for _, a in self.columns])

    def update(self, batch: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Merge partial results into the state."""
        names = [*self.by, *(name for name, _ in self.columns)]
        both = pa.concat_tables([state.select(names), batch.select(names)])
        merged = both.group_by(list(self.by), use_threads=False).aggregate(
            [(name, a.merge) for name, a in self.columns]
        )
        rows = self._named(merged, [f"{name}_{a.merge}" for name, a in self.columns])
        return rows, rows

    def _named(self, table: pa.Table, made: list[str]) -> pa.Table:
        columns = [table.column(name) for name in self.by]
        for (_, aggregate), name in zip(self.columns, made, strict=True):
            columns.append(pc.cast(table.column(name), aggregate.type))
        return pa.table(columns, names=[*self.by, *(name for name, _ in self.columns)])


def _made_name(aggregate: Aggregate) -> str:
    return aggregate.make if aggregate.column is None else f"{aggregate.column}_{aggregate.make}"


@dataclass(frozen=True)
class Stateful:
    """A keyed step made of a function of the user's own."""

    by: tuple[str, ...]
    state: pa.Schema
    function: Callable[[pa.Table, pa.Table], tuple[pa.Table | None, pa.Table]]

    def partial(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Send the tuples as they are."""
        return batch

    def update(self, batch: pa.Table, state: pa.Table) -> tuple[pa.Table | None, pa.Table]:
        """Call the function."""
        return self.function(batch, state)
