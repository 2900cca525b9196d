"""Ant colony optimisation: ants place instances by scent and by sight, and mark what did well."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.model import Cluster, InstanceGraph
from penstock.model.cost import SATURATED
from penstock.model.load import ROUNDING

#: Pheromone that every choice starts with, as in the authors' code.
FIRST_SCENT = 0.5

#: Part of the sight that does not depend on traffic, spread over all nodes: ants explore.
CURIOSITY = 0.1

#: Work that all iterations together may do, in array cells; it bounds the iterations by size.
WORK = 400_000_000
STEP_CELLS = 2_000
FEWEST_ITERATIONS = 3


@dataclass(frozen=True, eq=False)
class Trail:
    """The best placement that an ant found.

    Parameters
    ----------
    node_of : array of int
    cost : float
        Its cost, without a unit: 0 when nothing crosses nodes and nothing waits.
    first_cost : float
        The best of the first iteration, for comparison.
    iterations : int
        Iterations that were run.
    """

    node_of: IntArray
    cost: float
    first_cost: float
    iterations: int


class Colony:
    """Ants that place the instances left over, given those that have a node.

    All ants take the same instance at a time, so that a step is a few operations on arrays of ants
    by nodes. The traffic between an instance and a node comes from sums for each edge and node,
    never from pairs.

    Parameters
    ----------
    graph, cluster
    fixed : array of int
        Node of each instance that stays where it is, -1 for those that the ants place.
    order : array of int
        Order in which instances are placed.
    ants : int
    alpha, beta : float
        Exponents of scent and of sight.
    """

    def __init__(
        self,
        graph: InstanceGraph,
        cluster: Cluster,
        fixed: IntArray,
        order: IntArray,
        *,
        ants: int,
        alpha: float,
        beta: float,
    ) -> None:
        self.graph, self.cluster, self.fixed = graph, cluster, fixed
        self.ants, self.alpha, self.beta = ants, alpha, beta
        self.order = order[fixed[order] < 0]
        self.numbers = np.arange(ants)
        nodes = len(cluster)
        demand = np.stack([graph.cpu_cores, graph.mem_mb, graph.io_mb_s])
        capacity = np.stack([cluster.cpu_cores, cluster.mem_mb, cluster.io_mb_s])
        asked = np.flatnonzero(demand.sum(axis=1) > 0)
        room = (cluster.processes * cluster.slots).astype(np.float64)
        self.demand = np.vstack([demand[asked], np.ones((1, len(graph)))])
        self.capacity = np.vstack([capacity[asked], room])
        settled = np.flatnonzero(fixed >= 0)
        self.used = np.stack([group_sums(fixed[settled], d[settled], nodes) for d in self.demand])
        largest = max(float(cluster.cpu_cores.max()), ROUNDING)
        self.speed = cluster.cpu_cores / largest
        self.traffic = np.zeros(len(graph))
        for flow in graph.flows:
            self.traffic[flow.sources] += (
                flow.pairs.sum(axis=1) if flow.matrix is not None else (flow.out * flow.share.sum())
            )
            self.traffic[flow.targets] += flow.received
        self.leaving: list[list[int]] = [[] for _ in graph.topology.operators]
        self.entering: list[list[int]] = [[] for _ in graph.topology.operators]
        for f, flow in enumerate(graph.flows):
            self.leaving[graph.topology.index[flow.edge.source]].append(f)
            self.entering[graph.topology.index[flow.edge.target]].append(f)

    def forage(self, iterations: int, evaporation: float, rng: np.random.Generator) -> Trail:
        """Send the ants out time and again, and return the best placement of any.

        Each time all scent evaporates by `evaporation`, every ant marks its choices by how good
        its placement was, and the best placement so far is marked once more (elitist ant system).
        """
        nodes = len(self.cluster)
        cells = max(1, len(self.order)) * (STEP_CELLS + self.ants * nodes)
        iterations = min(iterations, max(FEWEST_ITERATIONS, WORK // cells))
        scent = np.full((len(self.order), nodes), FIRST_SCENT)
        rows = np.arange(len(self.order))
        best, best_cost, first_cost = self.fixed, np.inf, np.inf
        for turn in range(iterations):
            placed, costs = self._walk(scent**self.alpha, rng)
            leader = int(np.argmin(costs))
            if costs[leader] < best_cost:
                best, best_cost = placed[leader].copy(), float(costs[leader])
            if turn == 0:
                first_cost = best_cost
            scent *= 1.0 - evaporation
            for ant in range(self.ants):
                mark = evaporation / self.ants * _merit(best_cost, float(costs[ant]))
                scent[rows, placed[ant, self.order]] += mark
            scent[rows, best[self.order]] += evaporation
            if not len(self.order):
                return Trail(best, best_cost, first_cost, 1)
        return Trail(best, best_cost, first_cost, iterations)

    def _walk(self, scent: FloatArray, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
        """One placement by every ant, and what each costs."""
        graph, nodes = self.graph, len(self.cluster)
        placed = np.tile(self.fixed, (self.ants, 1))
        free = np.repeat((self.capacity - self.used)[:, None, :], self.ants, axis=1)
        out, share = self._settled_sums()
        luck = rng.random((len(self.order), self.ants))
        operators = graph.operator_of[self.order].tolist()
        for step, (instance, operator) in enumerate(
            zip(self.order.tolist(), operators, strict=True)
        ):
            need = self.demand[:, instance]
            left = free - need[:, None, None]
            sight = self._traffic_to_nodes(instance, operator, placed, out, share)
            total = float(self.traffic[instance])
            if total > 0:
                sight *= 1.0 / total
            sight += CURIOSITY / nodes
            sight *= self.speed
            if self.beta != 1.0:
                sight **= self.beta
            appeal = sight * scent[step]
            appeal *= np.all(left >= -ROUNDING, axis=0)
            wheel = np.cumsum(appeal, axis=1)
            top = wheel[:, -1]
            chosen = (wheel < (luck[step] * top)[:, None]).sum(axis=1)
            lost = top <= 0
            if lost.any():
                chosen[lost] = self._least_bad(left[:, lost])
            placed[:, instance] = chosen
            free[:, self.numbers, chosen] -= need[:, None]
            for f in self.leaving[operator]:
                flow = graph.flows[f]
                out[f][self.numbers, chosen] += flow.out[instance - flow.first_source]
            for f in self.entering[operator]:
                flow = graph.flows[f]
                share[f][self.numbers, chosen] += flow.share[instance - flow.first_target]
        return placed, self._costs(placed, free, out, share)

    def _settled_sums(self) -> tuple[list[FloatArray], list[FloatArray]]:
        """Sum each edge's rates and shares by ant and node, for what is settled."""
        nodes = len(self.cluster)
        out: list[FloatArray] = []
        share: list[FloatArray] = []
        for flow in self.graph.flows:
            for ends, values, sums in (
                (flow.sources, flow.out, out),
                (flow.targets, flow.share, share),
            ):
                where = self.fixed[ends]
                here = where >= 0
                sums.append(np.tile(group_sums(where[here], values[here], nodes), (self.ants, 1)))
        return out, share

    def _traffic_to_nodes(
        self,
        instance: int,
        operator: int,
        placed: IntArray,
        out: list[FloatArray],
        share: list[FloatArray],
    ) -> FloatArray:
        """Tuples per second between an instance and what each ant has put on each node."""
        table = np.zeros((self.ants, len(self.cluster)))
        for f in self.leaving[operator]:
            flow = self.graph.flows[f]
            i = instance - flow.first_source
            if flow.matrix is None:
                table += float(flow.out[i]) * share[f]
            else:
                table += self._measured(placed[:, flow.targets], flow.matrix[i])
        for f in self.entering[operator]:
            flow = self.graph.flows[f]
            j = instance - flow.first_target
            if flow.matrix is None:
                table += float(flow.share[j]) * out[f]
            else:
                table += self._measured(placed[:, flow.sources], flow.matrix[:, j])
        return table

    def _measured(self, where: IntArray, rates: FloatArray) -> FloatArray:
        """Sum rates by ant and node, leaving out partners without a node."""
        width = len(self.cluster) + 1
        cells = (where + 1 + width * self.numbers[:, None]).ravel()
        sums = group_sums(cells, np.tile(rates, self.ants), width * self.ants)
        return sums.reshape(self.ants, width)[:, 1:]

    def _least_bad(self, left: FloatArray) -> IntArray:
        """Node that would be least over any limit, for each ant that found no room."""
        scale = np.maximum(self.capacity, ROUNDING)[:, None, :]
        return np.asarray(np.argmax(np.min(left / scale, axis=0), axis=1), dtype=np.int64)

    def _costs(
        self,
        placed: IntArray,
        free: FloatArray,
        out: list[FloatArray],
        share: list[FloatArray],
    ) -> FloatArray:
        """Estimate what each ant's placement costs; 0 is the best there is.

        The authors run every placement and measure its response time. Here it is the part of the
        tuples that crosses nodes plus the part of the worst waiting: processing is stretched by
        ``1 / (1 - use)`` of the node's CPU, on average by work, and 1 stands for saturation. It
        grows with what nodes are over their limits.
        """
        nodes = len(self.cluster)
        across = np.zeros(self.ants)
        for f, flow in enumerate(self.graph.flows):
            if flow.matrix is None:
                across += flow.total - (out[f] * share[f]).sum(axis=1)
            else:
                across += [flow.total - flow.internal(row, nodes).sum() for row in placed]
        cut = np.maximum(across, 0.0) / max(self.graph.total_rate, ROUNDING)
        busy = self.capacity[:, None, :] - free
        use = busy / np.maximum(self.capacity, ROUNDING)[:, None, :]
        over = np.maximum(use - 1.0, 0.0).sum(axis=(0, 2))
        cores = np.stack([group_sums(row, self.graph.cpu_cores, nodes) for row in placed])
        load = np.minimum(cores / np.maximum(self.cluster.cpu_cores, ROUNDING), SATURATED)
        work = max(float(self.graph.cpu_cores.sum()), ROUNDING)
        stretch = (cores / (1.0 - load)).sum(axis=1) / work
        waiting = np.maximum(stretch - 1.0, 0.0) / (1.0 / (1.0 - SATURATED) - 1.0)
        return np.asarray((cut + waiting) * (1.0 + over) + over, dtype=np.float64)


def _merit(best: float, cost: float) -> float:
    """How good a placement is beside the best so far, from 0 to 1."""
    return best / cost if cost > 0 else 1.0
