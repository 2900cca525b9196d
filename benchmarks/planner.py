"""Time the planner on one topology, by default the largest of the tests'.

Times are of one run on a machine that may be busy; compare within a run only.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from penstock.files import load_topology
from penstock.model import expand
from penstock.planning import ALL, ask, chosen, request

LARGEST = Path(__file__).parents[1] / "tests" / "data" / "topologies" / "c01-t23.json"


def main() -> None:
    """Plan one topology with several strategies and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=LARGEST)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--strategy", default="even,rstorm", help=f"names, or {ALL}")
    asked = parser.parse_args()
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
        cut = outcome.plan.after.cut_share
        print(f"{name:<12} {outcome.seconds:>9.3f} s, cut {cut:.1%}")


if __name__ == "__main__":
    main()
