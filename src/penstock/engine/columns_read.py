"""Which columns of a step the steps behind it read, so that a source can leave out the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow.compute as pc

from penstock.pipeline.builder import Pipeline
from penstock.pipeline.expressions import Filter, Select
from penstock.pipeline.keyed.aggregates import Aggregate, Average, Count, Extreme, Pick, Sum, Top
from penstock.pipeline.keyed.distinct import ApproxCountDistinct, CountDistinct
from penstock.pipeline.keyed.merging import Merging
from penstock.pipeline.keyed.percentile import ApproxPercentile
from penstock.pipeline.keyed.reduce import Reduce
from penstock.pipeline.keyed.sessions import SessionWindowed
from penstock.pipeline.keyed.windowed import END, START, Windowed
from penstock.pipeline.steps import Link, Step

#: Aggregates that are made from the values of one column, and nothing else.
OF_ONE_COLUMN = (
    *(Sum, Average, Extreme, CountDistinct, ApproxCountDistinct, ApproxPercentile, Merging),
)


def columns_read(pipeline: Pipeline, name: str, columns: Collection[str]) -> frozenset[str] | None:
    """Return which columns of a step are read; None where it may be any.

    A function of the user's may read any column, and a sink takes all. Aggregations, selections
    and filters say what they read.

    Parameters
    ----------
    pipeline : Pipeline
    name : str
        The step.
    columns : collection of str
        Its columns.

    Examples
    --------
    >>> from penstock import functions as F
    >>> from penstock.pipeline import Memory, Rows
    >>> import pyarrow as pa
    >>> bids = pa.table({"item": ["a"], "price": [1], "page": ["x"]})
    >>> counted = Pipeline("bids").source("bids", Rows(bids)).aggregate("n", by="item", n=F.count())
    >>> columns_read(counted.sink("out", Memory()), "bids", bids.column_names)
    frozenset({'item'})
    """
    found: set[str] = set()
    for step in pipeline.steps:
        for link in step.links:
            if link.source == name:
                mine = _read_by(pipeline, step, link, columns)
                if mine is None:
                    return None
                found |= mine
    return frozenset(found)


def _read_by(
    pipeline: Pipeline, step: Step, link: Link, columns: Collection[str]
) -> set[str] | None:
    if step.sink is not None or step.late_for is not None or link.choose is not None:
        return None
    read: Iterable[str] | None = None
    if isinstance(step.function, Select):
        read = _named(columns, step.function.expressions)
    elif isinstance(step.function, Filter):
        later = columns_read(pipeline, step.name, columns)
        mine = _named(columns, [step.function.condition])
        read = None if later is None or mine is None else {*later, *mine}
    elif step.function is None and isinstance(step.keyed, Windowed | SessionWindowed):
        reduced = _reduced(step.keyed.reduce)
        read = None if reduced is None else {*reduced, step.keyed.window.column} - {START, END}
    elif step.function is None and step.keyed is not None:
        read = _reduced(step.keyed)
    return None if read is None else {*read, *link.by}


def _reduced(reduce: object) -> set[str] | None:
    """Return the columns that an aggregation reads, with those of its key."""
    if not isinstance(reduce, Reduce):
        return None
    found = set(reduce.by)
    for _, aggregate in reduce.columns:
        inputs = _inputs(aggregate)
        if inputs is None:
            return None
        found.update(inputs)
    return found


def _inputs(aggregate: Aggregate) -> tuple[str, ...] | None:
    """Return the columns that an aggregate is made from; None of one that is not known here."""
    if isinstance(aggregate, Count):
        return ()
    if isinstance(aggregate, Pick):
        return (
            (aggregate.column,) if aggregate.order is None else (aggregate.column, aggregate.order)
        )
    if isinstance(aggregate, Top):
        return (aggregate.column, *(name for name, _ in aggregate.keep))
    return (aggregate.column,) if isinstance(aggregate, OF_ONE_COLUMN) else None


def _named(columns: Collection[str], expressions: Iterable[pc.Expression]) -> set[str] | None:
    """Return the columns that expressions may mean: all whose names stand in their text.

    Arrow shows the names of columns as they are. A column that is meant by its number has none.
    """
    texts = [str(expression) for expression in expressions]
    if any("FieldPath" in text for text in texts):
        return None
    return {name for name in columns if any(name in text for text in texts)}
