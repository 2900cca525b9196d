"""``penstock explain``: the decisions of a run in plain words."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.exits import clean_exit, say
from penstock.cli.options import JsonLines
from penstock.cli.show import console
from penstock.control.events import Event
from penstock.control.explain import explain as told
from penstock.control.explain import headline
from penstock.model import InvalidValue
from penstock.store.records import EventRecord
from penstock.store.store import MetricsStore

HELP = """Explain the decisions of a run: what was measured, why, what moved, what it gained.

Without N the decisions are listed.

\b
Examples:
  penstock run wordcount --store metrics.sqlite
  penstock explain latest --store metrics.sqlite
  penstock explain latest --store metrics.sqlite --json
"""


def explain(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, by its id, or 'latest'.")],
    number: Annotated[
        int | None,
        typer.Argument(metavar="[N]", help="Number of a decision, as the list shows it."),
    ] = None,
    store: Annotated[
        str,
        typer.Option("--store", metavar="PLACE", help="A SQLite file or a postgresql:// URL."),
    ] = "metrics.sqlite",
    as_json: JsonLines = False,
) -> None:
    """Explain decisions; see `HELP`."""
    with clean_exit(), MetricsStore.open(store, read_only=True) as opened:
        if run == "latest":
            latest = opened.latest_run()
            if latest is None:
                raise InvalidValue("RUN", f"store {store!r}", "one that it has", run)
            run = latest.id
        found = opened.read(run).decisions
        if number is not None:
            found = (_numbered(found, number, run),)
        for record in found:
            event = Event.of_record(record)
            if as_json:
                values = {"run": run, **event.to_dict(), "number": record.number}
                typer.echo(json.dumps(values))
            elif number is not None:
                console().print(told(event, record.number), soft_wrap=True)
            else:
                line = f"{record.number}  batch {event.batch}: {headline(event)}"
                console().print(line, soft_wrap=True)
        if not found and not as_json:
            say(f"run {run} made no decision")


def _numbered(found: tuple[EventRecord, ...], number: int, run: str) -> EventRecord:
    for record in found:
        if record.number == number:
            return record
    known = ", ".join(str(record.number) for record in found)
    allowed = f"one of {known}" if known else "left out, because there is no decision"
    raise InvalidValue("N", f"run {run!r}", allowed, number)
