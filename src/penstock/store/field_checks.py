"""Checks of a record's fields: what no database can hold is refused when the record is made."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.common.errors import InvalidValue

#: Largest whole number that both databases hold.
LARGEST = 2**63 - 1


def json_text(value: Any) -> str:
    """Write JSON in few characters, all of them ASCII: a text column of any database takes it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


@dataclass(frozen=True)
class FieldChecks:
    """Checks of one record's fields, and their conversion to plain Python values."""

    record: object
    owner: str

    def names(self, *fields: str, empty: bool = False) -> None:
        """Refuse what is no text that every database holds."""
        for name in fields:
            value = getattr(self.record, name)
            # PostgreSQL holds no NUL character in a text, and nothing holds half a character.
            sound = isinstance(value, str) and "\0" not in value and (empty or value)
            if not sound or any("\ud800" <= c <= "\udfff" for c in value):
                kind = "a text" if empty else "a non-empty text"
                allowed = f"{kind} without NUL or broken characters"
                raise InvalidValue(name, self.owner, allowed, value)

    def counts(self, *fields: str, optional: bool = False) -> None:
        """Refuse what is no whole number from 0 to `LARGEST`."""
        for name in fields:
            value = getattr(self.record, name)
            if value is None and optional:
                continue
            try:
                whole = operator.index(value)
            except TypeError:
                whole = -1
            if isinstance(value, bool) or not 0 <= whole <= LARGEST:
                allowed = f"a whole number from 0 to {LARGEST}"
                raise InvalidValue(name, self.owner, allowed, value)
            object.__setattr__(self.record, name, whole)

    def numbers(self, *fields: str, optional: bool = False) -> None:
        """Refuse what is no finite number of at least 0."""
        for name in fields:
            value = getattr(self.record, name)
            if value is None and optional:
                continue
            try:
                number = float(value)
            except (TypeError, ValueError, OverflowError):
                number = math.nan
            if isinstance(value, (bool, str)) or not math.isfinite(number) or number < 0:
                raise InvalidValue(name, self.owner, "a finite number of at least 0", value)
            object.__setattr__(self.record, name, number)

    def json(self, *fields: str, kind: type = dict) -> None:
        """Keep what will be read back: lists for tuples, plain numbers for NumPy's."""
        for name in fields:
            value = getattr(self.record, name)
            if not value and isinstance(value, kind):
                continue
            try:
                plain = json.loads(json_text(value))
            except (TypeError, ValueError, RecursionError):
                plain = None
            if not isinstance(plain, kind):
                what = "a mapping" if kind is dict else "a list"
                raise InvalidValue(name, self.owner, f"{what} that JSON can hold", value)
            object.__setattr__(self.record, name, plain)
