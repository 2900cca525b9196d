"""The instance graph: every parallel copy of every operator, and the rates between them.

The rates of one edge have rank one: what leaves an instance, times the share that reaches each
target. Keeping the two vectors instead of their product makes a graph of tens of thousands of
instances as cheap as one of hundreds: the traffic between groups of instances is a product of sums,
and no pair of instances is ever looked at. Only measured rates, which need not have that form, are
kept as a matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from penstock.common.arrays import FloatArray, IntArray, frozen_ints, group_sums
from penstock.model.operator import Edge, Grouping
from penstock.model.topology import Topology


@dataclass(frozen=True, eq=False)
class Flow:
    """The stream of one edge between instances.

    Parameters
    ----------
    edge : Edge
    first_source, first_target : int
        Numbers of the first instance of the two operators.
    out : array
        Tuples per second that leave each source instance on this edge.
    share : array
        Part of them that reaches each target instance; all ones when they are copied to all.
    matrix : array or None
        Measured rates; they replace ``out[:, None] * share``.
    """

    edge: Edge
    first_source: int
    first_target: int
    out: FloatArray
    share: FloatArray
    matrix: FloatArray | None = None

    @property
    def sources(self) -> slice:
        """Numbers of the source instances."""
        return slice(self.first_source, self.first_source + len(self.out))

    @property
    def targets(self) -> slice:
        """Numbers of the target instances."""
        return slice(self.first_target, self.first_target + len(self.share))

    @property
    def is_local(self) -> bool:
        """Whether tuples stay in the sender's process when a target is there."""
        return self.edge.grouping is Grouping.LOCAL_OR_SHUFFLE

    @property
    def total(self) -> float:
        """Tuples per second received over this edge."""
        if self.matrix is not None:
            return float(self.matrix.sum())
        return float(self.out.sum() * self.share.sum())

    @property
    def received(self) -> FloatArray:
        """Tuples per second that reach each target instance."""
        if self.matrix is not None:
            return np.asarray(self.matrix.sum(axis=0), dtype=np.float64)
        return np.asarray(self.out.sum() * self.share, dtype=np.float64)

    @property
    def pairs(self) -> FloatArray:
        """Rates between all pairs of instances, sources in rows."""
        return self.matrix if self.matrix is not None else np.outer(self.out, self.share)

    def between(self, groups: IntArray, count: int) -> FloatArray:
        """Tuples per second from each group of instances (rows) to each other group."""
        source, target = groups[self.sources], groups[self.targets]
        if self.matrix is not None:
            cells = (source[:, None] * count + target[None, :]).ravel()
            sums = group_sums(cells, self.matrix.ravel(), count * count)
            return np.asarray(sums.reshape(count, count), dtype=np.float64)
        return np.outer(
            group_sums(source, self.out, count),
            group_sums(target, self.share, count),
        )

    def internal(self, groups: IntArray, count: int) -> FloatArray:
        """Tuples per second that stay inside each group."""
        source, target = groups[self.sources], groups[self.targets]
        if self.matrix is not None:
            rows, columns = np.nonzero(source[:, None] == target[None, :])
            weights = self.matrix[rows, columns]
            return group_sums(source[rows], weights, count)
        sent = group_sums(source, self.out, count)
        return np.asarray(sent * group_sums(target, self.share, count))


@dataclass(frozen=True, eq=False)
class InstanceGraph:
    """All instances of a topology with their rates and demands.

    Instances are numbered through: operators in the topology's order, each one's instances in
    theirs.

    Parameters
    ----------
    topology : Topology
    flows : tuple of Flow
    rate_in : array
        Tuples per second that each instance processes; for a source, reads.
    cpu_cores, mem_mb, io_mb_s, state_mb : array
        Demand of each instance.
    """

    topology: Topology
    flows: tuple[Flow, ...]
    rate_in: FloatArray
    cpu_cores: FloatArray
    mem_mb: FloatArray
    io_mb_s: FloatArray
    state_mb: FloatArray

    def __len__(self) -> int:
        return len(self.rate_in)

    @cached_property
    def first(self) -> IntArray:
        """Number of each operator's first instance, and the number of instances at the end."""
        return frozen_ints(
            np.concatenate(([0], np.cumsum(list(self.topology.parallelism.values()))))
        )

    @cached_property
    def operator_of(self) -> IntArray:
        """Position of each instance's operator."""
        counts = list(self.topology.parallelism.values())
        return frozen_ints(np.repeat(np.arange(len(counts)), counts))

    def span(self, operator: str) -> slice:
        """Numbers of an operator's instances."""
        i = self.topology.index[operator]
        return slice(int(self.first[i]), int(self.first[i + 1]))

    def label(self, instance: int) -> str:
        """Name of an instance, as in ``count[2]``."""
        i = int(self.operator_of[instance])
        return f"{self.topology.operators[i].name}[{instance - int(self.first[i])}]"

    @property
    def total_rate(self) -> float:
        """Tuples per second over all edges."""
        return float(sum(flow.total for flow in self.flows))

    def between(self, groups: IntArray, count: int) -> FloatArray:
        """Tuples per second from each group (rows) to each other group of instances."""
        traffic = np.zeros((count, count))
        for flow in self.flows:
            traffic += flow.between(groups, count)
        return traffic

    def internal(self, groups: IntArray, count: int) -> FloatArray:
        """Tuples per second that stay inside each group."""
        inside = np.zeros(count)
        for flow in self.flows:
            inside += flow.internal(groups, count)
        return inside

    def cut(self, groups: IntArray, count: int) -> float:
        """Tuples per second between different groups."""
        return max(0.0, self.total_rate - float(self.internal(groups, count).sum()))

    def crossing(self, groups: IntArray, count: int) -> float:
        """Tuples per second between different groups, if local targets are preferred to others.

        The same as `cut` but for ``local-or-shuffle``, whose tuples stay in a group that has any
        target.
        """
        rate = self.cut(groups, count)
        for flow in self.flows:
            if flow.is_local and flow.matrix is None:
                present = group_sums(groups[flow.targets], flow.share, count) > 0
                away = float(flow.out[~present[groups[flow.sources]]].sum())
                rate += away - (flow.total - float(flow.internal(groups, count).sum()))
        return max(0.0, rate)

    def affinity(self, groups: IntArray, count: int) -> FloatArray:
        """Tuples per second, both ways, between each instance (row) and each group.

        An instance's own loop, if it has one, is left out: it moves along.
        """
        table = np.zeros((len(self), count))
        for flow in self.flows:
            source, target = groups[flow.sources], groups[flow.targets]
            if flow.matrix is not None:
                table[flow.sources] += flow.matrix @ _one_hot(target, count)
                table[flow.targets] += flow.matrix.T @ _one_hot(source, count)
            else:
                table[flow.sources] += np.outer(flow.out, group_sums(target, flow.share, count))
                table[flow.targets] += np.outer(flow.share, group_sums(source, flow.out, count))
            if flow.first_source == flow.first_target:
                loop = flow.out * flow.share if flow.matrix is None else flow.matrix.diagonal()
                table[np.arange(flow.sources.start, flow.sources.stop), source] -= 2.0 * loop
        return table

    def rates(self) -> sp.csr_array:
        """`Tr` as a sparse matrix, senders in rows; every pair is written out."""
        rows: list[IntArray] = []
        columns: list[IntArray] = []
        values: list[FloatArray] = []
        for flow in self.flows:
            pairs = flow.pairs
            row, column = np.nonzero(pairs)
            rows.append(row + flow.first_source)
            columns.append(column + flow.first_target)
            values.append(pairs[row, column])
        n = len(self)
        if not rows:
            return sp.csr_array((n, n))
        coordinates = (np.concatenate(rows), np.concatenate(columns))
        return sp.csr_array(sp.coo_array((np.concatenate(values), coordinates), shape=(n, n)))

    def adjacency(self) -> sp.csr_array:
        """Undirected weights: the rates of both directions added, without loops."""
        directed = self.rates()
        both = sp.csr_array(directed + directed.T)
        both.setdiag(0.0)
        both.eliminate_zeros()
        return both

    @cached_property
    def classes(self) -> IntArray:
        """Number of each instance's class; instances of one class are interchangeable.

        Two instances of an operator are interchangeable when they have the same demands and the
        same place in every flow. Measured flows make each of their instances its own class.
        """
        touching: list[list[Flow]] = [[] for _ in self.topology.operators]
        for flow in self.flows:
            ends = {self.topology.index[flow.edge.source], self.topology.index[flow.edge.target]}
            for end in ends:
                touching[end].append(flow)
        number, known = np.empty(len(self), dtype=np.int64), 0
        for at, flows in enumerate(touching):
            span = slice(int(self.first[at]), int(self.first[at + 1]))
            _, own = np.unique(self._marks(span, flows), axis=0, return_inverse=True)
            number[span] = known + own.ravel()
            known = int(number[span].max()) + 1
        return frozen_ints(number)

    def _marks(self, span: slice, flows: list[Flow]) -> FloatArray:
        """All that tells the instances of an operator apart, in columns."""
        count = span.stop - span.start
        marks = [each[span] for each in (self.rate_in, self.cpu_cores, self.mem_mb, self.io_mb_s)]
        for flow in flows:
            sends, gets = flow.sources == span, flow.targets == span
            nothing = np.zeros(count)
            marks += [flow.out if sends else nothing, flow.share if gets else nothing]
            if flow.matrix is not None:
                marks.append(np.arange(count, dtype=np.float64))
        return np.stack(marks, axis=1)


def _one_hot(groups: IntArray, count: int) -> FloatArray:
    table = np.zeros((len(groups), count))
    table[np.arange(len(groups)), groups] = 1.0
    return table
