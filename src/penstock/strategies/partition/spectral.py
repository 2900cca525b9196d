"""Spectral partitioning: eigenvectors of the graph Laplacian, clustered by k-means (Ts Alg. 1).

The eigenvectors are exact whatever the number of instances. Vectors that are equal on every class
of interchangeable instances (`InstanceGraph.classes`) form a problem with one row a class, and
vectors that sum to 0 within one class are eigenvectors by themselves: their eigenvalue is the
class's degree, once for every instance but one. A graph of thousands of instances of a dozen
operators is solved as a matrix of a dozen rows; measured rates, which make every instance a class
of its own, go to a dense solver while they are few and to a sparse one that never forms the
Laplacian when they are many.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse.linalg as spla

from penstock.common.arrays import FloatArray, IntArray, group_counts
from penstock.common.parameters import Checked, param
from penstock.model import InstanceGraph
from penstock.strategies.partition import register
from penstock.strategies.partition.class_state import class_rates
from penstock.strategies.partition.k_means import k_means

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Above this many classes the smallest eigenvectors come from a sparse eigensolver.
DENSE_CLASSES = 1200

#: The sparse eigensolver finds at most this many eigenvectors in so many iterations.
SPARSE_VECTORS, SPARSE_ITERATIONS = 32, 30

#: Work of an iteration of k-means beyond which it uses fewer eigenvectors; beyond a tenth of it,
#: there are no restarts.
MOST_WORK = 1e9

#: Eigenvalues closer than this, relative to the largest degree, count as one.
SAME = 1e-9


@register
@dataclass(frozen=True)
class Spectral(Checked):
    """Cluster instances by their rows in the eigenvectors of the k smallest eigenvalues.

    ``L = D - M`` with the undirected rates `M` and their row sums `D` (Ts Alg. 1). Ours: where an
    eigenvalue is repeated, the basis of its eigenspace is chosen so that neighbours by number go
    together; instances without traffic are left out and fill gaps; the centroids take rows only
    up to their shares, nearest first, because plain k-means may leave all of a graph in one
    cluster; of several restarts the one with the smallest cut wins; and beyond `MOST_WORK` fewer
    than k eigenvectors must do.
    """

    name: ClassVar[str] = "spectral"
    summary: ClassVar[str] = "k-means on the smallest eigenvectors of the graph Laplacian"
    origin: ClassVar[str] = "Ts-Stream Alg. 1"

    restarts: int = param(4, "Runs of k-means, of which the smallest cut counts.", least=1)
    iterations: int = param(20, "Iterations of k-means at the most.", least=1)

    def partition(
        self,
        graph: InstanceGraph,
        weights: FloatArray,
        shares: FloatArray,
        rng: np.random.Generator,
    ) -> IntArray:
        """Give every instance a group; see `Partitioner.partition`."""
        k = len(shares)
        # An iteration of k-means costs instances * groups * dimensions.
        affordable = max(16, int(MOST_WORK / (len(graph) * k)))
        rows = embedding(graph, min(k, affordable), rng)
        alone = Laplacian(graph).degree <= 0
        joined = np.flatnonzero(~alone)
        best: tuple[float, IntArray] | None = None
        for _ in range(self.restarts if 10 * rows.shape[1] * k * len(graph) < MOST_WORK else 1):
            distance = np.zeros((len(graph), k))
            if len(joined) > k > 1:
                centroids = k_means(rows[joined], k, self.iterations, rng)
                distance[joined] = squared_distances(rows[joined], centroids)
            groups = fill_shares(distance, weights, shares, late=alone)
            cut = graph.cut(groups, k)
            if best is None or cut < best[0]:
                best = (cut, groups)
        assert best is not None
        return best[1]


class Laplacian:
    """``L = D - M``, applied flow by flow: one of rank one costs its instances, not its pairs.

    Parameters
    ----------
    graph : InstanceGraph

    Attributes
    ----------
    degree : array
        Diagonal of `D`: tuples per second, both ways, between each instance and all others.
    """

    def __init__(self, graph: InstanceGraph) -> None:
        self.graph = graph
        self._loops = np.zeros(len(graph))
        for flow in graph.flows:
            if flow.first_source == flow.first_target:
                loop = flow.out * flow.share if flow.matrix is None else flow.matrix.diagonal()
                self._loops[flow.sources] += 2.0 * loop
        self.degree: FloatArray = np.maximum(self._exchange(np.ones((len(graph), 1)))[:, 0], 0.0)

    def apply(self, x: FloatArray) -> FloatArray:
        """Multiply a matrix by `L`."""
        return np.asarray(self.degree[:, None] * x - self._exchange(x), dtype=np.float64)

    def _exchange(self, x: FloatArray) -> FloatArray:
        """Multiply by `M`, the rates of both directions without loops."""
        y = -self._loops[:, None] * x
        for flow in self.graph.flows:
            if flow.matrix is not None:
                y[flow.sources] += flow.matrix @ x[flow.targets]
                y[flow.targets] += flow.matrix.T @ x[flow.sources]
            else:
                y[flow.sources] += np.outer(flow.out, flow.share @ x[flow.targets])
                y[flow.targets] += np.outer(flow.share, flow.out @ x[flow.sources])
        return np.asarray(y, dtype=np.float64)


def embedding(graph: InstanceGraph, k: int, rng: np.random.Generator) -> FloatArray:
    """Eigenvectors of the `k` smallest eigenvalues in columns, an instance a row.

    Instances without traffic have rows of zeros and no part in the problem: each would bring an
    eigenvalue of 0 that says nothing about the others.
    """
    class_of = graph.classes
    size = group_counts(class_of, int(class_of.max()) + 1)
    if len(size) > DENSE_CLASSES:
        return _sparse_embedding(graph, k, rng)
    rates = class_rates(graph)
    own = np.diagonal(rates).copy()
    degree = rates @ size - own
    joined = np.flatnonzero(degree > SAME * max(float(degree.max()), 1e-300))
    values, vectors = _quotient(rates[np.ix_(joined, joined)], size[joined], degree[joined])
    within = _within_classes(degree + own, size, joined)
    chosen: list[tuple[float, FloatArray]] = []
    for value, vector in zip(values[:k], vectors.T[:k], strict=True):
        by_class = np.zeros(len(size))
        by_class[joined] = vector / np.sqrt(size[joined])
        chosen.append((float(value), by_class[class_of]))
    position = _position_in_class(class_of, size)
    for value, coefficient, m in islice(within, k):
        wave = np.cos(np.pi * m * (position + 0.5) / size[class_of]) * np.sqrt(2 / size[class_of])
        chosen.append((value, coefficient[class_of] * wave))
    chosen.sort(key=lambda pair: pair[0])
    if not chosen:
        return np.zeros((len(graph), 1))
    return np.stack([vector for _, vector in chosen[:k]], axis=1)


def _quotient(
    rates: FloatArray, size: IntArray, degree: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Eigenpairs of the Laplacian among vectors that are equal on every class, ascending."""
    root = np.sqrt(size)
    exchange = rates * np.outer(root, root)
    np.fill_diagonal(exchange, np.diagonal(rates) * (size - 1))
    values, vectors = scipy.linalg.eigh(np.diag(degree) - exchange)
    return values, vectors


def _within_classes(
    value: FloatArray, size: IntArray, joined: IntArray
) -> Iterator[tuple[float, FloatArray, int]]:
    """Eigenvectors that sum to 0 in every class: eigenvalue, factor of each class, frequency.

    Classes of equal eigenvalue share waves before any of them is split against another.
    """
    large = joined[size[joined] > 1]
    order = large[np.argsort(value[large], kind="stable")]
    scale = max(float(value[order].max(initial=0.0)), 1e-300)
    breaks = np.flatnonzero(np.diff(value[order]) > SAME * scale) + 1
    for tied in np.split(order, breaks):
        for q in range(len(tied)):
            for m in count(1):
                members = tied[size[tied] > m]
                if not len(members):
                    break
                if q >= len(members):
                    continue
                factor = np.zeros(len(size))
                angle = np.pi * q * (np.arange(len(members)) + 0.5) / len(members)
                factor[members] = np.cos(angle) * np.sqrt((1 if q == 0 else 2) / len(members))
                yield float(value[tied[0]]), factor, m


def _position_in_class(class_of: IntArray, size: IntArray) -> IntArray:
    order = np.argsort(class_of, kind="stable")
    position = np.empty(len(class_of), dtype=np.int64)
    position[order] = np.arange(len(class_of)) - np.repeat(np.cumsum(size) - size, size)
    return position


def _sparse_embedding(graph: InstanceGraph, k: int, rng: np.random.Generator) -> FloatArray:
    """Approximate eigenvectors by LOBPCG, with the degrees as its preconditioner.

    The constant vector, which tells no rows apart, is left out.
    """
    n, laplacian = len(graph), Laplacian(graph)
    joined = laplacian.degree > 0
    # Instances without traffic get a large eigenvalue instead of 0, and are not among the smallest.
    lift = np.where(joined, 0.0, laplacian.degree.max(initial=1.0))[:, None]
    scale = 1.0 / (laplacian.degree[:, None] + lift)
    columns = min(k, SPARSE_VECTORS)

    def apply(x: FloatArray) -> FloatArray:
        x = x.reshape(n, -1)
        return laplacian.apply(x) + lift * x

    def precondition(x: FloatArray) -> FloatArray:
        return np.asarray(scale * x.reshape(n, -1), dtype=np.float64)

    with warnings.catch_warnings():
        # It warns when it stops before it is exact; k-means needs no more.
        warnings.simplefilter("ignore")
        _, vectors = spla.lobpcg(
            spla.LinearOperator((n, n), matvec=apply, matmat=apply, dtype=np.float64),
            rng.standard_normal((n, columns)),
            M=spla.LinearOperator((n, n), matvec=precondition, matmat=precondition, dtype=float),
            Y=joined.astype(np.float64)[:, None],
            largest=False,
            maxiter=SPARSE_ITERATIONS,
        )
    return np.where(joined[:, None], vectors, 0.0)


def squared_distances(rows: FloatArray, centroids: FloatArray) -> FloatArray:
    """Squared distance of every row to every centroid."""
    squares = (rows**2).sum(axis=1)[:, None] + (centroids**2).sum(axis=1)
    return np.asarray(np.maximum(squares - 2.0 * rows @ centroids.T, 0.0), dtype=np.float64)


def fill_shares(
    distance: FloatArray,
    weights: FloatArray,
    shares: FloatArray,
    late: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> IntArray:
    """Give each instance the nearest group that has room, the surest choices first.

    A group has room while half of the instance still fits under its share. No group stays empty
    when there are enough instances.

    Examples
    --------
    >>> far = np.array([[0.0, 9.0], [0.0, 8.0], [0.0, 7.0], [5.0, 1.0]])
    >>> late = np.zeros(4, dtype=bool)
    >>> fill_shares(far, np.ones(4), np.array([0.5, 0.5]), late).tolist()
    [0, 0, 1, 1]
    """
    n, k = distance.shape
    weights = weights if weights.sum() > 0 else np.ones(n)
    left = shares / shares.sum() * weights.sum()
    two = np.partition(distance, 1, axis=1)[:, :2] if k > 1 else np.zeros((n, 2))
    regret = two[:, 1] - two[:, 0]
    held = np.zeros(k, dtype=np.int64)
    groups = np.empty(n, dtype=np.int64)
    empty = k
    for rank, i in enumerate(np.lexsort((-weights, -regret, late)).tolist()):
        room = left >= 0.5 * weights[i]
        if n - rank <= empty:
            room = held == 0
        # What has no nearest group goes where most is left.
        far = -left if late[i] else distance[i]
        group = int(np.argmin(np.where(room, far, np.inf))) if room.any() else int(np.argmax(left))
        empty -= held[group] == 0
        held[group] += 1
        left[group] -= weights[i]
        groups[i] = group
    return groups
