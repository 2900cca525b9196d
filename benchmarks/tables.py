"""What benchmarks ask and tell alike: kinds by name, and tables, or JSON, of what was found.

Tables are whole even where there is no terminal to fit them in.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Mapping, Sequence
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


def tell(title: str, rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print rows as a table, or as JSON."""
    if as_json:
        json.dump(rows, sys.stdout, indent=1)
    else:
        show(title, rows)


def check_kinds(
    parser: argparse.ArgumentParser, asked: Collection[str], known: Collection[str]
) -> None:
    """End with an error if something is asked for that there is not."""
    unknown = set(asked) - set(known)
    if unknown:
        parser.error(f"unknown {sorted(unknown)}; there are {', '.join(known)}")
