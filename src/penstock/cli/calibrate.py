"""``penstock calibrate``: what things cost on the Spark at hand, for the simulator."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from penstock.apps import apps
from penstock.apps.api import App as Application
from penstock.cli.checks import check_file, check_master, check_nodes
from penstock.cli.exits import clean_exit, deferred, running
from penstock.cli.java import pyspark_needed, require_java
from penstock.cli.options import App, EmbeddedNodes, JsonAtEnd, Master, Parallelism, Zipf
from penstock.cli.progress import ProgressBar
from penstock.cli.run_options import Verbose
from penstock.cli.scratch import scratch
from penstock.model import InvalidValue

HELP = """Measure what tuples, hops and tasks cost on Spark, and write it for 'penstock simulate'.

The application runs in batches of several sizes under three placements: all instances on one node,
in turn, neighbours always apart. Without --master an embedded cluster is started. With
--check every placement is then run at that rate and simulated, and the errors are shown.

Exit codes: 0 fine, 2 bad input, 3 a failed measurement, 130 interrupted, 143 terminated.

\b
Examples:
  penstock calibrate commcount
  penstock calibrate wordcount --out costs.json --check 2000
  penstock simulate wordcount --costs costs.json --rate 5000 --nodes 20
"""


def calibrate(
    app: App = "commcount",
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where the profile goes.")
    ] = Path("penstock-costs.json"),
    master: Master = None,
    nodes: EmbeddedNodes = 3,
    parallelism: Parallelism = None,
    zipf: Zipf = 0.0,
    rate: Annotated[
        float | None,
        typer.Option(
            "--check",
            metavar="RATE",
            help="Run and simulate each placement at this rate, and compare.",
            show_default=False,
        ),
    ] = None,
    verbose: Verbose = False,
    as_json: JsonAtEnd = False,
) -> None:
    """Calibrate; see `HELP`."""
    with clean_exit(verbose=verbose):
        chosen = apps.make(app)
        check_master(master)
        if master is None:
            check_nodes(nodes)
        check_file("--out", out)
        if rate is not None and not rate > 0:
            raise InvalidValue("check", "a calibration", "more than 0 tuples a second", rate)
        if parallelism is not None and parallelism < 1:
            allowed = "a whole number of at least 1"
            raise InvalidValue("parallelism", "a calibration", allowed, parallelism)
        require_java()
        with pyspark_needed():
            import_module("penstock.runtimes.spark.session")
        options: dict[str, Any] = {"parallelism": parallelism, "zipf": zipf}
        found, checked = _measured(chosen, master or nodes, rate, options)
        found.profile.save(out)
        if as_json:
            typer.echo(json.dumps({"profile": found.profile.to_dict(), "checked": _rows(checked)}))
            return
        _show(found, checked)
        typer.echo(f"profile: {out}")


def _measured(
    app: Application, where: str | int, rate: float | None, options: dict[str, Any]
) -> tuple[Any, Any]:
    """Calibrate on a master, or on so many nodes; then check at a rate if one is given."""
    from penstock.experiments.calibrate import measure
    from penstock.runtimes.spark.session import cluster, embedded

    master = where if isinstance(where, str) else embedded(where, 1, 900)
    count = 1 + len(measure.PLACEMENTS) * (1 + (rate is not None))
    with (
        running(),
        deferred() as stop,
        scratch(),
        ProgressBar(1 + count, 0.0, "calibrating") as progress,
    ):

        def now(text: str) -> None:
            stop.check()
            progress.now(text)

        now("starting Spark")
        with cluster(master) as spark:
            found = measure.calibrate(spark, app, say=now, **options)
            if rate is None:
                return found, ()
            return found, measure.check(spark, app, found, rate, say=now, **options)


def _rows(checked: Any) -> list[dict[str, Any]]:
    return [
        {
            "placement": one.placement,
            "throughput_error": one.errors[0],
            "latency_error": one.errors[1],
        }
        for one in checked
    ]


def _show(found: Any, checked: Any) -> None:
    profile = found.profile
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in (
        *((f"{name}, a tuple", f"{us:.2f} us") for name, us in profile.cpu_us_per_tuple.items()),
        ("hop within a node, each end", f"{profile.hop_cpu_us.in_process_us:.2f} us"),
        ("hop across nodes, each end", f"{profile.hop_cpu_us.across_us:.2f} us"),
        ("task of a batch", f"{profile.task_ms:.0f} ms"),
    ):
        table.add_row(name, value)
    console = Console()
    console.print(table)
    if checked:
        both = Table("placement", "rows/s", "simulated", "p50", "simulated", box=None)
        for one in checked:
            both.add_row(
                one.placement,
                f"{one.real_per_s:,.0f}",
                f"{one.simulated_per_s:,.0f} ({one.errors[0]:+.0%})",
                f"{one.real_p50_ms:,.0f} ms",
                f"{one.simulated_p50_ms:,.0f} ms ({one.errors[1]:+.0%})",
            )
        console.print(both)
