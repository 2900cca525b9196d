"""One subgraph, one node: the assignment that leaves the least idle (Sl Alg. 2, eq. 11-14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from penstock.common.arrays import FloatArray, IntArray
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, InstanceGraph, Plan, Reason
from penstock.model.load import ROUNDING, fraction
from penstock.strategies.place import Placed, register
from penstock.strategies.place.groups import group_capacity, group_demand
from penstock.strategies.place.processes import gather_pairs

#: Weight of a group's instances that stay where they run: it decides between equal costs only.
STAYING = 1e-6

#: Groups that fit nowhere and are named in the reasons.
NAMED = 5


@register
@dataclass(frozen=True)
class Matching(Checked):
    """Match subgraphs to nodes at the least cost.

    The cost of a pair is the weighted CPU and memory that the node has left over (Sl eq. 14), as
    shares of its capacities, since cores and MB cannot be added. A pair that does not fit costs
    infinity and is never matched: as many subgraphs as possible are matched, at the least cost of
    all such matchings, and the others are reported. The assignment is solved by the library, which
    takes more nodes than subgraphs as they are.

    Ours: I/O and slots count as limits; equal costs are decided in favour of where a subgraph's
    instances run now; and with more subgraphs than nodes, what is left is matched in further
    rounds onto the capacities that are left.
    """

    name: ClassVar[str] = "matching"
    summary: ClassVar[str] = "minimum-cost one-to-one matching of subgraphs and nodes"
    origin: ClassVar[str] = "Sl-Stream Alg. 2, eq. 11-14"

    mu: float = param(0.5, "Weight of CPU; memory has the rest.", least=0, most=1)

    def place(
        self,
        graph: InstanceGraph,
        groups: IntArray,
        count: int,
        cluster: Cluster,
        running: Plan | None,
        rng: np.random.Generator,
    ) -> Placed:
        """Put each group on a node; see `Placer.place`."""
        demand, capacity = group_demand(graph, groups, count), group_capacity(cluster)
        stays = _staying(graph, groups, count, cluster, running)
        load = np.zeros_like(capacity)
        node_at = np.full(count, -1, dtype=np.int64)
        left = np.flatnonzero(demand[3] > 0)
        cost, rounds = 0.0, 0
        while len(left):
            costs = self.costs(demand[:, left], capacity, capacity - load)
            match = assign(costs - STAYING * stays[left])
            done = match >= 0
            if not done.any():
                break
            rounds += 1
            cost += float(costs[done, match[done]].sum())
            node_at[left[done]] = match[done]
            load[:, match[done]] += demand[:, left[done]]
            left = left[~done]
        reasons = [_summary(count, cluster, node_at, cost, rounds)]
        reasons += _misfits(demand, capacity - load, left)
        for group in left[np.argsort(-demand[0, left], kind="stable")].tolist():
            after = load + demand[:, group, None]
            node = int(np.argmin(fraction(after, capacity).max(axis=0)))
            node_at[group] = node
            load[:, node] = after[:, node]
        node_at[demand[3] == 0] = 0
        node_of = node_at[groups]
        return Placed(node_of, gather_pairs(graph, cluster, node_of), tuple(reasons))

    def costs(self, demand: FloatArray, capacity: FloatArray, free: FloatArray) -> FloatArray:
        """Cost of each subgraph (row) on each node: what is left over of it (Sl eq. 14).

        ``mu * (free CPU - CPU) + (1 - mu) * (free memory - memory)``, both as shares of the node's
        capacity; infinite where the subgraph does not fit (Sl eq. 11).

        Parameters
        ----------
        demand : array
            Cores, MB, MB/s and instances (rows) of each subgraph.
        capacity, free : array
            The same of each node: all that it has, and what of it is free.
        """
        over = free[:, None, :] - demand[:, :, None]
        fits = (over >= -(capacity * ROUNDING + ROUNDING)[:, None, :]).all(axis=0)
        spare = over[:2] / np.maximum(capacity[:2], ROUNDING)[:, None, :]
        cost = self.mu * spare[0] + (1.0 - self.mu) * spare[1]
        return np.where(fits, cost, np.inf)


def assign(costs: FloatArray) -> IntArray:
    """Column of each row, -1 where none is left: as many rows as possible, then the least cost.

    Examples
    --------
    >>> assign(np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, np.inf, 2.0]])).tolist()
    [1, 0, 2]
    >>> assign(np.array([[1.0, np.inf], [1.0, np.inf]])).tolist()
    [0, -1]
    """
    match = np.full(len(costs), -1, dtype=np.int64)
    finite = np.isfinite(costs)
    if not finite.any():
        return match
    # Dearer than any set of finite pairs, so that it is only taken when there is no other.
    span = float(costs[finite].max() - costs[finite].min()) + 1.0
    forbidden = float(costs[finite].max()) + span * (min(costs.shape) + 1)
    rows, columns = linear_sum_assignment(np.where(finite, costs, forbidden))
    allowed = finite[rows, columns]
    match[rows[allowed]] = columns[allowed]
    return match


def _staying(
    graph: InstanceGraph, groups: IntArray, count: int, cluster: Cluster, running: Plan | None
) -> FloatArray:
    """Part of each group's instances that run on each node now."""
    table = np.zeros((count, len(cluster)))
    if running is None or len(running.node_of) != len(graph):
        return table
    now = running.node_of_in(cluster)
    there = now >= 0
    np.add.at(table, (groups[there], now[there]), 1.0)
    table /= np.maximum(table.sum(axis=1, keepdims=True), 1.0)
    return table


def _summary(count: int, cluster: Cluster, node_at: IntArray, cost: float, rounds: int) -> Reason:
    matched, used = int((node_at >= 0).sum()), len(np.unique(node_at[node_at >= 0]))
    text = f"{matched} of {count} subgraphs matched to {used} of {len(cluster)} nodes"
    if rounds > 1:
        text += f" in {rounds} rounds, the later ones onto what was left free"
    figures = {"subgraphs": count, "matched": matched, "nodes_used": used, "rounds": rounds}
    return Reason(text, {**figures, "cost": cost})


def _misfits(demand: FloatArray, free: FloatArray, left: IntArray) -> list[Reason]:
    reasons = [
        Reason(
            f"subgraph {group} fits on no node: {demand[0, group]:.4g} cores, "
            f"{demand[1, group]:.4g} MB, {demand[3, group]:.0f} instances; "
            f"at most {free[0].max():.4g} cores, {free[1].max():.4g} MB, "
            f"{free[3].max():.0f} slots are free on one",
            {"cpu_cores": float(demand[0, group]), "mem_mb": float(demand[1, group])},
        )
        for group in left[:NAMED].tolist()
    ]
    if len(left) > NAMED:
        more = len(left) - NAMED
        reasons.append(Reason(f"{more} more subgraphs fit on no node", {"subgraphs": more}))
    return reasons
