"""``penstock chaos``: random faults and moves, and results that must be equal to the row."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.apps import apps
from penstock.cli.checks import check_nodes
from penstock.cli.exits import Stop, clean_exit, deferred, running, say
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

With --matrix the kinds of faults come one by one, further ones included: drivers that are killed or
stopped, a standalone cluster whose worker or master is killed, a full disk, a read-only checkpoint,
and ten times the load that a run can take.

Exit codes: 0 all results equal, 1 some schedule failed, 2 bad input, 3 no cluster, 130 interrupted,
143 terminated.

\b
Examples:
  penstock chaos
  penstock chaos wordcount --schedules 5 --seed 7
  penstock chaos --seed 7 --only 3
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
    verbose: Verbose = False,
    as_json: JsonAtEnd = False,
) -> None:
    """Run schedules; see `HELP`."""
    with clean_exit(verbose=verbose):
        names = [apps.make(app).name] if app else list(apps.names())
        for name, value in (("schedules", count), ("seed", seed or 0), ("only", only or 0)):
            if value < int(name == "schedules"):
                allowed = f"a whole number of at least {int(name == 'schedules')}"
                raise InvalidValue(name, "chaos", allowed, value)
        seed = secrets.randbelow(1_000_000) if seed is None else seed
        if kind and not full:
            raise NotAllowed("--kind names a row of the matrix; give --matrix with it")
        if full:
            chosen = matrix(names, kind)
        else:
            chosen = schedules(seed, count if only is None else only + 1, names, nodes)
            chosen = chosen if only is None else chosen[only:]
        check_nodes(nodes, least=3)
        require_java()
        outcomes = []
        total = len(chosen)
        say(f"{total} runs on {nodes} nodes" + ("" if full else f", seed {seed}"))
        with running(), deferred() as stop, scratch():
            for outcome in _outcomes(chosen, nodes, stop):
                outcomes.append(outcome)
                _tell(outcome, len(outcomes), total)
        _sum_up(outcomes, total, None if full else seed, as_json)


def _sum_up(outcomes: list[TrialOutcome], total: int, seed: int | None, as_json: bool) -> None:
    """Print what came of all runs, and end with the code that says it."""
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if as_json:
        typer.echo(json.dumps({"seed": seed, "outcomes": [o.to_dict() for o in outcomes]}))
    else:
        typer.echo(f"{len(outcomes) - len(failed)} of {total} equal to the row")
    if failed:
        raise typer.Exit(1)


def _outcomes(chosen: list[Schedule], nodes: int, stop: Stop) -> Iterator[TrialOutcome]:
    with pyspark_needed():
        from penstock import spark as engine
        from penstock.experiments.chaos_processes import MEMORY_MB, outcome_of
        from penstock.experiments.chaos_trial import SOON_NOTICED
    with engine.cluster(engine.embedded(nodes, 1, MEMORY_MB), conf=SOON_NOTICED) as spark:
        for schedule in chosen:
            stop.check()
            yield outcome_of(spark, schedule, nodes)


def _tell(outcome: TrialOutcome, number: int, total: int) -> None:
    verdict = "equal" if outcome.passed else "FAILED"
    say(f"{number}/{total} {verdict} in {outcome.seconds:g} s: {outcome.schedule}")
    if outcome.passed:
        return
    unequal = ", ".join(name for name, equal in outcome.equal.items() if not equal)
    say(f"  {outcome.error or f'not what it must be: {unequal}'}")
    for line in outcome.happened:
        say(f"  {line}")
