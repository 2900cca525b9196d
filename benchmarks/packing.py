"""How many nodes a plan takes, beside an exact search: ``python benchmarks/packing.py``.

Generated topologies on equal nodes, and on nodes of two kinds, one rich in CPU and one in memory.
The exact search is CP-SAT of OR-Tools (``pip install 'penstock[bench]'``) with a limit of time for
each case; where it proves nothing, the best that it found counts.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from penstock.model import Cluster, Edge, Grouping, Kind, Node, Operator, Topology, expand
from penstock.model.instances import InstanceGraph
from penstock.strategies.scale.head_room import fewest_nodes

#: Load that no node exceeds.
LIMIT = 0.8

NODES = 60


def topology(rng: np.random.Generator) -> Topology:
    """Make a topology of four to eleven operators."""

    def operator(name: str, kind: Kind, most: int, cpu_pct: float, mem_mb: float) -> Operator:
        rate = 1.0 if kind is Kind.SOURCE else None
        cpu, mem = float(rng.uniform(2, cpu_pct)), float(rng.uniform(50, mem_mb))
        count = int(rng.integers(1, most))
        return Operator(name, kind, count, cpu_pct=cpu, mem_mb=mem, rate_per_s=rate)

    source = operator("in", Kind.SOURCE, 6, 60, 1500)
    others = [
        operator(f"o{i}", Kind.STATELESS, 16, 90, 2500) for i in range(int(rng.integers(3, 11)))
    ]
    edges = tuple(Edge("in", other.name, Grouping.SHUFFLE) for other in others)
    return Topology("generated", (source, *others), edges)


def cluster(kind: str) -> Cluster:
    """Make equal nodes, or nodes of two kinds in turn."""
    sizes = [(2.0, 5000.0)] if kind == "equal" else [(1.5, 8000.0), (4.0, 2500.0)]
    return Cluster(
        tuple(
            Node(f"n{i}", cpu_cores=sizes[i % len(sizes)][0], mem_mb=sizes[i % len(sizes)][1])
            for i in range(NODES)
        )
    )


def exact(graph: InstanceGraph, nodes: Cluster, seconds: float) -> tuple[int, int] | None:
    """Search with CP-SAT; return the nodes that it found and the fewest that it did not rule out.

    Demands are rounded up and capacities down, by a ten-thousandth of a core and a tenth of a MB.
    """
    from ortools.sat.python import cp_model

    scale = np.array([1e4, 1e1])
    demand = np.stack([graph.cpu_cores, graph.mem_mb], axis=1)
    kinds, count = np.unique(np.ceil(demand * scale - 1e-6), axis=0, return_counts=True)
    capacity = np.stack([nodes.cpu_cores, nodes.mem_mb], axis=1) * LIMIT
    room = np.floor(capacity * scale + 1e-6).astype(int)
    model = cp_model.CpModel()
    used = [model.new_bool_var(f"used {n}") for n in range(len(nodes))]
    held = [
        [model.new_int_var(0, int(most), "") for most in count.tolist()] for _ in range(len(nodes))
    ]
    for kind, most in enumerate(count.tolist()):
        model.add(sum(row[kind] for row in held) == most)
    for node, row in enumerate(held):
        for resource in range(2):
            load = sum(int(kinds[kind, resource]) * var for kind, var in enumerate(row))
            model.add(load <= int(room[node, resource]) * used[node])
        alike = [n for n in range(node + 1, len(nodes)) if (room[n] == room[node]).all()]
        if alike:
            model.add(used[node] >= used[alike[0]])
    model.minimize(sum(used))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return round(solver.objective_value), int(np.ceil(solver.best_objective_bound - 1e-6))


def compare(kind: str, cases: int, seconds: float, seed: int) -> dict[str, float]:
    """Compare both on generated cases."""
    rng, nodes = np.random.default_rng(seed), cluster(kind)
    over_found, over_bound, took = [], [], []
    for _ in range(cases):
        graph = expand(topology(rng))
        began = time.perf_counter()
        packed = fewest_nodes(graph, nodes, LIMIT)
        took.append(time.perf_counter() - began)
        best = exact(graph, nodes, seconds)
        if packed is not None and best is not None:
            over_found.append(len(packed.nodes) / best[0])
            over_bound.append(len(packed.nodes) / best[1])
    return {
        "cases": cases,
        "compared": len(over_found),
        "median_over_exact": round(float(np.median(over_found)), 3),
        "mean_over_exact": round(float(np.mean(over_found)), 3),
        "most_over_exact": round(float(np.max(over_found)), 3),
        "median_over_bound": round(float(np.median(over_bound)), 3),
        "mean_ms": round(1e3 * float(np.mean(took)), 1),
    }


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", nargs="*", help="equal, mixed; both by default")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=5.0, help="of the exact search a case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for kind in args.kind or ("equal", "mixed"):
        found = compare(kind, args.cases, args.seconds, args.seed)
        print(json.dumps({"kind": kind, **found}) if args.json else f"{kind}: {found}")


if __name__ == "__main__":
    main()
