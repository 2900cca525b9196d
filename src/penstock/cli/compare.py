"""``penstock compare``: the same input under several strategies."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.checks import check_file, check_nodes
from penstock.cli.exits import clean_exit, say, stopped
from penstock.cli.java import pyspark_needed, require_java
from penstock.cli.options import App, InputSeed, JsonEach, Rate, Seconds, Zipf
from penstock.cli.progress import ProgressBar
from penstock.cli.show import show_entries
from penstock.experiments.compare.scenario import Engine, Scenario, compare
from penstock.model import InvalidValue
from penstock.planning import chosen
from penstock.report.comparison import Entry
from penstock.report.comparison_page import write_comparison

HELP = """Run the same input under several strategies, and compare what came of it.

With --engine spark every strategy gets a process and an embedded cluster of its own, one after the
other. With --engine sim the same control loop runs in virtual time, on as many nodes of one core,
as the embedded cluster's are. A strategy that fails is told, and the others go on.

Exit codes: 0 fine, 1 a strategy failed or rows were lost or duplicated, 2 bad input,
130 interrupted, 143 terminated (what was done until then is shown).

\b
Examples:
  penstock compare wordcount --strategies even,ra,penstock --engine sim --seconds 300
  penstock compare commcount --strategies even,ms,penstock --zipf 1.2 --rate 4000
  penstock compare topn --strategies even,penstock --rate steps:1800x20,4500x20,2000x20 --json
"""

#: What the page says of where its figures come from.
NOTES = {
    "spark": "Measured on an embedded cluster, a fresh one for each strategy.",
    "sim": "Simulated, not measured.",
}


def compare_command(
    app: App,
    names: Annotated[
        str,
        typer.Option("--strategies", metavar="NAMES", help="With commas between them, or 'all'."),
    ] = "even,penstock",
    engine: Annotated[
        str, typer.Option("--engine", metavar="NAME", help="'spark', or 'sim' for virtual time.")
    ] = "spark",
    rate: Rate = "2000",
    zipf: Zipf = 1.0,
    seconds: Seconds = 60.0,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Nodes that there are.")] = 4,
    seed: InputSeed = 0,
    as_json: JsonEach = False,
    report: Annotated[
        Path, typer.Option("--report", metavar="FILE", help="Where the HTML page goes.")
    ] = Path("penstock-comparison.html"),
) -> None:
    """Compare strategies; see `HELP`."""
    entries: list[Entry] = []
    stop: KeyboardInterrupt | None = None
    with clean_exit():
        asked = chosen(names)
        scenario = Scenario(app, rate, zipf, seconds, nodes, seed)
        check_file("--report", report)
        if engine == "spark":
            check_nodes(nodes)
        run = engine_of(engine)
        quiet = sys.stderr.isatty()
        with ProgressBar(len(asked), doing="comparing") as progress:

            def tell(name: str, text: str) -> None:
                if text == "starting":
                    progress.now(name)
                    if not quiet:
                        say(f"comparing: {name}")
                progress.detail(f"{name}, {text}")

            try:
                for entry in compare(scenario, asked, run, tell):
                    entries.append(entry)
                    if as_json:
                        typer.echo(json.dumps(entry.to_dict(), allow_nan=False))
            except KeyboardInterrupt as asked_to:
                stop = asked_to
        if not as_json:
            show_entries(entries)
        if entries:
            settings = {"engine": engine, **asdict(scenario)}
            write_comparison(report, f"{app} compared", entries, settings, NOTES[engine])
            say(f"report in {report}")
    if stop is not None:
        raise stopped(stop)
    if not all(entry.sound for entry in entries):
        raise typer.Exit(1)


def engine_of(name: str) -> Engine:
    """Return what runs a scenario, and check that it can."""
    if name == "sim":
        from penstock.experiments.compare.in_simulation import simulated

        return simulated
    if name != "spark":
        raise InvalidValue("engine", "a comparison", "spark or sim", name)
    require_java()
    with pyspark_needed():
        from penstock.experiments.compare.on_spark import on_spark
    return on_spark
