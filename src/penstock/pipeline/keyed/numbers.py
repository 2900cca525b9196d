"""Types and sums of aggregated columns: they follow the column, as in Spark with ANSI on.

| Column | `sum` | `avg` |
|---|---|---|
| whole numbers | int64; uint64 of uint64 | float64 |
| floating point | float64 | float64 |
| decimal(p, s) | decimal(p + 10, s) | decimal(p + 4, s + 4) |
| duration | the same | the same |

Decimals have 38 digits at most, or 76 if the column has more than 38. A sum that does not fit its
type is an error, never another number.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model import NotAllowed

_TYPES = pa.types

#: Exact sums of 64-bit numbers: 38 digits hold those of more rows than there will ever be.
WHOLE = pa.decimal128(38, 0)

#: Columns with more digits could make Arrow's sums of decimals wrap.
MOST_DIGITS = 66

#: Spark divides with 38 digits, then rounds to the type of the result; half goes up.
_DIVISION = decimal.Context(prec=38, rounding=decimal.ROUND_HALF_UP)
_ROUNDING = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)


def values_of(table: pa.Table, column: str, kind: pa.DataType | None) -> Any:
    """Return a column that is aggregated, decoded, and of a type if one is given."""
    if column not in table.column_names:
        raise NotAllowed(
            f"the column {column!r} is aggregated, and the rows do not have it; they have "
            + ", ".join(table.column_names)
        )
    values = table.column(column)
    if _TYPES.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values if kind is None else values.cast(kind)


def sum_type(kind: pa.DataType, column: str, function: str = "sum") -> pa.DataType:
    """Type of the sum of a column; raises `NotAllowed` if it cannot be added up.

    Examples
    --------
    >>> [str(sum_type(kind, "v")) for kind in (pa.int8(), pa.float32(), pa.decimal128(7, 2))]
    ['int64', 'double', 'decimal128(17, 2)']
    """
    if _TYPES.is_null(kind) or _TYPES.is_duration(kind) or kind == pa.uint64():
        return kind
    if _TYPES.is_integer(kind):
        return pa.int64()
    if _TYPES.is_floating(kind):
        return pa.float64()
    if _TYPES.is_decimal(kind) and kind.precision <= MOST_DIGITS:
        make, most = (pa.decimal128, 38) if kind.bit_width <= 128 else (pa.decimal256, 76)
        return make(min(kind.precision + 10, most), kind.scale)
    raise NotAllowed(
        f"{function}({column!r}) needs numbers, decimals of at most {MOST_DIGITS} digits or "
        f"durations, and the column has type {kind}; cast it, or give a type to cast it to"
    )


def avg_state_type(kind: pa.DataType, column: str) -> pa.DataType:
    """Type in which the sum of an average is kept.

    It is exact for whole numbers of any size, and tells them from decimals: sums of these have 256
    bits, and ten digits more than the column.
    """
    added = sum_type(kind, column, "avg")
    if _TYPES.is_integer(added):
        return WHOLE
    return pa.decimal256(kind.precision + 10, kind.scale) if _TYPES.is_decimal(added) else added


def avg_type(added: pa.DataType) -> pa.DataType:
    """Type of an average, from that in which its sum is kept."""
    if _TYPES.is_null(added) or _TYPES.is_duration(added):
        return added
    if not _TYPES.is_decimal256(added):
        return pa.float64()
    digits, scale = added.precision - 10, added.scale
    make, most = (pa.decimal128, 38) if digits <= 38 else (pa.decimal256, 76)
    return make(min(digits + 4, most), min(scale + 4, most))


def sums(values: Any, kind: pa.DataType, what: str) -> tuple[Any, Callable[[Any], Any]]:
    """Prepare an exact sum of a column by Arrow, which wraps around without a word.

    Returns
    -------
    tuple
        The column to add up by group, and a function that makes the sums be of type `kind`, and
        raises `NotAllowed` if one does not fit.
    """
    if _TYPES.is_null(kind):
        return values, lambda added: pa.nulls(len(added))
    if _TYPES.is_duration(kind):
        values, finish = sums(values.cast(pa.int64()), pa.int64(), what)
        return values, lambda added: pc.cast(finish(added), kind)
    if _TYPES.is_integer(values.type) and _may_overflow(values):
        values = values.cast(WHOLE)
    elif _TYPES.is_decimal(values.type) and values.type.precision > 28:
        values = values.cast(pa.decimal256(76, values.type.scale))
    elif _TYPES.is_decimal(values.type) and values.type.bit_width < 128:
        # Arrow does not add up the narrow ones.
        values = values.cast(pa.decimal128(values.type.precision, values.type.scale))

    def fit(added: Any) -> Any:
        try:
            return pc.cast(added, kind)
        except pa.ArrowInvalid as error:
            raise NotAllowed(
                f"{what} does not fit the type {kind} ({error}); give a wider one, such as "
                "type=pa.decimal128(38, 0) for whole numbers"
            ) from error

    return values, fit


def _may_overflow(values: Any) -> bool:
    bounds = pc.min_max(values).as_py()
    largest = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
    return bool(largest * len(values) >= 2**63)


def averages(added: Any, counted: Any) -> Any:
    """Divide sums by counts; null where nothing was counted."""
    kind = avg_type(added.type)
    if _TYPES.is_null(kind):
        return added
    if not (_TYPES.is_decimal(kind) or _TYPES.is_duration(kind)):
        return pc.divide(added.cast(pa.float64(), safe=False), counted.cast(pa.float64()))
    unit = decimal.Decimal(1).scaleb(-kind.scale if _TYPES.is_decimal(kind) else 0)
    if _TYPES.is_duration(kind):
        added = added.cast(pa.int64())
    made = [
        None
        if not count
        else _ROUNDING.quantize(_DIVISION.divide(decimal.Decimal(total), count), unit)
        for total, count in zip(added.to_pylist(), counted.to_pylist(), strict=True)
    ]
    if _TYPES.is_decimal(kind):
        try:
            return pa.chunked_array([pa.array(made, kind)])
        except pa.ArrowInvalid as error:
            raise NotAllowed(
                f"an average of decimals does not fit the type {kind} ({error}); cast the column "
                "to fewer digits, or to floating point"
            ) from error
    whole = [None if value is None else int(value) for value in made]
    return pa.chunked_array([pa.array(whole, pa.int64()).cast(kind)])


def has_order(kind: pa.DataType) -> bool:
    """Whether Arrow sorts values of a type."""
    unordered = (
        _TYPES.is_nested,
        _TYPES.is_interval,
        _TYPES.is_float16,
        _TYPES.is_dictionary,
        _TYPES.is_decimal32,
        _TYPES.is_decimal64,
    )
    return not any(test(kind) for test in unordered) and not isinstance(kind, pa.BaseExtensionType)


def has_nan(values: Any) -> bool:
    """Whether a column has a NaN."""
    return bool(_TYPES.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py())
