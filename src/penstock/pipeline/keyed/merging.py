"""A column of an aggregation that functions of the user's make and merge, such as a sketch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.pipeline.keyed.aggregates import Aggregate, Ask
from penstock.pipeline.keyed.groups import whole
from penstock.pipeline.keyed.numbers import values_of


@dataclass(frozen=True)
class Merging(Aggregate):
    """A state for each key that is made of values and merged with others; see `functions.merging`.

    Functions are called once for each key, not for each row.
    """

    column: str
    made: Callable[[pa.Array], Any]
    merged: Callable[[list[Any]], Any]
    state: pa.DataType
    finished: Callable[[Any], Any] | None = None
    type: pa.DataType | None = None
    ordered: bool = False

    def fields(self, name: str) -> list[pa.Field]:
        """One column."""
        return [pa.field(name, self.state)]

    def make(self, table: pa.Table) -> Ask:
        """Make states from the values of each key."""
        values = whole(values_of(table, self.column, None))

        def build(answers: list[Any]) -> list[Any]:
            made = [self.made(values.take(rows.values)) for rows in whole(answers[0])]
            return [pa.array(made, self.state)]

        return Ask([(pa.array(np.arange(table.num_rows)), "list")], build)

    def merge(self, name: str, table: pa.Table) -> Ask:
        """Merge the states of each key."""
        states = whole(table.column(name))

        def build(answers: list[Any]) -> list[Any]:
            together = (states.take(rows.values).to_pylist() for rows in whole(answers[0]))
            made = [self.merged(some) if len(some) > 1 else some[0] for some in together]
            return [pa.array(made, self.state)]

        return Ask([(pa.array(np.arange(table.num_rows)), "list")], build)

    def finish(self, name: str, state: pa.Table) -> Any:
        """Turn states into what is emitted."""
        if self.finished is None:
            return state.column(name)
        return pa.array([self.finished(one) for one in state.column(name).to_pylist()], self.type)
