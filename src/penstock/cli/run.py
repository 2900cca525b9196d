"""``penstock run``: an application on Spark, watched while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from penstock.apps import apps
from penstock.cli.exits import INTERRUPTED, clean_exit, say
from penstock.cli.java import pyspark_needed, require_java
from penstock.cli.live import Board
from penstock.cli.options import (
    DEFAULT_NODES,
    App,
    EmbeddedNodes,
    InputSeed,
    JsonAtEnd,
    Master,
    Parallelism,
    Rate,
    Seconds,
    Zipf,
)
from penstock.control.settings import Settings
from penstock.faults.fault import KINDS, Fault
from penstock.model import InvalidValue
from penstock.pipeline.sinks import Discard
from penstock.pipeline.sources.rates import Profile
from penstock.pipeline.steps import Sink
from penstock.report.page import write_report
from penstock.report.summary import summarise
from penstock.state.config import StateConfig
from penstock.strategies import strategies

HELP = f"""Run an application on Spark under a strategy, and report what was measured.

Without --master an embedded cluster is started: one process for each node. The profile of --rate
says how many tuples a second come: 2000, steps:1800x20,3000x20, sine:1000..5000/60,
square:1000,4000/30 or file:PATH.

Faults are scripted as KIND@batch=N, with options as in scale@batch=5:to=7. They are real: processes
of this machine are killed, files are changed. The kinds are {", ".join(KINDS)}.

Exit codes: 0 fine, 1 rows lost or duplicated, 2 bad input or a failed run, 130 interrupted.

\b
Examples:
  penstock run wordcount
  penstock run commcount --rate square:2000,8000/20 --zipf 1.2 --seconds 60
  penstock run wordcount --strategy even --nodes 3 --json
  penstock run wordcount --parity-fragments 2 --fault kill-executor@batch=7:count=2
"""


def run(
    app: App,
    strategy: Annotated[
        str, typer.Option("--strategy", metavar="NAME", help="Strategy that plans it.")
    ] = "penstock",
    rate: Rate = "2000",
    seconds: Seconds = 60.0,
    master: Master = None,
    nodes: EmbeddedNodes = DEFAULT_NODES,
    zipf: Zipf = 1.0,
    parallelism: Parallelism = None,
    seed: InputSeed = 0,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="PLACE",
            help="Keep journal and state in this folder or address, and go on from it.",
        ),
    ] = None,
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
        typer.Option(
            "--min-nodes",
            metavar="N",
            help="Nodes that are never released; 0: as many as state by peers needs.",
        ),
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
        bool,
        typer.Option("--adapt/--no-adapt", help="Plan again while it runs, or not."),
    ] = True,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="MODE",
            help="Who keeps state safe: peers, checkpoint or both. By default peers, and the "
            "checkpoint, too, if one is given.",
        ),
    ] = None,
    data: Annotated[
        int,
        typer.Option(
            "--data-fragments",
            metavar="N",
            help="Fragments that a piece of state is cut into for peers.",
        ),
    ] = 7,
    parity: Annotated[
        int,
        typer.Option(
            "--parity-fragments",
            metavar="N",
            help="More fragments, so that any N of all may be missing.",
        ),
    ] = 1,
    backup_every: Annotated[
        int,
        typer.Option(
            "--backup-every",
            metavar="N",
            help="Batches that the driver holds changes of state for before peers get them; with "
            "1, every batch waits until they have them.",
        ),
    ] = 8,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault",
            metavar="FAULT",
            help="Let something go wrong, such as kill-executor@batch=7; may be given again.",
        ),
    ] = None,
    as_json: JsonAtEnd = False,
) -> None:
    """Run an application; see `HELP`."""
    with clean_exit():
        chosen = apps.make(app)
        if strategy not in strategies.names():
            raise InvalidValue(
                "strategy", "a run", "one of " + ", ".join(strategies.names()), strategy
            )
        if not seconds > 0:
            raise InvalidValue("seconds", "a run", "more than 0", seconds)
        settings = Settings(min_nodes=min_nodes, max_nodes=max_nodes, recommend_only=recommend_only)
        faults = [Fault.parse(text) for text in fault or ()]
        if checkpoint is None and any(one.kind == "kill-driver" for one in faults):
            raise InvalidValue(
                "fault", "a run without --checkpoint", "other than kill-driver", "kill-driver"
            )
        # What is wrong with these is said before Spark is started.
        StateConfig(state or "peers", data=data, parity=parity, every=backup_every)
        profile = Profile.parse(rate)
        rows = profile.position(seconds)
        source = chosen.source(profile, zipf=zipf, seed=seed, rows=rows)
        # What comes out is counted; keeping it would fill the memory of a long run.
        sinks: dict[str, Sink] = {name: Discard() for name in chosen.keys}
        pipeline = chosen.pipeline(source, sinks, parallelism=parallelism)
        require_java()
        with pyspark_needed():
            from penstock import spark as engine
        interrupted = False
        with Board(as_json) as board:
            board.say(f"starting Spark on {master or f'an embedded cluster of {nodes} nodes'}")
            where = master or engine.embedded(nodes)
            with engine.cluster(where) as spark:
                board.say("warming up the workers")
                with engine.start(
                    pipeline,
                    spark,
                    strategy,
                    listener=board.show,
                    on_decision=board.decided,
                    control=settings if adapt else None,
                    checkpoint=checkpoint,
                    store=store,
                    seed=seed,
                    state=state,
                    data=data,
                    parity=parity,
                    backup_every=backup_every,
                    faults=faults,
                ) as running:
                    board.plan(running.plan)
                    try:
                        while not running.await_end(0.2):
                            board.tick(running.elapsed_s)
                    except KeyboardInterrupt:
                        interrupted = True
                        board.say("stopping after the batch that is running")
                        running.stop()
                    records = running.records()
        summary = summarise(records)
        write_report(records, report)
        if as_json:
            typer.echo(json.dumps(summary))
        else:
            board.summary(summary, report)
        if interrupted:
            raise typer.Exit(INTERRUPTED)
        if summary["rows_lost"] or summary["rows_duplicated"]:
            say("penstock: rows were lost or duplicated")
            raise typer.Exit(1)
