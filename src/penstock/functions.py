"""What `Pipeline.aggregate` keeps for each key, named as in ``pyspark.sql.functions``.

Import it as a module: some of the names are those of Python's own functions.

>>> from penstock import functions as F
>>> columns = {"n": F.count(), "best": F.max("eur"), "usual": F.avg("eur")}

Types are int64 unless given. Nulls are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.common.errors import InvalidValue, NotAllowed
from penstock.pipeline.keyed.aggregates import Aggregate, Average, Pick, Plain, Top
from penstock.pipeline.keyed.custom import custom

__all__ = ["avg", "count", "custom", "first", "last", "max", "min", "sum", "top"]


def count() -> Aggregate:
    """Count the rows of a key."""
    return Plain(None, "count", "sum", pa.int64())


def sum(column: str, type: pa.DataType | None = None) -> Aggregate:
    """Add up a column; `type` is int64 unless given. Nulls are left out.

    Sums of floating point numbers depend in their last digits on how the stream is cut.
    """
    return Plain(column, "sum", "sum", type or pa.int64())


def min(column: str, type: pa.DataType | None = None) -> Aggregate:
    """Keep the smallest value of a column; `type` is int64 unless given."""
    return Plain(column, "min", "min", type or pa.int64())


def max(column: str, type: pa.DataType | None = None) -> Aggregate:
    """Keep the largest value of a column; `type` is int64 unless given."""
    return Plain(column, "max", "max", type or pa.int64())


def avg(column: str, type: pa.DataType | None = None) -> Aggregate:
    """Average a column, nulls left out; emitted as float64.

    The state holds the sum, of type int64 unless given, and the count.
    """
    return Average(column, type or pa.int64())


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
        Of both columns; int64 unless given.
    """
    return Pick(column, order, True, type or pa.int64(), order_type or pa.int64())


def first(
    column: str,
    order: str | None = None,
    *,
    type: pa.DataType | None = None,
    order_type: pa.DataType | None = None,
) -> Aggregate:
    """Keep the value of the earliest row; as `last`, of equal ones the smallest value."""
    return Pick(column, order, False, type or pa.int64(), order_type or pa.int64())


def top(
    n: int,
    column: str,
    *,
    keep: Mapping[str, pa.DataType] | None = None,
    type: pa.DataType | None = None,
) -> Aggregate:
    """Keep the `n` rows with the largest values of a column, as a list of structs.

    Parameters
    ----------
    n : int
    column : str
        Rows without a value are left out.
    keep : mapping of str to pyarrow.DataType, optional
        More columns of the rows. Of equal values, those come first that have the smaller ones.
    type : pyarrow.DataType, optional
        Of `column`; int64 unless given.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InvalidValue("n", "top", "a whole number of at least 1", n)
    if column in (keep or {}):
        raise NotAllowed(f"top keeps the column {column!r} anyway; leave it out of 'keep'")
    return Top(n, column, tuple((keep or {}).items()), type or pa.int64())
