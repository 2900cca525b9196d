"""Which rows of an instance's state belong to another instance under a new routing table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.common.arrays import BoolArray, IntArray
from penstock.common.key_hashing import key_hashes, modulo
from penstock.model import RoutingTable
from penstock.state.table import KeyedTable, removal


@dataclass(frozen=True)
class Participant:
    """An instance that gives or takes rows when state is repartitioned.

    Parameters
    ----------
    vertex : str
    instance : int
    base : int
        Version of its state; -1 if it has none yet.
    by, route : tuple of str
        Columns of the key of its state, and of the key that tuples are routed by.
    table : RoutingTable or None
        The new routing table; None if all rows stay where they are.
    executor : str
        Where its state is.
    """

    vertex: str
    instance: int
    base: int
    by: tuple[str, ...]
    route: tuple[str, ...]
    table: RoutingTable | None
    executor: str

    @property
    def key(self) -> tuple[str, int]:
        """Vertex and instance."""
        return self.vertex, self.instance

    def owners(self, rows: pa.Table) -> IntArray:
        """Return the instance that owns each row under the new table."""
        if self.table is None:
            return np.full(rows.num_rows, self.instance, dtype=np.int64)
        partitions = np.asarray(self.table.partitions, dtype=np.int64)
        return np.asarray(partitions[modulo(key_hashes(rows, self.route), len(partitions))])

    def leaving(self, rows: pa.Table) -> BoolArray:
        """Say of each row whether another instance owns it under the new table."""
        return np.asarray(self.owners(rows) != self.instance)

    def removals(self, state: KeyedTable) -> list[pa.Table]:
        """Return the change that removes the rows that leave; empty if none does."""
        rows = state.where(self.leaving) if self.table is not None else None
        return [] if rows is None else [removal(rows, self.by)]
