"""From the running placement to the next one with as little moving as possible."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from penstock.common.arrays import IntArray
from penstock.model import Cluster, InstanceGraph
from penstock.strategies.partition.class_state import ClassState


def carry_over(
    graph: InstanceGraph, cluster: Cluster, current: IntArray, chosen: IntArray
) -> IntArray:
    """Stand every instance on one of the chosen nodes, where it is now if that is one of them.

    The others, homeless because their node is not chosen, gone (-1) or they are new, go where they
    talk most; of equals, where the fewest instances are. Limits are not looked at.

    Returns
    -------
    array of int
        Positions in `chosen`.
    """
    position = np.full(len(cluster) + 1, -1, dtype=np.int64)
    position[chosen] = np.arange(len(chosen))
    placed = position[current]
    homeless = np.flatnonzero(placed < 0)
    if not len(homeless):
        return placed
    count = len(chosen)
    # Those without a node stand together on one node more, which attracts nobody.
    groups = np.where(placed < 0, count, placed)
    pull = graph.affinity(groups, count + 1)[:, :count]
    held = np.bincount(groups, minlength=count + 1)[:count]
    for instance in homeless.tolist():
        node = int(np.lexsort((held, -pull[instance]))[0])
        placed[instance] = node
        held[node] += 1
    return placed


def relabel(
    graph: InstanceGraph, cluster: Cluster, current: IntArray, node_of: IntArray
) -> IntArray:
    """Exchange the contents of equal nodes so that the least state and the fewest instances move.

    An assignment problem: what each node would hold, against what stands there now. Nodes of
    different kind keep their contents, since these may not fit elsewhere.
    """
    count = len(cluster)
    kinds: dict[tuple[float, ...], int] = {}
    kind = np.array(
        [
            kinds.setdefault(
                (n.cpu_cores, n.mem_mb, n.io_mb_s, n.bandwidth_mb_s, n.processes, n.slots),
                len(kinds),
            )
            for n in cluster.nodes
        ]
    )
    stays = np.zeros((count, count))
    known = np.flatnonzero(current >= 0)
    worth = 1.0 + graph.state_mb * 1e3
    np.add.at(stays, (node_of[known], current[known]), worth[known])
    impossible = -1e3 * (float(stays.sum()) + 1.0)
    value = np.where(kind[:, None] == kind[None, :], stays, impossible)
    rows, columns = linear_sum_assignment(value, maximize=True)
    new = np.empty(count, dtype=np.int64)
    new[rows] = columns
    return new[node_of]


def bounded(
    graph: InstanceGraph,
    cluster: Cluster,
    current: IntArray,
    node_of: IntArray,
    limit: float,
    moves: int,
) -> IntArray:
    """Make at most `moves` of the moves from `current` to `node_of`, the most useful first.

    Each is made only if its new node has room for it at that moment.
    """
    left = np.flatnonzero(current != node_of)
    if len(left) <= moves:
        return node_of
    state = ClassState(graph, cluster, current, limit, real=True)
    reached = current.copy()
    for _ in range(moves):
        what, origin, target = state.class_of[left], current[left], node_of[left]
        won, lost = state.won(), state.lost()
        gain = won[what, target] - lost[what, origin] + state.own[what]
        after = state.load[:, target] + state.demand[:, what]
        gain = np.where((after <= state.allowed[:, target]).all(axis=0), gain, -np.inf)
        best = int(np.argmax(gain))
        if gain[best] <= 0:
            break
        state.move(int(what[best]), int(origin[best]), int(target[best]))
        reached[left[best]] = node_of[left[best]]
        left = np.delete(left, best)
        if not len(left):
            break
    return reached
