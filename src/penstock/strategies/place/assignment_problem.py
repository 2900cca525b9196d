"""The exact assignment problem: instances in the order of the search, and what bounds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.model import Cluster, InstanceGraph
from penstock.model.load import ROUNDING, fraction


@dataclass(frozen=True, eq=False)
class Problem:
    """What is to be placed where, in the order in which the search goes through it.

    Parameters
    ----------
    order : array of int
        Instance at each depth of the search.
    rates : array
        Tuples per second, both ways, between the instances of any two depths.
    demand, capacity : array
        CPU, memory, I/O and slots (rows) of each depth and of each node, with what rounding
        forgives added to the capacity.
    previous : array of int
        Depth of the interchangeable instance before, or -1.
    alike : array of int
        Number of each node's kind.
    local : tuple
        Edges that cost nothing where any target is on the sender's node: depths of the senders,
        their rates, and depths of the targets.
    must_use : int
        Nodes that must be used at least.
    load_unit : array
        Whole CPU, memory and I/O of each node, for its load.
    """

    order: IntArray
    rates: FloatArray
    demand: FloatArray
    capacity: FloatArray
    previous: IntArray
    alike: IntArray
    local: tuple[tuple[IntArray, FloatArray, IntArray], ...]
    must_use: int
    load_unit: FloatArray

    @classmethod
    def of(
        cls, graph: InstanceGraph, cluster: Cluster, limit: float, *, use_every_node: bool
    ) -> Problem:
        """Set up the search.

        Parameters
        ----------
        limit : float
            Largest load of a node, as a fraction of its CPU, memory and I/O.
        use_every_node : bool
            Leave no node empty, as far as there are instances.
        """
        rates = np.zeros((len(graph), len(graph)))
        for flow in graph.flows:
            if flow.is_local and flow.matrix is None:
                continue
            rates[flow.sources, flow.targets] += flow.pairs
            rates[flow.targets, flow.sources] += flow.pairs.T
        np.fill_diagonal(rates, 0.0)
        order = _visiting_order(graph, rates)
        depth = np.argsort(order)
        local = tuple(
            (
                depth[flow.sources],
                np.asarray(flow.out, dtype=np.float64),
                depth[flow.targets],
            )
            for flow in graph.flows
            if flow.is_local and flow.matrix is None
        )
        previous = np.full(len(order), -1, dtype=np.int64)
        last: dict[int, int] = {}
        for d, mark in enumerate(graph.classes[order].tolist()):
            previous[d] = last.get(mark, -1)
            last[mark] = d
        room = (cluster.processes * cluster.slots).astype(np.float64)
        whole = np.stack([cluster.cpu_cores, cluster.mem_mb, cluster.io_mb_s])
        capacity = np.vstack([whole * limit * (1 + ROUNDING) + ROUNDING, room + 0.5])
        demand = np.stack([graph.cpu_cores, graph.mem_mb, graph.io_mb_s, np.ones(len(graph))])
        _, alike = np.unique(np.vstack([whole, room]).T, axis=0, return_inverse=True)
        return cls(
            order=order,
            rates=rates[np.ix_(order, order)],
            demand=demand[:, order],
            capacity=capacity,
            previous=previous,
            alike=np.asarray(alike, dtype=np.int64).ravel(),
            local=local,
            must_use=min(len(cluster), len(graph)) if use_every_node else 0,
            load_unit=whole,
        )

    def loads(self, use: FloatArray) -> FloatArray:
        """Use of the busiest resource of each node, as a fraction."""
        return np.asarray(np.max([fraction(use[r], self.load_unit[r]) for r in range(3)], axis=0))

    def local_cut(self, node: IntArray, placed: int) -> float:
        """Tuples per second that local edges are sure to send across nodes."""
        lost = 0.0
        for senders, out, targets in self.local:
            if targets.max() >= placed:
                continue
            inside = np.isin(node[senders], node[targets]) | (senders >= placed)
            lost += float(out[~inside].sum())
        return lost


def _visiting_order(graph: InstanceGraph, rates: FloatArray) -> IntArray:
    """Classes that exchange the most with those before come next; instances of one in a row."""
    classes = graph.classes
    count = int(classes.max()) + 1
    member = np.zeros((count, len(graph)))
    member[classes, np.arange(len(graph))] = 1.0
    between = member @ rates @ member.T
    reach = between.sum(axis=1)
    weight = member @ graph.cpu_cores
    order: list[int] = []
    left = list(range(count))
    pull = np.zeros(count)
    while left:
        following = max(left, key=lambda c: (pull[c], reach[c], weight[c], -c))
        left.remove(following)
        pull += between[following]
        order.extend(np.flatnonzero(classes == following).tolist())
    return np.array(order, dtype=np.int64)


def joining(problem: Problem) -> FloatArray:
    """Half of what each instance could keep with instances from depth d on, on each node.

    A fractional knapsack in each resource: the partners that exchange the most for what they need
    join it on the otherwise empty node, until the node is full.

    Returns
    -------
    array
        For each depth d, instance and node.
    """
    n = len(problem.order)
    kinds, kind_of = np.unique(problem.capacity.T, axis=0, return_inverse=True)
    keep = np.full((n + 1, n, len(kinds)), np.inf)
    later = np.arange(n)[None, :] >= np.arange(n + 1)[:, None]
    for r in range(4):
        need = problem.demand[r]
        for i in range(n):
            value = problem.rates[i]
            worth = np.where(need > 0, value / np.where(need > 0, need, 1.0), np.inf)
            order = np.argsort(-worth, kind="stable")
            order = order[value[order] > 0]
            room = np.maximum(kinds[:, r] - need[i], 0.0)
            # Cumulative need and value of the partners of each depth, best first.
            here = later[:, order]
            filled = np.cumsum(here * need[order], axis=1)
            gained = np.cumsum(here * value[order], axis=1)
            for v in range(len(kinds)):
                keep[:, i, v] = np.minimum(
                    keep[:, i, v], _fill(room[v], here, filled, gained, need[order], value[order])
                )
    return np.asarray(0.5 * keep[:, :, kind_of.ravel()], dtype=np.float64)


def _fill(
    room: float,
    here: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
    filled: FloatArray,
    gained: FloatArray,
    need: FloatArray,
    value: FloatArray,
) -> FloatArray:
    """Value of the fractional knapsack of each depth."""
    depths = len(here)
    if not len(need):
        return np.zeros(depths)
    over = filled > room
    first = np.where(over.any(axis=1), over.argmax(axis=1), len(need))
    rows = np.arange(depths)
    before = first - 1
    whole = np.where(before >= 0, gained[rows, np.maximum(before, 0)], 0.0)
    used = np.where(before >= 0, filled[rows, np.maximum(before, 0)], 0.0)
    at = np.minimum(first, len(need) - 1)
    part = np.where(first < len(need), (room - used) / np.maximum(need[at], 1e-300), 0.0)
    return np.asarray(whole + np.clip(part, 0.0, 1.0) * value[at], dtype=np.float64)
