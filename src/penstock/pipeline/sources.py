"""Bounded sources from memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(eq=False)
class Rows:
    """The rows of a table, all available from the start."""

    table: pa.Table
    stamp: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """Columns."""
        return self.table.schema

    @property
    def end(self) -> int:
        """Position where it ends."""
        return int(self.table.num_rows)

    def available(self, elapsed_s: float) -> int:
        """Position that it has reached: the end."""
        return self.end

    def read(self, start: int, stop: int) -> pa.Table:
        """Rows from `start` up to `stop`."""
        return self.table.slice(start, stop - start)


def Lines(lines: Sequence[str]) -> Rows:  # noqa: N802
    """Lines of text, in a column `line`."""
    return Rows(pa.table({"line": pa.array(list(lines), pa.string())}))
