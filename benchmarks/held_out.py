"""Streams that prefer local targets, and narrow links: ``python benchmarks/held_out.py``.

Generated graphs whose seeds no test uses. The first line compares the cut of `penstock` with that
of `even` where every edge is ``local-or-shuffle``; the second counts feasible plans where links
carry 12.5 MB/s and tuples have 50, 500 or 5,000 bytes. Not every such case has a feasible plan.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np
from quality import layered

from penstock.model import Cluster, Grouping, Plan, Topology, expand
from penstock.model.sizing import sized_for
from penstock.planning import ask, request
from penstock.strategies import Request

CASES = 20


def made(base: Request, strategy: str) -> Plan:
    """Return the plan of a strategy."""
    plan = ask(base, strategy).plan
    assert plan is not None
    return plan


def local(seed: int) -> tuple[float, float]:
    """Return the cuts of `penstock` and `even` on a graph of local streams."""
    graph = layered(seed, 3, 3, 8)
    edges = tuple(replace(edge, grouping=Grouping.LOCAL_OR_SHUFFLE) for edge in graph.edges)
    base = request(Topology(graph.name, graph.operators, edges), 5, exact_nodes=True)
    return made(base, "penstock").after.cut_share, made(base, "even").after.cut_share


def narrow(seed: int) -> tuple[bool, bool]:
    """Return whether the plans of `penstock` and `metis` keep to narrow links."""
    graph, rng = layered(seed, 3, 3, 8), np.random.default_rng(seed)
    sizes = [float(rng.choice([50, 500, 5000])) for _ in graph.operators]
    operators = tuple(
        replace(operator, tuple_bytes=size)
        for operator, size in zip(graph.operators, sizes, strict=True)
    )
    topology = Topology(graph.name, operators, graph.edges)
    sized = sized_for(expand(topology), 6)
    links = Cluster(tuple(replace(node, bandwidth_mb_s=12.5) for node in sized.nodes))
    base = request(topology, links)
    return made(base, "penstock").feasible, made(base, "metis").feasible


def main() -> None:
    """Print both lines."""
    cuts = [local(9100 + case) for case in range(CASES)]
    no_worse = sum(ours <= even + 1e-9 for ours, even in cuts)
    ours, even = (statistics.median(column) for column in zip(*cuts, strict=True))
    print(f"local: at or below even in {no_worse} of {CASES}; median {ours:.3f}, even {even:.3f}")
    kept = [narrow(9200 + case) for case in range(CASES)]
    ours_kept, metis_kept = (sum(column) for column in zip(*kept, strict=True))
    print(f"links: feasible {ours_kept} of {CASES}, metis {metis_kept}")


if __name__ == "__main__":
    main()
