"""The fewest nodes: subgraphs that talk most fill one node after the other (Ts Alg. 2, eq. 10)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, InstanceGraph, Plan, Reason
from penstock.model.load import ROUNDING, fraction
from penstock.strategies.place import Placed, register
from penstock.strategies.place.groups import group_capacity, group_demand
from penstock.strategies.place.processes import gather_pairs

#: Pairs of subgraphs that are looked at in one go for the first that fits.
CHUNK = 4096


@register
@dataclass(frozen=True)
class FewestNodes(Checked):
    """Fill the node with the most free CPU first, and leave the rest asleep.

    A node starts with the two subgraphs that exchange the most tuples and takes, again and again,
    the subgraph that exchanges the most with what is there, as long as it fits under `alpha` of
    the node's free CPU (Ts eq. 10); then comes the next node.

    Our readings: the weight of an edge between subgraphs is the sum of the rates between them, as
    in Ts eq. 3-4; a subgraph that does not fit is passed over, not the end of the node; one
    without an edge has the lightest; memory, I/O and slots, which Ts leaves aside, are limits
    without `alpha`. What is left when every node is full to `alpha` may fill nodes to the brim, and
    what fits nowhere at all goes where it does least harm: both are said in the reasons.
    """

    name: ClassVar[str] = "fewest-nodes"
    summary: ClassVar[str] = "heaviest edges first, one node after the other, the rest asleep"
    origin: ClassVar[str] = "Ts-Stream Alg. 2, eq. 10"

    alpha: float = param(0.7, "Part of a node's free CPU that may be used.", least=0, most=1)

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
        demand = group_demand(graph, groups, count)
        capacity = group_capacity(cluster)
        limit = capacity * np.array([[self.alpha], [1.0], [1.0], [1.0]])
        traffic = graph.between(groups, count)
        traffic = traffic + traffic.T
        np.fill_diagonal(traffic, 0.0)

        node_at = np.full(count, -1, dtype=np.int64)
        pairs = heaviest_pairs(traffic)
        for node in _most_free_first(cluster, running):
            open_ = (node_at < 0) & (demand[3] > 0)
            if not open_.any():
                break
            pairs = pairs[:, open_[pairs[0]] & open_[pairs[1]]]
            members = fill(traffic, demand, limit[:, node], open_, pairs)
            node_at[members] = node
        left = np.flatnonzero((node_at < 0) & (demand[3] > 0))
        beyond, nowhere = _brim(traffic, demand, capacity, node_at, left)
        node_at[demand[3] == 0] = 0
        node_of = node_at[groups]
        reasons = [_summary(graph, cluster, node_of, self.alpha, count)]
        if beyond:
            text = f"{beyond} of {count} subgraphs did not fit under {self.alpha:g} of the free CPU"
            reasons.append(Reason(text, {"beyond": beyond, "alpha": self.alpha}))
        if nowhere:
            text = f"{nowhere} of {count} subgraphs fit on no node"
            reasons.append(Reason(text, {"nowhere": nowhere}))
        return Placed(node_of, gather_pairs(graph, cluster, node_of), tuple(reasons))


def heaviest_pairs(traffic: FloatArray) -> IntArray:
    """Pairs of subgraphs that exchange tuples, the heaviest edge first, in two rows."""
    first, second = np.nonzero(np.triu(traffic, 1))
    order = np.argsort(-traffic[first, second], kind="stable")
    return np.stack([first[order], second[order]])


def fill(
    traffic: FloatArray,
    demand: FloatArray,
    limit: FloatArray,
    open_: np.ndarray[tuple[int], np.dtype[np.bool_]],
    pairs: IntArray,
) -> IntArray:
    """Choose the subgraphs of one empty node (Ts Alg. 2, steps 12-18)."""
    allowed = limit * (1 + ROUNDING) + ROUNDING
    chosen = _seed(demand, allowed, pairs)
    open_ = open_.copy()
    open_[chosen] = False
    pull = traffic[chosen].sum(axis=0)
    load = demand[:, chosen].sum(axis=1)
    while True:
        fits = open_ & (load[:, None] + demand <= allowed[:, None]).all(axis=0)
        candidates = np.flatnonzero(fits)
        if not len(candidates):
            return np.array(chosen, dtype=np.int64)
        # Among equal edges the subgraph that needs the most CPU: it is the hardest to place later.
        best = candidates[np.lexsort((-demand[0, candidates], -pull[candidates]))[0]]
        chosen.append(int(best))
        open_[best] = False
        pull = pull + traffic[best]
        load = load + demand[:, best]


def _seed(demand: FloatArray, allowed: FloatArray, pairs: IntArray) -> list[int]:
    """Find the heaviest pair that fits on the empty node; nothing when none does."""
    for start in range(0, pairs.shape[1], CHUNK):
        first, second = pairs[:, start : start + CHUNK]
        fits = (demand[:, first] + demand[:, second] <= allowed[:, None]).all(axis=0)
        if fits.any():
            at = int(np.argmax(fits))
            return [int(first[at]), int(second[at])]
    return []


def _most_free_first(cluster: Cluster, running: Plan | None) -> list[int]:
    """Nodes in descending order of free CPU; of equals those first that are awake."""
    awake = set(running.active) if running else set()
    asleep = np.array([name not in awake for name in cluster.names])
    order = np.lexsort((np.arange(len(cluster)), asleep, -cluster.cpu_cores))
    return [int(node) for node in order]


def _brim(
    traffic: FloatArray,
    demand: FloatArray,
    capacity: FloatArray,
    node_at: IntArray,
    left: IntArray,
) -> tuple[int, int]:
    """Place what is left up to the full capacity, then anywhere; count both. Changes `node_at`."""
    beyond = nowhere = 0
    load = np.zeros_like(capacity)
    placed = np.flatnonzero(node_at >= 0)
    np.add.at(load.T, node_at[placed], demand[:, placed].T)
    for group in left[np.argsort(-demand[0, left], kind="stable")].tolist():
        after = load + demand[:, group, None]
        fits = (after <= capacity * (1 + ROUNDING) + ROUNDING).all(axis=0)
        if fits.any():
            there = np.flatnonzero(node_at >= 0)
            near = group_sums(node_at[there], traffic[group, there], capacity.shape[1])
            used = (load[3] > 0) & fits
            node = int(np.argmax(np.where(used if used.any() else fits, near, -1.0)))
            beyond += 1
        else:
            node = int(np.argmin(fraction(after, capacity).max(axis=0)))
            nowhere += 1
        node_at[group] = node
        load[:, node] = after[:, node]
    return beyond, nowhere


def _summary(
    graph: InstanceGraph, cluster: Cluster, node_of: IntArray, alpha: float, count: int
) -> Reason:
    used = len(np.unique(node_of))
    return Reason(
        f"{count} subgraphs of {len(graph)} instances on {used} of {len(cluster)} nodes, heaviest "
        f"edges first, each filled to {alpha:g} of its free CPU",
        {"subgraphs": count, "nodes_used": used, "nodes": len(cluster), "alpha": alpha},
    )
