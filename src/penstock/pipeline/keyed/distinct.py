"""How many different values there are: counted exactly, or estimated from the smallest hashes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.arrays import IntArray
from penstock.common.arrow_keys import distinct_keys, normal
from penstock.common.key_hashing import HashArray, hash_keys
from penstock.pipeline.keyed.aggregates import FOLLOWS, Aggregate, Ask
from penstock.pipeline.keyed.groups import Groups, as_lists, whole
from penstock.pipeline.keyed.numbers import values_of


@dataclass(frozen=True)
class CountDistinct(Aggregate):
    """How many different values there are; the state holds all of them."""

    column: str
    type: pa.DataType | None = None

    def fields(self, name: str) -> list[pa.Field]:
        """One column of lists."""
        return [pa.field(name, FOLLOWS if self.type is None else pa.list_(self.type))]

    def make(self, table: pa.Table) -> Ask:
        """Find the values of tuples."""
        values = whole(normal(values_of(table, self.column, self.type)))
        there = np.flatnonzero(np.asarray(values.is_valid()))
        if len(there) < len(values):
            values = values.take(pa.array(there))
        return self._found(values, there, table.num_rows)

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Find the values of several states."""
        lists = whole(table.column(name))
        owner = np.asarray(pc.list_parent_indices(lists), dtype=np.int64)
        return self._found(pc.list_flatten(lists), owner, table.num_rows)

    def finish(self, name: str, state: pa.Table) -> Any:
        """Count them."""
        return pc.cast(pc.list_value_length(state.column(name)).fill_null(0), pa.int64())

    def _found(self, values: Any, owner: IntArray, count: int) -> Ask:
        def build(answers: list[Any]) -> list[Any]:
            groups = Groups.of(answers[0], count)
            group = groups.of_row[owner]
            found = distinct_keys(pa.table({"group": group, "value": values}), ("group", "value"))
            return [as_lists(values, group, found.first, groups.size)]

        return Ask([(pa.array(np.arange(count)), "list")], build)


@dataclass(frozen=True)
class ApproxCountDistinct(Aggregate):
    """How many different values there are, from the `kept` smallest hashes of each key.

    Where the smallest of so many hashes, spread evenly, reach up to a part p of all possible ones,
    there are about ``(kept - 1) / p`` of them (Bar-Yossef et al., RANDOM 2002). Fewer values than
    `kept` are counted exactly. The hashes that are kept do not depend on any order.
    """

    column: str
    kept: int
    type: pa.DataType | None = None

    @staticmethod
    def needed(rsd: float) -> int:
        """Hashes to keep for a relative standard deviation: it is ``1 / sqrt(kept - 2)``."""
        return math.ceil(1 / rsd**2) + 2

    def fields(self, name: str) -> list[pa.Field]:
        """One column of lists."""
        return [pa.field(name, pa.list_(pa.uint64()))]

    def make(self, table: pa.Table) -> Ask:
        """Hash the values of tuples."""
        values = whole(normal(values_of(table, self.column, self.type)))
        there = np.flatnonzero(np.asarray(values.is_valid()))
        return self._smallest(hash_keys(values)[there], there, table.num_rows)

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Put the hashes of several states together."""
        lists = whole(table.column(name))
        owner = np.asarray(pc.list_parent_indices(lists), dtype=np.int64)
        hashes = np.asarray(pc.list_flatten(lists), dtype=np.uint64)
        return self._smallest(hashes, owner, table.num_rows)

    def finish(self, name: str, state: pa.Table) -> Any:
        """Estimate."""
        lists = whole(state.column(name))
        counts = np.asarray(pc.list_value_length(lists).fill_null(0), dtype=np.int64)
        hashes = np.asarray(pc.list_flatten(lists), dtype=np.uint64)
        full = counts >= self.kept
        largest = hashes[np.cumsum(counts)[full] - 1].astype(np.float64) / 2.0**64
        counts[full] = np.round((self.kept - 1) / np.maximum(largest, 2.0**-64)).astype(np.int64)
        return pa.array(counts)

    def _smallest(self, hashes: HashArray, owner: IntArray, count: int) -> Ask:
        def build(answers: list[Any]) -> list[Any]:
            groups = Groups.of(answers[0], count)
            group = groups.of_row[owner]
            order = np.lexsort((hashes, group))
            ordered, key = hashes[order], group[order]
            new = np.ones(len(order), dtype=bool)
            new[1:] = (ordered[1:] != ordered[:-1]) | (key[1:] != key[:-1])
            order, key = order[new], key[new]
            place = np.arange(len(key)) - np.searchsorted(key, key, side="left")
            kept = order[place < self.kept]
            return [as_lists(pa.array(hashes), group, kept, groups.size)]

        return Ask([(pa.array(np.arange(count)), "list")], build)
