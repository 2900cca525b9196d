"""Ms-Stream's placer: the heaviest group to the lightest node that is awake (Ms Alg. 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, InstanceGraph, Plan, Reason
from penstock.model.load import ROUNDING, fraction
from penstock.strategies.place import Placed, register
from penstock.strategies.place.groups import group_capacity, group_demand
from penstock.strategies.place.processes import gather_pairs


@register
@dataclass(frozen=True)
class Padding(Checked):
    """Groups in descending load onto nodes in ascending load, those awake first.

    The head of the groups meets the head of the nodes that are awake: where their loads together
    stay within the threshold (eq. 37) they are a pair and both leave their queues, otherwise the
    group wakes a node that sleeps. Nodes of the running plan are awake. The load of a group is
    ``mu * cpu + (1 - mu) * memory`` (eq. 9) as a share of the node that it would stand on.

    Ours, where the paper is silent: a node that some limit rules out, I/O and slots included, takes
    no group; of equally loaded nodes the one comes first that runs most of the group already, then
    the one with the most capacity; and groups that are left when every node has one go, heaviest
    first, to the node that they load least.
    """

    name: ClassVar[str] = "padding"
    summary: ClassVar[str] = "heaviest group to the lightest node awake, else wake one"
    origin: ClassVar[str] = "Ms-Stream Alg. 3, eq. 36-37"

    mu: float = param(0.5, "Weight of CPU in a load; memory has the rest.", least=0, most=1)
    threshold: float = param(
        0.8, "Load of a node that is not exceeded while one sleeps (xi).", least=0, unit="of a node"
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
        """Put each group on a node; see `Placer.place`."""
        demand, capacity = group_demand(graph, groups, count), group_capacity(cluster)
        now = _now(graph, cluster, running)
        awake = np.zeros(len(cluster), dtype=bool)
        awake[now[now >= 0]] = True
        started = awake.copy()
        free = np.ones(len(cluster), dtype=bool)
        load = np.zeros_like(capacity)
        node_at = np.zeros(count, dtype=np.int64)
        filled = np.flatnonzero(demand[3] > 0)
        weight = self._load(demand, capacity.sum(axis=1, keepdims=True))
        doubled = 0
        for group in filled[np.argsort(-weight[filled], kind="stable")].tolist():
            after = load + demand[:, group, None]
            reached = self._load(after, capacity)
            fits = (after <= capacity * (1 + ROUNDING) + ROUNDING).all(axis=0)
            fits &= reached <= self.threshold + ROUNDING
            stays = np.bincount(now[(groups == group) & (now >= 0)], minlength=len(cluster))
            queue = np.lexsort((-capacity[0], -stays, self._load(load, capacity)))
            node = _head(queue, awake & free & fits)
            if node is None:
                node = _head(queue, ~awake & fits)
            if node is None:
                # Every node has its group, or none has the room: where it hurts least.
                doubled += 1
                node = _head(np.argsort(reached, kind="stable"), fits)
            if node is None:
                node = int(np.argmin(fraction(after, capacity).max(axis=0)))
            node_at[group] = node
            load[:, node] = after[:, node]
            awake[node], free[node] = True, False
        node_of = node_at[groups]
        used = len(np.unique(node_of))
        woken = int((awake & ~started).sum()) if running is not None else used
        text = f"{len(filled)} groups padded onto {used} of {len(cluster)} nodes, {woken} woken"
        if doubled:
            text += f"; {doubled} had to share a node or go above {self.threshold:g}"
        figures = {
            "groups": len(filled),
            "nodes_used": used,
            "woken": woken,
            "threshold": self.threshold,
            "highest": float(self._load(load, capacity).max()),
        }
        process_of = gather_pairs(graph, cluster, node_of)
        return Placed(node_of, process_of, (Reason(text, figures),))

    def _load(self, demand: FloatArray, capacity: FloatArray) -> FloatArray:
        """Load figure (eq. 9) of what stands on each node, or of each group on all of them."""
        whole = np.broadcast_to(capacity, demand.shape)
        cpu, mem = fraction(demand[0], whole[0]), fraction(demand[1], whole[1])
        return np.asarray(self.mu * cpu + (1.0 - self.mu) * mem, dtype=np.float64)


def _now(graph: InstanceGraph, cluster: Cluster, running: Plan | None) -> IntArray:
    """Node that runs each instance now; -1 where none does."""
    if running is None or len(running.node_of) != len(graph):
        return np.full(len(graph), -1, dtype=np.int64)
    return running.node_of_in(cluster)


def _head(queue: IntArray, allowed: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int | None:
    """First of the queue that is allowed."""
    found = queue[allowed[queue]]
    return int(found[0]) if len(found) else None
