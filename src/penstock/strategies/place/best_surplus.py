"""Each group to the node that it leaves the most to spare (Ra Alg. 3, eq. 13-15)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import BoolArray, FloatArray, IntArray, group_counts, group_sums
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, InstanceGraph, InvalidValue, Plan, Reason
from penstock.model.load import ROUNDING
from penstock.strategies.place import Placed, register
from penstock.strategies.place.processes import gather_pairs

#: Surpluses that differ by less than this are equal.
EQUAL = 1e-9


@register
@dataclass(frozen=True)
class BestSurplus(Checked):
    """Ra-Stream's placer: subgraphs to nodes, then the pairs that talk most into one process.

    Groups come in descending order of what they need, so that large ones still find a node; the
    paper takes them as they come. Resources are counted in units of the largest node, so that cores
    and megabytes can be weighed against each other. A node must have room for the group's CPU and
    memory (eq. 13); I/O and slots are limits of ours. Among equal surpluses the node wins that runs
    most of the group's state and instances already.
    """

    name: ClassVar[str] = "best-surplus"
    summary: ClassVar[str] = "each group to the node with the largest weighted surplus"
    origin: ClassVar[str] = "Ra-Stream, Alg. 3, eq. 13-15"

    gamma: float = param(0.50, "Weight of the CPU left over.", least=0, most=1)
    delta: float = param(0.35, "Weight of the memory left over.", least=0, most=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma + self.delta > 1 + ROUNDING:
            raise InvalidValue(
                "delta", type(self).__name__, f"at most 1 - gamma = {1 - self.gamma:g}", self.delta
            )

    def place(
        self,
        graph: InstanceGraph,
        groups: IntArray,
        count: int,
        cluster: Cluster,
        running: Plan | None,
        rng: np.random.Generator,
    ) -> Placed:
        """Put the groups on nodes and their tasks into processes."""
        demand = _sums(graph, groups, count)
        free = np.stack([cluster.cpu_cores, cluster.mem_mb, cluster.io_mb_s])
        unit = np.maximum(free.max(axis=1), ROUNDING)
        free = np.vstack([free, cluster.processes * cluster.slots])
        stays = _where_it_runs(graph, groups, count, cluster, running)
        node_of_group = np.zeros(count, dtype=np.int64)
        homeless = 0
        need = (demand[:3] / unit[:, None]).max(axis=0)
        for group in np.argsort(-need, kind="stable").tolist():
            if not demand[3, group]:
                continue
            surplus = self.surplus(free[:3], demand[:3, group], unit)
            fits = decides(free, demand[:, group])
            homeless += not fits.any()
            fitness = np.where(fits, surplus, -np.inf) if fits.any() else surplus
            best = np.flatnonzero(fitness >= fitness.max() - EQUAL)
            node = int(best[np.argmax(stays[group, best])])
            node_of_group[group] = node
            free[:, node] -= demand[:, group]
        node_of = node_of_group[groups]
        used = len(np.unique(node_of))
        filled = int((demand[3] > 0).sum())
        reasons = [
            Reason(
                f"each of {filled} groups where the most is left over, on {used} of "
                f"{len(cluster)} nodes",
                {"groups": filled, "nodes": used},
            )
        ]
        if homeless:
            text = f"{homeless} of {filled} groups fit on no node, and stand where least is missing"
            reasons.append(Reason(text, {"homeless": homeless}))
        return Placed(node_of, gather_pairs(graph, cluster, node_of), tuple(reasons))

    def surplus(self, free: FloatArray, demand: FloatArray, unit: FloatArray) -> FloatArray:
        """Weigh what each node has left after taking the demand (Ra eq. 15).

        Parameters
        ----------
        free : array
            CPU, memory and I/O (rows) of each node (columns).
        demand : array
            CPU, memory and I/O of the group.
        unit : array
            What counts as 1 of each.
        """
        weights = np.array([self.gamma, self.delta, 1.0 - self.gamma - self.delta])
        return np.asarray((weights / unit) @ (free - demand[:, None]), dtype=np.float64)


def decides(free: FloatArray, demand: FloatArray) -> BoolArray:
    """Whether each node has room for the demand (Ra eq. 13).

    The paper asks for more CPU and memory than the group needs; here a node that fits exactly is
    feasible, and I/O and slots count too.
    """
    return np.asarray(((free - demand[:, None]) >= -ROUNDING * (1 + demand[:, None])).all(axis=0))


def _sums(graph: InstanceGraph, groups: IntArray, count: int) -> FloatArray:
    """CPU, memory, I/O and slots of each group (Ra eq. 10)."""
    needs = [group_sums(groups, d, count) for d in (graph.cpu_cores, graph.mem_mb, graph.io_mb_s)]
    return np.vstack([*needs, group_counts(groups, count)])


def _where_it_runs(
    graph: InstanceGraph, groups: IntArray, count: int, cluster: Cluster, running: Plan | None
) -> FloatArray:
    """How much of each group (row) each node already runs: its instances, and state before all."""
    stays = np.zeros((count, len(cluster)))
    if running is None or dict(running.parallelism) != dict(graph.topology.parallelism):
        return stays
    current = running.node_of_in(cluster)
    there = np.flatnonzero(current >= 0)
    worth = 1.0 + 1e3 * graph.state_mb[there]
    np.add.at(stays, (groups[there], current[there]), worth)
    return stays
