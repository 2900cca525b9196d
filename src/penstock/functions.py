"""What `Pipeline.aggregate` keeps for each key, named as in ``pyspark.sql.functions``.

Import it as a module: some of the names are those of Python's own functions.

>>> from penstock import functions as F
>>> columns = {"n": F.count(), "best": F.max("eur"), "usual": F.avg("eur")}

Nulls are left out. A result has the type that Spark gives it; a `type` casts the column first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.common.errors import InvalidValue, NotAllowed
from penstock.pipeline.keyed.aggregates import Aggregate, Average, Count, Extreme, Pick, Sum, Top
from penstock.pipeline.keyed.custom import custom

__all__ = ["avg", "count", "custom", "first", "last", "max", "min", "sum", "top"]


def count() -> Aggregate:
    """Count the rows of a key."""
    return Count()


def sum(column: str, type: pa.DataType | None = None) -> Aggregate:
    """Add up a column of numbers or durations; null if a key has only nulls.

    Whole numbers give int64, floating point float64, decimals ten digits more than they have, 38 at
    most. A sum that does not fit stops the run, as in Spark with ANSI on; a wider `type`, such as
    ``pa.decimal128(38, 0)``, has room. Sums of floating point numbers depend in their last digits
    on how the stream is cut.
    """
    return Sum(column, type)


def min(column: str, type: pa.DataType | None = None) -> Aggregate:
    """Keep the smallest value of a column that has an order; NaN is larger than any number."""
    return Extreme(column, False, type)


def max(column: str, type: pa.DataType | None = None) -> Aggregate:
    """Keep the largest value of a column that has an order; NaN is larger than any number."""
    return Extreme(column, True, type)


def avg(column: str, type: pa.DataType | None = None) -> Aggregate:
    """Average a column of numbers or durations; null if a key has only nulls.

    Gives float64; of decimals, decimals with four digits more after the point; of durations,
    durations. The state holds the sum and the count; sums of whole numbers are exact.
    """
    return Average(column, type)


def last(
    column: str,
    order: str | None = None,
    *,
    type: pa.DataType | None = None,
    order_type: pa.DataType | None = None,
) -> Aggregate:
    """Keep the value of the latest row, nulls left out.

    Parameters
    ----------
    column : str
    order : str, optional
        Column that says which is latest; of equal ones the largest value counts. Without it the
        order of arrival does: by batch, then by sending instance, then by row. That is the order
        of the stream where each instance of a source sends straight to this step, and it is the
        same when a batch is repeated.
    type, order_type : pyarrow.DataType, optional
        To cast both columns to.
    """
    return Pick(column, order, True, type, order_type)


def first(
    column: str,
    order: str | None = None,
    *,
    type: pa.DataType | None = None,
    order_type: pa.DataType | None = None,
) -> Aggregate:
    """Keep the value of the earliest row; as `last`, of equal ones the smallest value."""
    return Pick(column, order, False, type, order_type)


def top(
    n: int,
    column: str,
    *,
    keep: Mapping[str, pa.DataType | None] | Sequence[str] = (),
    type: pa.DataType | None = None,
) -> Aggregate:
    """Keep the `n` rows with the largest values of a column, as a list of structs.

    Parameters
    ----------
    n : int
    column : str
        Rows without a value are left out.
    keep : sequence of str, or mapping of str to pyarrow.DataType, optional
        More columns of the rows, and types to cast them to. Of equal values, those come first that
        have the smaller ones.
    type : pyarrow.DataType, optional
        To cast `column` to.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InvalidValue("n", "top", "a whole number of at least 1", n)
    if isinstance(keep, str):
        raise InvalidValue("keep", "top", "a sequence of columns, or a mapping", keep)
    if column in keep:
        raise NotAllowed(f"top keeps the column {column!r} anyway; leave it out of 'keep'")
    kept = keep.items() if isinstance(keep, Mapping) else ((name, None) for name in keep)
    return Top(n, column, tuple(kept), type)
