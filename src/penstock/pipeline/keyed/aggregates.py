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
class Plain(Aggregate):
    """One Arrow aggregation for tuples and one for states."""

    column: str | None
    made_by: str
    merged_by: str
    type: pa.DataType

    def fields(self, name: str) -> list[pa.Field]:
        """One column."""
        return [pa.field(name, self.type)]

    def make(self, table: pa.Table) -> Ask:
        """Aggregate the column."""
        values = None if self.column is None else table.column(self.column).cast(self.type)
        return Ask([(values, self.made_by)], self._cast)

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Aggregate the states."""
        return Ask([(table.column(name), self.merged_by)], self._cast)

    def _cast(self, answers: list[Any]) -> list[Any]:
        return [pc.cast(answers[0], self.type)]


@dataclass(frozen=True)
class Average(Aggregate):
    """A sum and a count, divided when emitted."""

    column: str
    type: pa.DataType

    def fields(self, name: str) -> list[pa.Field]:
        """Sum and count."""
        return [pa.field(f"{name}__sum", self.type), pa.field(f"{name}__count", pa.int64())]

    def make(self, table: pa.Table) -> Ask:
        """Add up and count."""
        values = table.column(self.column).cast(self.type)
        return Ask([(values, "sum"), (values, "count")], self._cast)

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Add up both."""
        columns = [(table.column(field.name), "sum") for field in self.fields(name)]
        return Ask(columns, self._cast)

    def finish(self, name: str, state: pa.Table) -> Any:
        """Divide; null where nothing was counted."""
        added, counted = (state.column(field.name) for field in self.fields(name))
        return pc.divide(added.cast(pa.float64(), safe=False), counted.cast(pa.float64()))

    def _cast(self, answers: list[Any]) -> list[Any]:
        return [pc.cast(answers[0], self.type), pc.cast(answers[1], pa.int64())]


@dataclass(frozen=True)
class Pick(Aggregate):
    """The value of the row that is first or last in an order."""

    column: str
    order: str | None
    latest: bool
    type: pa.DataType
    order_type: pa.DataType

    @property
    def ordered(self) -> bool:  # type: ignore[override]
        """Whether it goes by arrival."""
        return self.order is None

    def fields(self, name: str) -> list[pa.Field]:
        """Keep the value, and what it was ordered by."""
        fields = [pa.field(name, self.type)]
        return fields if self.order is None else [*fields, self._order_field(name)]

    def make(self, table: pa.Table) -> Ask:
        """Look for the row among tuples."""
        picked = [table.column(self.column).cast(self.type)]
        if self.order is not None:
            picked.append(table.column(self.order).cast(self.order_type))
        return self._picked(picked)

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Look for the row among states; those that stand first are the older ones."""
        return self._picked([table.column(field.name) for field in self.fields(name)])

    def _order_field(self, name: str) -> pa.Field:
        return pa.field(f"{name}__order", self.order_type)

    def _picked(self, columns: list[Any]) -> Ask:
        count = len(columns[0])
        if self.order is None:
            places = np.arange(count)
            rows = places
        else:
            table = pa.table({"value": columns[0], "order": columns[1]})
            rows = _sorted(table, [("order", "ascending"), ("value", "ascending")])
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
        return Ask([(asked, "max" if self.latest else "min")], build)


@dataclass(frozen=True)
class Top(Aggregate):
    """The first rows of each group in descending order of a column."""

    n: int
    column: str
    keep: tuple[tuple[str, pa.DataType], ...]
    type: pa.DataType

    def fields(self, name: str) -> list[pa.Field]:
        """One column of lists."""
        return [pa.field(name, pa.list_(self._struct))]

    @property
    def _struct(self) -> pa.DataType:
        return pa.struct([(self.column, self.type), *self.keep])

    def make(self, table: pa.Table) -> Ask:
        """Rank tuples."""
        rows = pa.table({f.name: table.column(f.name).cast(f.type) for f in self._struct})
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
                [_whole(best.column(f.name)) for f in self._struct], fields=list(self._struct)
            )
            return [pa.ListArray.from_arrays(offsets, structs)]

        return Ask([(pa.array(np.arange(count)), "list")], build)


def _sorted(table: pa.Table, keys: list[tuple[str, str]]) -> IntArray:
    """Positions of the rows in order, nulls at the end."""
    return np.asarray(pc.sort_indices(table, sort_keys=keys), dtype=np.int64)


def _whole(column: Any) -> Any:
    """Make one array of a column that may be in chunks."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
