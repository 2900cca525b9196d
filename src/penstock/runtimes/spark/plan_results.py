"""What becomes of the results of a plan's node with state: columns renamed, rows filtered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.builder import Pipeline
from penstock.pipeline.keyed.windowed import END, START


@dataclass(frozen=True)
class Made:
    """A column of the results.

    Parameters
    ----------
    id : int
        By which expressions of the plan refer to it.
    name : str
        As the user has it.
    column : str
        As the step with state emits it; ``window`` is a window, as Spark has it.
    """

    id: int
    name: str
    column: str


@dataclass(frozen=True, eq=False)
class Results:
    """The columns that are emitted, and the condition that rows must meet."""

    made: tuple[Made, ...]
    condition: Any = None

    def find(self, expression: Any) -> str | None:
        """Return the column that an expression stands for; None if it is more than a column."""
        if str(expression.getClass().getSimpleName()) == "GetStructField":
            inner = self.find(expression.child())
            ends = {0: START, 1: END}
            return ends.get(int(expression.ordinal())) if inner == "window" else None
        if str(expression.getClass().getSimpleName()) != "AttributeReference":
            return None
        wanted = int(expression.exprId().id())
        return next((one.column for one in self.made if one.id == wanted), None)

    def projected(self, made: tuple[Made, ...]) -> Results:
        """Return results with other columns."""
        return replace(self, made=made)

    def filtered(self, condition: Any) -> Results:
        """Return results with a further condition."""
        both = condition if self.condition is None else self.condition & condition
        return replace(self, condition=both)

    def added_to(self, pipeline: Pipeline) -> Pipeline:
        """Add the steps that give the columns their names, and leave rows out."""
        if self.condition is not None:
            pipeline = pipeline.filter("having", self.condition)
        return pipeline.map("columns", Named(tuple((m.name, m.column) for m in self.made)))


@dataclass(frozen=True)
class Named:
    """Gives columns the names that the user has for them."""

    columns: tuple[tuple[str, str], ...]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Name them."""
        made = []
        for _, column in self.columns:
            if column == "window":
                ends = batch.column(START), batch.column(END)
                made.append(pc.make_struct(*ends, field_names=["start", "end"]))
            else:
                made.append(batch.column(column))
        return pa.RecordBatch.from_arrays(made, names=[name for name, _ in self.columns])
