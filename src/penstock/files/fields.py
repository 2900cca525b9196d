"""Typed access to the fields of a mapping that came from a file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from penstock.common.near_miss import near_miss
from penstock.files.errors import FileError, shown

#: No rate, size or capacity in any unit used here is larger; keeps products finite.
MOST = 1e12

#: Longest name that is accepted.
MOST_CHARACTERS = 200

Value = TypeVar("Value")


class Fields:
    """The fields of one mapping; reading one marks it as known.

    Parameters
    ----------
    file : str
        For messages.
    values : object
        What stands in the file; anything but a mapping is an error.
    path : str
        Where it stands, as in ``operators[2]``; empty for the whole file.
    known : sequence of str
        Names that are allowed; any other is an error.
    """

    def __init__(self, file: str, values: object, path: str, known: Sequence[str]) -> None:
        self.file = file
        self.path = path
        if not isinstance(values, Mapping):
            if path:
                raise self.error("", "a mapping with the fields " + ", ".join(known), values)
            raise FileError(file, f"must be a mapping with {', '.join(known)}, got {shown(values)}")
        for name in values:
            if name not in known:
                allowed = f"one of {', '.join(known)}"
                hint = near_miss(name, known)
                raise FileError(file, f"is not known; must be {allowed}{hint}", self._at(name))
        self.values: Mapping[str, Any] = values

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def error(self, name: str, allowed: str, got: object, hint: str = "") -> FileError:
        """Make the error for a field, by the one template of the project."""
        return FileError(self.file, f"must be {allowed}, got {shown(got)}{hint}", self._at(name))

    def missing(self, name: str, allowed: str) -> FileError:
        """Make the error for a field that has to be there."""
        return FileError(self.file, f"must be {allowed}, but is missing", self._at(name))

    def text(self, name: str, default: str | None = None) -> str:
        """Return a short printable text; without a default the field is required."""
        allowed = f"printable text of 1 to {MOST_CHARACTERS} characters"
        if name not in self and default is not None:
            return default
        if name not in self:
            raise self.missing(name, allowed)
        value = self.values[name]
        if (
            not isinstance(value, str)
            or not 0 < len(value) <= MOST_CHARACTERS
            or not value.isprintable()
        ):
            raise self.error(name, allowed, value)
        return value

    def number(self, name: str, default: float, *, most: float = MOST) -> float:
        """Return a number that is not negative."""
        value = self.values.get(name)
        return default if value is None else number(self, name, value, most=most)

    def whole(self, name: str, default: int, *, most: int) -> int:
        """Return a whole number of at least 1."""
        value = self.values.get(name, default)
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise self.error(name, f"a whole number from 1 to {most}", value)
        return value

    def truth(self, name: str, default: bool) -> bool:
        """Return true or false."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, "true or false", value)
        return value

    def choice(self, name: str, choices: Mapping[str, Value], default: Value) -> Value:
        """Return what the chosen word stands for; ``-`` and ``_`` are the same."""
        value = self.values.get(name)
        if value is None:
            return default
        word = value.replace("_", "-").lower() if isinstance(value, str) else ""
        if word not in choices:
            hint = near_miss(word, choices) if word else ""
            raise self.error(name, "one of " + ", ".join(choices), value, hint)
        return choices[word]

    def items(self, name: str, *, required: bool) -> Iterator[tuple[str, object]]:
        """Yield the path and the value of every item of a list."""
        value = self.values.get(name)
        if value is None and not required:
            return
        if value is None:
            raise self.missing(name, "a list")
        if not isinstance(value, list):
            raise self.error(name, "a list", value)
        for i, item in enumerate(value):
            yield f"{self._at(name)}[{i}]", item

    def mapping(self, name: str) -> Mapping[str, Any]:
        """Return a mapping whose keys are names, empty when it is left out."""
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.error(name, "a mapping", value)
        return value

    def _at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path and name else self.path or name


def number(owner: Fields, name: str, value: object, *, most: float = MOST) -> float:
    """Check one number of a field; `name` says where it stands."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value <= most  # False for NaN as well
    ):
        raise owner.error(name, f"a number from 0 to {most:g}", value)
    return float(value)
