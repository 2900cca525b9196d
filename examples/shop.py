"""A shop whose views are counted while its rate rises and falls: something to watch on the page.

``make run`` starts it. On an embedded cluster of Spark, whose nodes are processes of this machine,
items are counted that people look at. A few items are looked at far more often than the others, so
that their keys are split over several instances. The rate goes up and down again, and nodes come
and go with it. In the middle a node is killed for real, and the state that it held is restored.

Every view waits a little where it is counted, so that a node has a capacity of its own, however few
cores this machine has.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

import typer

from penstock import spark as engine
from penstock.apps.commcount import CommCount
from penstock.cli.exits import Stop, clean_exit, deferred, running
from penstock.cli.page import paged
from penstock.cli.scratch import scratch
from penstock.control.events import Event
from penstock.control.settings import Settings
from penstock.pipeline import Discard
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.spark.injector import executor_pid
from penstock.runtimes.spark.monitor import Observed
from penstock.runtimes.spark.options import Options
from penstock.runtimes.spark.query import Query, launch
from penstock.runtimes.spark.recorder import FAULT
from penstock.strategies.penstock import Penstock

#: Nodes at the most, and behaviours a second, one rate after the other.
NODES, RATES = 4, (600, 3000, 6000, 600)

#: Parts of the time that each rate has, and when a node is killed.
PARTS, KILLED_AT = (0.2, 0.15, 0.35, 0.3), 0.6

#: Wait for each view, in microseconds, and how skewed the items are.
COST_US, ZIPF = 150.0, 1.2


def say(text: str) -> None:
    """Write a line to stderr."""
    print(text, file=sys.stderr, flush=True)


def asked() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="length of the stream")
    parser.add_argument("--page", metavar="HOST:PORT", default="127.0.0.1", help="where to serve")
    parser.add_argument("--keep-page", type=float, metavar="S", help="as of penstock run")
    parser.add_argument("--store", metavar="STORE", help="keep the metrics here")
    return parser.parse_args()


def main() -> None:
    """Run the shop, with the page beside it."""
    given = asked()
    with (
        clean_exit(),
        scratch() as folder,
        paged(given.page, given.keep_page, given.store or str(folder / "metrics.sqlite")) as store,
    ):
        with running(), deferred() as stop:
            run(given.seconds, store, stop)
        if stop.asked is not None:
            raise stop.asked


def run(seconds: float, store: str | None, stop: Stop) -> None:
    """Count views for so long, or until somebody asks to stop."""
    steps = [f"{r}x{seconds * p:g}" for r, p in zip(RATES, PARTS, strict=True)]
    profile = Profile.parse("steps:" + ",".join(steps))
    app = CommCount(cost_us=COST_US, split=True, items=5_000)
    source = app.source(profile, zipf=ZIPF, rows=profile.position(seconds))
    pipeline = app.pipeline(
        source, {"counts": Discard()}, parallelism={"behaviors": 2, "count": 4, "count-parts": 6}
    )
    strategy = Penstock(most=0.4, overload=0.45, rounds=1)
    control = Settings(every=2, cooldown=3, stable_rounds=1, verify=1, max_nodes=NODES)
    say(f"starting Spark on an embedded cluster of {NODES} nodes")
    with engine.cluster(engine.embedded(NODES)) as spark:
        stop.check()
        killed: list[int] = []

        def watch(observed: Observed) -> None:
            """Tell of a batch now and then, and kill a node when it is time."""
            execution = loop.execution
            if observed.batch.batch % 20 == 0:
                batch = observed.batch
                say(f"batch {batch.batch}: {batch.rows_in} rows, {batch.nodes_used} nodes")
            if not killed and execution.elapsed_s > KILLED_AT * seconds:
                victim = max(i.executor for i in observed.instances if i.operator == "count")
                killed.append(executor_pid(spark.sparkContext.applicationId, victim))
                os.kill(killed[0], signal.SIGKILL)
                execution.recorder.event(FAULT, f"executor {victim} was killed, to be seen")

        def tell(event: Event) -> None:
            say(f"decision {event.number}, {event.status.value}: {event.text}")

        options = Options(store=store, control=control)
        loop = launch(pipeline, spark, strategy, options, watch, tell)
        with Query(loop) as query:
            while stop.asked is None and not query.await_termination(0.2):
                pass
            if stop.asked is not None:
                say("stopping after the batch that is running")
                query.stop()
            over = query.records().run
    say(f"{over.status.value}: {over.rows_lost} rows lost, {over.rows_duplicated} duplicated")


if __name__ == "__main__":
    try:
        main()
    except typer.Exit as end:
        sys.exit(end.exit_code)
