"""``penstock chaos``: random faults and moves, and results that must be equal to the row."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.apps import apps
from penstock.cli.chaos_record import ChaosRecord
from penstock.cli.checks import check_nodes
from penstock.cli.exits import (
    INFEASIBLE,
    UNFINISHED,
    Stop,
    clean_exit,
    deferred,
    running,
    say,
)
from penstock.cli.java import pyspark_needed, require_java
from penstock.cli.options import EmbeddedNodes, JsonAtEnd
from penstock.cli.run_options import Verbose
from penstock.cli.scratch import scratch
from penstock.faults.schedules import Schedule, matrix, schedules
from penstock.model import InvalidValue, NotAllowed

if TYPE_CHECKING:
    from penstock.experiments.chaos_trial import TrialOutcome

HELP = """Run applications under random faults and moves, and compare every result to the row.

A seed gives a series of schedules: executors and workers are killed and stopped for a while,
operators move and change their parallelism, fragments of state are corrupted and removed, the clock
is set back, as much at once as the state should survive. All run on one embedded cluster of this
machine. A schedule that fails is shown with its seed and its history.

With --keep what came of each run is kept in a file, and a run that it says ended equal is not run
again: call the command once more to go on. With --minutes no run is begun after so many minutes.

With --matrix the kinds of faults come one by one, further ones included: drivers that are killed or
stopped, a standalone cluster whose worker or master is killed, a full disk, a read-only checkpoint,
and ten times the load that a run can take.

Exit codes: 0 all results equal, 1 some schedule failed, 2 bad input, 3 no cluster, 4 some runs were
not begun in time, 130 interrupted, 143 terminated.

\b
Examples:
  penstock chaos
  penstock chaos wordcount --schedules 5 --seed 7
  penstock chaos --seed 7 --only 3
  penstock chaos --schedules 100 --keep schedules.jsonl --minutes 10
  penstock chaos --matrix --json
  penstock chaos --matrix --kind pause-driver
"""


def chaos(
    app: Annotated[
        str | None,
        typer.Argument(metavar="[APP]", help="Application; all of them in turn without it."),
    ] = None,
    count: Annotated[
        int, typer.Option("--schedules", metavar="N", help="How many schedules to run.")
    ] = 20,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Equal seeds, equal schedules; or drawn anew."),
    ] = None,
    only: Annotated[
        int | None,
        typer.Option("--only", metavar="N", help="Run schedule N of the seed alone, from 0."),
    ] = None,
    nodes: EmbeddedNodes = 4,
    full: Annotated[
        bool,
        typer.Option(
            "--matrix", help="Instead: each kind of fault, no chance; most for each application."
        ),
    ] = False,
    kind: Annotated[
        str,
        typer.Option("--kind", metavar="NAME", help="With --matrix: this row of it alone."),
    ] = "",
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="FILE", help="Note each run, and go on from there."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", metavar="N", help="Begin no run after so many minutes."),
    ] = None,
    verbose: Verbose = False,
    as_json: JsonAtEnd = False,
) -> None:
    """Run schedules; see `HELP`."""
    with clean_exit(verbose=verbose):
        names = [apps.make(app).name] if app else list(apps.names())
        _check_numbers(schedules=count, seed=seed, only=only)
        deadline = _deadline(minutes)
        if kind and not full:
            raise NotAllowed("--kind names a row of the matrix; give --matrix with it")
        record = ChaosRecord(keep)
        seed = record.seed if seed is None else seed
        seed = secrets.randbelow(1_000_000) if seed is None else seed
        last = count if only is None else only + 1
        chosen = matrix(names, kind) if full else schedules(seed, last, names, nodes)[only:]
        check_nodes(nodes, least=3)
        require_java()
        runs = _Runs(record.left(chosen), len(chosen), None if full else seed)
        say(runs.told(nodes))
        if runs.left:
            with running(), deferred() as stop, scratch():
                for outcome in _outcomes(runs.left, nodes, stop, deadline):
                    record.add(outcome.to_dict(), runs.seed)
                    runs.ended(outcome)
        runs.sum_up(as_json)


def _deadline(minutes: float | None) -> float:
    """Return when the last run may begin."""
    if minutes is not None and not minutes > 0:
        raise InvalidValue("minutes", "chaos", "a number above 0", minutes)
    return math.inf if minutes is None else time.monotonic() + 60.0 * minutes


def _check_numbers(**numbers: int | None) -> None:
    for name, value in numbers.items():
        least = int(name == "schedules")
        if (value or 0) < least:
            raise InvalidValue(name, "chaos", f"a whole number of at least {least}", value)


class _Runs:
    """The runs of one call: those that are left, and what came of them."""

    def __init__(self, left: list[Schedule], total: int, seed: int | None) -> None:
        self.left, self.total, self.seed = left, total, seed
        self.before = total - len(left)
        self.outcomes: list[TrialOutcome] = []

    def told(self, nodes: int) -> str:
        """Say what will be run."""
        seed = "" if self.seed is None else f", seed {self.seed}"
        before = f"; {self.before} of them ended equal before" if self.before else ""
        return f"{self.total} runs on {nodes} nodes{seed}{before}"

    def ended(self, outcome: TrialOutcome) -> None:
        """Tell what came of a run."""
        self.outcomes.append(outcome)
        verdict = "equal" if outcome.passed else "FAILED"
        number = f"{self.before + len(self.outcomes)}/{self.total}"
        say(f"{number} {verdict} in {outcome.seconds:g} s: {outcome.schedule}")
        if outcome.passed:
            return
        unequal = ", ".join(name for name, equal in outcome.equal.items() if not equal)
        say(f"  {outcome.error or f'not what it must be: {unequal}'}")
        for line in outcome.happened:
            say(f"  {line}")

    def sum_up(self, as_json: bool) -> None:
        """Print what came of all runs, and end with the code that says it."""
        failed = sum(not outcome.passed for outcome in self.outcomes)
        unbegun = len(self.left) - len(self.outcomes)
        if as_json:
            outcomes = [outcome.to_dict() for outcome in self.outcomes]
            typer.echo(json.dumps({"seed": self.seed, "outcomes": outcomes, "unbegun": unbegun}))
        else:
            equal = self.before + len(self.outcomes) - failed
            rest = f"; {unbegun} were not begun in time" if unbegun else ""
            typer.echo(f"{equal} of {self.total} equal to the row{rest}")
        if failed or unbegun:
            raise typer.Exit(INFEASIBLE if failed else UNFINISHED)


def _outcomes(
    chosen: list[Schedule], nodes: int, stop: Stop, deadline: float
) -> Iterator[TrialOutcome]:
    with pyspark_needed():
        from penstock import spark as engine
        from penstock.experiments.chaos_processes import MEMORY_MB, outcome_of
        from penstock.experiments.chaos_trial import TRIAL_CONF
    with engine.cluster(engine.embedded(nodes, 1, MEMORY_MB), conf=TRIAL_CONF) as spark:
        for schedule in chosen:
            stop.check()
            if time.monotonic() > deadline:
                return
            yield outcome_of(spark, schedule, nodes)
