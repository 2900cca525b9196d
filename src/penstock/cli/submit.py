"""``penstock submit``: an unchanged PySpark script, its streaming queries attached."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.exits import INTERRUPTED, clean_exit, say
from penstock.cli.java import pyspark_needed, require_java
from penstock.cli.live import Board
from penstock.cli.options import JsonAtEnd
from penstock.control.settings import Settings
from penstock.model import InvalidValue
from penstock.report.page import write_report
from penstock.report.summary import summarise
from penstock.store.store import MetricsStore
from penstock.strategies import strategies

HELP = """Run a PySpark script unchanged, with all its Structured Streaming queries attached.

Every query that the script starts is measured, explained, placed and scaled while it runs. Results,
checkpoints and offsets stay Spark's own; if anything of Penstock fails, the query goes on. Options
of Penstock come before the script, the script's own arguments after it.

With spark-submit the same is one line: --conf spark.pyspark.driver.python=penstock-python

Exit codes: those of the script; 2 bad input, 130 interrupted.

\b
Examples:
  penstock submit job.py
  penstock submit --recommend-only --store metrics.sqlite job.py --topic clicks
"""

#: Arguments behind the script are its own, whatever they look like.
SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": False}


def submit(
    script: Annotated[Path, typer.Argument(metavar="JOB.py", help="Script to run.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGUMENTS]...", help="The script's own.", show_default=False),
    ] = None,
    strategy: Annotated[
        str, typer.Option("--strategy", metavar="NAME", help="Strategy that plans the queries.")
    ] = "penstock",
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="PLACE", help="Metrics: a SQLite file or a postgresql:// URL."
        ),
    ] = None,
    report: Annotated[
        Path, typer.Option("--report", metavar="FILE", help="Where the HTML report goes.")
    ] = Path("penstock-report.html"),
    min_nodes: Annotated[
        int,
        typer.Option("--min-nodes", metavar="N", help="Nodes that are never released; 0: one."),
    ] = 0,
    max_nodes: Annotated[
        int,
        typer.Option(
            "--max-nodes", metavar="N", help="Nodes that are never exceeded; 0: as at the start."
        ),
    ] = 0,
    recommend_only: Annotated[
        bool,
        typer.Option("--recommend-only", help="Show what would be decided, and change nothing."),
    ] = False,
    adapt: Annotated[
        bool, typer.Option("--adapt/--no-adapt", help="Plan while it runs, or only measure.")
    ] = True,
    as_json: JsonAtEnd = False,
) -> None:
    """Run a script; see `HELP`."""
    with clean_exit():
        if strategy not in strategies.names():
            allowed = "one of " + ", ".join(strategies.names())
            raise InvalidValue("strategy", "a submission", allowed, strategy)
        if not script.is_file():
            raise InvalidValue("script", "a submission", "a Python file that exists", str(script))
        settings = Settings(min_nodes=min_nodes, max_nodes=max_nodes, recommend_only=recommend_only)
        require_java()
        with pyspark_needed():
            from penstock.runtimes.attached import submit as runner
        with tempfile.TemporaryDirectory(prefix="penstock-submit-") as scratch:
            kept = store or str(Path(scratch) / "metrics.sqlite")
            with Board(as_json) as board:
                board.say(f"running {script}")
                options = {
                    "strategy": strategy,
                    "control": settings,
                    "adapt": adapt,
                    "store": kept,
                    "on_batch": _shown(board),
                    "on_decision": board.decided,
                }
                sessions = runner.Sessions(say, lambda _: options)
                interrupted = False
                with runner.told_of_sessions(sessions.made):
                    try:
                        runner.run_script(script, arguments or ())
                    except KeyboardInterrupt:
                        interrupted = True
                    finally:
                        sessions.detach()
                        _finish(board, sessions.attached, kept, report, as_json)
        if interrupted:
            raise typer.Exit(INTERRUPTED)


def _shown(board: Board) -> Any:
    began = time.monotonic()

    def show(observed: Any) -> None:
        board.tick(time.monotonic() - began)
        board.show(observed)

    return show


def _finish(board: Board, sessions: list[Any], store: str, report: Path, as_json: bool) -> None:
    """Write a report for every query that ran a batch; the first has the name asked for."""
    summaries = []
    queries = [q for session in sessions for q in session.queries.values() if q.batches]
    for number, query in enumerate(queries):
        with MetricsStore.open(store) as opened:
            records = opened.read(query.run)
        place = report if not number else report.with_stem(f"{report.stem}-{query.name}")
        write_report(records, place)
        summary = summarise(records)
        summaries.append({**summary, "report": str(place), "advice": list(query.advice)})
        if not as_json:
            board.summary(summary, place)
    if as_json:
        typer.echo(json.dumps({"queries": summaries}))
    elif not queries:
        say("penstock: the script ran no batch of a streaming query that could be attached")
