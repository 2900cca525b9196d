"""The model's figures once more, in plain loops over every pair: slow, and easy to believe."""

from __future__ import annotations

from collections import defaultdict

from penstock.common.arrays import IntArray
from penstock.model import Cluster, InstanceGraph

#: Rounding that a comparison with a capacity forgives.
SLACK = 1e-6


def broken_limits(
    graph: InstanceGraph, cluster: Cluster, node_of: IntArray, process_of: IntArray
) -> set[tuple[str, str]]:
    """Return the limits that a placement breaks, as (resource, where) of the model's violations."""
    demand: dict[tuple[str, str], float] = defaultdict(float)
    capacity: dict[tuple[str, str], float] = {}
    for i in range(len(graph)):
        node = cluster.nodes[int(node_of[i])]
        where = f"node {node.name!r}"
        process = f"process {int(process_of[i])} of {where}"
        for resource, place, needed, limit in (
            ("CPU", where, graph.cpu_cores[i], node.cpu_cores),
            ("memory", where, graph.mem_mb[i], node.mem_mb),
            ("I/O", where, graph.io_mb_s[i], node.io_mb_s),
            ("room", process, 1, node.slots),
        ):
            demand[resource, place] += float(needed)
            capacity[resource, place] = float(limit)
    return {key for key, sum_ in demand.items() if sum_ > capacity[key] * (1 + SLACK) + SLACK}


def traffic_by_tier(
    graph: InstanceGraph, node_of: IntArray, process_of: IntArray
) -> tuple[float, float, float]:
    """Tuples per second in process, in node and across nodes, pair by pair."""
    tiers = [0.0, 0.0, 0.0]
    spot = list(zip(node_of.tolist(), process_of.tolist(), strict=True))
    for flow in graph.flows:
        targets = range(flow.targets.start, flow.targets.stop)
        for row, source in enumerate(range(flow.sources.start, flow.sources.stop)):
            rates = {t: float(flow.pairs[row, k]) for k, t in enumerate(targets)}
            near = [t for t in targets if spot[t] == spot[source]]
            if flow.is_local and flow.matrix is None and near:
                # A target in the own process gets all; which of several does not matter here.
                tiers[0] += float(flow.out[row])
                continue
            for target, rate in rates.items():
                same_node = node_of[source] == node_of[target]
                tiers[0 if target in near else 1 if same_node else 2] += rate
    return tiers[0], tiers[1], tiers[2]
