"""Simulated annealing over single moves (Ra Alg. 1, eq. 16-20).

A scheme is judged by the part of the traffic that it cuts and by how unequal the traffic inside its
groups is. One random task moves to another group; a better scheme is taken, a worse one with a
probability that falls with the temperature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_counts, group_sums
from penstock.common.parameters import Checked, param
from penstock.model import InstanceGraph
from penstock.strategies.partition import register
from penstock.strategies.partition.class_state import class_rates
from penstock.strategies.partition.growing import Growing

#: Proposals that are judged together; the first that is taken ends the batch.
BATCH = 128

#: A change must exceed this to count as one: the rest is rounding.
ROUNDED = 1e-12


@register
@dataclass(frozen=True)
class Annealing(Checked):
    """Ra-Stream's partitioner.

    The temperatures are in units of the mean change that a random move makes to the initial scheme,
    so that one setting serves graphs of any size: the printed T0 and Tf are not given, and a move
    among thousands of tasks changes the objective a hundred times less than one among dozens.
    """

    name: ClassVar[str] = "annealing"
    summary: ClassVar[str] = "simulated annealing: cut share and equal internal traffic"
    origin: ClassVar[str] = "Ra-Stream, Alg. 1, eq. 16-20"

    epsilon: float = param(
        0.7, "Weight of the cut share against the deviation of internal weights.", least=0, most=1
    )
    zeta: float = param(0.99, "Factor of the temperature at each step.", least=0.5, most=0.9999)
    hot: float = param(
        0.3, "First temperature T0.", least=1e-9, unit="mean change of a random move"
    )
    cold: float = param(
        0.003, "Last temperature Tf.", least=1e-9, unit="mean change of a random move"
    )
    iterations: float = param(
        0.5, "Proposals at each temperature, at least ten in all.", least=0, unit="for each task"
    )
    moves: float = param(
        10.0, "Moves made before the search ends, at the most.", least=0, unit="for each task"
    )
    overweight: float = param(
        0.1,
        "Part by which a group may exceed its share of the weight (ours); the paper sets no limit.",
        least=0,
        most=1e6,
    )

    def partition(
        self,
        graph: InstanceGraph,
        weights: FloatArray,
        shares: FloatArray,
        rng: np.random.Generator,
    ) -> IntArray:
        """Anneal from the better of two initial schemes; the best scheme seen is the answer."""
        starts = (
            slices(graph, weights, shares),
            Growing().partition(graph, weights, shares, rng),
        )
        schemes = [Scheme(graph, start, len(shares), self.epsilon) for start in starts]
        scheme = min(schemes, key=lambda s: s.objective)
        if len(shares) < 2 or len(graph) <= len(shares) or scheme.total <= 0:
            return scheme.groups
        return self._anneal(scheme, weights, shares, rng)

    def _anneal(
        self, scheme: Scheme, weights: FloatArray, shares: FloatArray, rng: np.random.Generator
    ) -> IntArray:
        room = shares * weights.sum() * (1.0 + self.overweight)
        weight = group_sums(scheme.groups, weights, len(shares))
        probe = scheme.changes(*self._draw(scheme, rng, 4 * BATCH))
        unit = float(np.abs(probe).mean())
        best, best_groups = scheme.objective, scheme.groups.copy()
        if unit <= ROUNDED:
            return best_groups
        temperature, last = self.hot * unit, self.cold * unit
        each = max(10, math.ceil(self.iterations * len(weights)))
        left = math.ceil(self.moves * len(weights))
        while temperature > last and left > 0:
            task, target = self._draw(scheme, rng, each)
            luck = rng.random(each)
            done = 0
            while done < each and left > 0:
                batch = slice(done, done + BATCH)
                moved, to = task[batch], target[batch]
                change = scheme.changes(moved, to)
                # A proposal drawn before its task moved may name the group where it stands now.
                fine = (to != scheme.groups[moved]) & (scheme.size[scheme.groups[moved]] > 1)
                fine &= weight[to] + weights[moved] <= room[to]
                taken = np.flatnonzero(fine & (luck[batch] < acceptance(change, temperature)))
                if not len(taken):
                    done += len(moved)
                    continue
                # Those before it were refused and changed nothing: the batch is exact up to here.
                first = int(taken[0])
                one, origin = int(moved[first]), int(scheme.groups[moved[first]])
                weight[origin] -= weights[one]
                weight[to[first]] += weights[one]
                scheme.move(one, int(to[first]))
                done, left = done + first + 1, left - 1
                if scheme.objective < best - ROUNDED:
                    best, best_groups = scheme.objective, scheme.groups.copy()
            temperature *= self.zeta
        return best_groups

    @staticmethod
    def _draw(scheme: Scheme, rng: np.random.Generator, size: int) -> tuple[IntArray, IntArray]:
        """Random tasks, each with a random group other than its own."""
        task = rng.integers(len(scheme.groups), size=size)
        target = rng.integers(scheme.count - 1, size=size)
        return task, target + (target >= scheme.groups[task])


def acceptance(change: FloatArray, temperature: float) -> FloatArray:
    """Probability of taking a scheme that changes the objective by `change` (Ra eq. 20).

    The paper prints ``exp((f_new - f_old) / T)``, which exceeds 1 for a worse scheme; the minus is
    restored. A scheme that is no worse is always taken.

    Examples
    --------
    >>> acceptance(np.array([-1.0, 0.0, 1.0]), 1.0).round(3)
    array([1.   , 1.   , 0.368])
    """
    return np.asarray(np.exp(-np.maximum(change, 0.0) / temperature), dtype=np.float64)


def objective(internal: FloatArray, total: float, epsilon: float) -> float:
    """Judge a scheme from the traffic inside its groups; smaller is better (Ra eq. 16-19).

    ``epsilon * cut share + (1 - epsilon) * deviation / mean`` of the internal weights. The paper
    adds the deviation itself, in tuples per second, to a share; dividing by the mean (eq. 17) gives
    both terms one scale. No traffic costs nothing, and no internal traffic deviates by nothing.

    Examples
    --------
    >>> objective(np.array([30.0, 10.0]), 50.0, 0.5)
    0.35
    """
    if total <= 0:
        return 0.0
    mean = float(internal.mean())
    deviation = float(internal.std()) / mean if mean > 0 else 0.0
    return epsilon * (1.0 - float(internal.sum()) / total) + (1.0 - epsilon) * deviation


class Scheme:
    """A partition whose objective follows each move at the cost of the moved task's neighbours.

    Interchangeable tasks share a row (`InstanceGraph.classes`), so a task of a shuffled stream has
    a handful of neighbours instead of thousands. A task's loop to itself is left out: it moves
    along.

    Parameters
    ----------
    graph : InstanceGraph
    groups : array of int
    count : int
        Number of groups.
    epsilon : float
    """

    def __init__(self, graph: InstanceGraph, groups: IntArray, count: int, epsilon: float) -> None:
        self.count = count
        self.epsilon = epsilon
        self.groups = groups.copy()
        self.class_of = graph.classes
        self.rates = class_rates(graph)
        self.own = np.diagonal(self.rates).copy()
        classes = len(self.rates)
        held = group_counts(self.groups * classes + self.class_of, count * classes)
        members = held.reshape(count, classes)
        #: Tuples per second between one task of each class (column) and each group (row).
        self.pull = members @ self.rates
        self.size = members.sum(axis=1)
        self.internal = 0.5 * (members * (self.pull - self.own)).sum(axis=1)
        every = members.sum(axis=0)
        self.total = 0.5 * float(every @ (self.rates @ every - self.own))
        self.inside = float(self.internal.sum())
        self.squares = float((self.internal**2).sum())
        self._least = ROUNDED * max(self.total, ROUNDED)

    @property
    def objective(self) -> float:
        """Ra eq. 19 of the scheme as it stands."""
        if self.total <= 0:
            return 0.0
        mean = self.inside / self.count
        spread = math.sqrt(max(self.squares / self.count - mean * mean, 0.0))
        share = 1.0 - self.inside / self.total
        return self.epsilon * share + (1.0 - self.epsilon) * spread / max(mean, self._least)

    def changes(self, task: IntArray, target: IntArray) -> FloatArray:
        """Change of the objective if each task, and no other, moved to its target."""
        what, origin = self.class_of[task], self.groups[task]
        lost = self.pull[origin, what] - self.own[what]
        won = self.pull[target, what]
        inside = self.inside - lost + won
        squares = (
            self.squares
            + lost * (lost - 2.0 * self.internal[origin])
            + won * (won + 2.0 * self.internal[target])
        )
        mean = inside / self.count
        spread = np.sqrt(np.maximum(squares / self.count - mean * mean, 0.0))
        share = 1.0 - inside / self.total
        weighed = (1.0 - self.epsilon) * spread / np.maximum(mean, self._least)
        return np.asarray(self.epsilon * share + weighed - self.objective, dtype=np.float64)

    def move(self, task: int, target: int) -> None:
        """Move one task."""
        what, origin = self.class_of[task], self.groups[task]
        lost = float(self.pull[origin, what] - self.own[what])
        won = float(self.pull[target, what])
        before = self.internal[origin] ** 2 + self.internal[target] ** 2
        self.internal[origin] -= lost
        self.internal[target] += won
        self.inside += won - lost
        self.squares += float(self.internal[origin] ** 2 + self.internal[target] ** 2 - before)
        self.pull[origin] -= self.rates[what]
        self.pull[target] += self.rates[what]
        self.size[origin] -= 1
        self.size[target] += 1
        self.groups[task] = target


def slices(graph: InstanceGraph, weights: FloatArray, shares: FloatArray) -> IntArray:
    """Spread every operator over the groups in proportion to their shares: an initial scheme.

    Tasks are lined up by their place within their operator and the line is cut into shares, so that
    the first group gets the first part of every operator.
    """
    first = graph.first[graph.operator_of]
    size = graph.first[graph.operator_of + 1] - first
    place = (np.arange(len(graph)) - first + 0.5) / size
    return _cut(np.argsort(place, kind="stable"), weights, shares)


def _cut(order: IntArray, weights: FloatArray, shares: FloatArray) -> IntArray:
    """Cut a line of tasks into groups by their shares; no group empty while tasks suffice."""
    n, count = len(order), len(shares)
    line = weights[order]
    middle = np.cumsum(line) - 0.5 * line
    ends = np.cumsum(shares)[:-1] * float(weights.sum())
    place = np.searchsorted(ends, middle, side="right")
    last = -1
    for i, wanted in enumerate(place.tolist()):
        # No group is skipped, and enough tasks are left for the groups that follow.
        last = min(max(wanted, i - max(n - count, 0)), last + 1, count - 1)
        place[i] = last
    groups = np.empty(n, dtype=np.int64)
    groups[order] = place
    return groups
