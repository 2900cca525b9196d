"""The state of an instance while a batch changes it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.pipeline.keyed.update import outcome
from penstock.pipeline.steps import Keyed
from penstock.state.table import KeyedTable, removal


@dataclass(eq=False)
class WorkingState:
    """State, and how it differs from what was saved.

    Parameters
    ----------
    keyed : Keyed
    state : KeyedTable
        With all changes.
    changed : list of Table
        The changes, in order.
    """

    keyed: Keyed
    state: KeyedTable
    changed: list[pa.Table]

    def known(self, keys: pa.Table) -> pa.Table:
        """Rows of the state that some keys have."""
        known = self.state.get(keys)
        if known is None:
            columns = [keys.schema.field(name) for name in self.keyed.by]
            known = pa.schema([*columns, *self.keyed.state]).empty_table()
        return known

    def put(self, rows: pa.Table | None) -> None:
        """Change rows; None is none."""
        if rows is not None and rows.num_rows:
            self.state = self.state.put(rows)
            self.changed.append(rows)

    def remove(self, keys: pa.Table | None) -> None:
        """Remove keys; None is none."""
        self.put(None if keys is None else removal(keys, self.keyed.by))

    def update(self, batch: pa.Table) -> pa.Table | None:
        """Process tuples, and return what is emitted.

        Nothing changes if the function fails, so that parts of the batch can be tried again.
        """
        returned = self.keyed.update(batch, self.known(batch))
        made, rows, removed = outcome(self.keyed, returned)
        # In this order: a key may be removed by one part of a batch and come with the next.
        self.put(rows)
        self.remove(removed)
        return made
