"""Keyed reduction over Arrow: partial on the sender, merged into the state on the receiver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.arrow_keys import distinct_keys, normal_keys
from penstock.common.key_hashing import key_hashes
from penstock.model import NotAllowed
from penstock.pipeline.keyed.aggregates import Aggregate, Ask
from penstock.pipeline.keyed.update import KeyedResult, outcome

#: Count rows, whatever stands in them.
_ALL = pc.CountOptions(mode="all")


@runtime_checkable
class Mergeable(Protocol):
    """A reduction whose parts can be made anywhere and merged in any grouping."""

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of the key."""
        ...

    @property
    def state(self) -> pa.Schema:
        """Columns of the state besides the key."""
        ...

    @property
    def ordered(self) -> bool:
        """Whether the result depends on the order in which parts are merged."""
        ...

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        """Make parts, with the columns of key and state, from tuples."""
        ...

    def merged(self, parts: pa.Table) -> pa.Table:
        """Make one row of all rows of a key."""
        ...

    def finished(self, rows: pa.Table) -> pa.Table:
        """Turn rows of the state into what is emitted."""
        ...

    def update(self, batch: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Merge parts into the state; see `Keyed.update`."""
        ...


def merge_into(reduce: Mergeable, batch: pa.Table, state: pa.Table) -> pa.Table:
    """Rows of the state that come of merging parts into those that there were."""
    names = [*reduce.by, *reduce.state.names]
    # The state comes first: it is older than what arrives.
    both = [state.select(names), batch.select(names)]
    try:
        together = pa.concat_tables(both, promote_options="default")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise NotAllowed(
            f"the columns of the rows have other types than those that the state was made of "
            f"({error}); cast them to one type before this step"
        ) from error
    return reduce.merged(together)


@dataclass(frozen=True)
class Reduce:
    """An aggregation of columns; emits the key and all columns of what changed.

    Examples
    --------
    >>> from penstock import functions as F
    >>> averaging = Reduce(("word",), (("n", F.count()), ("size", F.avg("size"))))
    >>> seen = averaging.partial(pa.record_batch({"word": ["a", "b", "a"], "size": [1, 2, 4]}))
    >>> state = averaging.partial(pa.record_batch({"word": ["a"], "size": [7]}))
    >>> out, changed = averaging.update(seen, state)
    >>> sorted(out.to_pylist(), key=lambda row: row["word"])
    [{'word': 'a', 'n': 3, 'size': 4.0}, {'word': 'b', 'n': 1, 'size': 2.0}]
    """

    by: tuple[str, ...]
    columns: tuple[tuple[str, Aggregate], ...]

    def __post_init__(self) -> None:
        for name, _ in self.columns:
            if name in self.by:
                raise NotAllowed(f"{name!r} is a column of the key; rename the aggregated column")
        names = self.state.names
        for name in names:
            if names.count(name) > 1 or name in self.by:
                raise NotAllowed(
                    f"an aggregation would keep two columns called {name!r} in its state; rename "
                    "one of those that it is made for"
                )

    @cached_property
    def state(self) -> pa.Schema:
        """Columns of the state besides the key."""
        return pa.schema([f for name, aggregate in self.columns for f in aggregate.fields(name)])

    @property
    def ordered(self) -> bool:
        """Whether a column goes by the order of arrival."""
        return any(aggregate.ordered for _, aggregate in self.columns)

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        """Aggregate the tuples of one sender."""
        table = pa.Table.from_batches([batch])
        return self._grouped(table, [aggregate.make(table) for _, aggregate in self.columns])

    def merged(self, parts: pa.Table) -> pa.Table:
        """Make one row of all rows of a key."""
        asks = [aggregate.merge(name, parts) for name, aggregate in self.columns]
        return self._grouped(parts, asks)

    def finished(self, rows: pa.Table) -> pa.Table:
        """Turn rows of the state into what is emitted."""
        made = [aggregate.finish(name, rows) for name, aggregate in self.columns]
        keys = [rows.column(name) for name in self.by]
        return pa.table([*keys, *made], names=[*self.by, *(name for name, _ in self.columns)])

    def update(self, batch: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Merge parts into the state."""
        rows = merge_into(self, batch, state)
        return self.finished(rows), rows

    def _grouped(self, table: pa.Table, asks: list[Ask]) -> pa.Table:
        """Answer all questions with one pass of grouping."""
        by_key = _Grouping.of(table, self.by)
        # Numbers stand for the columns: names of the user's could clash with those of answers.
        columns = list(by_key.columns)
        keys = [f"k{i}" for i in range(len(columns))]
        names = list(keys)
        wanted: list[Any] = []
        for column, function in (pair for ask in asks for pair in ask.columns):
            if column is None:
                wanted.append((keys[0], "count", _ALL))
                continue
            names.append(f"c{len(names)}")
            columns.append(column)
            wanted.append((names[-1], function))
        # Counting twice is answered once.
        unique = list({(w[0], w[1]): w for w in wanted}.values())
        grouped = pa.table(columns, names=names).group_by(keys, use_threads=False)
        found = grouped.aggregate(unique)
        answers = iter([found.column(f"{w[0]}_{w[1]}") for w in wanted])
        made = by_key.keys([found.column(key) for key in keys])
        for ask in asks:
            made += ask.build([next(answers) for _ in ask.columns])
        return pa.table(made, names=[*self.by, *self.state.names])


class _Grouping(NamedTuple):
    """Columns that Arrow groups rows by: those of the key, or numbers where it cannot.

    Parameters
    ----------
    columns : list
    rows : pyarrow.Table or None
        The first row of each number; None where the columns are those of the key.
    """

    columns: list[Any]
    rows: pa.Table | None

    @classmethod
    def of(cls, table: pa.Table, by: tuple[str, ...]) -> _Grouping:
        """Group by a key, with nulls, NaN and -0.0 as Spark's ``groupBy`` has them."""
        table = normal_keys(table.select(list(by)), by)
        if not any(pa.types.is_nested(field.type) for field in table.schema):
            return cls(table.columns, None)
        found = distinct_keys(table, by)
        return cls([pa.array(found.of_row)], table.take(pa.array(found.first)))

    def keys(self, groups: list[Any]) -> list[Any]:
        """Columns of the key, from the groups that were found."""
        return groups if self.rows is None else self.rows.take(groups[0]).columns


@dataclass(frozen=True)
class WorkThenReduce:
    """A reduction behind a function that works on every tuple where it arrives."""

    reduce: Mergeable
    work: Callable[[pa.RecordBatch], Any]

    @property
    def by(self) -> tuple[str, ...]:
        """Columns of the key."""
        return self.reduce.by

    @property
    def state(self) -> pa.Schema:
        """Columns of the state besides the key."""
        return self.reduce.state

    def partial(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Send the tuples as they are: the work is the receiver's."""
        return batch

    def update(self, batch: pa.Table, state: pa.Table) -> tuple[pa.Table | None, pa.Table]:
        """Do the work, then reduce."""
        parts = self.parts(batch)
        return (None, state.slice(0, 0)) if parts is None else self.reduce.update(parts, state)

    def parts(self, batch: pa.Table) -> pa.Table | None:
        """Do the work, and make parts of what it gives; None if that is nothing."""
        made = self.work(one_batch(batch))
        if made is None or not made.num_rows:
            return None
        parts = self.reduce.partial(made if isinstance(made, pa.RecordBatch) else one_batch(made))
        known = np.isin(key_hashes(parts, self.by), key_hashes(batch, self.by))
        if not known.all():
            stranger = parts.filter(pa.array(~known)).slice(0, 1).select(list(self.by)).to_pylist()
            raise NotAllowed(
                "'work' must leave the key of a row as it is, because rows are distributed by key "
                f"before it; it made the key {stranger[0]}. Change keys in a map before this step"
            )
        return parts


@dataclass(frozen=True)
class CustomUpdate:
    """A step with state that a function of the user's own updates; see `Pipeline.stateful`."""

    by: tuple[str, ...]
    state: pa.Schema
    function: Callable[[pa.Table, pa.Table], Any]

    def partial(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Send the tuples as they are."""
        return batch

    def update(self, batch: pa.Table, state: pa.Table) -> KeyedResult:
        """Call the function, and check what it returns."""
        return outcome(self, self.function(batch, state))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Make one batch of a table, empty or not."""
    columns = [
        column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)
