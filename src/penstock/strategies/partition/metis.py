"""METIS: multilevel partitioning with a share of the weight for every part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pymetis
import scipy.sparse as sp

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.common.parameters import Checked, param
from penstock.model import InstanceGraph, InvalidValue
from penstock.strategies.partition import register

#: METIS's own advice: recursive bisection up to this many parts, k-way above.
BISECTION_UP_TO = 8

#: METIS's k-way scheme coarsens to this many vertices a part; with fewer it has nothing to work on,
#: leaves parts empty, and at worst puts everything into one.
KWAY_FROM = 30

#: METIS counts in integers, of 32 bits in some builds; weights are scaled to sums that fit.
VERTEX_TOTAL, EDGE_TOTAL = 1e8, 1e9


@register
@dataclass(frozen=True)
class Metis(Checked):
    """Multilevel graph partitioning by the METIS library, through PyMetis.

    G. Karypis, V. Kumar, "A fast and high quality multilevel scheme for partitioning irregular
    graphs", SIAM J. Sci. Comput. 20(1), 1998. Recursive bisection for up to 8 parts and k-way
    partitioning above, with METIS's default tolerances.

    Neither scheme looks after parts that hold few instances: parts stay empty, and METIS prints to
    the standard output when it runs out of vertices to split. So where there are fewer than 30
    instances a part, or one that outweighs a part's share, the recursive bisection is done here, a
    call for each split, and every split leaves each side as many instances as parts. A part that
    is empty all the same gets the lightest instance of the part furthest above its share.
    """

    name: ClassVar[str] = "metis"
    summary: ClassVar[str] = "multilevel partitioning by METIS, a share of the load for each part"
    origin: ClassVar[str] = "Karypis and Kumar, SIAM J. Sci. Comput. 1998, METIS 5 via PyMetis"

    cuts: int = param(1, "Partitionings that METIS tries, of which the best counts.", least=1)
    iterations: int = param(10, "Refinement iterations at each level.", least=1)
    scheme: str = param(
        "advised",
        "As METIS advises by the number of parts, or recursive bisection always.",
        choices=("advised", "bisection"),
    )

    def partition(
        self,
        graph: InstanceGraph,
        weights: FloatArray,
        shares: FloatArray,
        rng: np.random.Generator,
    ) -> IntArray:
        """Give every instance a group; see `Partitioner.partition`."""
        seed = int(rng.integers(2**31 - 1))
        k, n = len(shares), len(graph)
        if k == 1:
            return np.zeros(n, dtype=np.int64)
        weights = weights if weights.sum() > 0 else np.ones(n)
        adjacency = graph.adjacency() if k < n else sp.csr_array((n, n))
        if k >= n or adjacency.nnz == 0:
            return _distribute(weights, shares)
        options = pymetis.Options(seed=seed, ncuts=self.cuts, niter=self.iterations)
        lightest_part = shares.min() / shares.sum() * weights.sum()
        few = n < KWAY_FROM * k or lightest_part < weights.max()
        if few or self.scheme == "bisection":
            return _bisect(adjacency, weights, shares, options)
        return _fill_empty(call_metis(adjacency, weights, shares, options), weights, shares)


def call_metis(
    adjacency: sp.csr_array, weights: FloatArray, shares: FloatArray, options: pymetis.Options
) -> IntArray:
    """Call METIS once on a symmetric matrix of positive weights without a diagonal.

    Raises
    ------
    InvalidValue
        When the matrix is not symmetric: METIS itself would read past its arrays and crash.
    """
    whole = pymetis.zero_copy_dtype()
    data = _symmetric_data(adjacency)
    edges = np.maximum(np.rint(data * (EDGE_TOTAL / data.sum())), 1).astype(whole)
    vertices = np.maximum(np.rint(weights * (VERTEX_TOTAL / weights.sum())), 1).astype(whole)
    csr = pymetis.CSRAdjacency(
        adjacency.indptr.astype(whole, copy=False), adjacency.indices.astype(whole, copy=False)
    )
    _, part = pymetis.part_graph(
        len(shares),
        csr,
        vweights=vertices,
        eweights=edges,
        tpwgts=(shares / shares.sum()).tolist(),
        recursive=len(shares) <= BISECTION_UP_TO,
        options=options,
    )
    return np.asarray(part, dtype=np.int64)


def _bisect(
    adjacency: sp.csr_array, weights: FloatArray, shares: FloatArray, options: pymetis.Options
) -> IntArray:
    """Split in two with METIS, and the halves again, never leaving a part without an instance."""
    group_of = np.zeros(len(weights), dtype=np.int64)
    waiting = [(np.arange(len(weights)), 0, len(shares))]
    while waiting:
        members, low, high = waiting.pop()
        if high - low == 1:
            group_of[members] = low
            continue
        middle = (low + high) // 2
        inner = adjacency if len(members) == len(weights) else adjacency[members][:, members]
        halves = np.array([shares[low:middle].sum(), shares[middle:high].sum()])
        if inner.nnz == 0 or len(members) == high - low:
            side = _distribute(weights[members], halves)
        else:
            side = call_metis(sp.csr_array(inner), weights[members], halves, options)
        side = _at_least(side, weights[members], (middle - low, high - middle))
        waiting.append((members[side == 0], low, middle))
        waiting.append((members[side == 1], middle, high))
    return group_of


def _at_least(side: IntArray, weights: FloatArray, least: tuple[int, int]) -> IntArray:
    """Move the lightest instances over until each side has as many as asked."""
    side = side.copy()
    for short in (0, 1):
        missing = least[short] - int((side == short).sum())
        if missing > 0:
            others = np.flatnonzero(side != short)
            side[others[np.argsort(weights[others], kind="stable")[:missing]]] = short
    return side


def _symmetric_data(adjacency: sp.csr_array) -> FloatArray:
    """Weights of the matrix, equal in both directions to the last bit."""
    if not adjacency.has_sorted_indices:
        adjacency.sort_indices()
    turned = sp.csr_array(adjacency.T)
    turned.sort_indices()
    same = np.array_equal(adjacency.indptr, turned.indptr) and np.array_equal(
        adjacency.indices, turned.indices
    )
    if not same or not np.allclose(adjacency.data, turned.data, rtol=1e-9, atol=0.0):
        difference = sp.coo_array(adjacency - turned)
        worst = int(np.argmax(np.abs(difference.data)))
        i, j = int(difference.row[worst]), int(difference.col[worst])
        raise InvalidValue(
            "adjacency",
            "partitioner 'metis'",
            "symmetric",
            f"{float(adjacency[i, j]):g} from {i} to {j} but {float(adjacency[j, i]):g} back",
        )
    turned.data += adjacency.data
    return np.asarray(turned.data, dtype=np.float64)


def _distribute(weights: FloatArray, shares: FloatArray) -> IntArray:
    """Group by weight alone: the heaviest first, each to the group furthest below its share."""
    group_of = np.empty(len(weights), dtype=np.int64)
    target = shares / shares.sum() * weights.sum()
    left = target.copy()
    held = np.zeros(len(shares), dtype=np.int64)
    for rank, i in enumerate(np.argsort(-weights, kind="stable").tolist()):
        # As many instances as there are empty groups must each open one.
        must = len(weights) - rank <= int((held == 0).sum())
        group = int(np.argmax(np.where(held == 0, left, -np.inf) if must else left))
        group_of[i] = group
        left[group] -= weights[i]
        held[group] += 1
    return group_of


def _fill_empty(group_of: IntArray, weights: FloatArray, shares: FloatArray) -> IntArray:
    """Give each empty group the lightest instance of the group furthest above its share."""
    group_of = group_of.copy()
    held = np.bincount(group_of, minlength=len(shares))
    over = group_sums(group_of, weights, len(shares)) / weights.sum() / (shares / shares.sum())
    for empty in np.flatnonzero(held == 0).tolist():
        donor = int(np.argmax(np.where(held > 1, over, -np.inf)))
        members = np.flatnonzero(group_of == donor)
        lightest = int(members[np.argmin(weights[members])])
        group_of[lightest] = empty
        held[donor] -= 1
        held[empty] = 1
        over[donor] -= weights[lightest] / weights.sum() / (shares[donor] / shares.sum())
    return group_of
