"""The working state of local search: how many instances of each class stand on each node.

Interchangeable instances (`InstanceGraph.classes`) need no names while they are moved about. A
graph of thousands of instances of a dozen operators is a table of a dozen rows, and the gain of
every possible move is read off it at once.
"""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import BoolArray, FloatArray, IntArray, group_counts
from penstock.model import Cluster, InstanceGraph
from penstock.model.load import ROUNDING


class ClassState:
    """Counts of classes on nodes, with the traffic and the load that follow.

    Parameters
    ----------
    graph : InstanceGraph
    cluster : Cluster
    node_of : array of int
        Node of each instance to start from.
    limit : float
        Largest use of any resource of a node, as a fraction of its capacity.

    Attributes
    ----------
    moves : int
        Moves made so far: the effort that a search may bound without reading a clock.
    """

    def __init__(
        self, graph: InstanceGraph, cluster: Cluster, node_of: IntArray, limit: float
    ) -> None:
        self.nodes = len(cluster)
        self.moves = 0
        self.class_of = graph.classes
        self.classes = int(self.class_of.max()) + 1
        self.rates = class_rates(graph)
        self.own = np.diagonal(self.rates).copy()
        _, first = np.unique(self.class_of, return_index=True)
        self.demand = np.stack(
            [
                graph.cpu_cores[first],
                graph.mem_mb[first],
                graph.io_mb_s[first],
                np.ones(self.classes),
            ]
        )
        room = cluster.processes * cluster.slots
        self.capacity = np.stack(
            [cluster.cpu_cores * limit, cluster.mem_mb * limit, cluster.io_mb_s * limit, room]
        )
        self.allowed = self.capacity * (1 + ROUNDING) + ROUNDING
        self.scale = np.maximum(self.capacity.max(axis=1, keepdims=True), ROUNDING)
        self.stand(node_of)

    def stand(self, node_of: IntArray) -> None:
        """Stand every instance where `node_of` says."""
        cells = self.class_of * self.nodes + node_of
        counts = group_counts(cells, self.classes * self.nodes)
        self.set_counts(counts.reshape(self.classes, self.nodes))

    def set_counts(self, counts: IntArray) -> None:
        """Stand the classes as `counts` says."""
        self.counts = counts.copy()
        self.pull = self.rates @ self.counts
        self.load = self.demand @ self.counts

    def move(self, what: int, origin: int, target: int) -> None:
        """Move one instance of class `what`."""
        self.moves += 1
        self.counts[what, origin] -= 1
        self.counts[what, target] += 1
        rates = self.rates[:, what]
        self.pull[:, origin] -= rates
        self.pull[:, target] += rates
        self.load[:, origin] -= self.demand[:, what]
        self.load[:, target] += self.demand[:, what]

    @property
    def internal(self) -> float:
        """Undirected tuples per second that stay on a node."""
        return 0.5 * float((self.counts * (self.pull - self.own[:, None])).sum())

    def overloaded(self) -> IntArray:
        """Nodes that are over a limit."""
        return np.flatnonzero((self.load > self.allowed).any(axis=0))

    def excess(self) -> float:
        """Sum of all that is over a limit, each resource relative to the largest capacity."""
        return float((np.maximum(self.load - self.allowed, 0.0) / self.scale).sum())

    def fits(self, slack: FloatArray | float = 0.0) -> BoolArray:
        """Whether one more of each class (row) fits on each node, `slack` above the limit."""
        after = self.load[:, None, :] + self.demand[:, :, None]
        return np.asarray((after <= (self.allowed + slack)[:, None, :]).all(axis=0))

    def node_of(self, start: IntArray) -> IntArray:
        """Name the instances again, leaving as many as possible where they stand in `start`."""
        node_of = start.copy()
        for what in range(self.classes):
            members = np.flatnonzero(self.class_of == what)
            wanted = self.counts[what].copy()
            homeless: list[int] = []
            for instance in members.tolist():
                node = int(start[instance])
                if wanted[node] > 0:
                    wanted[node] -= 1
                else:
                    homeless.append(instance)
            node_of[homeless] = np.repeat(np.arange(self.nodes), wanted)
        return node_of


def class_rates(graph: InstanceGraph) -> FloatArray:
    """Tuples per second, both ways, between one instance of each class and one of each other.

    On the diagonal: between two different instances of the class.
    """
    class_of = graph.classes
    count = int(class_of.max()) + 1
    rates = np.zeros((count, count))
    for flow in graph.flows:
        source, target = class_of[flow.sources], class_of[flow.targets]
        if flow.matrix is not None:
            rates[np.ix_(source, target)] += flow.matrix
        else:
            sent, got = np.zeros(count), np.zeros(count)
            sent[source] = flow.out
            got[target] = flow.share
            rates += np.outer(sent, got)
    return rates + rates.T
