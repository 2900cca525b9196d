"""``penstock strategies``: what there is to choose from."""

from __future__ import annotations

import json

import typer

from penstock.cli.exits import clean_exit
from penstock.cli.options import JsonEach
from penstock.cli.show import show_strategies
from penstock.strategies import describe
from penstock.strategies import strategies as registered

HELP = """List the strategies: what each does, its source, its parameters.

\b
Examples:
  penstock strategies
  penstock strategies --json
"""


def strategies(
    as_json: JsonEach = False,
) -> None:
    """List the strategies; see `HELP`."""
    with clean_exit():
        rows = [
            {
                "name": name,
                "summary": registered.get(name).summary,
                "origin": registered.get(name).origin,
                "parameters": describe(registered.get(name)),
            }
            for name in registered.names()
        ]
        if as_json:
            for row in rows:
                typer.echo(json.dumps(row, default=str, ensure_ascii=True))
        else:
            show_strategies(rows)
