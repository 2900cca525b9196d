"""Sl-Stream: state-lossless scheduling, its planning part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from penstock.common.arrays import IntArray
from penstock.common.parameters import Checked, param
from penstock.model import Cluster, Keep, Plan
from penstock.strategies.api import Request, register
from penstock.strategies.loads import capacity_shares, max_load
from penstock.strategies.partition.quantum_swarm import QuantumSwarm
from penstock.strategies.place import Placed
from penstock.strategies.place.groups import group_capacity, group_demand
from penstock.strategies.place.matching import Matching
from penstock.strategies.polish import excess, land, settle, settle_exactly
from penstock.strategies.replan import finish
from penstock.strategies.trigger.better_scheme import BetterScheme, cpu_and_memory


@register
@dataclass(frozen=True)
class SlStream(Checked):
    """Partition with a quantum particle swarm, match subgraphs to nodes, replace what is worse.

    Sl-Stream Alg. 1 (`quantum-swarm`), Alg. 2 (`matching`) and the trigger of Alg. 3
    (`better-scheme`); the order of the migration is `penstock.model.schedule`. The local search at
    the end (`polish`) is ours.
    """

    name: ClassVar[str] = "sl"
    summary: ClassVar[str] = "quantum swarm subgraphs matched one to one with nodes (Sl-Stream)"
    origin: ClassVar[str] = "Sl-Stream, Wu et al., J. Netw. Comput. Appl. 2022"

    nodes: int = param(0, "Nodes to use; 0: the fewest that hold the demand at `fill`.", least=0)
    fill: float = param(0.7, "Mean use of the nodes that are chosen.", least=0.01, most=1)
    most: float = param(0.8, "Use of a node that is not exceeded if it can be.", least=0, most=1)
    margin: float = param(0.25, "Growth that fewer nodes must still hold to be used.", least=0)
    particles: int = param(20, "Size of the swarm.", least=1, most=10_000)
    iterations: int = param(100, "Iterations of the swarm.", least=0, most=1_000_000)
    rho: float = param(1.0, "Weight of the imbalance in the fitness (eq. 15).", least=0)
    alpha: float = param(0.5, "Weight of CPU in the load (eq. 5).", least=0, most=1)
    mu: float = param(0.5, "Weight of CPU in the matching cost (eq. 14).", least=0, most=1)
    xi: float = param(0.7, "New cost over old below which to plan anew.", least=0, most=1)
    polish: int = param(8, "Passes of local search at the end; 0: the paper alone.", least=0)

    def plan(self, request: Request) -> Plan | Keep:
        """Partition, match and polish, then compare with what runs."""
        placed = self._place(request)
        limit = max(self.most, max_load(request.graph, request.cluster, placed.node_of))
        answer = finish(request, self.name, placed, limit=min(limit, 1.0))
        if isinstance(answer, Keep):
            return answer
        trigger = BetterScheme(xi=self.xi, rho=self.rho, alpha=self.alpha)
        verdict = trigger.check(request, answer)
        if not verdict.fires:
            return Keep(verdict.reasons)
        return replace(answer, reasons=(*verdict.reasons, *answer.reasons))

    def _place(self, request: Request) -> Placed:
        graph, cluster = request.graph, request.cluster
        shares = capacity_shares(graph, cluster)
        largest = np.argsort(-shares, kind="stable")[: int((shares > 0).sum())]
        if not request.exact_nodes:
            largest = largest[: self._count(request, largest)]
        swarm = QuantumSwarm(particles=self.particles, iterations=self.iterations, rho=self.rho)
        weights = cpu_and_memory(graph, cluster, self.alpha)
        groups = swarm.partition(graph, weights, shares[largest], request.rng)
        # At a fixed number of nodes the subgraphs are matched with those that can hold any.
        among = np.sort(largest) if request.exact_nodes else np.arange(len(cluster))
        placed = Matching(mu=self.mu).place(
            graph,
            groups,
            len(largest),
            Cluster(tuple(cluster.nodes[i] for i in among.tolist())),
            request.running,
            request.rng,
        )
        node_of = among[placed.node_of]
        if request.exact_nodes:
            node_of = settle_exactly(request, node_of, self.polish)
        else:
            node_of = settle(graph, cluster, node_of, self.most, self.polish, keep_all=True)
            if excess(graph, cluster, node_of, self.most) > 0:
                node_of = settle(graph, cluster, node_of, 1.0, self.polish, keep_all=True)
        return land(request, node_of, placed.reasons)

    def _count(self, request: Request, largest: IntArray) -> int:
        """Return the number of subgraphs, which is the number of nodes that are used."""
        if self.nodes:
            return min(self.nodes, len(largest))
        running = request.running
        count = self._needed(request, largest, 1.0)
        # Nodes are let go only if they would not be needed again at once.
        in_use = len(set(running.active) & set(request.cluster.names)) if running else 0
        if count < in_use <= self._needed(request, largest, 1.0 + self.margin):
            count = in_use
        return min(count, len(largest))

    def _needed(self, request: Request, largest: IntArray, growth: float) -> int:
        graph, part = request.graph, np.array([[self.fill], [self.fill], [self.fill], [1.0]])
        held = np.cumsum(part * group_capacity(request.cluster)[:, largest], axis=1)
        total = group_demand(graph, np.zeros(len(graph), dtype=np.int64), 1)
        total[[0, 2]] *= growth
        return int((held < total * (1 - 1e-9)).any(axis=0).sum()) + 1
