"""From probabilities to groups: the likeliest of each instance, repaired to be in balance."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_counts, group_sums
from penstock.model import InstanceGraph
from penstock.strategies.place.spread import rates_of

#: A group may be this much above its share, and an instance more, before a task is sent elsewhere.
TOLERANCE = 1.02

#: Part of its share that a group gets even where single instances weigh more than that.
LEAST = 0.7


def likeliest(
    graph: InstanceGraph, chances: FloatArray, weights: FloatArray, shares: FloatArray
) -> IntArray:
    """Turn probabilities into groups: the likeliest of each instance, then repaired.

    No group is left empty while there are instances enough, none is above its share by more than
    the tolerance and one instance, and none as far below it if that can be helped. What has to move
    for that is whatever adds least to the cut.

    Parameters
    ----------
    graph : InstanceGraph
    chances : array
        Probability of each group (columns) for each instance.
    weights, shares : array
        As in `Partitioner.partition`.
    """
    k = len(shares)
    groups = np.asarray(chances.argmax(axis=1), dtype=np.int64)
    load, held = group_sums(groups, weights, k), group_counts(groups, k)
    limit = shares * weights.sum() * TOLERANCE + weights.max()
    least = shares * weights.sum() / TOLERANCE - weights.max()
    least = np.maximum(least, LEAST * shares * weights.sum())
    near = graph.affinity(groups, k)

    def move(instance: int, target: int) -> None:
        origin = int(groups[instance])
        rates = rates_of(graph, instance)
        near[:, origin] -= rates
        near[:, target] += rates
        load[origin] -= weights[instance]
        load[target] += weights[instance]
        held[origin] -= 1
        held[target] += 1
        groups[instance] = target

    for empty in np.flatnonzero(held == 0).tolist():
        movable = np.flatnonzero(held[groups] > 1)
        if not len(movable):
            break
        # From a group that is over its limit if there is one.
        over = (load > limit)[groups[movable]]
        order = np.lexsort((near[movable, groups[movable]], ~over))
        move(int(movable[order[0]]), empty)
    for group in np.argsort(limit - load, kind="stable").tolist():
        while load[group] > limit[group]:
            members = np.flatnonzero((groups == group) & (weights > 0))
            fits = load + weights[members, None] <= limit
            fits[:, group] = False
            gain = np.where(fits, near[members] - near[members, group, None], -np.inf)
            which, target = np.unravel_index(int(np.argmax(gain)), gain.shape)
            move(int(members[which]), int(target))
    for group in np.argsort(load - least, kind="stable").tolist():
        while load[group] < least[group]:
            spare = load[groups] - weights >= least[groups]
            fits = (weights > 0) & (load[group] + weights <= limit[group])
            others = np.flatnonzero(spare & fits & (groups != group) & (held[groups] > 1))
            if not len(others):
                break
            gain = near[others, group] - near[others, groups[others]]
            move(int(others[np.argmax(gain)]), group)
    return groups
