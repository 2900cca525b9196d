"""A scenario on Spark, as an entry of a comparison: in a process and on a cluster of its own.

What one strategy leaves behind, be it executors that it released, code that the JVM has compiled or
blocks that it has cached, must not help or hinder the next.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from penstock.experiments.compare.scenario import Scenario, Tell
from penstock.model import PenstockError
from penstock.pipeline.sinks import Discard
from penstock.pipeline.steps import Sink
from penstock.report.comparison import Entry, entry_of
from penstock.runtimes.spark.query import start
from penstock.runtimes.spark.session import cluster, embedded
from penstock.store.records import RunRecords
from penstock.store.store import MetricsStore

#: Seconds that a process gets to stop its batch and its cluster before it is killed.
GRACE_S = 90.0

#: Lines of a process's output that are told when it ends without a word.
LAST_LINES = 3

#: Runs a scenario into a metrics store.
Work = Callable[[Scenario, str, str, Tell], None]


def on_spark(scenario: Scenario, strategy: str, tell: Tell) -> Entry:
    """Run a scenario on an embedded cluster; what a run that fails did until then is kept."""
    return measured(scenario, strategy, tell, run_once)


def measured(scenario: Scenario, strategy: str, tell: Tell, work: Work) -> Entry:
    """Let a process of its own do the work, and read what it wrote down."""
    with tempfile.TemporaryDirectory(prefix="penstock-compare-") as folder:
        store = Path(folder) / "metrics.sqlite"
        failure = _in_process(work, scenario, strategy, Path(folder), tell)
        records = _read(store)
        if failure and (records is None or not records.batches):
            raise PenstockError(failure)
        if records is None:
            raise PenstockError("nothing was written down")
        return replace(entry_of(records), failure=failure)


def run_once(scenario: Scenario, strategy: str, store: str, tell: Tell) -> None:
    """Start a cluster, run the scenario on it until its end, and stop it."""
    app = scenario.made
    rows = scenario.profile.position(scenario.seconds)
    source = app.source(scenario.profile, zipf=scenario.zipf, seed=scenario.seed, rows=rows)
    # What comes out is counted; keeping it would fill the memory of a long run.
    sinks: dict[str, Sink] = {name: Discard() for name in app.keys}
    pipeline = app.pipeline(source, sinks)
    tell(f"starting Spark on an embedded cluster of {scenario.nodes} nodes")
    with cluster(embedded(scenario.nodes)) as spark:
        tell("warming up the workers")
        with start(pipeline, spark, strategy, store=store, seed=scenario.seed) as run:
            while not run.await_termination(0.5):
                status = run.status
                at_s = min(status.elapsed_s, scenario.seconds)
                tell(
                    f"at {at_s:.0f} s of {scenario.seconds:.0f} s, {status.nodes_used} nodes in use"
                )
            tell("stopping")


def _in_process(work: Work, scenario: Scenario, strategy: str, folder: Path, tell: Tell) -> str:
    """Return why it failed; empty when it did not."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(work, scenario, strategy, str(folder), there))
    process.start()
    there.close()
    try:
        while True:
            kind, text = here.recv()
            if kind != "doing":
                break
            tell(text)
        process.join(GRACE_S)
    except EOFError:
        process.join(GRACE_S)
        lines = (folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()
        last = " | ".join(lines[-LAST_LINES:])
        return f"its process ended with code {process.exitcode}: {last}"
    finally:
        if process.is_alive():
            process.terminate()
            process.join(GRACE_S)
        if process.is_alive():
            process.kill()
            process.join()
        here.close()
    return str(text)


def _child(work: Work, scenario: Scenario, strategy: str, folder: str, told: Connection) -> None:
    """Work in a process that only its parent stops, and whose output is kept in a file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupted)
    log = os.open(str(Path(folder) / "log"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        store = str(Path(folder) / "metrics.sqlite")
        work(scenario, strategy, store, lambda text: told.send(("doing", text)))
    except PenstockError as error:
        told.send(("failed", str(error)))
    except Exception as error:  # noqa: BLE001 - handed to the parent
        told.send(("failed", f"{type(error).__name__}: {error}"))
    else:
        told.send(("done", ""))


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _read(store: Path) -> RunRecords | None:
    if not store.exists():
        return None
    with MetricsStore.open(store, read_only=True) as opened:
        latest = opened.latest_run()
        return opened.read(latest.id) if latest is not None else None
