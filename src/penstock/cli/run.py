"""``penstock run``: an application on Spark, watched while it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from penstock.cli.exits import Stop, clean_exit, deferred, running, say, stopped
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
from penstock.cli.run_options import (
    Adapt,
    BackupEvery,
    Checkpoint,
    Control,
    DataFragments,
    Faults,
    Input,
    MaxNodes,
    MinNodes,
    Nodes,
    Output,
    ParityFragments,
    RecommendOnly,
    Report,
    StateArguments,
    StateMode,
    Store,
    Strategy,
    Verbose,
)
from penstock.cli.scratch import scratch
from penstock.faults.fault import KINDS
from penstock.report.page import write_report
from penstock.report.summary import summarise
from penstock.store.records import RunRecords

HELP = f"""Run an application on Spark under a strategy, and report what was measured.

Without --master an embedded cluster is started: one process for each node. The profile of --rate
says how many tuples a second come: 2000, steps:1800x20,3000x20, sine:1000..5000/60,
square:1000,4000/30 or file:PATH.

Faults are scripted as KIND@batch=N, with options as in scale@batch=5:to=7. They are real: processes
of this machine are killed, files are changed. The kinds are {", ".join(KINDS)}.

Ctrl-C and SIGTERM stop it after the batch that is running; with --checkpoint the next run goes on
from there.

Exit codes: 0 fine, 1 rows lost or duplicated, 2 bad input, 3 a failed run, 130 interrupted,
143 terminated.

\b
Examples:
  penstock run wordcount
  penstock run commcount --rate square:2000,8000/20 --zipf 1.2 --seconds 60
  penstock run wordcount --strategy even --nodes 3 --json
  penstock run wordcount --parity-fragments 2 --fault kill-executor@batch=7:count=2
"""


@dataclass(frozen=True)
class RunArguments:
    """All that was asked for on the command line."""

    input: Input
    nodes: Nodes
    control: Control
    state: StateArguments
    output: Output


def run(
    app: App,
    strategy: Strategy = "penstock",
    rate: Rate = "2000",
    seconds: Seconds = 60.0,
    master: Master = None,
    nodes: EmbeddedNodes = DEFAULT_NODES,
    zipf: Zipf = 1.0,
    parallelism: Parallelism = None,
    seed: InputSeed = 0,
    checkpoint: Checkpoint = None,
    store: Store = None,
    report: Report = Path("penstock-report.html"),
    min_nodes: MinNodes = 0,
    max_nodes: MaxNodes = 0,
    recommend_only: RecommendOnly = False,
    adapt: Adapt = True,
    state: StateMode = None,
    data: DataFragments = 7,
    parity: ParityFragments = 1,
    backup_every: BackupEvery = 8,
    fault: Faults = None,
    verbose: Verbose = False,
    as_json: JsonAtEnd = False,
) -> None:
    """Run an application; see `HELP`."""
    asked = RunArguments(
        Input(app, rate, seconds, zipf, seed, parallelism),
        Nodes(master, nodes),
        Control(strategy, min_nodes, max_nodes, recommend_only, adapt),
        StateArguments(checkpoint, state, data, parity, backup_every, tuple(fault or ())),
        Output(store, report, as_json),
    )
    with clean_exit(verbose=verbose):
        _run(asked)


def _run(asked: RunArguments) -> None:
    """Check everything, run it, and report; what is wrong is said before Spark is started."""
    pipeline = asked.input.pipeline()
    settings, faults, state = asked.control.settings(), asked.state.check(), asked.state
    asked.nodes.check()
    asked.output.check()
    require_java()
    with pyspark_needed():
        from penstock import spark as engine
        from penstock.runtimes.spark.options import Options, StateOptions
        from penstock.runtimes.spark.query import Query, launch
    options = Options(
        checkpoint=state.checkpoint,
        store=asked.output.store,
        seed=asked.input.seed,
        state=StateOptions(
            mode=state.mode,
            data=state.data,
            parity=state.parity,
            backup_every=state.backup_every,
        ),
        control=settings,
    )
    with running(), deferred() as stop, scratch(), Board(asked.output.as_json) as board:
        board.say(f"starting Spark on {asked.nodes}")
        with engine.cluster(asked.nodes.master or engine.embedded(asked.nodes.count)) as spark:
            stop.check()
            board.say("warming up the workers")
            loop = launch(
                pipeline, spark, asked.control.strategy, options, board.show, board.decided, faults
            )
            with Query(loop) as started:
                _watch(started, board, stop)
                records = started.records()
    _report(records, asked.output, board, stop.asked)


def _watch(started: Any, board: Board, stop: Stop) -> None:
    """Wait for the end of the run, or stop it after the batch that is running."""
    board.plan(started.plan)
    while stop.asked is None and not started.await_termination(0.2):
        board.tick(started.status.elapsed_s)
    if stop.asked is not None:
        board.say("stopping after the batch that is running")
        started.stop()


def _report(
    records: RunRecords, output: Output, board: Board, stop: KeyboardInterrupt | None
) -> None:
    """Write what came of it, and end with the code that says how it went."""
    summary = summarise(records)
    write_report(records, output.report)
    if output.as_json:
        typer.echo(json.dumps(summary))
    else:
        board.summary(summary, output.report)
    if stop is not None:
        raise stopped(stop)
    if summary["rows_lost"] or summary["rows_duplicated"]:
        say("penstock: rows were lost or duplicated, exit code 1")
        raise typer.Exit(1)
