"""Parameters of strategies and their parts: declared with range, unit and meaning, then checked."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from penstock.common.errors import InvalidValue


def param(
    default: Any,
    doc: str,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: tuple[str, ...] = (),
    unit: str = "",
) -> Any:
    """Declare a keyword of a frozen dataclass with its range, unit and meaning."""
    metadata = {"doc": doc, "least": least, "most": most, "choices": choices, "unit": unit}
    return dataclasses.field(default=default, metadata=metadata)


class Checked:
    """Base of parts whose constructor only stores keywords and checks them as declared.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Cooling(Checked):
    ...     factor: float = param(0.99, "Temperature kept at each step.", least=0, most=1)
    >>> Cooling(factor=2.0)
    Traceback (most recent call last):
    ...
    penstock.common.errors.InvalidValue: parameter factor of Cooling must be a number from 0 to 1, \
got 2.0
    """

    def __post_init__(self) -> None:
        for declared in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, declared.name)
            problem = _problem(value, declared.default, declared.metadata)
            if problem:
                raise InvalidValue(declared.name, type(self).__name__, problem, value)


def describe(part: type) -> list[dict[str, Any]]:
    """List the declared parameters of a part for help texts and JSON."""
    return [
        {
            "name": declared.name,
            "default": declared.default,
            "allowed": _allowed(declared.default, declared.metadata),
            "unit": declared.metadata["unit"],
            "doc": declared.metadata["doc"],
        }
        for declared in dataclasses.fields(part)
        if "doc" in declared.metadata
    ]


def _allowed(default: Any, metadata: Any) -> str:
    if metadata["choices"]:
        return "one of " + ", ".join(metadata["choices"])
    if isinstance(default, bool):
        return "true or false"
    noun = "a whole number" if isinstance(default, int) else "a number"
    least, most = metadata["least"], metadata["most"]
    if least is not None and most is not None:
        return f"{noun} from {least:g} to {most:g}"
    if least is not None:
        return f"{noun} of at least {least:g}"
    return noun if most is None else f"{noun} of at most {most:g}"


def _problem(value: Any, default: Any, metadata: Any) -> str:
    """Return what is allowed if `value` is not, otherwise an empty string."""
    if "doc" not in metadata:
        return ""
    if metadata["choices"]:
        fine = value in metadata["choices"]
    elif isinstance(default, bool):
        fine = isinstance(value, bool)
    elif isinstance(value, bool) or not isinstance(
        value, int if isinstance(default, int) else (int, float)
    ):
        fine = False
    else:
        least, most = metadata["least"], metadata["most"]
        fine = (
            math.isfinite(value)
            and (least is None or value >= least)
            and (most is None or value <= most)
        )
    return "" if fine else _allowed(default, metadata)
