"""Ms-Stream: stragglers among instances and among nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_counts
from penstock.common.parameters import Checked, param
from penstock.model import Grouping, Keep, NodeUse, Plan, Reason, RoutingTable
from penstock.model.load import lin
from penstock.strategies.api import Request, register
from penstock.strategies.loads import capacity_shares, dominant
from penstock.strategies.partition.graph_network import GraphNetwork
from penstock.strategies.place import Placed
from penstock.strategies.place.groups import group_capacity
from penstock.strategies.place.padding import Padding
from penstock.strategies.polish import excess, land, settle, settle_exactly
from penstock.strategies.replan import Aim, finish
from penstock.strategies.route.two_tier import TwoTier, rebalance, resize
from penstock.strategies.trigger.node_imbalance import NodeImbalance, instance_loads, node_loads


@register
@dataclass(frozen=True)
class MsStream(Checked):
    """Balance keys over instances by a two-tier router, and instances over nodes by a network.

    Ms-Stream section 5 and Alg. 1-3: `two-tier` with `rebalance`, `graph-network`, `padding`, and
    the trigger `node-imbalance`. The local search at the end (`polish`) is ours.
    """

    name: ClassVar[str] = "ms"
    summary: ClassVar[str] = "two-tier routing and groups by a graph network (Ms-Stream)"
    origin: ClassVar[str] = "Ms-Stream"

    chi: float = param(1.0, "LIT above which keys are repartitioned (eq. 10).", least=0)
    eta: float = param(0.4, "LIN above which nodes are (eq. 38).", least=0)
    xi: float = param(0.8, "Load that a node should not exceed (eq. 37).", least=0.01, most=1)
    mu: float = param(
        0.5, "Weight of CPU in the load of a group (eq. 9); memory has the rest.", least=0, most=1
    )
    groups: int = param(0, "Groups to make; 0: as many as the load asks for.", least=0)
    partitions: int = param(64, "Router partitions for each instance.", least=1, most=65_536)
    epochs: int = param(300, "Epochs of the training at the most.", least=1, unit="epochs")
    polish: int = param(8, "Passes of local search at the end; 0: the paper alone.", least=0)

    def plan(self, request: Request) -> Plan | Keep:
        """Distribute the keys, split the graph, place the groups; or keep what is in balance."""
        trigger = NodeImbalance(self.eta, self.chi)
        verdict = trigger.check(request)
        if not verdict.fires:
            return Keep(verdict.reasons)
        routing, notes = self.routing(request)
        why = (*(verdict.reasons if request.running else ()), *notes)
        running = request.running
        if running is not None and not trigger.nodes_lag(request).fires:
            # Only keys lag: no instance has to move for that.
            stays = Placed(running.node_of_in(request.cluster), running.process_of, why)
            return finish(request, self.name, stays, routing=routing)
        node_of, notes = self._split(request)
        placed = land(request, node_of, (*why, *notes))
        limit = 1.0 if request.exact_nodes else self.xi
        graph, cluster = request.graph, request.cluster
        balance = Aim("lin", lambda found: lin(node_loads(graph, cluster, found)), self.eta)
        return finish(request, self.name, placed, routing=routing, limit=limit, aim=balance)

    def routing(self, request: Request) -> tuple[Mapping[str, RoutingTable], tuple[Reason, ...]]:
        """Tables of the operators whose keys belong to instances, repartitioned where they lag."""
        keyed = {e.target for e in request.topology.edges if e.grouping is Grouping.FIELDS}
        tables: dict[str, RoutingTable] = {}
        reasons: list[Reason] = []
        for operator in request.topology.operators:
            if not operator.routed or operator.name not in keyed:
                continue
            running = request.running
            table = running.routing.get(operator.name) if running else None
            if running is None or table is None:
                table = TwoTier(self.partitions).table(operator.parallelism)
            elif running.parallelism[operator.name] != operator.parallelism:
                table = resize(table, operator.parallelism)
            elif (loads := partition_loads(request, operator.name, table)) is not None:
                table, _, notes = rebalance(table, loads, operator.parallelism, self.chi)
                reasons += [Reason(f"{operator.name}: {n.text}", n.figures) for n in notes]
            tables[operator.name] = table
        return tables, tuple(reasons)

    def _split(self, request: Request) -> tuple[IntArray, tuple[Reason, ...]]:
        """Node of each instance: the groups of the network, padded onto nodes and polished."""
        graph, cluster = request.graph, request.cluster
        shares = capacity_shares(graph, cluster)
        usable = np.flatnonzero(shares > 0)
        network, weights = GraphNetwork(epochs=self.epochs), dominant(graph, cluster)
        if request.exact_nodes:
            groups = network.partition(graph, weights, shares[usable], request.rng)
            text = f"all {len(cluster)} nodes are asked for, a group for each of {len(usable)}"
            node_of = settle_exactly(request, usable[groups], self.polish)
            return node_of, (Reason(text, {"groups": len(usable)}),)
        largest = usable[np.argsort(-shares[usable], kind="stable")]
        chosen = largest[: self._count(request, largest)]
        share = shares[chosen] / shares[chosen].sum()
        groups = network.partition(graph, weights, share, request.rng)
        padding = Padding(mu=self.mu, threshold=self.xi)
        placed = padding.place(graph, groups, len(chosen), cluster, request.running, request.rng)
        return self._polished(request, placed.node_of), placed.reasons

    def _polished(self, request: Request, node_of: IntArray) -> IntArray:
        """Search for less traffic with no node above `xi` and LIN no higher than `eta`.

        A search that empties a node for the sake of traffic, or that leaves the nodes further out
        of balance, is held more tightly, and at last left out: balance over the nodes that were
        chosen is what this strategy is for.
        """
        graph, cluster = request.graph, request.cluster
        even = float(
            NodeUse.of(graph, cluster, node_of).busiest(cluster)[np.unique(node_of)].mean()
        )
        tries = [(self.xi, self.polish), (self.xi, 0)]
        tries[1:1] = [(even * (1 + self.eta / part), self.polish) for part in (2, 8)]
        nodes = len(np.unique(node_of))
        ranked: list[tuple[bool, int, float, int, IntArray]] = []
        for rank, (limit, passes) in enumerate(tries):
            found = settle(graph, cluster, node_of, min(limit, self.xi), passes)
            over = excess(graph, cluster, found, self.xi) > 0
            out = max(lin(node_loads(graph, cluster, found)) - self.eta, 0.0)
            emptied = max(nodes - len(np.unique(found)), 0)
            ranked.append((over, emptied, out, rank, found))
            if not (over or emptied or out):
                break
        over, *_, best = min(ranked, key=lambda found: found[:4])
        return settle(graph, cluster, best, 1.0, 0) if over else best

    def _count(self, request: Request, largest: IntArray) -> int:
        """Count the groups: so many that LIN may be `eta` and no node is above `xi`.

        The paper's 0.8 for the busiest node at a mean of 0.55 to 0.6 is this rule: 0.8 / 1.4.
        """
        if self.groups:
            return min(self.groups, len(largest), len(request.graph))
        graph, mean = request.graph, self.xi / (1.0 + self.eta)
        held = np.cumsum(group_capacity(request.cluster)[:, largest], axis=1)
        held[:3] *= mean
        total = [graph.cpu_cores.sum(), graph.mem_mb.sum(), graph.io_mb_s.sum(), len(graph)]
        short = (held < np.array(total)[:, None] * (1 - 1e-9)).any(axis=0)
        return min(int(short.sum()) + 1, len(largest), len(graph))


def partition_loads(request: Request, operator: str, table: RoutingTable) -> FloatArray | None:
    """Measured tuples per second of each router partition, or its instance's in equal parts.

    None when neither was measured: declared shares would be blind to what the table does.
    """
    seen = request.measurements.partition_rates.get(operator) if request.measurements else None
    if seen is not None and len(seen) == len(table.partitions):
        return seen
    loads = instance_loads(request, operator)
    if loads is None:
        return None
    owner = np.array(table.partitions, dtype=np.int64)
    return np.asarray((loads / np.maximum(group_counts(owner, len(loads)), 1))[owner])
