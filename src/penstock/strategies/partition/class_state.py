"""The working state of local search: how many instances of each class stand on each node.

Interchangeable instances (`InstanceGraph.classes`) need no names while they are moved about. A
graph of thousands of instances of a dozen operators is a table of a dozen rows, and the gain of
every possible move is read off it at once.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from penstock.common.arrays import BoolArray, FloatArray, IntArray, group_counts
from penstock.model import Cluster, InstanceGraph
from penstock.model.links import megabytes, total_mb_s
from penstock.model.load import ROUNDING

#: Rows of a table: of some classes, or of every class.
Rows = IntArray | slice
EVERY = slice(None)

#: Classes up to which the rates between all of them are kept at hand.
FEW_CLASSES = 64

#: Seconds of an ordinary core: of a move, and of looking at a cell of the table.
MOVE_S, CELL_S = 8e-5, 1.2e-8


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
    real : bool
        Keep to the links of the nodes, too, and count ``local-or-shuffle`` as what it is: its
        tuples stay on a node that has any target.

    Attributes
    ----------
    work_s : float
        Effort spent so far, as the seconds that an ordinary core takes, told by what was looked at
        and moved: a search may bound it without reading a clock.
    """

    def __init__(
        self,
        graph: InstanceGraph,
        cluster: Cluster,
        node_of: IntArray,
        limit: float,
        *,
        real: bool = False,
    ) -> None:
        self.nodes = len(cluster)
        self.work_s = 0.0
        self.class_of = graph.classes
        self.classes = int(self.class_of.max()) + 1
        self.local = LocalFlows.of(graph) if real else None
        self.links = Links.of(graph, cluster, limit) if real else None
        self.rates = class_rates(graph, without_local=self.local is not None)
        if self.links is not None:
            # Where links are short, a tuple counts by its size, against that of the mean tuple.
            mean_mb = total_mb_s(graph) / max(graph.total_rate, ROUNDING)
            self.rates = self.links.rates / max(mean_mb, ROUNDING * ROUNDING)
        self.own = np.asarray(self.rates.diagonal(), dtype=np.float64)
        # Of many classes, each talks to a few: only these are looked at.
        sparse = sp.csc_array(self.rates) if self.classes > FEW_CLASSES else None
        self.near = None if sparse is None else Neighbours(sparse)
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
        self.pull = (self.rates if self.near is None else self.near.rates) @ self.counts
        self.load = self.demand @ self.counts
        if self.links is not None:
            self.links.stand(self.counts)

    def move(self, what: int, origin: int, target: int, count: int = 1) -> None:
        """Move instances of class `what`."""
        self.work_s += MOVE_S
        self.counts[what, origin] -= count
        self.counts[what, target] += count
        near: IntArray | slice = EVERY
        if self.near is None:
            rates = count * self.rates[:, what]
        else:
            near, of_one = self.near.of(what)
            rates = count * of_one
        self.pull[near, origin] -= rates
        self.pull[near, target] += rates
        demand = count * self.demand[:, what]
        self.load[:, origin] -= demand
        self.load[:, target] += demand
        if self.links is not None:
            self.links.move(self.counts, what, origin, target, count)

    def looked(self, cells: int) -> None:
        """Count the cells of the table that were looked at as work."""
        self.work_s += CELL_S * cells

    @property
    def cells(self) -> int:
        """Cells of the table of classes and nodes."""
        return self.classes * self.nodes

    @property
    def internal(self) -> float:
        """Undirected tuples per second that stay on a node."""
        inside = 0.5 * float((self.counts * (self.pull - self.own[:, None])).sum())
        return inside if self.local is None else inside + self.local.internal(self.counts)

    def won(self, rows: Rows = EVERY) -> FloatArray:
        """Tuples per second that one more of each class (row) would keep on each node."""
        pull = self.pull[rows]
        return pull if self.local is None else pull + self.local.won(self.counts, rows)

    def lost(self, rows: Rows = EVERY) -> FloatArray:
        """Tuples per second that one less of each class would take off each node, and `own`."""
        pull = self.pull[rows]
        return pull if self.local is None else pull + self.local.lost(self.counts, rows)

    def overloaded(self) -> IntArray:
        """Nodes that are over a limit; links are looked at by `excess` alone."""
        return np.flatnonzero((self.load > self.allowed).any(axis=0))

    def excess(self) -> float:
        """Sum of all that is over a limit, each resource relative to the largest capacity."""
        over = float((np.maximum(self.load - self.allowed, 0.0) / self.scale).sum())
        return over if self.links is None else over + self.links.excess()

    def fits(
        self, slack: FloatArray | float = 0.0, rows: Rows = EVERY, nodes: Rows = EVERY
    ) -> BoolArray:
        """Whether one more of each class (row) fits on each node, `slack` above the limit."""
        demand, left = self.demand[:, rows], (self.allowed + slack - self.load)[:, nodes]
        fits = demand[0][:, None] <= left[0]
        for resource in range(1, len(demand)):
            fits &= demand[resource][:, None] <= left[resource]
        return np.asarray(fits)

    def node_of(self, start: IntArray) -> IntArray:
        """Name the instances again, leaving as many as possible where they stand in `start`."""
        node_of = start.copy()
        order = np.argsort(self.class_of, kind="stable")
        ends = np.cumsum(self.counts.sum(axis=1))
        for what, members in enumerate(np.split(order, ends[:-1])):
            there = start[members]
            # The first of those on a node stay, as many as belong there.
            by_node = np.argsort(there, kind="stable")
            held = np.bincount(there, minlength=self.nodes)
            rank = np.empty(len(members), dtype=np.int64)
            first = np.repeat(np.cumsum(held) - held, held)
            rank[by_node] = np.arange(len(members)) - first
            stays = rank < self.counts[what][there]
            left = self.counts[what] - np.minimum(held, self.counts[what])
            node_of[members[~stays]] = np.repeat(np.arange(self.nodes), left)
        return node_of


class Neighbours:
    """Rates between classes of which each talks to few others."""

    def __init__(self, rates: sp.csc_array) -> None:
        self.rates = sp.csr_array(rates)
        self._ends = rates.indptr.astype(np.int64)
        self._others = rates.indices.astype(np.int64)
        self._values = np.asarray(rates.data, dtype=np.float64)

    def of(self, what: int) -> tuple[IntArray, FloatArray]:
        """Classes that exchange tuples with a class, and the rates of one instance."""
        span = slice(int(self._ends[what]), int(self._ends[what + 1]))
        return self._others[span], self._values[span]


def class_rates(
    graph: InstanceGraph, *, without_local: bool = False, in_mb: bool = False
) -> FloatArray:
    """Tuples per second, both ways, between one instance of each class and one of each other.

    On the diagonal: between two different instances of the class. Flows that prefer local targets
    may be left out, and MB taken for tuples.
    """
    class_of = graph.classes
    count = int(class_of.max()) + 1
    rates = np.zeros((count, count))
    for flow in graph.flows:
        if without_local and flow.is_local and flow.matrix is None:
            continue
        size = megabytes(graph, flow) if in_mb else 1.0
        source, target = class_of[flow.sources], class_of[flow.targets]
        if flow.matrix is not None:
            rates[np.ix_(source, target)] += size * flow.matrix
        else:
            sent, got = np.zeros(count), np.zeros(count)
            sent[source] = size * flow.out
            got[target] = flow.share
            rates += np.outer(sent, got)
    return rates + rates.T


class LocalFlows:
    """Streams whose tuples stay on a node that has any target, and spread evenly otherwise.

    Parameters
    ----------
    out : array
        Flows in rows: tuples per second that one instance of each class sends.
    targets : array
        Whether the instances of each class receive the flow.
    """

    def __init__(self, out: FloatArray, targets: FloatArray) -> None:
        self.out, self.targets = out, targets

    @classmethod
    def of(cls, graph: InstanceGraph) -> LocalFlows | None:
        """Take those of a graph; None if it has none."""
        flows = [flow for flow in graph.flows if flow.is_local and flow.matrix is None]
        classes = int(graph.classes.max()) + 1
        out, targets = np.zeros((len(flows), classes)), np.zeros((len(flows), classes))
        for row, flow in enumerate(flows):
            out[row, graph.classes[flow.sources]] = flow.out
            targets[row, graph.classes[flow.targets]] = 1.0
        return cls(out, targets) if flows else None

    def internal(self, counts: IntArray) -> float:
        """Tuples per second that stay on a node."""
        return float(((self.out @ counts) * (self.targets @ counts > 0)).sum())

    def won(self, counts: IntArray, rows: Rows = EVERY) -> FloatArray:
        """Tuples per second that one more of each class keeps on each node."""
        sent, present = self.out @ counts, self.targets @ counts
        out, targets = self.out.T[rows], self.targets.T[rows]
        return np.asarray(out @ (present > 0) + targets @ (sent * (present == 0)))

    def lost(self, counts: IntArray, rows: Rows = EVERY) -> FloatArray:
        """Tuples per second that one less of each class takes off each node."""
        sent, present = self.out @ counts, self.targets @ counts
        out, targets = self.out.T[rows], self.targets.T[rows]
        return np.asarray(out @ (present > 0) + targets @ (sent * (present == 1)))


class Links:
    """MB per second over the link of each node, followed move by move.

    What a node sends to others is what its instances send, less what stays on it; what it receives
    likewise. The larger of the two is held against its bandwidth.
    """

    def __init__(self, rates: FloatArray, ends: FloatArray, capacity: FloatArray) -> None:
        self.rates, self.ends, self.capacity = rates, ends, capacity
        self.own = np.diagonal(rates).copy()
        self.scale = max(float(capacity.max()), ROUNDING)

    @classmethod
    def of(cls, graph: InstanceGraph, cluster: Cluster, limit: float) -> Links | None:
        """Take those of a graph; None if all of its tuples together would fit through any link."""
        capacity = cluster.bandwidth_mb_s * limit
        if total_mb_s(graph) <= float(capacity.min()):
            return None
        ends = np.zeros((2, int(graph.classes.max()) + 1))
        for flow in graph.flows:
            if flow.is_local and flow.matrix is None:
                continue
            size = megabytes(graph, flow)
            out = flow.out * flow.share.sum() if flow.matrix is None else flow.matrix.sum(axis=1)
            each = np.zeros((2, len(graph)))
            each[0, flow.sources] = size * out
            each[1, flow.targets] = size * flow.received
            for end in (0, 1):
                of_class = np.zeros(ends.shape[1])
                of_class[graph.classes] = each[end]
                ends[end] += of_class
        return cls(class_rates(graph, without_local=True, in_mb=True), ends, capacity)

    def stand(self, counts: IntArray) -> None:
        """Work out the links anew."""
        self.pull = self.rates @ counts
        self.both = self.ends @ counts
        self.inside = 0.5 * (counts * (self.pull - self.own[:, None])).sum(axis=0)

    def move(self, counts: IntArray, what: int, origin: int, target: int, count: int = 1) -> None:
        """Follow a move that `counts` has made already."""
        pairs = 0.5 * count * (count - 1) * self.own[what]
        self.inside[origin] -= count * (self.pull[what, origin] - self.own[what]) - pairs
        self.inside[target] += count * self.pull[what, target] + pairs
        rates, ends = count * self.rates[:, what], count * self.ends[:, what]
        self.pull[:, origin] -= rates
        self.pull[:, target] += rates
        self.both[:, origin] -= ends
        self.both[:, target] += ends

    def excess(self) -> float:
        """Sum of what is above the capacities, relative to the largest."""
        over = self.both.max(axis=0) - self.inside - self.capacity * (1 + ROUNDING) - ROUNDING
        return float(np.maximum(over, 0.0).sum()) / self.scale

    def relief(self) -> FloatArray:
        """Change of the excess for a move of each class to each node from the worst node."""
        use = self.both.max(axis=0) - self.inside
        origin = self.worst()
        left = (self.both[:, origin, None] - self.ends).max(axis=0)
        left = left - (self.inside[origin] - self.pull[:, origin] + self.own)
        after = np.maximum(
            self.both[0] + self.ends[0][:, None], self.both[1] + self.ends[1][:, None]
        )
        after = after - (self.inside + self.pull)
        over = np.maximum(use - self.capacity, 0.0)
        change = np.maximum(after - self.capacity, 0.0) - over
        change += (np.maximum(left - self.capacity[origin], 0.0) - over[origin])[:, None]
        change[:, origin] = np.inf
        return np.asarray(change / self.scale, dtype=np.float64)

    def worst(self) -> int:
        """Return the node whose link is furthest above its capacity."""
        return int(np.argmax(self.both.max(axis=0) - self.inside - self.capacity))
