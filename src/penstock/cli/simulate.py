"""``penstock simulate``: run a topology under a strategy in virtual time."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from penstock.apps import apps
from penstock.cli.checks import check_file
from penstock.cli.exits import BAD_INPUT, clean_exit, say
from penstock.cli.options import DEFAULT_NODES, ClusterFile, JsonEach, Rate, Strategies, Zipf
from penstock.cli.progress import Progress
from penstock.engine.job_graph import JobGraph
from penstock.files import load_cluster, load_topology
from penstock.model import Cluster, InvalidValue, Measurements, Topology, expand
from penstock.model.sizing import sized_for
from penstock.pipeline.sources.rates import Profile
from penstock.planning import chosen
from penstock.runtimes.sim import CostProfile, KeySpace, Workload, load_costs, parse_fault, simulate
from penstock.runtimes.sim.report import rows, write
from penstock.runtimes.sim.workload import scaled
from penstock.strategies import strategies

HELP = """Simulate a topology on a cluster of any size, in virtual time.

TOPOLOGY is a file, or the name of an application from 'penstock apps'. Faults are
kill-node@t=60, slow-node@t=60:factor=0.5, heal-node@t=90:node=NAME and add-node@t=60:count=2;
without a node they hit the busiest. Exit codes: 0 fine, 2 bad input.

\b
Examples:
  penstock simulate wordcount --nodes 8 --rate steps:20000x60,60000x60
  penstock simulate examples/portrait.yaml --cluster examples/lab.yaml --rate 500 --rate-scale 10
  penstock simulate wordcount --nodes 8 --strategy even,ra --fault kill-node@t=60 --report sim.html
"""


def simulate_command(
    topology: Annotated[
        str,
        typer.Argument(
            metavar="TOPOLOGY", help="A file, or an application's name.", show_default=False
        ),
    ],
    cluster: ClusterFile = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes",
            metavar="N",
            help="N equal nodes, sized for the first rate before --rate-scale. Without --cluster "
            f"and --nodes, N is {DEFAULT_NODES}.",
            show_default=False,
        ),
    ] = None,
    rate: Rate = "1000",
    rate_scale: Annotated[
        float, typer.Option("--rate-scale", metavar="X", help="Multiply all rates, for what-if.")
    ] = 1.0,
    strategy: Strategies = "penstock",
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="S", help="Virtual time to simulate.")
    ] = 120.0,
    every: Annotated[
        float,
        typer.Option("--every", metavar="S", help="The loop evaluates so often; 0: never."),
    ] = 10.0,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault", metavar="FAULT", help="What goes wrong; may be repeated.", show_default=False
        ),
    ] = None,
    zipf: Zipf = 1.0,
    parallelism: Annotated[
        int | None,
        typer.Option(
            "--parallelism",
            metavar="N",
            help="Instances of an application's steps; by default as many as nodes.",
            show_default=False,
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(
            "--costs",
            metavar="FILE",
            help="Cost profile, in YAML or JSON. By default micro-batches as on Spark for an "
            "application, tuple at a time for a file.",
            show_default=False,
        ),
    ] = None,
    drop: Annotated[
        bool, typer.Option("--drop", help="Drop what full queues cannot take, and count it.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Equal seeds, equal runs.")] = 0,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="FILE", help="Write an HTML page with plots.", show_default=False
        ),
    ] = None,
    as_json: JsonEach = False,
) -> None:
    """Simulate; see `HELP`."""
    with clean_exit():
        if cluster is not None and nodes is not None:
            say("penstock: --cluster and --nodes exclude each other; give one of them")
            raise typer.Exit(BAD_INPUT)
        for name, value in (("seconds", seconds), ("rate-scale", rate_scale)):
            if not (math.isfinite(value) and value > 0):
                raise InvalidValue(name, "a simulation", "more than 0", value)
        if not (math.isfinite(every) and every >= 0):
            raise InvalidValue("every", "a simulation", "at least 0", every)
        if seed < 0:
            raise InvalidValue("seed", "a simulation", "a whole number of at least 0", seed)
        check_file("--report", report)
        names = chosen(strategy)
        profile = Profile.parse(rate)
        faults = [parse_fault(text) for text in fault or []]
        model = load_costs(costs) if costs is not None else _costs(topology)
        count = DEFAULT_NODES if nodes is None else nodes
        if count < 1:
            raise InvalidValue("nodes", "a simulation", "a whole number of at least 1", count)
        there = load_cluster(cluster) if cluster is not None else None
        graph = _topology(topology, profile, zipf, parallelism or len(there or range(count)))
        graph.require_runnable()
        base = Workload.even(graph, profile, KeySpace(zipf=zipf, seed=seed))
        there = there or _sized(graph, base, count)
        workload = Workload.even(graph, scaled(profile, rate_scale), base.keys)
        runs = []
        interval_s = 1.0 if seconds <= 7200 else 10.0
        with Progress(len(names), doing="simulating") as progress:
            for name in names:
                progress.now(name)
                runs.append(
                    simulate(
                        graph,
                        there,
                        strategies.make(name),
                        workload,
                        seconds=seconds,
                        every_s=every,
                        costs=model,
                        faults=faults,
                        drop=drop,
                        seed=seed,
                        interval_s=interval_s,
                        watch=lambda at_s, name=name: progress.detail(  # type: ignore[misc]
                            f"{name} at {at_s:,.0f} s"
                        ),
                    )
                )
                if as_json:
                    typer.echo(json.dumps(runs[-1].summary(), allow_nan=False))
        settings = {
            "topology": topology,
            "nodes": len(there),
            "rate": rate,
            "rate_scale": rate_scale,
            "seconds": seconds,
            "every_s": every,
            "faults": [str(f) for f in faults],
            "zipf": zipf,
            "drop": drop,
            "seed": seed,
            "costs": model.to_dict(),
        }
        if not as_json:
            _show(graph, there, rows(runs))
        if report is not None:
            write(report, f"{graph.name}, simulated", runs, settings)
            say(f"report in {report}")


def _is_file(name: str) -> bool:
    return bool(Path(name).suffix) or "/" in name


def _costs(topology: str) -> CostProfile:
    return CostProfile() if _is_file(topology) else CostProfile.spark()


def _topology(name: str, profile: Profile, zipf: float, parallelism: int) -> Topology:
    if _is_file(name):
        return load_topology(name)
    app = apps.make(name)
    return JobGraph.of(app.pipeline(app.source(profile, zipf=zipf))).topology(parallelism)


def _sized(topology: Topology, workload: Workload, count: int) -> Cluster:
    rates = {name: profile.rate(0.0) for name, profile in workload.rates.items()}
    return sized_for(expand(topology, Measurements(source_rates=rates)), count)


def _show(topology: Topology, cluster: Cluster, cells: list[list[str]]) -> None:
    instances = int(np.sum(list(topology.parallelism.values())))
    console = Console()
    console.print(
        f"topology {topology.name}: {len(topology.operators)} operators, {instances} instances; "
        f"cluster: {len(cluster)} nodes, {cluster.cpu_cores.sum():.4g} cores",
        highlight=False,
    )
    head, *body = cells
    if len(body) == 1:
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column("figure")
        table.add_column("value", justify="right")
        for name, value in zip(head, body[0], strict=True):
            table.add_row(name, value)
    else:
        table = Table(box=None, pad_edge=False)
        table.add_column("figure")
        for row in body:
            table.add_column(row[0], justify="right")
        for i, name in enumerate(head[1:], 1):
            table.add_row(name, *(row[i] for row in body))
    console.print(table)
