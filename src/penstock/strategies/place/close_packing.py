"""Vector packing that looks at streams: of what suits a node about alike, what talks to it comes.

Where nodes are filled to the brim nothing can change places afterwards, so that instances that talk
have to be packed together from the start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from penstock.common.arrays import FloatArray, IntArray, group_counts
from penstock.model import Cluster, InstanceGraph
from penstock.model.load import ROUNDING
from penstock.strategies.partition.class_state import class_rates

#: How much liberty streams have: the part of a node that is filled with whatever talks most to what
#: it has, and the part of the best score by which an instance may suit what is left of it less.
#: What takes the most liberty saves the most traffic, and is the first to run out of nodes.
LIBERTIES = ((0.7, 0.25), (0.5, 0.1), (0.3, 0.05), (0.0, 0.1))


@dataclass(frozen=True)
class _Classes:
    """Interchangeable instances together: demand in parts of the cluster, and rates."""

    demand: FloatArray
    weights: FloatArray
    rates: sp.csr_array


def pack_closely(graph: InstanceGraph, cluster: Cluster, limit: float) -> IntArray | None:
    """Pack instances on the given nodes, those that exchange tuples together.

    Parameters
    ----------
    graph : InstanceGraph
    cluster : Cluster
        The nodes to use; all of them may be needed.
    limit : float
        Largest use of any resource of a node, as a fraction.

    Returns
    -------
    array of int or None
        Node of each instance; None when no try found room for all.

    Examples
    --------
    >>> from penstock.model import Edge, Kind, Operator, Topology, expand
    >>> pairs = expand(Topology(
    ...     "t",
    ...     (*(Operator(n, Kind.SOURCE, cpu_pct=50, rate_per_s=9) for n in "ab"),
    ...      *(Operator(n, cpu_pct=50) for n in "cd")),
    ...     (Edge("a", "d"), Edge("b", "c"))))
    >>> pack_closely(pairs, Cluster.of(2, cpu_cores=1.0), 1.0).tolist()
    [0, 1, 1, 0]
    """
    resources = (
        (graph.cpu_cores, cluster.cpu_cores),
        (graph.mem_mb, cluster.mem_mb),
        (graph.io_mb_s, cluster.io_mb_s),
    )
    total = [max(float(capacity.sum()), 1e-12) for _, capacity in resources]
    count = group_counts(graph.classes, int(graph.classes.max()) + 1)
    _, first = np.unique(graph.classes, return_index=True)
    demand = np.stack(
        [need[first] / whole for (need, _), whole in zip(resources, total, strict=True)], axis=1
    )
    room = np.stack(
        [have * limit / whole for (_, have), whole in zip(resources, total, strict=True)], axis=1
    )
    wanted = (demand * count[:, None]).sum(axis=0)
    weights = np.where(wanted > 0, wanted / np.maximum(room.sum(axis=0), 1e-12), 0.0)
    classes = _Classes(demand, weights, sp.csr_array(class_rates(graph)))
    slots = (cluster.processes * cluster.slots).astype(np.int64)
    order = np.argsort(-(room * weights).sum(axis=1), kind="stable")
    for liberty in LIBERTIES:
        table = _fill(classes, count, room, slots, order, liberty)
        if table is not None:
            return _named(graph.classes, table)
    return None


def _fill(
    classes: _Classes,
    count: IntArray,
    room: FloatArray,
    slots: IntArray,
    order: IntArray,
    liberty: tuple[float, float],
) -> list[tuple[int, IntArray]] | None:
    """Fill the nodes in order: how many of each class each one has; None if some are left over."""
    left, table = count.copy(), []
    at = 0
    while at < len(order) and left.any():
        node = int(order[at])
        taken = _fill_node(classes, left, room[node], int(slots[node]), liberty)
        # Nodes of the same size that follow take the same, while there is enough of it.
        some = taken > 0
        again = int((left[some] // taken[some]).min()) - 1 if some.any() else 0
        alike = 1
        while (
            alike <= again
            and at + alike < len(order)
            and (room[order[at + alike]] == room[node]).all()
            and slots[order[at + alike]] == slots[node]
        ):
            alike += 1
        table += [(int(order[at + step]), taken) for step in range(alike)]
        left = left - alike * taken
        at += alike
    return None if left.any() else table


def _fill_node(
    classes: _Classes, left: IntArray, room: FloatArray, slots: int, liberty: tuple[float, float]
) -> IntArray:
    """Take instances for one node until none fits."""
    taken = np.zeros_like(left)
    pull = np.zeros(len(left))
    room = room * (1 + ROUNDING)
    freely = room * (1.0 - liberty[0])
    needed = classes.weights > 0
    while slots:
        fits = (taken < left) & (classes.demand <= room).all(axis=1)
        if not fits.any():
            break
        score = np.where(fits, classes.demand @ (classes.weights * room), -1.0)
        least = 0.0 if (room > freely)[needed].all() else (1.0 - liberty[1]) * score.max()
        suits = np.flatnonzero(fits & (score >= least))
        chosen = int(suits[np.lexsort((-score[suits], -pull[suits]))[0]])
        taken[chosen] += 1
        room = room - classes.demand[chosen]
        slots -= 1
        row = slice(int(classes.rates.indptr[chosen]), int(classes.rates.indptr[chosen + 1]))
        pull[classes.rates.indices[row]] += classes.rates.data[row]
    return taken


def _named(class_of: IntArray, table: list[tuple[int, IntArray]]) -> IntArray:
    """Turn how many of each class a node has into the node of each instance."""
    node_of = np.empty(len(class_of), dtype=np.int64)
    order = np.argsort(class_of, kind="stable")
    sizes = np.bincount(class_of)
    at = np.cumsum(sizes) - sizes
    for node, taken in table:
        for what in np.flatnonzero(taken).tolist():
            node_of[order[at[what] : at[what] + taken[what]]] = node
            at[what] += taken[what]
    return node_of
