"""A smaller graph of the same shape: interchangeable instances tied into bundles.

What is learnt or searched on the bundles holds for the instances, because those of one class differ
in nothing but their number. The rates between bundles keep the form that `Flow` has: derived flows
are two vectors each, and only measured ones are written out pair by pair.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from penstock.common.arrays import FloatArray, IntArray, group_counts, group_sums
from penstock.model import InstanceGraph


@dataclass(frozen=True, eq=False)
class Bundles:
    """Bundles of interchangeable instances and the rates between them.

    Parameters
    ----------
    of : array of int
        Bundle of each instance.
    class_of : array of int
        Class of each bundle's instances.
    size : array
        Instances in each bundle.
    sent, got : sparse array
        Bundles in rows, derived flows in columns: tuples per second that leave a bundle on a flow,
        and the part of a flow that reaches it.
    pairs : sparse array
        Measured tuples per second between two bundles, both ways added up.
    loop : array
        Tuples per second inside each bundle, both ways.
    degree : array
        `H` of Ms eq. 32: tuples per second in and out of each bundle, those inside it left out.
    """

    of: IntArray
    class_of: IntArray
    size: FloatArray
    sent: sp.csr_array
    got: sp.csr_array
    pairs: sp.csr_array
    loop: FloatArray
    degree: FloatArray

    def __len__(self) -> int:
        return len(self.size)

    def spread(self, values: FloatArray) -> FloatArray:
        """`E` times a matrix with a row for each bundle; no pair of bundles is looked at."""
        through = self.sent @ (self.got.T @ values) + self.got @ (self.sent.T @ values)
        return np.asarray(through + self.pairs @ values - self.loop[:, None] * values)


def bundle(graph: InstanceGraph, most: int) -> Bundles:
    """Tie interchangeable instances together until there are about `most` bundles.

    Bundles are equal in size, up to a remainder in each class; graphs of no more than `most`
    instances get bundles of one.

    Examples
    --------
    >>> from penstock.model import Edge, Kind, Operator, Topology, expand
    >>> pair = Topology("pair", (Operator("a", Kind.SOURCE, 2), Operator("b", parallelism=8)),
    ...     (Edge("a", "b"),))
    >>> bundle(expand(pair), most=5).size.tolist()
    [2.0, 2.0, 2.0, 2.0, 2.0]
    """
    each = max(1, -(-len(graph) // most))
    order = np.argsort(graph.classes, kind="stable")
    sizes = group_counts(graph.classes, int(graph.classes.max()) + 1)
    rank = np.empty(len(graph), dtype=np.int64)
    rank[order] = np.arange(len(graph)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    parts = -(-sizes // each)
    of = (np.cumsum(parts) - parts)[graph.classes] + rank // each
    count = int(parts.sum())

    n = len(graph)
    sent: list[FloatArray] = []
    got: list[FloatArray] = []
    pairs = sp.csr_array((count, count))
    for flow in graph.flows:
        if flow.matrix is not None:
            member = sp.csr_array((np.ones(n), (of, np.arange(n))), shape=(count, n))
            ends = member[:, flow.sources], member[:, flow.targets]
            between = ends[0] @ sp.csr_array(flow.matrix) @ ends[1].T
            pairs = pairs + sp.csr_array(between + between.T)
            continue
        sent.append(group_sums(of[flow.sources], flow.out, count))
        got.append(group_sums(of[flow.targets], flow.share, count))
    nothing = sp.csr_array((count, 1))
    leaving = sp.csr_array(np.stack(sent, axis=1)) if sent else nothing
    arriving = sp.csr_array(np.stack(got, axis=1)) if got else nothing
    loop = 2.0 * np.asarray((leaving * arriving).sum(axis=1)).ravel() + pairs.diagonal()
    made = Bundles(
        of=of,
        class_of=np.repeat(np.arange(len(sizes)), parts),
        size=group_counts(of, count).astype(np.float64),
        sent=leaving,
        got=arriving,
        pairs=sp.csr_array(pairs),
        loop=loop,
        degree=np.zeros(count),
    )
    degree = np.maximum(made.spread(np.ones((count, 1))).ravel(), 0.0)
    return replace(made, degree=degree)
