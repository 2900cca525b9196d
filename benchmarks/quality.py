"""How good and how fast the plans are: ``make bench`` or ``python benchmarks/quality.py --help``.

Four tables, each of one run, so that its columns can be compared:

``cut``
    On the 40 real graphs and on generated layered graphs: the cut of each strategy over that of
    METIS, on the same number of nodes, whether its busiest node is above METIS's, and how uneven
    the nodes are (LIN, Ms eq. 38).
``optimal``
    On graphs small enough for `optimal`: the cut of each strategy over the smallest possible.
``time``
    Seconds to plan 200 instances on 20 nodes, and the largest real graph on 500.
``stability``
    Re-plans of `penstock` while a rate wobbles, doubles, and falls back.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from penstock.files import load_topology
from penstock.model import Edge, Grouping, Kind, Measurements, Operator, Plan, Topology, expand
from penstock.model.sizing import sized_for
from penstock.planning import PlanOutcome, ask, request
from penstock.strategies import Request, strategies

REAL = Path(__file__).parents[1] / "tests" / "data" / "topologies"
LARGEST = REAL / "c01-t23.json"
COMPARED = ("even", "rstorm", "ts", "sra", "sl", "ms", "ra", "penstock")
#: Two figures that differ by less are the same.
SAME = 1e-9


def layered(seed: int, layers: int, width: int, most: int) -> Topology:
    """Make a layered graph: every operator reads from one to three of the layer before."""
    rng = np.random.default_rng(seed)
    operators: list[Operator] = []
    edges: list[Edge] = []
    above: list[str] = []
    for depth in range(layers):
        here = [f"op{depth}-{i}" for i in range(int(rng.integers(1, width + 1)))]
        for name in here:
            keyed = bool(above) and rng.random() < 0.4
            kind = Kind.SOURCE if not above else Kind.STATEFUL if keyed else Kind.STATELESS
            operators.append(
                Operator(
                    name,
                    kind,
                    parallelism=int(rng.integers(1, most + 1)),
                    cpu_pct=float(rng.integers(5, 80)),
                    mem_mb=float(rng.integers(64, 1024)),
                    selectivity=float(rng.choice([0.2, 0.5, 1.0, 1.0, 2.0])),
                )
            )
            count = min(len(above), int(rng.integers(1, 4)))
            for parent in rng.choice(above, count, replace=False) if above else ():
                grouping = Grouping.FIELDS if keyed else Grouping.SHUFFLE
                edges.append(Edge(str(parent), name, grouping))
        above = here
    return Topology(f"layered-{seed}", tuple(operators), tuple(edges))


def graphs(generated: int) -> Iterator[Topology]:
    """Yield the real graphs, then generated ones."""
    for file in sorted(REAL.glob("*.json")):
        yield load_topology(file)
    for seed in range(generated):
        yield layered(seed, layers=4, width=4, most=16)


def cut_table(names: Sequence[str], nodes: Sequence[int], generated: int) -> dict[str, Any]:
    """Compare cuts with METIS's at the same number of nodes."""
    rows: list[dict[str, Any]] = []
    cases = [(t, n) for n in nodes for t in graphs(generated)]
    for topology, count in track(cases, "cut", console=Console(stderr=True), transient=True):
        if sum(topology.parallelism.values()) < count:
            continue
        base = request(topology, count, exact_nodes=True)
        metis = ask(base, "metis")
        if metis.plan is None:
            continue
        row: dict[str, Any] = {
            "graph": topology.name,
            "nodes": count,
            "metis": _figures(metis),
        }
        row.update({name: _figures(ask(base, name)) for name in names})
        rows.append(row)
    return {"rows": rows, "summary": {name: _against_metis(rows, name) for name in names}}


def _figures(outcome: PlanOutcome) -> dict[str, Any] | None:
    if outcome.plan is None:
        return None
    cost = outcome.plan.after
    return {
        "cut": cost.cut_share,
        "load": cost.max_node_load,
        "lin": cost.lin,
        "feasible": outcome.plan.feasible,
        "nodes_used": cost.nodes_used,
        "seconds": outcome.seconds,
    }


def _against_metis(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Summarise one strategy; a graph that METIS does not cut at all counts by the difference."""
    seen = [row for row in rows if row[name] is not None]
    ratios = [row[name]["cut"] / row["metis"]["cut"] for row in seen if row["metis"]["cut"] > SAME]
    return {
        "graphs": len(seen),
        "median_ratio": statistics.median(ratios) if ratios else None,
        "worst_ratio": max(ratios, default=None),
        "at_or_below": sum(row[name]["cut"] <= row["metis"]["cut"] + SAME for row in seen)
        / max(len(seen), 1),
        "no_worse_balance": sum(
            row[name]["load"] <= max(row["metis"]["load"], 0.0) + 1e-6 for row in seen
        )
        / max(len(seen), 1),
        "over_capacity": sum(not row[name]["feasible"] for row in seen),
        "median_lin": statistics.median(row[name]["lin"] for row in seen) if seen else None,
        "median_lin_of_metis": statistics.median(row["metis"]["lin"] for row in seen)
        if seen
        else None,
    }


def optimal_table(names: Sequence[str], cases: int) -> dict[str, Any]:
    """Compare with the smallest possible cut on small graphs."""
    rows: list[dict[str, Any]] = []
    for seed in track(range(cases), "optimal", console=Console(stderr=True), transient=True):
        topology = layered(seed, layers=3, width=2, most=3)
        base = request(topology, 2 + seed % 2, exact_nodes=True)
        exact = ask(base, "optimal")
        if exact.plan is None or exact.plan.after.nodes_used != len(base.cluster):
            continue
        best = exact.plan.after.cut_share
        row: dict[str, Any] = {"graph": topology.name, "optimal": best}
        for name in names:
            outcome = ask(base, name)
            row[name] = outcome.plan.after.cut_share if outcome.plan else None
        rows.append(row)
    summary = {}
    for name in names:
        gaps = [
            row[name] / row["optimal"] - 1
            for row in rows
            if row[name] is not None and row["optimal"] > SAME
        ]
        summary[name] = {
            "cases": len(gaps),
            "median_gap": statistics.median(gaps) if gaps else None,
            "worst_gap": max(gaps, default=None),
        }
    return {"rows": rows, "summary": summary}


def time_table(names: Sequence[str]) -> dict[str, Any]:
    """Measure planning on 200 instances and 20 nodes, and on the largest real graph."""
    medium = Topology(
        "two-hundred",
        (
            Operator("read", Kind.SOURCE, 20, cpu_pct=20, mem_mb=256),
            Operator("clean", parallelism=60, cpu_pct=40, mem_mb=256),
            Operator("join", Kind.STATEFUL, 60, cpu_pct=50, mem_mb=512, state_mb=600),
            Operator("score", parallelism=40, cpu_pct=60, mem_mb=256),
            Operator("store", Kind.STATEFUL, 20, cpu_pct=30, mem_mb=512, state_mb=200),
        ),
        (
            Edge("read", "clean"),
            Edge("clean", "join", Grouping.FIELDS),
            Edge("join", "score"),
            Edge("clean", "score"),
            Edge("score", "store", Grouping.FIELDS),
        ),
    )
    rows = []
    for topology, count in ((medium, 20), (load_topology(LARGEST), 500)):
        base = request(topology, count)
        instances = len(base.graph)
        for name in names:
            Console(stderr=True).print(f"time: {name} on {instances} instances", style="dim")
            outcome = ask(base, name)
            figures = _figures(outcome)
            rows.append(
                {
                    "strategy": name,
                    "instances": instances,
                    "nodes": count,
                    "seconds": outcome.seconds if figures else None,
                    "cut": figures["cut"] if figures else None,
                    "nodes_used": figures["nodes_used"] if figures else None,
                    "declined": list(outcome.declined),
                }
            )
    return {"rows": rows}


def stability_table(rounds: int = 50) -> dict[str, Any]:
    """Count the re-plans of `penstock` while the rate wobbles by a tenth, doubles and falls."""
    topology = Topology(
        "wordcount",
        (
            Operator("lines", Kind.SOURCE, 4, cpu_us_per_tuple=50, mem_mb=100, rate_per_s=10_000),
            Operator("split", parallelism=8, cpu_us_per_tuple=200, mem_mb=100, selectivity=5),
            Operator("count", Kind.STATEFUL, 8, cpu_us_per_tuple=40, mem_mb=200, state_mb=800),
        ),
        (Edge("lines", "split"), Edge("split", "count", Grouping.FIELDS)),
    )
    cluster = sized_for(expand(topology), 4)
    cluster = type(cluster)(
        tuple(node for copy in range(3) for node in _renamed(cluster.nodes, copy))
    )
    rng = np.random.default_rng(0)
    strategy = strategies.make("penstock")
    running: Plan | None = None
    rows = []
    for phase, rate in (("level", 10_000.0), ("doubled", 20_000.0), ("back", 10_000.0)):
        replans = 0
        for at in range(rounds):
            wobble = 1.0 if at == 0 else 1.0 + float(rng.uniform(-0.1, 0.1))
            measured = Measurements(source_rates={"lines": rate * wobble})
            answer = strategy.plan(
                Request(topology, cluster, measured, running, rng=np.random.default_rng(0))
            )
            if isinstance(answer, Plan):
                running = answer
                replans += 1
        assert running is not None
        rows.append(
            {
                "phase": phase,
                "rounds": rounds,
                "plans": replans,
                "nodes": running.after.nodes_used,
                "load": running.after.max_node_load,
                "feasible": running.feasible,
            }
        )
    return {"rows": rows}


def _renamed(nodes: Sequence[Any], copy: int) -> Iterator[Any]:
    from dataclasses import replace

    for node in nodes:
        yield replace(node, name=f"{node.name}-{copy}")


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table."""
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="left" if column in _TEXT else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    Console().print(table)


_TEXT = {"strategy", "phase", "declined"}


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        return "; ".join(map(str, value))[:60]
    return str(value)


def main() -> None:
    """Run the tables that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = ("cut", "optimal", "time", "stability")
    parser.add_argument(
        "tables", nargs="*", default=tables, metavar="TABLE", help="; ".join(tables)
    )
    parser.add_argument("--strategies", default=",".join(COMPARED))
    parser.add_argument("--nodes", default="10,20", help="numbers of nodes for the cut table")
    parser.add_argument("--generated", type=int, default=20, help="generated graphs")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    asked = parser.parse_args()
    unknown = set(asked.tables) - set(tables)
    if unknown:
        parser.error(f"unknown table {sorted(unknown)}; there are {', '.join(tables)}")
    known = strategies.names()
    names = [name for name in asked.strategies.split(",") if name in known]
    result: dict[str, Any] = {}
    if "cut" in asked.tables:
        nodes = [int(n) for n in asked.nodes.split(",")]
        result["cut"] = cut_table(names, nodes, asked.generated)
    if "optimal" in asked.tables:
        result["optimal"] = optimal_table(names, 60)
    if "time" in asked.tables:
        result["time"] = time_table([*names, "metis", "sp-ant", "spark"])
    if "stability" in asked.tables:
        result["stability"] = stability_table()
    if asked.json:
        json.dump(result, sys.stdout, indent=1)
        return
    for table, title in (
        ("cut", "Cut over METIS's, same nodes"),
        ("optimal", "Cut over the smallest possible"),
    ):
        if table in result:
            show(title, [{"strategy": n, **s} for n, s in result[table]["summary"].items()])
    if "time" in result:
        show("Seconds to plan", result["time"]["rows"])
    if "stability" in result:
        show("Re-plans of penstock", result["stability"]["rows"])


if __name__ == "__main__":
    main()
