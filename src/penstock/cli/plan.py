"""``penstock plan``: ask one strategy, or several, where the instances of a topology should run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.checks import check_file
from penstock.cli.exits import INFEASIBLE, clean_exit, say
from penstock.cli.options import DEFAULT_NODES, ClusterFile, JsonEach, Strategies
from penstock.cli.progress import ProgressBar
from penstock.cli.show import show_comparison, show_outcome, show_request
from penstock.files import FileError, load_topology, save_plan
from penstock.model import PenstockError
from penstock.planning import PlanOutcome, ask, chosen, request
from penstock.strategies import Request

HELP = """Plan where the instances of a topology run, and say why.

Exit codes: 0 fine, 1 infeasible (of several strategies: none is feasible), 2 bad input.

\b
Examples:
  penstock plan examples/wordcount.yaml --nodes 4
  penstock plan examples/portrait.yaml --cluster examples/lab.yaml --strategy all
  penstock plan examples/wordcount.yaml --strategy even,rstorm --seed 7 --json
"""


TopologyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="Topology, in YAML or JSON.", show_default=False)
]

SizedNodes = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        metavar="N",
        help="Plan for N equal nodes, sized so that the topology fits: spread evenly it takes "
        f"70 % of each. Without --cluster and --nodes, N is {DEFAULT_NODES}.",
        show_default=False,
    ),
]

ExactNodes = Annotated[
    bool,
    typer.Option(
        "--exact-nodes", help="Every strategy must use all nodes, so that cuts can be compared."
    ),
]

Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Equal seeds give equal plans.")]

MeasurementsFile = Annotated[
    Path | None,
    typer.Option(
        "--measurements",
        metavar="FILE",
        help="What was measured, in YAML or JSON; it replaces the topology's estimates.",
        show_default=False,
    ),
]

Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Save the plan as JSON; for one strategy only.",
        show_default=False,
    ),
]


def plan(
    file: TopologyFile,
    cluster: ClusterFile = None,
    nodes: SizedNodes = None,
    exact_nodes: ExactNodes = False,
    strategy: Strategies = "penstock",
    seed: Seed = 0,
    measurements: MeasurementsFile = None,
    out: Out = None,
    as_json: JsonEach = False,
) -> None:
    """Plan where the instances of a topology run; see `HELP`."""
    with clean_exit():
        if cluster is not None and nodes is not None:
            raise PenstockError("--cluster and --nodes exclude each other; give one of them")
        check_file("--out", out)
        names = chosen(strategy)
        if out is not None and len(names) > 1:
            raise FileError(str(out), "can hold one plan, and several strategies were asked for")
        topology = load_topology(file)
        for warning in topology.warnings:
            say(f"warning: {warning} (can be planned, cannot run)")
        count = DEFAULT_NODES if nodes is None else nodes
        base = request(
            topology,
            cluster if cluster is not None else count,
            seed=seed,
            measurements=measurements,
            exact_nodes=exact_nodes,
        )
        if not as_json:
            show_request(base, None if cluster is not None else count)
        outcomes = _asked(base, names, seed, as_json)
        if out is not None and outcomes[0].plan is not None:
            save_plan(outcomes[0].plan, out)
            say(f"saved to {out}")
    if not any(outcome.feasible for outcome in outcomes):
        raise typer.Exit(INFEASIBLE)


def _asked(base: Request, names: tuple[str, ...], seed: int, as_json: bool) -> list[PlanOutcome]:
    """Ask the strategies one after the other, and show what they answer."""
    outcomes: list[PlanOutcome] = []
    with ProgressBar(len(names)) as progress:
        for name in names:
            progress.now(name)
            outcomes.append(ask(base, name, seed))
            if as_json:
                typer.echo(json.dumps(outcomes[-1].to_dict(), allow_nan=False))
    if not as_json:
        for outcome in outcomes:
            show_outcome(outcome)
        if len(outcomes) > 1:
            show_comparison(outcomes)
    return outcomes
