"""Arrow expressions as steps: columns made by expressions, rows kept by a condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc

from penstock.model import InvalidValue

#: Columns of a step by name: an expression, or the name of a column that is taken as it is.
Columns = Mapping[str, "pc.Expression | str"] | Sequence[str]


@dataclass(frozen=True, eq=False)
class Select:
    """Makes the columns of a batch anew.

    Examples
    --------
    >>> shout = Select.of({"w": pc.utf8_upper(pc.field("word")), "m": pc.field("n") + 1})
    >>> shout(pa.record_batch({"word": ["a"], "n": [1]})).to_pylist()
    [{'w': 'A', 'm': 2}]
    """

    names: tuple[str, ...]
    expressions: tuple[pc.Expression, ...]

    @classmethod
    def of(cls, columns: Columns, owner: str = "a selection") -> Select:
        """Check the columns."""
        if isinstance(columns, str):
            raise InvalidValue("columns", owner, "a list of names or a mapping", columns)
        named = columns if isinstance(columns, Mapping) else {name: name for name in columns}
        if not named:
            raise InvalidValue("columns", owner, "at least one column", columns)
        made = [pc.field(v) if isinstance(v, str) else v for v in named.values()]
        return cls(tuple(named), tuple(_expression("columns", v, owner) for v in made))

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        """Make the columns."""
        options = acero.ProjectNodeOptions(list(self.expressions), list(self.names))
        source = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
        plan = [acero.Declaration("table_source", source), acero.Declaration("project", options)]
        return acero.Declaration.from_sequence(plan).to_table(use_threads=False)


@dataclass(frozen=True, eq=False)
class Filter:
    """Keeps the rows of a batch that a condition is true of; null is not true.

    Examples
    --------
    >>> few = Filter.of(pc.field("n") > 1)
    >>> few(pa.record_batch({"n": [1, 2, None]})).to_pylist()
    [{'n': 2}]
    """

    condition: pc.Expression

    @classmethod
    def of(cls, condition: pc.Expression, owner: str = "a filter") -> Filter:
        """Check the condition."""
        return cls(_expression("condition", condition, owner))

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        """Keep the rows."""
        return pa.Table.from_batches([batch]).filter(self.condition)


@dataclass(frozen=True, eq=False)
class EachRow:
    """Calls a function for every row of a batch; it returns a dict, a list of dicts, or None.

    Examples
    --------
    >>> lengths = EachRow(lambda row: {"n": len(row["w"])}, pa.schema([("n", pa.int64())]))
    >>> lengths(pa.record_batch({"w": ["to", "or not"]})).to_pylist()
    [{'n': 2}, {'n': 6}]
    """

    function: Callable[[dict[str, Any]], Any]
    schema: pa.Schema

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        """Call it."""
        made: list[dict[str, Any]] = []
        for row in batch.to_pylist():
            out = self.function(row)
            made.extend([] if out is None else [out] if isinstance(out, dict) else out)
        return pa.Table.from_pylist(made, schema=self.schema)


def _expression(parameter: str, value: Any, owner: str) -> pc.Expression:
    if not isinstance(value, pc.Expression):
        allowed = "a pyarrow expression, such as pc.field('n') > 3"
        raise InvalidValue(parameter, owner, allowed, value)
    return value
