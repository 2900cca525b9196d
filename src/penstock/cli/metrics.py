"""``penstock metrics``: what the metrics store has of a run."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.exits import clean_exit
from penstock.cli.options import JsonLines
from penstock.model import InvalidValue
from penstock.report.summary import summarise
from penstock.store.prometheus import RunState, render
from penstock.store.store import MetricsStore

HELP = """Show what a metrics store has: its runs, or one run in figures.

\b
Examples:
  penstock run wordcount --store metrics.sqlite
  penstock metrics metrics.sqlite
  penstock metrics metrics.sqlite --run latest --json
  penstock metrics metrics.sqlite --run latest --prometheus
"""


def metrics(
    place: Annotated[
        str,
        typer.Argument(metavar="PLACE", help="A SQLite file or a postgresql:// URL."),
    ],
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="ID", help="One run, by its id, or 'latest'."),
    ] = None,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print Prometheus text of the run.")
    ] = False,
    as_json: JsonLines = False,
) -> None:
    """Show metrics; see `HELP`."""
    with clean_exit(), MetricsStore.open(place, read_only=True) as store:
        if run is None and not prometheus:
            _list(store, as_json)
            return
        if run in (None, "latest"):
            latest = store.latest_run()
            if latest is None:
                raise InvalidValue("run", f"store {place!r}", "one that it has", run)
            run = latest.id
        assert run is not None
        records = store.read(run)
        if prometheus:
            typer.echo(render([RunState.of(records)]), nl=False)
        elif as_json:
            typer.echo(json.dumps(summarise(records)))
        else:
            Console().print_json(json.dumps(summarise(records)))


def _list(store: MetricsStore, as_json: bool) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("run", "topology", "strategy", "status"):
        table.add_column(column)
    for found in store.runs():
        row = (found.id, found.topology, found.strategy, found.status.value)
        if as_json:
            typer.echo(
                json.dumps(dict(zip(("run", "topology", "strategy", "status"), row, strict=True)))
            )
        table.add_row(*row)
    if not as_json:
        Console().print(table)
