"""``penstock simulate``: run a topology under a strategy in virtual time."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from penstock.apps import apps
from penstock.cli.checks import check_file
from penstock.cli.exits import clean_exit, say
from penstock.cli.options import DEFAULT_NODES, ClusterFile, JsonEach, Rate, Strategies, Zipf
from penstock.cli.page import KeepPage, Page, paged
from penstock.cli.progress import ProgressBar
from penstock.cli.run_options import Store
from penstock.engine.job_graph import JobGraph
from penstock.files import load_cluster, load_topology
from penstock.model import Cluster, InvalidValue, Measurements, PenstockError, Topology, expand
from penstock.model.sizing import sized_for
from penstock.pipeline.sources.rates import Profile
from penstock.planning import chosen
from penstock.runtimes.sim import (
    CostProfile,
    KeySpace,
    SimulatedFault,
    SimulatedRun,
    Workload,
    load_costs,
    parse_fault,
    simulate,
)
from penstock.runtimes.sim.recorder import SimulationRecorder
from penstock.runtimes.sim.report import rows, write
from penstock.runtimes.sim.workload import scaled
from penstock.store.store import MetricsStore
from penstock.strategies import strategies

HELP = """Simulate a topology on a cluster of any size, in virtual time.

TOPOLOGY is a file, or the name of an application from 'penstock apps'. Faults are
kill-node@t=60, slow-node@t=60:factor=0.5, heal-node@t=90:node=NAME and add-node@t=60:count=2;
without a node they hit the busiest. Exit codes: 0 fine, 2 bad input.

\b
Examples:
  penstock simulate wordcount --nodes 8 --rate steps:20000x60,60000x60
  penstock simulate examples/portrait.yaml --cluster examples/lab.yaml --rate 500 --rate-scale 10
  penstock simulate wordcount --nodes 8 --store sim.sqlite
  penstock simulate wordcount --nodes 8 --strategy even,ra --fault kill-node@t=60 --report sim.html
"""


TopologyName = Annotated[
    str,
    typer.Argument(
        metavar="TOPOLOGY", help="A file, or an application's name.", show_default=False
    ),
]

SizedNodes = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        metavar="N",
        help="N equal nodes, sized for the first rate before --rate-scale. Without --cluster "
        f"and --nodes, N is {DEFAULT_NODES}.",
        show_default=False,
    ),
]

RateScale = Annotated[
    float, typer.Option("--rate-scale", metavar="X", help="Multiply all rates, for what-if.")
]

VirtualSeconds = Annotated[
    float, typer.Option("--seconds", metavar="S", help="Virtual time to simulate.")
]

Every = Annotated[
    float, typer.Option("--every", metavar="S", help="The loop evaluates so often; 0: never.")
]

Faults = Annotated[
    list[str] | None,
    typer.Option(
        "--fault", metavar="FAULT", help="What goes wrong; may be repeated.", show_default=False
    ),
]

StepParallelism = Annotated[
    int | None,
    typer.Option(
        "--parallelism",
        metavar="N",
        help="Instances of an application's steps; by default as many as nodes.",
        show_default=False,
    ),
]

CostFile = Annotated[
    Path | None,
    typer.Option(
        "--costs",
        metavar="FILE",
        help="Cost profile, in YAML or JSON. By default micro-batches as on Spark for an "
        "application, tuple at a time for a file.",
        show_default=False,
    ),
]

Drop = Annotated[
    bool, typer.Option("--drop", help="Drop what full queues cannot take, and count it.")
]

Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Equal seeds, equal runs.")]

Report = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", help="Write an HTML page with plots.", show_default=False
    ),
]


@dataclass(frozen=True)
class SimulateArguments:
    """What is simulated, checked."""

    topology: str
    cluster: Path | None
    nodes: int
    rate: str
    rate_scale: float
    seconds: float
    every_s: float
    faults: tuple[str, ...]
    zipf: float
    parallelism: int | None
    costs: Path | None
    drop: bool
    seed: int

    def __post_init__(self) -> None:
        for name, value in (("seconds", self.seconds), ("rate-scale", self.rate_scale)):
            if not (math.isfinite(value) and value > 0):
                raise InvalidValue(name, "a simulation", "more than 0", value)
        if not (math.isfinite(self.every_s) and self.every_s >= 0):
            raise InvalidValue("every", "a simulation", "at least 0", self.every_s)
        for name, count, least in (("seed", self.seed, 0), ("nodes", self.nodes, 1)):
            if count < least:
                allowed = f"a whole number of at least {least}"
                raise InvalidValue(name, "a simulation", allowed, count)


@dataclass(frozen=True, eq=False)
class Scene:
    """What a simulation needs, made of what was asked for."""

    asked: SimulateArguments
    topology: Topology
    cluster: Cluster
    workload: Workload
    costs: CostProfile
    faults: list[SimulatedFault]

    @classmethod
    def of(cls, asked: SimulateArguments) -> Scene:
        """Load files, size the nodes, and say what is wrong."""
        profile = Profile.parse(asked.rate)
        faults = [parse_fault(text) for text in asked.faults]
        costs = load_costs(asked.costs) if asked.costs is not None else _costs(asked.topology)
        there = load_cluster(asked.cluster) if asked.cluster is not None else None
        count = len(there) if there is not None else asked.nodes
        topology = _topology(asked.topology, profile, asked.zipf, asked.parallelism or count)
        topology.require_runnable()
        base = Workload.even(topology, profile, KeySpace(zipf=asked.zipf, seed=asked.seed))
        workload = Workload.even(topology, scaled(profile, asked.rate_scale), base.keys)
        there = there or _sized(topology, base, asked.nodes)
        return cls(asked, topology, there, workload, costs, faults)

    def simulated(
        self, name: str, progress: ProgressBar, store: MetricsStore | None
    ) -> SimulatedRun:
        """Simulate one strategy, and write it into the store if there is one."""
        recorder = None
        if store is not None:
            run = uuid.uuid4().hex[:12]
            recorder = SimulationRecorder(store, run, name, self.topology, time.time(), self.faults)
        return simulate(
            self.topology,
            self.cluster,
            strategies.make(name),
            self.workload,
            seconds=self.asked.seconds,
            every_s=self.asked.every_s,
            costs=self.costs,
            faults=self.faults,
            drop=self.asked.drop,
            seed=self.asked.seed,
            interval_s=1.0 if self.asked.seconds <= 7200 else 10.0,
            watch=lambda at_s: progress.detail(f"{name} at {at_s:,.0f} s"),
            recorder=recorder,
        )

    def settings(self) -> dict[str, Any]:
        """Return what the report says of how it came about."""
        asked = self.asked
        return {
            "topology": asked.topology,
            "nodes": len(self.cluster),
            "rate": asked.rate,
            "rate_scale": asked.rate_scale,
            "seconds": asked.seconds,
            "every_s": asked.every_s,
            "faults": [str(f) for f in self.faults],
            "zipf": asked.zipf,
            "drop": asked.drop,
            "seed": asked.seed,
            "costs": self.costs.to_dict(),
        }


def simulate_command(
    topology: TopologyName,
    cluster: ClusterFile = None,
    nodes: SizedNodes = None,
    rate: Rate = "1000",
    rate_scale: RateScale = 1.0,
    strategy: Strategies = "penstock",
    seconds: VirtualSeconds = 120.0,
    every: Every = 10.0,
    fault: Faults = None,
    zipf: Zipf = 1.0,
    parallelism: StepParallelism = None,
    costs: CostFile = None,
    drop: Drop = False,
    seed: Seed = 0,
    report: Report = None,
    store: Store = None,
    page: Page = None,
    keep_page: KeepPage = None,
    as_json: JsonEach = False,
) -> None:
    """Simulate; see `HELP`."""
    with clean_exit(), paged(page, keep_page, store) as kept, _opened(kept) as metrics:
        if cluster is not None and nodes is not None:
            raise PenstockError("--cluster and --nodes exclude each other; give one of them")
        check_file("--report", report)
        names = chosen(strategy)
        scene = Scene.of(
            SimulateArguments(
                topology,
                cluster,
                DEFAULT_NODES if nodes is None else nodes,
                rate,
                rate_scale,
                seconds,
                every,
                tuple(fault or ()),
                zipf,
                parallelism,
                costs,
                drop,
                seed,
            )
        )
        runs = []
        with ProgressBar(len(names), doing="simulating") as progress:
            for name in names:
                progress.now(name)
                runs.append(scene.simulated(name, progress, metrics))
                if as_json:
                    typer.echo(json.dumps(runs[-1].summary(), allow_nan=False))
        if not as_json:
            _show(scene.topology, scene.cluster, rows(runs))
        if report is not None:
            write(report, f"{scene.topology.name}, simulated", runs, scene.settings())
            say(f"report in {report}")


@contextmanager
def _opened(store: str | None) -> Iterator[MetricsStore | None]:
    """Open the metrics store, if there is to be one."""
    if store is None:
        yield None
        return
    with MetricsStore.open(store) as opened:
        yield opened


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
