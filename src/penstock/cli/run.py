"""``penstock run``: an application on Spark, watched while it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from penstock.cli.assignments import Assignments
from penstock.cli.exits import Stop, clean_exit, deferred, running, say, stopped
from penstock.cli.java import pyspark_needed, require_java
from penstock.cli.live import Board
from penstock.cli.options import (
    DEFAULT_NODES,
    EmbeddedNodes,
    InputSeed,
    JsonAtEnd,
    Master,
    Parallelism,
    Rate,
    Seconds,
    Zipf,
)
from penstock.cli.page import KeepPage, Page, paged
from penstock.cli.run_options import (
    Adapt,
    BackupEvery,
    Checkpoint,
    Control,
    DataFragments,
    Faults,
    Input,
    Job,
    MaxNodes,
    MinNodes,
    Nodes,
    Output,
    ParityFragments,
    Processes,
    RecommendOnly,
    Report,
    Set,
    StateArguments,
    StateMode,
    Store,
    Strategy,
    Verbose,
)
from penstock.cli.scratch import scratch
from penstock.control.settings import Settings
from penstock.faults.fault import KINDS
from penstock.pipeline.builder import Pipeline
from penstock.report.summary import summarise
from penstock.runtimes.spark.options import Options, QueueOptions, RecoveryOptions, StateOptions
from penstock.store.records import RunRecords
from penstock.strategies import strategies
from penstock.web.report import write_report

HELP = f"""Run an application, or a pipeline of your own, on Spark, and report what was measured.

JOB.py holds a Pipeline called 'pipeline', or a function of that name that returns one; JOB.py:NAME
names another. The keywords of a function are set by --set; one called spark gets the session. Such
a pipeline runs until its sources end: --rate, --seconds, --zipf and --parallelism are for
applications.

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
  penstock run wordcount --page
  penstock run jobs/words.py:counts --set queue.size=50000
  penstock run topn --strategy ra --set polish=0
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
    values: tuple[str, ...] = ()


def run(
    app: Job,
    strategy: Strategy = "penstock",
    rate: Rate = "2000",
    seconds: Seconds = 60.0,
    master: Master = None,
    nodes: EmbeddedNodes = DEFAULT_NODES,
    processes: Processes = 1,
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
    page: Page = None,
    keep_page: KeepPage = None,
    assign: Set = None,
    verbose: Verbose = False,
    as_json: JsonAtEnd = False,
) -> None:
    """Run an application; see `HELP`."""
    asked = RunArguments(
        Input(app, rate, seconds, zipf, seed, parallelism),
        Nodes(master, nodes, processes),
        Control(strategy, min_nodes, max_nodes, recommend_only, adapt),
        StateArguments(checkpoint, state, data, parity, backup_every, tuple(fault or ())),
        Output(store, report, as_json),
        tuple(assign or ()),
    )
    with clean_exit(verbose=verbose), paged(page, keep_page, store) as kept:
        _run(replace(asked, output=Output(kept, report, as_json)))


def _run(asked: RunArguments) -> None:
    """Check everything, run it, and report; what is wrong is said before Spark is started."""
    strategy_part = strategies.get(asked.control.strategy)
    values = Assignments.of(asked.values, {**asked.input.takes(), "strategy": strategy_part})
    strategy = strategies.make(asked.control.strategy, **values.part("strategy"))
    pipeline = asked.input.pipeline(values.part("app"))
    settings = asked.control.settings(values.part("loop"))
    faults = asked.state.check(asked.nodes.master)
    options = _options(asked, values, settings)
    asked.nodes.check()
    asked.output.check()
    require_java()
    with pyspark_needed():
        from penstock import spark as engine
        from penstock.runtimes.spark.query import Query, launch
    with running(), deferred() as stop, scratch(), Board(asked.output.as_json) as board:
        board.say(f"starting Spark on {asked.nodes}")
        where = asked.nodes
        master = where.master or engine.embedded(where.count, processes=where.processes)
        with engine.cluster(master, processes=where.processes) as spark:
            stop.check()
            board.say("warming up the workers")
            job = pipeline if isinstance(pipeline, Pipeline) else pipeline(spark)
            loop = launch(job, spark, strategy, options, board.show, board.decided, faults)
            with Query(loop) as started:
                _watch(started, board, stop)
                records = started.records()
    _report(records, asked.output, board, stop.asked)


def _options(asked: RunArguments, values: Assignments, settings: Settings | None) -> Options:
    """Put the options of the run together, or say what is wrong with them."""
    state = asked.state
    return Options(
        checkpoint=state.checkpoint,
        store=asked.output.store,
        seed=asked.input.seed,
        state=StateOptions(
            mode=state.mode,
            data=state.data,
            parity=state.parity,
            backup_every=state.backup_every,
            **values.part("state"),
        ),
        queue=QueueOptions(**values.part("queue")),
        recovery=RecoveryOptions(**values.part("recovery")),
        control=settings,
        **values.part("engine"),
    )


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
