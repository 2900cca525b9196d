"""An instance that takes part when router partitions are dealt anew: which rows leave it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.common.arrays import BoolArray, IntArray
from penstock.common.key_hashing import key_hashes
from penstock.model import RoutingTable
from penstock.state.table import KeyedTable, removal
from penstock.strategies.route import modulo


@dataclass(frozen=True)
class Participant:
    """One instance.

    Parameters
    ----------
    vertex, instance
    base : int
        Version that it has; -1 for a new one.
    by, route : tuple of str
        Columns of the state's key, and of the key that tuples are routed by.
    table : RoutingTable or None
        The table from now on; None: all rows stay.
    whole : bool
        Save everything, whatever changes: what peers keep is to be spread anew.
    """

    vertex: str
    instance: int
    base: int
    by: tuple[str, ...]
    route: tuple[str, ...]
    table: RoutingTable | None
    whole: bool = False

    def homes(self, rows: pa.Table) -> IntArray:
        """Instance that each row belongs to from now on."""
        if self.table is None:
            return np.full(rows.num_rows, self.instance, dtype=np.int64)
        partitions = np.asarray(self.table.partitions, dtype=np.int64)
        return np.asarray(partitions[modulo(key_hashes(rows, self.route), len(partitions))])

    def leave(self, rows: pa.Table) -> BoolArray:
        """Which rows belong to another instance from now on."""
        return np.asarray(self.homes(rows) != self.instance)

    def removed(self, state: KeyedTable) -> list[pa.Table]:
        """Return the change that takes away what belongs elsewhere, if anything does."""
        rows = state.where(self.leave) if self.table is not None else None
        return [] if rows is None else [removal(rows, self.by)]
