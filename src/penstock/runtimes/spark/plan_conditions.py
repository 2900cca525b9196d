"""Conditions of Spark's plans over results, as Arrow's, with Spark's meaning.

What differs between the two is made here: NaN equals itself and is larger than any other number,
and the value of a literal is what Spark makes of it, casts included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtimes.spark.plan_nodes import kind_of, type_of

#: Finds the column that an expression stands for; None if it is more than a column.
Find = Callable[[Any], str | None]

#: Comparisons that are known, by the class of Spark's expression, and what they say of a NaN on
#: the left and on the right.
COMPARED: Mapping[str, Callable[..., Any]] = {
    "EqualTo": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}

#: Types of Spark's whose values compare as Arrow's do, and that Arrow has a literal for.
_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}

_FLOATS = ("float", "double")

#: Types of whole numbers, and the digits that Spark counts for them.
_WHOLE = {"byte": 3, "short": 5, "integer": 10, "long": 20}

#: Types whose values come from the JVM as Python's own.
_PLAIN = ("boolean", *_WHOLE, *_FLOATS, "date", "timestamp", "timestamp_ntz")


def condition_of(expression: Any, find: Find) -> Any:
    """Turn a condition of Spark's into one of Arrow's; None if it is not understood."""
    kind = kind_of(expression)
    if kind in ("And", "Or"):
        left, right = (condition_of(e, find) for e in (expression.left(), expression.right()))
        if left is None or right is None:
            return None
        return left & right if kind == "And" else left | right
    if kind == "Not":
        inner = condition_of(expression.child(), find)
        return None if inner is None else ~inner
    if kind in ("IsNull", "IsNotNull"):
        column = find(expression.child())
        if column is None or type_of(expression.child()) == "struct":
            return None
        known = pc.field(column).is_null()
        return known if kind == "IsNull" else ~known
    if kind not in COMPARED:
        # A column that is true or false by itself.
        return _operand(expression, find) if type_of(expression) == "boolean" else None
    left, right = (_operand(e, find) for e in (expression.left(), expression.right()))
    if left is None or right is None:
        return None
    plain = COMPARED[kind](left, right)
    if type_of(expression.left()) in _FLOATS:
        return plain | _of_nan(kind, left, right)
    return plain


def _of_nan(kind: str, left: Any, right: Any) -> Any:
    """Say where a comparison is true because of a NaN; null where a side is null."""
    if kind in ("LessThan", "LessThanOrEqual"):
        kind, left, right = kind.replace("Less", "Greater"), right, left
    if kind == "EqualTo":
        return pc.is_nan(left) & pc.is_nan(right)
    # NaN is the largest: above all others, and at least itself.
    return pc.is_nan(left) & (right.is_valid() if kind.endswith("Equal") else ~pc.is_nan(right))


def _operand(expression: Any, find: Find) -> Any:
    """Turn a column or a literal into Arrow's; None if it is neither, or of another type."""
    kind = type_of(expression)
    if kind not in _TYPES and not kind.startswith("decimal"):
        return None
    column = find(expression)
    if column is not None:
        return pc.field(column)
    if kind_of(expression) == "Cast" and not _is_literal(expression):
        return _widened(expression, find)
    if not _is_literal(expression):
        return None
    # Spark casts it: what it makes of '4' or 1.7 is not guessed at here.
    value = expression.eval(None)
    if value is not None and kind not in _PLAIN:
        value = Decimal(value.toString()) if kind.startswith("decimal") else value.toString()
    return pc.scalar(pa.scalar(value, _arrow(expression)))


def _widened(cast: Any, find: Find) -> Any:
    """Turn the cast of a number into a wider type, as Spark adds it to a comparison."""
    inner, kind = _operand(cast.child(), find), type_of(cast.child())
    if inner is None or type_of(cast) == "float":
        return None
    narrow, wide = _digits(cast.child()), _digits(cast)
    if type_of(cast) == "double":
        known = kind in _WHOLE or kind == "float"
    elif narrow is None or wide is None:
        known = False
    else:
        known = narrow[0] <= wide[0] and narrow[1] <= wide[1]
    return inner.cast(_arrow(cast), safe=False) if known else None


def _digits(expression: Any) -> tuple[int, int] | None:
    """Return the digits before and after the point that a type of numbers has room for."""
    kind = type_of(expression)
    if kind.startswith("decimal"):
        made = expression.dataType()
        return made.precision() - made.scale(), made.scale()
    return (_WHOLE[kind], 0) if kind in _WHOLE else None


def _arrow(expression: Any) -> pa.DataType:
    kind = type_of(expression)
    if kind.startswith("decimal"):
        made = expression.dataType()
        return pa.decimal128(made.precision(), made.scale())
    return _TYPES[kind]


def _is_literal(expression: Any) -> bool:
    kind = kind_of(expression)
    return kind == "Literal" or (kind in ("Cast", "UnaryMinus") and _is_literal(expression.child()))


def is_known(expression: Any) -> bool:
    """Whether an expression is a literal that is not null."""
    return kind_of(expression) == "Literal" and expression.value() is not None
