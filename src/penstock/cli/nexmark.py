"""``penstock nexmark``: the queries of NEXMark, run, timed and compared with Spark's answers."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from penstock.apps.nexmark.query import NexmarkQuery, queries, query
from penstock.cli.checks import check_master
from penstock.cli.exits import Stop, clean_exit, deferred, running, say, stopped
from penstock.cli.java import pyspark_needed, require_java
from penstock.cli.options import InputSeed, JsonLines, Master
from penstock.cli.progress import ProgressBar
from penstock.cli.run_options import Verbose
from penstock.cli.scratch import scratch
from penstock.model import InvalidValue

#: Fewest events of a batch that fill all kinds of events.
LEAST_EVENTS = 50

HELP = """Run queries of NEXMark on Spark, time them, and compare each result with Spark's own.

Events are made once, from a seed: of fifty, 46 are bids, 3 are auctions and 1 is a person. The
result of every query is compared, to the row, with what Spark's SQL gives over the same events.
With --spark each query is also put to Structured Streaming, where that has an answer.

Exit codes: 0 fine, 1 a result differs, 2 bad input, 3 a failed run, 130 interrupted,
143 terminated.

\b
Examples:
  penstock nexmark
  penstock nexmark q1,q5,q17 --events 500000
  penstock nexmark q5 --frame --spark --json
"""

Names = Annotated[
    str,
    typer.Argument(
        metavar="QUERY,...", help="Queries, with commas between them.", show_default=False
    ),
]
EventCount = Annotated[int, typer.Option("--events", metavar="N", help="Events of all kinds.")]
Batches = Annotated[int, typer.Option("--batches", metavar="N", help="Batches that they come in.")]
Frame = Annotated[
    bool,
    typer.Option("--frame", help="Read through a streaming DataFrame, not a source of our own."),
]
BySpark = Annotated[bool, typer.Option("--spark", help="Time Structured Streaming, too.")]


def nexmark(
    names: Names = "all",
    events: EventCount = 100_000,
    batches: Batches = 8,
    frame: Frame = False,
    by_spark: BySpark = False,
    seed: InputSeed = 0,
    master: Master = "local[2]",
    verbose: Verbose = False,
    as_json: JsonLines = False,
) -> None:
    """Run queries; see `HELP`."""
    with clean_exit(verbose=verbose):
        chosen = _chosen(names)
        least = 5
        if batches < least:
            raise InvalidValue("batches", "nexmark", f"at least {least}", batches)
        if events < batches * LEAST_EVENTS:
            allowed = f"at least {LEAST_EVENTS} for each of {batches} batches"
            raise InvalidValue("events", "nexmark", allowed, events)
        check_master(master)
        require_java()
        with pyspark_needed():
            from penstock.experiments.nexmark import trial
            from penstock.runtimes.spark.session import cluster
        rows: list[dict[str, Any]] = []
        with (
            running(),
            deferred() as stop,
            scratch(),
            tempfile.TemporaryDirectory(prefix="penstock-nexmark-") as folder,
            ProgressBar(len(chosen) + 1, doing="nexmark") as bar,
        ):
            bar.now("making events")
            conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.session.timeZone": "UTC"}
            with cluster(master or "local[2]", conf=conf) as spark:
                stop.check()
                feed = trial.write_events(Path(folder) / "events", events, batches, 2, seed)
                for each in chosen:
                    if stop.asked is not None:
                        break
                    bar.now(each.name)
                    row = _one(trial, spark, each, feed, "frame" if frame else "source", by_spark)
                    rows.append(row)
                    if as_json:
                        typer.echo(json.dumps(row))
        _end(rows, as_json, stop)


def _chosen(names: str) -> list[NexmarkQuery]:
    if names == "all":
        return list(queries().values())
    return [query(name.strip()) for name in names.split(",")]


def _one(
    trial: Any, spark: Any, each: NexmarkQuery, feed: Any, how: str, by_spark: bool
) -> dict[str, Any]:
    """Run one query, and compare what it gives."""
    wanted = trial.expected(spark, each, feed)
    timed = trial.by_engine(spark, each, feed, how)
    row: dict[str, Any] = {
        "query": each.name,
        "summary": each.summary,
        "rows_in": feed.rows(each),
        "rows_out": wanted.num_rows,
        "equal": trial.equal(timed.result, wanted),
        **timed.figures(feed, each),
    }
    if by_spark:
        row["spark_rows_per_s"] = row["spark_equal"] = None
        if each.streaming is not None:
            theirs = trial.by_spark(spark, each, feed)
            row["spark_rows_per_s"] = theirs.figures(feed, each)["rows_per_s"]
            row["spark_equal"] = trial.equal(theirs.result, wanted)
    return row


def _end(rows: list[dict[str, Any]], as_json: bool, stop: Stop) -> None:
    """Show the table, and end with the code that says how it went."""
    if rows and not as_json:
        table = Table(title="NEXMark", title_justify="left")
        for column in rows[0]:
            left = column in ("query", "summary")
            table.add_column(column.replace("_", " "), justify="left" if left else "right")
        for row in rows:
            table.add_row(*(_shown(value) for value in row.values()))
        Console(width=None if Console().is_terminal else 200).print(table)
    if stop.asked is not None:
        raise stopped(stop.asked)
    differ = [row["query"] for row in rows if not row["equal"]]
    if differ:
        say(f"penstock: {', '.join(differ)} gave other rows than Spark's SQL, exit code 1")
        raise typer.Exit(1)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
    return "-" if value is None else str(value)
