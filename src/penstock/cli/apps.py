"""``penstock apps``: the applications that can be run."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from penstock.apps import apps as registered
from penstock.cli.exits import clean_exit
from penstock.strategies import describe

HELP = """List the applications that 'penstock run' takes.

\b
Examples:
  penstock apps
  penstock apps --json
"""


def apps(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line for each application.")
    ] = False,
) -> None:
    """List the applications; see `HELP`."""
    with clean_exit():
        table = Table(box=None, pad_edge=False)
        table.add_column("application", style="bold", no_wrap=True)
        table.add_column("what it does")
        for name in registered.names():
            app = registered.get(name)
            if as_json:
                row = {"name": name, "summary": app.summary, "parameters": describe(app)}
                typer.echo(json.dumps(row, default=str))
            table.add_row(name, app.summary)
        if not as_json:
            Console().print(table)
