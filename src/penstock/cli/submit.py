"""``penstock submit``: an unchanged PySpark script, its streaming queries attached."""

from __future__ import annotations

import itertools
import json
import tempfile
import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.checks import check_file, check_store
from penstock.cli.exits import clean_exit, say, stopped
from penstock.cli.failure import users_part
from penstock.cli.java import pyspark_needed, require_java
from penstock.cli.live import Board
from penstock.cli.options import JsonAtEnd
from penstock.cli.page import KeepPage, Page, paged
from penstock.cli.run_options import (
    Adapt,
    MaxNodes,
    MinNodes,
    RecommendOnly,
    Report,
    Store,
    Strategy,
    Verbose,
)
from penstock.control.settings import Settings
from penstock.model import InvalidValue
from penstock.report.summary import summarise
from penstock.store.store import MetricsStore
from penstock.strategies import strategies
from penstock.web.report import write_report

HELP = """Run a PySpark script unchanged, with all its Structured Streaming queries attached.

Every query that the script starts is measured, explained, placed and scaled while it runs. Results,
checkpoints and offsets stay Spark's own; if anything of Penstock fails, the query goes on. Options
of Penstock come before the script, the script's own arguments after it.

With spark-submit the same is one line: --conf spark.pyspark.driver.python=penstock-python

Exit codes: those of the script, 1 if it fails; 2 bad input, 130 interrupted, 143 terminated.

\b
Examples:
  penstock submit job.py
  penstock submit --recommend-only --store metrics.sqlite job.py --topic clicks
"""

#: What Python ends with after an error that nobody caught.
SCRIPT_FAILED = 1

#: Arguments behind the script are its own, whatever they look like.
SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": False}


Script = Annotated[Path, typer.Argument(metavar="JOB.py", help="Script to run.")]

Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ARGUMENTS]...", help="The script's own.", show_default=False),
]


def submit(
    script: Script,
    arguments: Arguments = None,
    strategy: Strategy = "penstock",
    store: Store = None,
    report: Report = Path("penstock-report.html"),
    min_nodes: MinNodes = 0,
    max_nodes: MaxNodes = 0,
    recommend_only: RecommendOnly = False,
    adapt: Adapt = True,
    page: Page = None,
    keep_page: KeepPage = None,
    verbose: Verbose = False,
    as_json: JsonAtEnd = False,
) -> None:
    """Run a script; see `HELP`."""
    with clean_exit(verbose=verbose):
        strategies.get(strategy)
        if not script.is_file():
            raise InvalidValue("script", "a submission", "a Python file that exists", str(script))
        settings = Settings(min_nodes=min_nodes, max_nodes=max_nodes, recommend_only=recommend_only)
        check_file("--report", report)
        check_store(store)
        require_java()
        with pyspark_needed():
            from penstock.runtimes.attached import submit as runner
        stop: KeyboardInterrupt | None = None
        with (
            tempfile.TemporaryDirectory(prefix="penstock-submit-") as scratch,
            paged(page, keep_page, store or str(Path(scratch) / "metrics.sqlite")) as kept,
        ):
            assert kept is not None
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
                with runner.told_of_sessions(sessions.made):
                    try:
                        _run(lambda: runner.run_script(script, arguments or ()), verbose)
                    except KeyboardInterrupt as asked:
                        stop = asked
                    finally:
                        sessions.detach()
                        _finish(board, sessions.attached, kept, report, as_json)
            if stop is not None:
                raise stopped(stop)


def _run(script: Callable[[], None], verbose: bool) -> None:
    """Run a script; show its own part of the traceback if it fails, and end as Python would."""
    try:
        script()
    except Exception as error:  # noqa: BLE001 - told, and the code says it
        say(users_part(error))
        if verbose:
            say("".join(traceback.format_exception(error)).rstrip())
        else:
            say("penstock: the script failed, exit code 1; --verbose shows the whole traceback")
        raise typer.Exit(SCRIPT_FAILED) from None


def _shown(board: Board) -> Any:
    began = time.monotonic()

    def show(observed: Any) -> None:
        board.tick(time.monotonic() - began)
        board.show(observed)

    return show


def _place(report: Path, query: Any, used: Collection[Path]) -> Path:
    """Name the report of a query, which may have run before under the same name."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in query.name)
    stems = itertools.chain(
        (report.stem, f"{report.stem}-{name}"),
        (f"{report.stem}-{name}-{number}" for number in itertools.count(2)),
    )
    return next(place for stem in stems if (place := report.with_stem(stem)) not in used)


def _finish(board: Board, sessions: list[Any], store: str, report: Path, as_json: bool) -> None:
    """Write a report for every query that ran a batch; the first has the name asked for.

    Say why queries were left alone.
    """
    left_alone = [reason for session in sessions for reason in session.events]
    for reason in left_alone:
        say(reason)
    summaries: list[dict[str, Any]] = []
    places: list[Path] = []
    queries = [q for session in sessions for q in session.runs if q.batches]
    for query in queries:
        with MetricsStore.open(store) as opened:
            records = opened.read(query.run)
        place = _place(report, query, places)
        places.append(place)
        write_report(records, place)
        summary = summarise(records)
        summaries.append({**summary, "report": str(place), "advice": list(query.advice)})
        if not as_json:
            board.summary(summary, place)
    if as_json:
        typer.echo(json.dumps({"queries": summaries, "left_alone": left_alone}))
    elif not queries:
        say("penstock: the script ran no batch of a streaming query that could be attached")
