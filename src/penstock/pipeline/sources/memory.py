"""Sources that hold their rows in memory: they are all there at once, and they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from penstock.common.keywords import class_keywords
from penstock.model import InvalidValue


@class_keywords
@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a table.

    Examples
    --------
    >>> rows = Rows(pa.table({"word": ["to", "be", "or"]}))
    >>> rows.read(1, 3).to_pylist(), rows.end
    ([{'word': 'be'}, {'word': 'or'}], 3)

    Parameters
    ----------
    table : pyarrow.Table
        It is sent to every worker: for trying things out and for tests.
    stamp : str, optional
        Column that says when each row was made, in microseconds since the stream's start.
    """

    table: pa.Table
    stamp: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.table, pa.Table):
            raise InvalidValue("table", "Rows", "a pyarrow.Table", self.table)
        names = self.table.column_names
        if self.stamp is not None and self.stamp not in names:
            raise InvalidValue("stamp", "Rows", "one of " + ", ".join(names), self.stamp)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table."""
        return self.table.schema

    @property
    def end(self) -> int:
        """Number of rows."""
        return int(self.table.num_rows)

    def available(self, elapsed_s: float) -> int:
        """All rows, at any time."""
        return self.end

    def read(self, start: int, stop: int) -> pa.Table:
        """Rows from position `start` up to `stop`."""
        check_range(start, stop, self.end, "Rows")
        return self.table.slice(start, stop - start)


@class_keywords
@dataclass(frozen=True, eq=False)
class Lines:
    """Lines of text, in the column ``line``.

    Examples
    --------
    >>> Lines(["to be or", "not to be"]).read(0, 1).to_pylist()
    [{'line': 'to be or'}]
    """

    lines: Sequence[str]
    stamp: ClassVar[None] = None
    schema: ClassVar[pa.Schema] = pa.schema([("line", pa.string())])

    def __post_init__(self) -> None:
        if isinstance(self.lines, str):
            raise InvalidValue("lines", "Lines", "a sequence of strings", self.lines)

    @cached_property
    def _rows(self) -> Rows:
        return Rows(pa.table([pa.array(self.lines, pa.string())], schema=self.schema))

    @property
    def end(self) -> int:
        """Number of lines."""
        return self._rows.end

    def available(self, elapsed_s: float) -> int:
        """All lines, at any time."""
        return self.end

    def read(self, start: int, stop: int) -> pa.Table:
        """Lines from position `start` up to `stop`."""
        return self._rows.read(start, stop)


def check_range(start: int, stop: int, end: int | None, owner: str) -> None:
    """Raise unless a source may be asked for these positions."""
    if start < 0 or stop < start:
        raise InvalidValue("start, stop", owner, "positions in ascending order", (start, stop))
    if end is not None and stop > end:
        raise InvalidValue("stop", owner, f"a position up to the end, {end}", stop)
