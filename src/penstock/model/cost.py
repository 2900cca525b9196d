"""What a placement costs: traffic by tier, load, imbalance, latency, and what it violates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_counts, group_sums
from penstock.common.errors import InvalidValue
from penstock.model.cluster import Cluster
from penstock.model.instances import InstanceGraph
from penstock.model.links import across_mb_s
from penstock.model.load import ROUNDING, NodeUse, fraction, lin, lit

#: A node is never assumed busier than this when its queueing delay is estimated.
SATURATED = 0.99


@dataclass(frozen=True)
class TierCosts:
    """What one tuple costs on its way, in microseconds.

    Ra eq. 22-23 set the cost inside a process to 0 and leave the other two open; the defaults here
    keep their order. Only their ratios matter to a comparison.
    """

    in_process_us: float = 0.0
    in_node_us: float = 20.0
    across_us: float = 100.0

    def __post_init__(self) -> None:
        if not 0 <= self.in_process_us <= self.in_node_us <= self.across_us:
            raise InvalidValue(
                "tiers",
                "tier costs",
                "in ascending order: in process, in node, across nodes",
                (self.in_process_us, self.in_node_us, self.across_us),
            )


@dataclass(frozen=True)
class LoadWeights:
    """Weights of the one load figure ``alpha*cpu + beta*mem + (1-alpha-beta)*io`` (Ra eq. 6).

    The defaults are Ra table 4's.
    """

    alpha: float = 0.50
    beta: float = 0.35

    def __post_init__(self) -> None:
        if not (0 <= self.alpha <= 1 and 0 <= self.beta <= 1 and self.alpha + self.beta <= 1):
            raise InvalidValue(
                "weights", "the load figure", "between 0 and 1 with a sum of at most 1", self
            )

    def combine(self, cpu: FloatArray, mem: FloatArray, io: FloatArray) -> FloatArray:
        """Weigh the three utilisations into one figure."""
        rest = 1.0 - self.alpha - self.beta
        return np.asarray(self.alpha * cpu + self.beta * mem + rest * io, dtype=np.float64)


@dataclass(frozen=True)
class Violation:
    """One limit that a plan breaks: where, by how much, in which unit."""

    resource: str
    where: str
    demand: float
    capacity: float
    unit: str

    def __str__(self) -> str:
        return (
            f"{self.where} needs {self.demand:.4g} {self.unit} of {self.resource}, "
            f"has {self.capacity:.4g}"
        )


@dataclass(frozen=True)
class Cost:
    """The figures of one placement.

    Parameters
    ----------
    in_process_per_s, in_node_per_s, across_per_s : float
        Tuples per second by tier.
    communication_us_per_s : float
        Cost of all transfers: rates times the cost of their tier (Ra eq. 22-23).
    node_load : mapping of str to float
        Use of the busiest resource of each node that holds an instance, as a fraction.
    process_load : mapping of str to float
        Cores used by each process that holds an instance, as a fraction of its node's cores.
    lin : float
        Imbalance of the weighted load over the nodes in use (Ms eq. 38).
    lit : mapping of str to float
        Imbalance of the tuples over the instances of each operator that is stateful or splittable
        (Ms eq. 10).
    latency_ms : float or None
        Estimate along the slowest path; None when no tuple flows. See `estimate_latency_ms`.
    across_mb_s : float
        Bytes between nodes, in MB/s.
    across_racks_mb_s : float
        Bytes between racks, in MB/s.
    """

    in_process_per_s: float
    in_node_per_s: float
    across_per_s: float
    communication_us_per_s: float
    node_load: Mapping[str, float]
    process_load: Mapping[str, float]
    lin: float
    lit: Mapping[str, float] = field(default_factory=dict)
    latency_ms: float | None = None
    across_mb_s: float = 0.0
    across_racks_mb_s: float = 0.0

    @property
    def total_per_s(self) -> float:
        """Tuples per second over all tiers."""
        return self.in_process_per_s + self.in_node_per_s + self.across_per_s

    @property
    def cut_share(self) -> float:
        """Part of the tuples that crosses nodes; 0 when none flow."""
        total = self.total_per_s
        return self.across_per_s / total if total > 0 else 0.0

    @property
    def in_process_share(self) -> float:
        """Part of the tuples that stays in a process; 0 when none flow."""
        total = self.total_per_s
        return self.in_process_per_s / total if total > 0 else 0.0

    @property
    def nodes_used(self) -> int:
        """Nodes that hold at least one instance."""
        return len(self.node_load)

    @property
    def max_node_load(self) -> float:
        """Use of the busiest resource anywhere; above 1 a node is over its capacity."""
        return max(self.node_load.values(), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "in_process_per_s": self.in_process_per_s,
            "in_node_per_s": self.in_node_per_s,
            "across_per_s": self.across_per_s,
            "communication_us_per_s": self.communication_us_per_s,
            "node_load": dict(self.node_load),
            "process_load": dict(self.process_load),
            "lin": self.lin,
            "lit": dict(self.lit),
            "latency_ms": self.latency_ms,
            "across_mb_s": self.across_mb_s,
            "across_racks_mb_s": self.across_racks_mb_s,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cost:
        """Read back what `to_dict` wrote."""
        return cls(**values)


def evaluate(
    graph: InstanceGraph,
    cluster: Cluster,
    node_of: IntArray,
    process_of: IntArray,
    tiers: TierCosts | None = None,
    weights: LoadWeights | None = None,
) -> Cost:
    """Work out the figures of a placement.

    Parameters
    ----------
    graph : InstanceGraph
    cluster : Cluster
    node_of : array of int
        Node of each instance, as its position in the cluster.
    process_of : array of int
        Process of each instance, counted from 0 within its node.
    tiers : TierCosts, optional
    weights : LoadWeights, optional
    """
    tiers = tiers or TierCosts()
    weights = weights or LoadWeights()
    process = cluster.first_process[node_of] + process_of
    in_process, in_node, across = (np.array(t) for t in _by_tier(graph, cluster, node_of, process))
    totals = (float(in_process.sum()), float(in_node.sum()), float(across.sum()))

    use = NodeUse.of(graph, cluster, node_of)
    busiest = use.busiest(cluster)
    weighted = weights.combine(*use.fractions(cluster))
    used = np.flatnonzero(use.instances)
    processes = int(cluster.processes.sum())
    cores = group_sums(process, graph.cpu_cores, processes)
    owner = np.repeat(np.arange(len(cluster)), cluster.processes)
    held = np.flatnonzero(group_counts(process, processes))
    share = fraction(cores, cluster.cpu_cores[owner])
    names = cluster.names
    return Cost(
        in_process_per_s=totals[0],
        in_node_per_s=totals[1],
        across_per_s=totals[2],
        communication_us_per_s=totals[0] * tiers.in_process_us
        + totals[1] * tiers.in_node_us
        + totals[2] * tiers.across_us,
        node_load={names[i]: float(busiest[i]) for i in used},
        process_load={
            f"{names[owner[p]]}/{int(p - cluster.first_process[owner[p]])}": float(share[p])
            for p in held
        },
        lin=lin(weighted[used]),
        lit={
            o.name: lit(graph.rate_in[graph.span(o.name)])
            for o in graph.topology.operators
            if o.routed
        },
        latency_ms=estimate_latency_ms(
            graph, use.fractions(cluster)[0][node_of], (in_process, in_node, across), tiers
        ),
        across_mb_s=across_mb_s(graph, node_of),
        across_racks_mb_s=across_mb_s(graph, cluster.rack[node_of]),
    )


def violations(
    graph: InstanceGraph, cluster: Cluster, node_of: IntArray, process_of: IntArray
) -> tuple[Violation, ...]:
    """Limits that a placement breaks: CPU, memory, I/O and link of a node, slots of a process."""
    use = NodeUse.of(graph, cluster, node_of)
    found: list[Violation] = []
    for resource, unit, demand, capacity in (
        ("CPU", "cores", use.cpu_cores, cluster.cpu_cores),
        ("memory", "MB", use.mem_mb, cluster.mem_mb),
        ("I/O", "MB/s", use.io_mb_s, cluster.io_mb_s),
        ("link", "MB/s", use.link_mb_s, cluster.bandwidth_mb_s),
    ):
        over = demand > capacity * (1 + ROUNDING) + ROUNDING
        for i in np.flatnonzero(over):
            where = f"node {cluster.nodes[i].name!r}"
            found.append(Violation(resource, where, float(demand[i]), float(capacity[i]), unit))
    process = cluster.first_process[node_of] + process_of
    held = group_counts(process, int(cluster.processes.sum()))
    owner = np.repeat(np.arange(len(cluster)), cluster.processes)
    for p in np.flatnonzero(held > cluster.slots[owner]):
        node = cluster.nodes[owner[p]]
        where = f"process {int(p - cluster.first_process[owner[p]])} of node {node.name!r}"
        found.append(Violation("room", where, float(held[p]), float(node.slots), "slots"))
    return tuple(found)


def estimate_latency_ms(
    graph: InstanceGraph,
    cpu_use: FloatArray,
    tiers_per_s: tuple[FloatArray, FloatArray, FloatArray],
    tiers: TierCosts,
) -> float | None:
    """Estimate the time of a tuple along the slowest path, in milliseconds.

    Each operator takes its CPU time per tuple, stretched by ``1 / (1 - use)`` of the node it runs
    on (the mean over its instances, by their rates); each edge takes the cost of its tiers, by
    their shares. It knows no batches, bursts or garbage collection: it orders placements, and does
    not foretell a measured latency.

    Parameters
    ----------
    graph : InstanceGraph
    cpu_use : array
        CPU use of each instance's node.
    tiers_per_s : tuple of array
        Tuples per second of each flow in process, in node and across nodes.
    tiers : TierCosts
    """
    if graph.total_rate <= 0:
        return None
    stretch = 1.0 / (1.0 - np.minimum(cpu_use, SATURATED))
    rates = graph.rate_in
    service_us = np.divide(graph.cpu_cores * 1e6, rates, out=np.zeros_like(rates), where=rates > 0)
    arrival: dict[str, float] = dict.fromkeys(graph.topology.order, 0.0)
    leaving: dict[str, list[tuple[str, float]]] = {name: [] for name in arrival}
    closing = {id(edge) for edge in graph.topology.feedback}
    in_process, in_node, across = tiers_per_s
    for i, flow in enumerate(graph.flows):
        total = in_process[i] + in_node[i] + across[i]
        if id(flow.edge) in closing or total <= 0:
            continue
        cost = (
            in_process[i] * tiers.in_process_us
            + in_node[i] * tiers.in_node_us
            + across[i] * tiers.across_us
        )
        leaving[flow.edge.source].append((flow.edge.target, float(cost / total)))
    slowest = 0.0
    for name in graph.topology.order:
        span = graph.span(name)
        weight = float(rates[span].sum())
        own = (
            float((rates[span] * service_us[span] * stretch[span]).sum()) / weight
            if weight
            else 0.0
        )
        done = arrival[name] + own
        slowest = max(slowest, done)
        for target, cost_us in leaving[name]:
            arrival[target] = max(arrival[target], done + cost_us)
    return slowest / 1000.0


def _by_tier(
    graph: InstanceGraph, cluster: Cluster, node_of: IntArray, process: IntArray
) -> tuple[list[float], list[float], list[float]]:
    """Tuples per second of each flow: in process, in node, across nodes."""
    nodes, processes = len(cluster), int(cluster.processes.sum())
    in_process: list[float] = []
    in_node: list[float] = []
    across: list[float] = []
    for flow in graph.flows:
        if flow.is_local and flow.matrix is None:
            # The sender prefers targets of its own process, so the rates depend on the placement.
            present = group_counts(process[flow.targets], processes) > 0
            stays = present[process[flow.sources]]
            kept = float(flow.out[stays].sum())
            rest = np.where(stays, 0.0, flow.out)
            sent = group_sums(node_of[flow.sources], rest, nodes)
            got = group_sums(node_of[flow.targets], flow.share, nodes)
            near = float(sent @ got)
            in_process.append(kept)
            in_node.append(near)
            across.append(_snap(float(rest.sum() * flow.share.sum()) - near, flow.total))
            continue
        inside = float(flow.internal(process, processes).sum())
        same_node = float(flow.internal(node_of, nodes).sum())
        in_process.append(inside)
        in_node.append(_snap(same_node - inside, flow.total))
        across.append(_snap(flow.total - same_node, flow.total))
    return in_process, in_node, across


def _snap(value: float, scale: float) -> float:
    """Round what floating point left of a difference of equals to 0."""
    return 0.0 if value < scale * 1e-12 or math.isclose(value, 0.0, abs_tol=1e-12) else value
