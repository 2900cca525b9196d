"""Tables of what a benchmark found, whole even where there is no terminal to fit them in."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

#: Columns of text where the width is not known.
WIDE = 200


def show(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table with the fields of the first row as its columns."""
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=None if sys.stdout.isatty() else WIDE).print(table)
