"""Vector packing, node by node: the instance that suits what a node has left comes next.

R. Panigrahy et al.: Heuristics for vector bin packing, 2011. Several weights of the resources and
two scores are tried, because none is best on every mix of instances and nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.common.arrays import BoolArray, FloatArray, IntArray
from penstock.model import Cluster, InstanceGraph

#: Part of a capacity that rounding may exceed.
ROOM = 1e-9

#: Exponents of the weights of the resources: 0 treats all alike, others favour scarce ones.
EXPONENTS = (1.0, 0.0, 3.0)

#: Kinds of nodes up to which one of each is filled on trial.
MOST_KINDS = 8


@dataclass(frozen=True)
class Packing:
    """Instances on the fewest nodes that were found.

    Parameters
    ----------
    nodes : array of int
        Nodes in use, ascending.
    node_of : array of int
        Node of each instance.
    """

    nodes: IntArray
    node_of: IntArray

    @property
    def start(self) -> IntArray:
        """For each instance, the position of its node among `nodes`."""
        return np.searchsorted(self.nodes, self.node_of)


@dataclass(frozen=True)
class _Items:
    """Instances of equal demand, together; all in parts of what the whole cluster has."""

    demand: FloatArray
    count: IntArray
    of: IntArray


@dataclass(frozen=True)
class _Nodes:
    """Nodes of equal room, together: room, slots, whether they come late, and who they are."""

    room: FloatArray
    slots: IntArray
    late: BoolArray
    members: list[IntArray]

    @property
    def size(self) -> IntArray:
        """Nodes of each kind."""
        return np.array([len(members) for members in self.members], dtype=np.int64)

    @classmethod
    def of(cls, room: FloatArray, slots: IntArray, late: BoolArray) -> _Nodes:
        """Gather equal nodes, and leave out those that hold nothing."""
        able = np.flatnonzero((slots > 0) & (room > 0).any(axis=1))
        marks = np.column_stack([room, slots, late])[able]
        kinds, of, count = np.unique(marks, axis=0, return_inverse=True, return_counts=True)
        order = np.argsort(np.asarray(of).reshape(-1), kind="stable")
        members = np.split(able[order], np.cumsum(count)[:-1]) if len(able) else []
        return cls(kinds[:, :-2], kinds[:, -2].astype(np.int64), kinds[:, -1] > 0, members)


def pack(
    graph: InstanceGraph,
    cluster: Cluster,
    limit: float,
    preferred: IntArray | None = None,
    enough: int = 1,
) -> Packing | None:
    """Pack instances on few nodes with no resource above a limit.

    Parameters
    ----------
    graph : InstanceGraph
    cluster : Cluster
    limit : float
        Largest use of any resource of a node, as a fraction.
    preferred : array of int, optional
        Nodes that are filled before the others.
    enough : int
        A packing on so many nodes, or fewer, is not improved any more.

    Returns
    -------
    Packing or None
        None when some instance found no room in any try.

    Examples
    --------
    >>> from penstock.model import Cluster, Kind, Operator, Topology, expand
    >>> half = Topology("t", (Operator("a", Kind.SOURCE, 6, cpu_pct=50),))
    >>> pack(expand(half), Cluster.of(9, cpu_cores=1.0), limit=1.0).nodes.tolist()
    [0, 1, 2]
    """
    capacity = np.stack([cluster.cpu_cores, cluster.mem_mb, cluster.io_mb_s], axis=1)
    demand = np.stack([graph.cpu_cores, graph.mem_mb, graph.io_mb_s], axis=1)
    total = np.maximum(capacity.sum(axis=0), 1e-12)
    kinds, of, count = np.unique(demand / total, axis=0, return_inverse=True, return_counts=True)
    items = _Items(kinds, count, np.asarray(of).reshape(-1))
    room = capacity * limit / total
    slots = (cluster.processes * cluster.slots).astype(np.int64)
    late = np.ones(len(cluster), dtype=np.bool_)
    if preferred is not None:
        late[preferred] = False
    best: Packing | None = None
    nodes = _Nodes.of(room, slots, late)
    for way in _ways(items, room):
        found = _fill(items, nodes, way)
        if found is not None and (best is None or len(found.nodes) < len(best.nodes)):
            best = found
            if len(best.nodes) <= enough:
                break
    return best


@dataclass(frozen=True)
class _Way:
    """One way to pack.

    Parameters
    ----------
    weights : array of float
        Of the resources.
    by_room : bool
        Score an instance by what the node has left of each resource, and not by its size alone.
    by_trial : bool
        Choose the next node by filling one of every kind, and not by what it has room for.
    """

    weights: FloatArray
    by_room: bool
    by_trial: bool


def _ways(items: _Items, room: FloatArray) -> Iterator[_Way]:
    wanted = (items.demand * items.count[:, None]).sum(axis=0)
    scarce = wanted / np.maximum(room.sum(axis=0), 1e-12)
    kinds = len(np.unique(room, axis=0))
    for by_trial in (False, True) if 1 < kinds <= MOST_KINDS else (False,):
        for by_room in (True, False):
            for exponent in EXPONENTS:
                yield _Way(np.where(wanted > 0, scarce**exponent, 0.0), by_room, by_trial)


def _fill(items: _Items, nodes: _Nodes, way: _Way) -> Packing | None:
    """Fill one node after the other; None when something is left over."""
    count = items.count.copy()
    left = (items.demand * count[:, None]).sum(axis=0)
    placed: list[tuple[int, IntArray]] = []
    used = np.zeros(len(nodes.members), dtype=np.int64)
    while count.any():
        open_ = np.flatnonzero(used < nodes.size)
        if not len(open_):
            break
        takes = (np.minimum(nodes.room[open_], left) * way.weights).sum(axis=1)
        first = np.array([nodes.members[kind][used[kind]] for kind in open_.tolist()])
        order = open_[np.lexsort((first, -takes, nodes.late[open_]))]
        # One of each kind on trial, preferred nodes alone while there are any.
        kinds = order[nodes.late[order] == nodes.late[order[0]]] if way.by_trial else order[:1]
        tries = [
            _fill_node(items, count, nodes.room[kind], int(nodes.slots[kind]), way)
            for kind in kinds.tolist()
        ]
        best = int(np.argmax([taken @ items.demand @ way.weights for taken in tries]))
        kind, taken = int(kinds[best]), tries[best]
        # The next nodes of the kind take the same as long as nothing runs short.
        times = _repeats(count, left, items, nodes.room.max(axis=0), taken, tries)
        times = min(times, int(nodes.size[kind] - used[kind]))
        if taken.any():
            chosen = nodes.members[kind][used[kind] : used[kind] + times].tolist()
            placed += [(node, taken) for node in chosen]
        used[kind] += times
        count = count - times * taken
        left = np.maximum(left - times * (taken @ items.demand), 0.0)
    return None if count.any() else _labelled(items, placed)


def _repeats(
    count: IntArray,
    left: FloatArray,
    items: _Items,
    most: FloatArray,
    taken: IntArray,
    tries: list[IntArray],
) -> int:
    """Nodes in a row that are filled alike: all that was tried is there each time, and demand."""
    some = taken > 0
    if not some.any():
        return 1
    spare = (count - np.maximum.reduce(tries))[some] // taken[some]
    amount = taken @ items.demand
    felt = amount > ROOM
    ample = (left - most)[felt] / amount[felt]
    again = min(float(spare.min()), float(ample.min(initial=np.inf)))
    return 1 + max(int(again), 0)


def _fill_node(
    items: _Items,
    count: IntArray,
    room: FloatArray,
    slots: int,
    way: _Way,
) -> IntArray:
    """Take instances for one node until none fits."""
    taken = np.zeros_like(count)
    room = room * (1 + ROOM)
    while slots:
        fits = (taken < count) & (items.demand <= room).all(axis=1)
        if not fits.any():
            break
        score = items.demand @ (way.weights * room if way.by_room else way.weights)
        best = int(np.argmax(np.where(fits, score, -1.0)))
        taken[best] += 1
        room = room - items.demand[best]
        slots -= 1
    return taken


def _labelled(items: _Items, placed: list[tuple[int, IntArray]]) -> Packing:
    """Turn how many of each kind a node has into the node of each instance."""
    node_of = np.empty(len(items.of), dtype=np.int64)
    order = np.argsort(items.of, kind="stable")
    at = np.concatenate([[0], np.cumsum(items.count)[:-1]])
    for node, taken in placed:
        for kind in np.flatnonzero(taken).tolist():
            node_of[order[at[kind] : at[kind] + taken[kind]]] = node
            at[kind] += taken[kind]
    return Packing(np.unique(node_of), node_of)
