"""Columns of an aggregation: made from tuples on the sender, merged on the receiver.

Each asks Arrow for plain aggregations of columns that it prepares, so that one pass of grouping
serves all columns of a step. Whatever the order of merging, the result is the same; only `first`
and `last` without an order column go by the order of arrival.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.arrays import IntArray
from penstock.common.key_hashing import hash_keys
from penstock.model import NotAllowed
from penstock.pipeline.keyed.numbers import (
    averages,
    avg_state_type,
    has_nan,
    has_order,
    sum_type,
    sums,
    values_of,
)

#: Type of a column of the state that follows the column that is aggregated.
FOLLOWS = pa.null()


class Ask(NamedTuple):
    """What an aggregate wants to know of each group.

    Parameters
    ----------
    columns : list of (column, str)
        A column of as many rows as the table, and the name of an Arrow aggregation; None counts
        the rows.
    build : callable
        Gets one array for each, in the order of the groups, and returns the state's columns.
    """

    columns: list[tuple[Any, str]]
    build: Callable[[list[Any]], list[Any]]


class Aggregate(ABC):
    """How one column of an aggregation comes about; made by `penstock.functions`.

    Attributes
    ----------
    ordered : bool
        Whether the result depends on the order of arrival.
    """

    ordered: bool = False

    @abstractmethod
    def fields(self, name: str) -> list[pa.Field]:
        """Columns of the state that the result called `name` is kept in."""

    @abstractmethod
    def make(self, table: pa.Table) -> Ask:
        """Ask for state made from tuples."""

    @abstractmethod
    def merge(self, name: str, table: pa.Table) -> Ask:
        """Ask for state made from several states of a key."""

    def finish(self, name: str, state: pa.Table) -> Any:
        """Return the column that is emitted."""
        return state.column(name)


@dataclass(frozen=True)
class Count(Aggregate):
    """How many rows there are."""

    def fields(self, name: str) -> list[pa.Field]:
        """One column."""
        return [pa.field(name, pa.int64())]

    def make(self, table: pa.Table) -> Ask:
        """Count tuples."""
        return Ask([(None, "count")], self._cast)

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Add up counts."""
        return Ask([(table.column(name), "sum")], self._cast)

    def _cast(self, answers: list[Any]) -> list[Any]:
        return [pc.cast(answers[0], pa.int64())]


@dataclass(frozen=True)
class Sum(Aggregate):
    """A sum that fits its type, or an error."""

    column: str
    type: pa.DataType | None = None

    def fields(self, name: str) -> list[pa.Field]:
        """One column."""
        return [pa.field(name, self.type or FOLLOWS)]

    def make(self, table: pa.Table) -> Ask:
        """Add up tuples."""
        values = values_of(table, self.column, self.type)
        return self._added(values, self.type or sum_type(values.type, self.column))

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Add up states."""
        return self._added(table.column(name), table.schema.field(name).type)

    def _added(self, values: Any, kind: pa.DataType) -> Ask:
        values, fit = sums(values, kind, f"sum({self.column!r})")
        return Ask([(values, "sum")], lambda answers: [fit(answers[0])])


@dataclass(frozen=True)
class Average(Aggregate):
    """A sum and a count, divided when emitted."""

    column: str
    type: pa.DataType | None = None

    def fields(self, name: str) -> list[pa.Field]:
        """Sum and count."""
        return [pa.field(f"{name}__sum", FOLLOWS), pa.field(f"{name}__count", pa.int64())]

    def make(self, table: pa.Table) -> Ask:
        """Add up and count."""
        values = values_of(table, self.column, self.type)
        return self._added(values, (values, "count"), avg_state_type(values.type, self.column))

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Add up both."""
        added, counted = (table.column(field.name) for field in self.fields(name))
        return self._added(added, (counted, "sum"), added.type)

    def finish(self, name: str, state: pa.Table) -> Any:
        """Divide; null where nothing was counted."""
        added, counted = (state.column(field.name) for field in self.fields(name))
        return averages(added, counted)

    def _added(self, values: Any, counted: tuple[Any, str], kind: pa.DataType) -> Ask:
        values, fit = sums(values, kind, f"the sum of avg({self.column!r})")

        def build(answers: list[Any]) -> list[Any]:
            return [fit(answers[0]), pc.cast(answers[1], pa.int64())]

        return Ask([(values, "sum"), counted], build)


@dataclass(frozen=True)
class Extreme(Aggregate):
    """The smallest or the largest value; NaN is larger than any number, as in Spark."""

    column: str
    largest: bool
    type: pa.DataType | None = None

    def fields(self, name: str) -> list[pa.Field]:
        """One column."""
        return [pa.field(name, self.type or FOLLOWS)]

    def make(self, table: pa.Table) -> Ask:
        """Look among tuples."""
        return self._found(values_of(table, self.column, self.type))

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Look among states."""
        return self._found(table.column(name))

    def _found(self, values: Any) -> Ask:
        function, kind = "max" if self.largest else "min", values.type
        if not has_order(kind):
            raise NotAllowed(
                f"{function}({self.column!r}) needs values that have an order, and the column has "
                f"type {kind}; cast it, or aggregate one of its fields"
            )
        if pa.types.is_duration(kind) or has_nan(values):
            # Arrow leaves NaN out, and does not compare durations here.
            rows = _sorted(pa.table({"value": values}), [("value", "ascending")])
            return _picked([values], rows, latest=self.largest)
        return Ask([(values, function)], lambda answers: [pc.cast(answers[0], kind)])


@dataclass(frozen=True)
class Pick(Aggregate):
    """The value of the row that is first or last in an order."""

    column: str
    order: str | None
    latest: bool
    type: pa.DataType | None = None
    order_type: pa.DataType | None = None

    @property
    def ordered(self) -> bool:  # type: ignore[override]
        """Whether it goes by arrival."""
        return self.order is None

    def fields(self, name: str) -> list[pa.Field]:
        """Keep the value, and what it was ordered by."""
        fields = [pa.field(name, self.type or FOLLOWS)]
        if self.order is None:
            return fields
        return [*fields, pa.field(f"{name}__order", self.order_type or FOLLOWS)]

    def make(self, table: pa.Table) -> Ask:
        """Look for the row among tuples."""
        columns = [values_of(table, self.column, self.type)]
        if self.order is not None:
            columns.append(values_of(table, self.order, self.order_type))
        return self._looked_for(columns)

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Look for the row among states; those that stand first are the older ones."""
        return self._looked_for([table.column(field.name) for field in self.fields(name)])

    def _looked_for(self, columns: list[Any]) -> Ask:
        if self.order is None:
            return _picked(columns, np.arange(len(columns[0])), latest=self.latest)
        value, order = columns
        if not has_order(order.type):
            raise NotAllowed(
                f"the column {self.order!r} orders {self.column!r} and must have values that have "
                f"an order, and it has type {order.type}"
            )
        # Of equal ones, some value must count wherever it comes from; lists go by their hashes.
        tie = value if has_order(value.type) else pa.array(hash_keys(value))
        rows = _sorted(
            pa.table({"value": tie, "order": order}),
            [("order", "ascending"), ("value", "ascending")],
        )
        return _picked(columns, rows, latest=self.latest)


def _picked(columns: list[Any], rows: IntArray, *, latest: bool) -> Ask:
    """Ask for the first or the last row of each group, in an order, that has no nulls."""
    count = len(columns[0])
    places = np.empty(count, dtype=np.int64)
    places[rows] = np.arange(count)
    missing = np.zeros(count, dtype=bool)
    for column in columns:
        if column.null_count:
            missing |= np.asarray(column.is_null())

    def build(answers: list[Any]) -> list[Any]:
        # A group of nulls only has no row, and gets a null.
        at = pc.take(pa.array(rows), _whole(answers[0]))
        return [column.take(at) for column in columns]

    asked = pa.array(places, mask=missing)
    return Ask([(asked, "max" if latest else "min")], build)


@dataclass(frozen=True)
class Top(Aggregate):
    """The first rows of each group in descending order of a column; NaN is largest."""

    n: int
    column: str
    keep: tuple[tuple[str, pa.DataType | None], ...] = ()
    type: pa.DataType | None = None

    @property
    def _columns(self) -> tuple[tuple[str, pa.DataType | None], ...]:
        return ((self.column, self.type), *self.keep)

    def fields(self, name: str) -> list[pa.Field]:
        """One column of lists."""
        if any(kind is None for _, kind in self._columns):
            return [pa.field(name, FOLLOWS)]
        return [pa.field(name, pa.list_(pa.struct(list(self._columns))))]

    def make(self, table: pa.Table) -> Ask:
        """Rank tuples."""
        rows = pa.table({name: values_of(table, name, kind) for name, kind in self._columns})
        for name in rows.column_names:
            if not has_order(rows.schema.field(name).type):
                raise NotAllowed(
                    f"top ranks rows by {name!r}, whose values must have an order, and it has type "
                    f"{rows.schema.field(name).type}"
                )
        return self._ranked(rows, np.arange(table.num_rows), table.num_rows)

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Rank the rows of several lists."""
        lists = _whole(table.column(name))
        owner = np.asarray(pc.list_parent_indices(lists), dtype=np.int64)
        rows = pa.Table.from_struct_array(pc.list_flatten(lists))
        return self._ranked(rows, owner, table.num_rows)

    def _ranked(self, rows: pa.Table, owner: IntArray, count: int) -> Ask:
        """Rank rows that belong to rows of the table that is grouped."""

        def build(answers: list[Any]) -> list[Any]:
            members = _whole(answers[0])
            groups = len(members)
            group_of = np.empty(count, dtype=np.int64)
            group_of[np.asarray(pc.list_flatten(members))] = np.asarray(
                pc.list_parent_indices(members), dtype=np.int64
            )
            keys = [(self.column, "descending"), *((name, "ascending") for name, _ in self.keep)]
            ranked = _sorted(rows, keys)
            if has_nan(rows.column(self.column)):
                # Arrow puts NaN at the end, before nulls.
                nan = np.asarray(pc.is_nan(rows.column(self.column)).fill_null(False))[ranked]
                ranked = np.concatenate([ranked[nan], ranked[~nan]])
            # Nulls stand at the end.
            ranked = ranked[: rows.num_rows - rows.column(self.column).null_count]
            group = group_of[owner[ranked]]
            order = np.argsort(group, kind="stable")
            sizes = np.bincount(group, minlength=groups)
            place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            kept = ranked[order[place < self.n]]
            ends = np.cumsum(np.minimum(sizes, self.n))
            offsets = pa.array(np.concatenate(([0], ends)).astype(np.int32))
            best = rows.take(pa.array(kept)).combine_chunks()
            structs = pa.StructArray.from_arrays(
                [_whole(column) for column in best.columns], fields=list(best.schema)
            )
            return [pa.ListArray.from_arrays(offsets, structs)]

        return Ask([(pa.array(np.arange(count)), "list")], build)


def _sorted(table: pa.Table, keys: list[tuple[str, str]]) -> IntArray:
    """Positions of the rows in order, nulls at the end."""
    return np.asarray(pc.sort_indices(table, sort_keys=keys), dtype=np.int64)


def _whole(column: Any) -> Any:
    """Make one array of a column that may be in chunks."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
