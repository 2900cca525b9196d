"""What `Pipeline.aggregate` keeps for each key, named as in ``pyspark.sql.functions``.

Import it as a module: some of the names are those of Python's own functions.

>>> from penstock import functions as F
>>> columns = {"n": F.count(), "best": F.max("eur"), "usual": F.avg("eur")}

Nulls are left out. A result has the type that Spark gives it; a `type` casts the column first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidValue, NotAllowed
from penstock.pipeline.keyed.aggregates import Aggregate, Average, Count, Extreme, Pick, Sum, Top
from penstock.pipeline.keyed.custom import custom
from penstock.pipeline.keyed.distinct import ApproxCountDistinct, CountDistinct
from penstock.pipeline.keyed.merging import Merging
from penstock.pipeline.keyed.percentile import ApproxPercentile

__all__ = [
    "approx_count_distinct",
    "approx_percentile",
    "avg",
    "count",
    "count_distinct",
    "custom",
    "first",
    "last",
    "max",
    "merging",
    "min",
    "sum",
    "top",
]


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


def count_distinct(column: str, type: pa.DataType | None = None) -> Aggregate:
    """Count the different values of a column, exactly; NaN is one value, as is 0.0 with -0.0.

    The state holds all values of a key, and what changes of it is written with each batch; for keys
    with many values `approx_count_distinct` is smaller.
    """
    return CountDistinct(column, type)


def approx_count_distinct(
    column: str, rsd: float = 0.05, *, type: pa.DataType | None = None
) -> Aggregate:
    """Estimate how many different values a column has.

    Parameters
    ----------
    column : str
    rsd : float
        Relative standard deviation of the estimate, 0.001 to 0.4. The state of a key holds
        ``1 / rsd**2 + 2`` hashes of 8 bytes; fewer values than that are counted exactly.
    type : pyarrow.DataType, optional
        To cast the column to.
    """
    if isinstance(rsd, bool) or not isinstance(rsd, (int, float)) or not 0.001 <= rsd <= 0.4:
        raise InvalidValue("rsd", "approx_count_distinct", "0.001 to 0.4", rsd)
    return ApproxCountDistinct(column, ApproxCountDistinct.needed(rsd), type)


def approx_percentile(
    column: str, percentage: float | Sequence[float], accuracy: float = 0.01
) -> Aggregate:
    """Estimate the value that a part of the values are not larger than, such as 0.5 for the median.

    Parameters
    ----------
    column : str
        Numbers; nulls are left out, and NaN is larger than any number.
    percentage : float or sequence of float
        0.0 to 1.0; several give a list.
    accuracy : float
        The result is off by at most this part of the value, 0.0001 to 0.5. The state of a key holds
        a count for each factor of ``1 + 2 * accuracy`` that there are values between.
    """
    owner = "approx_percentile"
    several = not isinstance(percentage, (int, float))
    parts = tuple(percentage) if isinstance(percentage, Sequence) else (percentage,)
    if not parts or not all(isinstance(p, (int, float)) and 0 <= p <= 1 for p in parts):
        raise InvalidValue("percentage", owner, "0.0 to 1.0, or a sequence of these", percentage)
    if not isinstance(accuracy, (int, float)) or not 0.0001 <= accuracy <= 0.5:
        raise InvalidValue("accuracy", owner, "0.0001 to 0.5", accuracy)
    return ApproxPercentile(column, parts, several, accuracy)


def merging(
    column: str,
    make: Callable[[pa.Array], Any],
    merge: Callable[[list[Any]], Any],
    state: pa.DataType,
    *,
    finish: Callable[[Any], Any] | None = None,
    type: pa.DataType | None = None,
    ordered: bool = False,
) -> Aggregate:
    """Reduce a column by functions of your own, beside other columns; a sketch of a library, say.

    Parameters
    ----------
    column : str
    make : callable
        Gets the values of a key as an Arrow array, and returns a state.
    merge : callable
        Gets several states of a key, the older ones first, and returns one.
    state : pyarrow.DataType
        Type of a state, such as ``pa.binary()``.
    finish : callable, optional
        Turns a state into what is emitted, of type `type`.
    type : pyarrow.DataType, optional
    ordered : bool
        Whether the order of states matters to `merge`; then keys cannot be split.
    """
    for parameter, function in (("make", make), ("merge", merge)):
        if not callable(function):
            raise InvalidValue(parameter, "merging", "a function", function)
    if not isinstance(state, pa.DataType):
        raise InvalidValue("state", "merging", "a pyarrow type", state)
    return Merging(column, make, merge, state, finish, type, ordered)
