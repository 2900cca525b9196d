"""Time the planner on one topology, or see how its time grows with the size.

    python benchmarks/planner.py [FILE] --nodes 500 --strategy even,rstorm
    python benchmarks/planner.py --grow 5000,10000,20000,50000

The first plans a file, by default the largest of the tests'. The second plans generated layered
topologies with `penstock`, with fifty instances to an operator and ten to a node, each size in a
process of its own: seconds of CPU, peak memory, and by which power of the size the time grew.
Times are of a machine that may be busy; compare within a run only.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from penstock.files import load_topology
from penstock.model import Edge, Grouping, Kind, Operator, Topology, expand
from penstock.planning import ALL, ask, chosen, request

LARGEST = Path(__file__).parents[1] / "tests" / "data" / "topologies" / "c01-t23.json"

#: Instances to an operator and to a node, and layers, of what is generated.
TO_AN_OPERATOR, TO_A_NODE, LAYERS = 50, 10, 8


def generated(instances: int, seed: int = 1) -> Topology:
    """Make a layered topology whose operators read from one to three of the layer before."""
    rng = np.random.default_rng(seed)
    count = max(LAYERS, instances // TO_AN_OPERATOR)
    sizes = np.maximum(1, rng.dirichlet(np.full(count, 3.0)) * instances).astype(int)
    layer = [at * LAYERS // count for at in range(count)]
    operators: list[Operator] = []
    edges: list[Edge] = []
    for at in range(count):
        keyed = layer[at] > 0 and rng.random() < 0.4
        kind = Kind.SOURCE if not layer[at] else Kind.STATEFUL if keyed else Kind.STATELESS
        operators.append(
            Operator(
                f"o{at}",
                kind,
                parallelism=int(sizes[at]),
                cpu_pct=float(rng.integers(5, 80)),
                mem_mb=float(rng.integers(64, 1024)),
                selectivity=float(rng.choice([0.2, 0.5, 1.0, 1.0, 2.0])),
            )
        )
        above = [other for other in range(at) if layer[other] == layer[at] - 1]
        reads = min(len(above), int(rng.integers(1, 4)))
        grouping = Grouping.FIELDS if keyed else Grouping.SHUFFLE
        parents = rng.choice(above, reads, replace=False).tolist() if reads else []
        edges += [Edge(f"o{parent}", f"o{at}", grouping) for parent in parents]
    return Topology(f"generated-{instances}", tuple(operators), tuple(edges))


def one(instances: int) -> None:
    """Plan one generated topology and print what it took, as JSON."""
    ask(request(generated(100), 10), "penstock")  # Imports all that it needs.
    base = request(generated(instances), max(1, instances // TO_A_NODE))
    began = time.process_time()
    outcome = ask(base, "penstock")
    took = time.process_time() - began
    assert outcome.plan is not None
    cost = outcome.plan.after
    figures = {
        "instances": len(base.graph),
        "nodes": len(base.cluster),
        "cpu_s": took,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "nodes_used": cost.nodes_used,
        "cut": cost.cut_share,
        "load": cost.max_node_load,
        "lin": cost.lin,
        "feasible": outcome.plan.feasible,
    }
    print(json.dumps(figures))


def grow(sizes: list[int]) -> None:
    """Plan one size after the other, each in a process of its own."""
    before: tuple[int, float] | None = None
    for size in sizes:
        command = [sys.executable, __file__, "--one", str(size)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        power = ""
        if before is not None:
            grown = math.log(found["cpu_s"] / before[1]) / math.log(found["instances"] / before[0])
            power = f", grew by the power of {grown:.2f}"
        before = found["instances"], found["cpu_s"]
        print(
            f"{found['instances']:>7,} instances on {found['nodes_used']:,} of {found['nodes']:,} "
            f"nodes: {found['cpu_s']:.1f} s of CPU, {found['peak_mb']:,.0f} MB, cut "
            f"{found['cut']:.3f}, load {found['load']:.2f}, LIN {found['lin']:.2f}, "
            f"{'feasible' if found['feasible'] else 'not feasible'}{power}",
            flush=True,
        )


def main() -> None:
    """Plan one topology with several strategies and print a line for each, or grow."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, default=LARGEST)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--strategy", default="even,rstorm", help=f"names, or {ALL}")
    parser.add_argument("--grow", metavar="SIZES", help="instances of each size, by commas")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        return one(asked.one)
    if asked.grow:
        return grow([int(size) for size in asked.grow.split(",")])
    topology = load_topology(asked.file)
    start_s = time.perf_counter()
    graph = expand(topology)
    expanded_s = time.perf_counter() - start_s
    print(f"{topology.name}: {len(graph)} instances, {asked.nodes} nodes")
    print(f"{'expansion':<12} {expanded_s:>9.3f} s")
    base = request(topology, asked.nodes)
    for name in chosen(asked.strategy):
        outcome = ask(base, name)
        if outcome.plan is None:
            print(f"{name:<12} refused: {outcome.declined[0]}")
            continue
        cost = outcome.plan.after
        print(
            f"{name:<12} {outcome.seconds:>9.3f} s, cut {cost.cut_share:.1%}, "
            f"load {cost.max_node_load:.2f}, LIN {cost.lin:.2f}"
        )
    return None


if __name__ == "__main__":
    main()
