"""Quantum-behaved particle swarm: partition schemes as positions (Sl eq. 15 and 18-23, Alg. 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.common.parameters import Checked, param
from penstock.model import InstanceGraph
from penstock.strategies.partition import register

#: Work of one partition at the most, in (particle, instance) and (particle, pair) updates.
WORK = 3e8

#: What one (particle, instance) update costs beside one measured (particle, pair).
INSTANCE_COST = 10.0


@register
@dataclass(frozen=True)
class QuantumSwarm(Checked):
    """Particles that jump about the middle of their best schemes, closer and closer.

    A particle is one scheme. Every instance has a continuous coordinate; sorted by it, the
    instances are cut into consecutive groups as large as their shares (`decode`), so that the
    random arrangement of natural numbers that Sl starts from is a position like any other and
    every position is a balanced scheme. The fitness is a cost: Alg. 1's "maximum" is read as the
    best, which is the smallest, and `mbest` is the mean of the personal best positions, not of
    their fitness values as eq. 22's text has it.

    Sl prints no sizes of the swarm; those here are ours, and so is the bound on the iterations of
    large graphs.
    """

    name: ClassVar[str] = "quantum-swarm"
    summary: ClassVar[str] = "quantum-behaved particle swarm on cut and load"
    origin: ClassVar[str] = "Sl-Stream eq. 15-23, Alg. 1"

    particles: int = param(20, "Schemes that are tried side by side.", least=1, most=10_000)
    iterations: int = param(100, "Updates of every scheme at the most.", least=0, most=1_000_000)
    rho: float = param(1.0, "Weight of the imbalance beside the share of traffic cut.", least=0)

    def partition(
        self,
        graph: InstanceGraph,
        weights: FloatArray,
        shares: FloatArray,
        rng: np.random.Generator,
    ) -> IntArray:
        """Give every instance a group; see `Partitioner.partition`."""
        n, k, swarm = len(graph), len(shares), self.particles
        # Natural numbers in random order (Alg. 1, steps 4-7).
        position = rng.permuted(np.tile(np.arange(1.0, n + 1), (swarm, 1)), axis=1)
        scheme = decode(position, weights, shares)
        own_best, own_scheme = position.copy(), scheme
        fitness = Fitness(graph, weights, k, self.rho)
        own_cost = fitness.of(scheme)
        best = int(np.argmin(own_cost))
        rounds = self._rounds(graph) if k > 1 else 0
        for turn in range(rounds):
            beta = contraction(rng.uniform(0.5, 1.0), turn, rounds)
            position = step(
                position,
                own_best,
                own_best[best],
                own_best.mean(axis=0),
                beta,
                phi=rng.random(position.shape),
                u=1.0 - rng.random(position.shape),
                sign=np.where(rng.random(position.shape) < 0.5, 1.0, -1.0),
            )
            scheme = decode(position, weights, shares)
            cost = fitness.of(scheme)
            better = cost < own_cost
            own_best[better], own_cost[better] = position[better], cost[better]
            own_scheme = np.where(better[:, None], scheme, own_scheme)
            best = int(np.argmin(own_cost))
        return np.asarray(own_scheme[best], dtype=np.int64)

    def _rounds(self, graph: InstanceGraph) -> int:
        pairs = sum(flow.matrix.size for flow in graph.flows if flow.matrix is not None)
        per_round = self.particles * (pairs + INSTANCE_COST * len(graph))
        return min(self.iterations, max(1, int(WORK / per_round)))


def contraction(sigma: float, turn: int, turns: int) -> float:
    """Convergence coefficient ``sigma * (turns - turn) / turns + 0.5`` (Sl eq. 21).

    Examples
    --------
    >>> contraction(0.8, 25, 100)
    1.1
    """
    return sigma * (turns - turn) / turns + 0.5


def step(
    position: FloatArray,
    own_best: FloatArray,
    best: FloatArray,
    middle: FloatArray,
    beta: float,
    *,
    phi: FloatArray,
    u: FloatArray,
    sign: FloatArray,
) -> FloatArray:
    """Draw new positions: ``p +- beta * |mbest - x| * ln(1/u)`` (Sl eq. 20 and 23).

    `p` lies between a particle's own best and the swarm's, ``phi * own + (1 - phi) * best``. Eq. 23
    prints ``ln u``, which only turns the sign that is drawn anyway; eq. 19 divides by the
    logarithm, against eq. 23 and the density (17) that it comes from.

    Examples
    --------
    >>> one = np.ones(1)
    >>> step(6 * one, 4 * one, 8 * one, 5 * one, 0.5, phi=0.25 * one, u=np.exp(-2) * one, sign=one)
    array([8.])
    """
    attractor = phi * own_best + (1.0 - phi) * best
    return np.asarray(
        attractor + sign * beta * np.abs(middle - position) * np.log(1.0 / u), dtype=np.float64
    )


def decode(position: FloatArray, weights: FloatArray, shares: FloatArray) -> IntArray:
    """Group of every instance (column) of every particle (row).

    The instances in the order of their coordinates are cut where the weights before the middle of
    an instance reach the shares; every group keeps at least one instance while there are enough.

    Examples
    --------
    >>> decode(np.array([[2.5, 9.0, 0.1, 3.0]]), np.ones(4), np.array([0.25, 0.75]))
    array([[1, 1, 0, 1]])
    """
    n, k = position.shape[1], len(shares)
    weights = weights if weights.sum() > 0 else np.ones(n)
    order = np.argsort(position, axis=1, kind="stable")
    sorted_weights = weights[order]
    middle = (np.cumsum(sorted_weights, axis=1) - 0.5 * sorted_weights) / weights.sum()
    ends = np.cumsum(shares / shares.sum())[:-1]
    sorted_groups = np.searchsorted(ends, middle, side="right")
    if n >= k:
        sorted_groups = _no_gaps(sorted_groups, k)
    else:
        sorted_groups = np.broadcast_to(np.argsort(-shares, kind="stable")[:n], (len(order), n))
    groups = np.empty(position.shape, dtype=np.int64)
    np.put_along_axis(groups, order, sorted_groups, axis=1)
    return groups


def _no_gaps(groups: IntArray, k: int) -> IntArray:
    """Raise or lower ascending group numbers so that they start at 0, end at k-1 and skip none."""
    n = groups.shape[1]
    place = np.arange(n)
    groups = np.clip(groups, k - n + place, place)
    # Numbers may rise by one at a time: g[i] <= g[j] + (i - j) for every earlier j, and so on
    # from the end.
    groups = np.minimum.accumulate(groups - place, axis=1) + place
    return np.asarray(groups, dtype=np.int64)


def fitness(
    graph: InstanceGraph, weights: FloatArray, schemes: IntArray, k: int, rho: float
) -> FloatArray:
    """Cost of each scheme (row), the smaller the better (Sl eq. 15); see `Fitness`."""
    return Fitness(graph, weights, k, rho).of(schemes)


class Fitness:
    """Cost of partition schemes: the traffic between groups, and their imbalance (Sl eq. 15).

    The imbalance is the sum over the groups of the difference between their share of the instances
    and their share of the load, and weighs `rho`. Sl adds it to tuples per second; here the traffic
    is a share too, of all traffic, so that `rho` has no unit.

    The sums of all flows of rank one, in all schemes, come from two calls; measured flows are
    looked at pair by pair.
    """

    def __init__(self, graph: InstanceGraph, weights: FloatArray, k: int, rho: float) -> None:
        n = len(graph)
        self.k, self.rho, self.total = k, rho, graph.total_rate
        self.load = weights / weights.sum() if weights.sum() > 0 else np.full(n, 1.0 / n)
        self.measured = [flow for flow in graph.flows if flow.matrix is not None]
        self.flows = [flow for flow in graph.flows if flow.matrix is None]
        numbers = np.arange(n)
        none = [np.empty(0)]
        self.source = np.concatenate([numbers[:0], *(numbers[f.sources] for f in self.flows)])
        self.target = np.concatenate([numbers[:0], *(numbers[f.targets] for f in self.flows)])
        self.out = np.concatenate(none + [f.out for f in self.flows])
        self.share = np.concatenate(none + [f.share for f in self.flows])
        count = np.arange(len(self.flows))
        self.source_flow = np.repeat(count, [len(f.out) for f in self.flows])
        self.target_flow = np.repeat(count, [len(f.share) for f in self.flows])

    def of(self, schemes: IntArray) -> FloatArray:
        """Cost of each scheme, a row with the group of every instance."""
        n = schemes.shape[1]
        one = np.zeros(n, dtype=np.int64)
        sizes = self._sums(schemes, np.full(n, 1.0 / n), one, 1)
        loads = self._sums(schemes, self.load, one, 1)
        uneven = self.rho * np.abs(sizes - loads).sum(axis=1)
        if self.total <= 0:
            return np.asarray(uneven, dtype=np.float64)
        flows = len(self.flows)
        sent = self._sums(schemes[:, self.source], self.out, self.source_flow, flows)
        got = self._sums(schemes[:, self.target], self.share, self.target_flow, flows)
        inside = (sent * got).sum(axis=1)
        for flow in self.measured:
            assert flow.matrix is not None
            for i, scheme in enumerate(schemes):
                together = scheme[flow.sources][:, None] == scheme[flow.targets][None, :]
                inside[i] += flow.matrix[together].sum()
        return np.asarray(1.0 - inside / self.total + uneven, dtype=np.float64)

    def _sums(self, groups: IntArray, values: FloatArray, flow: IntArray, flows: int) -> FloatArray:
        """Sum of `values` in each group of each flow (columns), for each scheme (rows)."""
        swarm = len(groups)
        cells = groups + self.k * (flow + flows * np.arange(swarm)[:, None])
        spread = np.broadcast_to(values, groups.shape).ravel()
        size = swarm * flows * self.k
        sums: Any = np.bincount(cells.ravel(), weights=spread, minlength=size)
        return np.asarray(sums, dtype=np.float64).reshape(swarm, flows * self.k)
