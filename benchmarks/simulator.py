"""How fast the simulator is: ``python benchmarks/simulator.py --help``.

Two cases, each in one process and one thread:

``scale``
    1,000 nodes and 10,000 instances for one hour of virtual time, with a rate that doubles and
    falls back, and a node that is lost.
``largest``
    The largest real graph, 5,402 instances, on 500 nodes for one day under a daily profile, asked
    every quarter of an hour. Its peak is 0.8 of the rate that the graph declares: at that rate its
    one source instance is busy all the time with reading alone, and falls behind with what it
    costs to send, wherever it is placed.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from penstock.control.settings import Settings
from penstock.files import load_topology
from penstock.model import Cluster, Edge, Grouping, Kind, Operator, Topology, expand
from penstock.model.sizing import sized_for
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.sim import KeySpace, SimulatedRun, Workload, parse_fault, simulate
from penstock.strategies import strategies

#: Peak of the daily profile, as a part of the rate that the largest graph declares.
PEAK = 0.8

LARGEST = Path(__file__).parents[1] / "tests" / "data" / "topologies" / "c01-t23.json"


def wide(instances: int) -> Topology:
    """Make a topology of six operators with so many instances."""
    parts = {"read": 1, "clean": 2, "enrich": 2, "join": 3, "score": 1.5, "store": 0.5}
    count = {name: max(1, round(instances * part / 10)) for name, part in parts.items()}
    cpu = {"read": 50, "clean": 100, "enrich": 150, "join": 200, "score": 300, "store": 100}
    keyed = {"join", "store"}
    kinds = {"read": Kind.SOURCE, "join": Kind.STATEFUL, "store": Kind.STATEFUL}
    operators = tuple(
        Operator(
            name,
            kinds.get(name, Kind.STATELESS),
            count[name],
            cpu_us_per_tuple=cpu[name],
            mem_mb=100,
            state_mb=count[name] * 10.0 if name in keyed else 0.0,
        )
        for name in parts
    )
    names = list(parts)
    edges = tuple(
        Edge(a, b, Grouping.FIELDS if b in keyed else Grouping.SHUFFLE) for a, b in pairwise(names)
    )
    return Topology("wide", operators, edges)


def by_rate(topology: Topology) -> Topology:
    """Turn constant CPU demands into costs of a tuple, so that the load follows the rate."""
    graph = expand(topology)
    operators = []
    for operator in topology.operators:
        rate = float(graph.rate_in[graph.span(operator.name)].mean())
        cost = operator.cpu_pct / 100.0 / rate * 1e6 if rate > 0 else 0.0
        operators.append(replace(operator, cpu_pct=0.0, cpu_us_per_tuple=cost))
    return replace(topology, operators=tuple(operators))


def scale(nodes: int, instances: int, seconds: float, strategy: str) -> dict[str, Any]:
    """Measure the case ``scale``."""
    topology = wide(instances)
    total = sum(topology.parallelism.values())
    cluster = Cluster.of(nodes, cpu_cores=16, mem_mb=65_536, processes=4, slots=64)
    third = seconds / 3
    rate = nodes * 1000.0
    profile = Profile.steps([(rate, third), (2 * rate, third), (rate, third)])
    workload = Workload({"read": profile}, KeySpace(100_000))
    fault = parse_fault(f"kill-node@t={seconds / 2:g}")
    begun_s = time.perf_counter()
    run = simulate(
        topology,
        cluster,
        strategies.make(strategy),
        workload,
        seconds=seconds,
        every_s=60,
        faults=[fault],
    )
    return _row("scale", run, time.perf_counter() - begun_s, nodes, total)


def largest(nodes: int, seconds: float, strategy: str) -> dict[str, Any]:
    """Measure the case ``largest``."""
    topology = by_rate(load_topology(LARGEST))
    graph = expand(topology)
    cluster = sized_for(graph, nodes)
    source = topology.sources[0]
    peak = PEAK * float(graph.rate_in[graph.span(source.name)].sum())
    profile = Profile.sine(0.2 * peak, peak, 86_400)
    begun_s = time.perf_counter()
    run = simulate(
        topology,
        cluster,
        strategies.make(strategy),
        Workload({source.name: profile}),
        seconds=seconds,
        interval_s=60,
        control=Settings(every=15, cooldown=0, stable_rounds=1, max_nodes=nodes),
    )
    return _row("largest", run, time.perf_counter() - begun_s, nodes, len(graph))


def _row(case: str, run: SimulatedRun, wall_s: float, nodes: int, instances: int) -> dict[str, Any]:
    summary = run.summary()
    totals = run.runtime.totals()
    rest = totals["arrived"] - totals["processed"] - totals["queued"] - totals["dropped"]
    return {
        "case": case,
        "nodes": nodes,
        "instances": instances,
        "strategy": run.strategy,
        "virtual_s": summary["seconds"],
        "wall_s": round(wall_s, 1),
        "faster_than_life": round(summary["seconds"] / wall_s),
        "tuples": float(totals["arrived"].sum()),
        "unaccounted": float(np.abs(rest).max()),
        "throughput_per_s": summary["throughput_per_s"],
        "arriving_per_s": summary["arriving_per_s"],
        "latency_ms": summary["latency_ms"],
        "nodes_used": summary["nodes"],
        "plans": summary["plans"],
        "moves": summary["moves"],
    }


def main() -> None:
    """Run the cases that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", default=["scale", "largest"], metavar="CASE")
    parser.add_argument("--nodes", type=int, default=1000, help="of the case scale")
    parser.add_argument("--instances", type=int, default=10_000, help="of the case scale")
    parser.add_argument("--seconds", type=float, default=None, help="virtual time")
    parser.add_argument("--strategy", default=None, help="even for scale, penstock for largest")
    asked = parser.parse_args()
    unknown = set(asked.cases) - {"scale", "largest"}
    if unknown:
        parser.error(f"unknown case {sorted(unknown)}; there are scale, largest")
    if "scale" in asked.cases:
        row = scale(asked.nodes, asked.instances, asked.seconds or 3600, asked.strategy or "even")
        print(json.dumps(row), flush=True)
    if "largest" in asked.cases:
        row = largest(500, asked.seconds or 86_400, asked.strategy or "penstock")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
