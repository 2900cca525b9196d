"""The names of a join's columns: as its sides have them, in the state, and as they are emitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.model import NotAllowed
from penstock.pipeline.keyed.rows_by_key import LEFT, RIGHT

#: Before the names of the columns of each side in the state.
PREFIXES = ("left.", "right.")


@dataclass(frozen=True)
class JoinColumns:
    """Names of the columns of both sides of a join.

    Parameters
    ----------
    on : tuple of (str, str)
        Columns of the key: on the left, and on the right.
    suffix : str
        Behind the name of a column of the right side that the left side has, too.
    schemas : tuple of pyarrow.Schema, optional
        All columns of both sides, for nulls in their place.
    """

    on: tuple[tuple[str, str], ...]
    suffix: str = "_right"
    schemas: tuple[pa.Schema, ...] = ()

    @property
    def keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns of the key on each side."""
        return tuple(left for left, _ in self.on), tuple(right for _, right in self.on)

    def stored(self, name: str, side: int) -> str:
        """Return the name of a column of a side in the state: that of the key is the left one.

        Examples
        --------
        >>> columns = JoinColumns((("id", "seller"),))
        >>> columns.stored("seller", RIGHT), columns.stored("id", RIGHT)
        ('id', 'right.id')
        """
        keys = dict(zip(self.keys[side], self.keys[LEFT], strict=True))
        return keys.get(name, f"{PREFIXES[side]}{name}")

    def emitted(self, left: pa.Table, right: pa.Table) -> pa.Table:
        """Put rows of the state side by side: the key, the left side, the right side."""
        keys = [(left.column(one), right.column(one)) for one, _ in self.on]
        return self._columns(keys, left, right)

    def alone(self, rows: pa.Table, side: int) -> pa.Table:
        """Put rows of one side of the state beside nulls."""
        keys = []
        for one, other in self.on:
            value = rows.column(one)
            null = pa.nulls(rows.num_rows, value.type)
            both = one == other
            keys.append((value if side == LEFT or both else null, null if side == LEFT else value))
        names = [self.stored(name, 1 - side) for name in self.schemas[1 - side].names]
        absent = pa.table(
            {
                name: pa.nulls(rows.num_rows, _plain(field.type))
                for name, field in zip(names, self.schemas[1 - side], strict=True)
            }
        )
        present = rows.select([n for n in rows.column_names if n.startswith(PREFIXES[side])])
        sides = (present, absent) if side == LEFT else (absent, present)
        return self._columns(keys, *sides)

    def _columns(self, keys: list[tuple[Any, Any]], left: pa.Table, right: pa.Table) -> pa.Table:
        """Put columns side by side; of each key, the value on the left and on the right."""
        columns = {one: value for (one, _), (value, _) in zip(self.on, keys, strict=True)}
        columns |= _of_side(left, LEFT)
        for (one, other), (_, value) in zip(self.on, keys, strict=True):
            if one != other:
                columns[self._free(other, columns)] = value
        for name, column in _of_side(right, RIGHT).items():
            columns[self._free(name, columns)] = column
        return pa.table(columns)

    def _free(self, name: str, taken: Mapping[str, object]) -> str:
        named = f"{name}{self.suffix}" if name in taken else name
        if named in taken:
            raise NotAllowed(
                f"both sides of a join have a column {name!r}, and {named!r} is taken as well; "
                "rename one of them in a select, or choose another 'suffix'"
            )
        return named


def _of_side(rows: pa.Table, side: int) -> dict[str, Any]:
    """Columns of one side, by the names that it has for them."""
    prefix = PREFIXES[side]
    return {
        name.removeprefix(prefix): rows.column(name)
        for name in rows.column_names
        if name.startswith(prefix)
    }


def _plain(kind: pa.DataType) -> pa.DataType:
    """Type of the values of a column, without its encoding."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind
