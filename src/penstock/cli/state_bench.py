"""``penstock state-bench``: how long state takes to save, to restore and to move."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from penstock.cli.checks import check_master, check_nodes
from penstock.cli.exits import clean_exit, deferred, running
from penstock.cli.java import pyspark_needed, require_java
from penstock.cli.options import JsonAtEnd, Master
from penstock.cli.run_options import Verbose
from penstock.cli.scratch import scratch
from penstock.common.near_miss import near_miss
from penstock.model import InvalidValue

#: As many as a code of 7 + 3 needs.
DEFAULT_NODES = 11

#: Memory of an executor: some states are larger than what a run of small batches needs.
MEMORY_MB = 900

#: Longest wait for the executors.
START_S = 300.0

TITLES = {
    "coding": "the code alone, 10 MB, one core",
    "sizes": "one instance, saved; then its node is lost, and it is restored",
    "moved": "instances of all nodes, saved at once; then each moves to the next node",
    "lost": "instances of one node, saved; then the node is lost, and the others restore them",
    "missing": "one instance restored while further backup nodes are missing",
}

HELP = """Measure how long state takes to save, to restore and to move, by peers and by checkpoint.

The experiments are coding, sizes, moved, lost and missing; see docs/state-bench.md for what they
show and for how to run them over links of a given speed. Without --master an embedded cluster is
started, one process for each node; a code of R + C needs R + C + 1 nodes, and with fewer the one
that fits is used and named.

Exit codes: 0 fine, 2 bad input, 3 a failed measurement, 130 interrupted, 143 terminated.

\b
Examples:
  penstock state-bench
  penstock state-bench --nodes 5 --data-fragments 3 --parity-fragments 1 --sizes 10,40
  penstock state-bench --json
"""


#: All experiments, in the order in which they are run.
EVERY = ",".join(TITLES)

Nodes = Annotated[
    int,
    typer.Option("--nodes", metavar="N", help="Nodes of the embedded cluster, or of the master."),
]
Data = Annotated[int, typer.Option("--data-fragments", metavar="R", help="Data fragments.")]
Parity = Annotated[int, typer.Option("--parity-fragments", metavar="C", help="Parity fragments.")]
Sizes = Annotated[str, typer.Option("--sizes", metavar="MB,...", help="States of one instance.")]
Instances = Annotated[
    str, typer.Option("--instances", metavar="N,...", help="Instances that move.")
]
Most = Annotated[
    float, typer.Option("--most", metavar="MB", help="Largest state of one that moves.")
]
Only = Annotated[str, typer.Option("--only", metavar="NAME,...", help="Experiments to run.")]
Repeats = Annotated[
    int, typer.Option("--repeats", metavar="N", help="Figures are medians of so many.")
]
Server = Annotated[
    str,
    typer.Option(
        "--server",
        metavar="URL",
        help="Keep checkpoints on this server for files, by PUT and GET, instead of a folder.",
    ),
]


def state_bench(
    nodes: Nodes = DEFAULT_NODES,
    master: Master = None,
    data: Data = 7,
    parity: Parity = 3,
    sizes: Sizes = "10,40,80,200",
    instances: Instances = "1,2,4,8,16",
    most: Most = 80.0,
    only: Only = EVERY,
    repeats: Repeats = 3,
    server: Server = "",
    verbose: Verbose = False,
    as_json: JsonAtEnd = False,
) -> None:
    """Measure state; see `HELP`."""
    with clean_exit(verbose=verbose):
        wanted = _names(only)
        sized, moved = _numbers("sizes", sizes), [int(n) for n in _numbers("instances", instances)]
        _check(
            ("data-fragments", data, 1), ("parity-fragments", parity, 0), ("repeats", repeats, 1)
        )
        check_master(master)
        if master is None:
            check_nodes(nodes)
        require_java()
        with pyspark_needed():
            from penstock.experiments.state_bench.on_spark import BenchArguments
        asked = BenchArguments(
            wanted,
            sized,
            moved,
            most_mb=most,
            data=data,
            parity=parity,
            repeats=repeats,
            server=server,
        )
        results = _measured(asked, master, nodes)
        if as_json:
            typer.echo(json.dumps(results))
        else:
            for name, rows in results.items():
                _show(TITLES[name], rows)


def _check(*numbers: tuple[str, int, int]) -> None:
    for name, value, least in numbers:
        if value < least:
            allowed = f"a whole number of at least {least}"
            raise InvalidValue(name, "state-bench", allowed, value)


def _measured(asked: Any, master: str | None, nodes: int) -> dict[str, list[dict[str, Any]]]:
    """Start Spark, measure, and stop it; say on stderr how far it is."""
    from penstock import spark as engine
    from penstock.experiments.state_bench.on_spark import measure
    from penstock.runtimes.spark.session import wait_for_executors

    console = Console(stderr=True)
    where = master or engine.embedded(nodes, memory_mb=MEMORY_MB)
    with (
        running(),
        deferred() as stop,
        scratch(),
        console.status(f"starting Spark on {where}") as status,
    ):

        def say(text: str) -> None:
            stop.check()
            status.update(text)
            if not console.is_terminal:
                console.print(text, style="dim")

        with engine.cluster(where, timeout_s=START_S) as spark:
            wait_for_executors(spark, nodes, START_S)
            return measure(spark, asked, say)


def _names(only: str) -> list[str]:
    wanted = [name.strip() for name in only.split(",")]
    for name in wanted:
        if name not in TITLES:
            hint = near_miss(name, TITLES)
            raise InvalidValue("only", "state-bench", f"some of {', '.join(TITLES)}", name, hint)
    return wanted


def _numbers(name: str, text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidValue(name, "state-bench", "numbers with commas between them", text) from None
    if not all(value > 0 for value in found):
        raise InvalidValue(name, "state-bench", "more than 0", text)
    return found


def _show(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console().print(table)
