"""A topology under a plan, compiled to arrays: who sends how much to whom, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.model import Cluster, Edge, Grouping, Kind, Plan, Topology
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.keys import KeySpace
from penstock.runtimes.sim.layers import Layer, layers_of
from penstock.runtimes.sim.tiers import Ends, Mix, cost_us, kept_local, repartitioned

#: Routers of the groupings that look at keys, where a plan brings no table.
KEYED = {Grouping.FIELDS: "hash", Grouping.PARTIAL_KEY: "partial-key"}


@dataclass(frozen=True, eq=False)
class Wiring:
    """Everything about a plan that stays the same until the next one.

    Instances are numbered as in the plan. Fractions of tuples by tier assume that an operator's
    instances emit in proportion to what they receive.

    Parameters
    ----------
    topology : Topology
        With the parallelism of the plan.
    first : array of int
        Number of each operator's first instance; the number of instances at the end.
    operator_of, node_of, process_of : array of int
        Of each instance; -1 as the node of one whose node is gone. Processes counted through.
    weight : array
        Part of its operator's tuples that each instance processes.
    flow : array
        Tuples of each operator for one tuple of all sources together.
    shares : tuple of array
        Part of each edge's tuples that each target instance receives.
    mixes : tuple of Mix
        Tiers of each edge.
    tiers : array
        For each edge, tuples received in process, in node and across for one that is emitted.
    service_s : array
        CPU seconds of a tuple at each instance, both ends of its hops included.
    reserve_cores : array
        Cores that each instance takes whatever it processes.
    sent_bytes, received_bytes : array
        Bytes across nodes for each tuple that an instance processes.
    layers : tuple of Layer
    """

    topology: Topology
    first: IntArray
    operator_of: IntArray
    node_of: IntArray
    process_of: IntArray
    weight: FloatArray
    flow: FloatArray
    shares: tuple[FloatArray, ...]
    mixes: tuple[Mix, ...]
    tiers: FloatArray
    service_s: FloatArray
    reserve_cores: FloatArray
    sent_bytes: FloatArray
    received_bytes: FloatArray
    layers: tuple[Layer, ...]

    def __len__(self) -> int:
        return len(self.operator_of)

    def span(self, operator: int) -> slice:
        """Numbers of an operator's instances."""
        return slice(int(self.first[operator]), int(self.first[operator + 1]))


class _Routes:
    """What flows where, worked out operator by operator in topological order."""

    def __init__(
        self,
        topology: Topology,
        counts: IntArray,
        spans: Sequence[slice],
        senders: Sequence[int],
        targets: Sequence[int],
    ) -> None:
        self._operators, self._edges = topology.operators, topology.edges
        self._counts, self._spans, self._senders = counts, spans, senders
        self.weight, self.flow = np.repeat(1.0 / counts, counts), np.zeros(len(counts))
        self.shares: dict[int, FloatArray] = {}
        self.mixes: dict[int, Mix] = {}
        self.hops_us, self.sent, self.received = (np.zeros(len(self.weight)) for _ in range(3))

    def arrive(self, i: int, into: Sequence[int], source_part: float, costs: CostProfile) -> None:
        """Add up what comes to the instances of an operator, and what its hops cost them."""
        operators, senders, count = self._operators, self._senders, int(self._counts[i])
        span = self._spans[i]
        got = {
            e: self.shares[e] * self.flow[senders[e]] * operators[senders[e]].selectivity
            for e in into
        }
        arriving = np.sum(list(got.values()), axis=0) if into else np.zeros(count)
        if operators[i].kind is Kind.SOURCE:
            arriving = arriving + source_part / count
        self.flow[i] = float(arriving.sum())
        if self.flow[i] > 0:
            self.weight[span] = arriving / self.flow[i]
        for e in into:
            part = np.divide(got[e], arriving, out=np.zeros(count), where=arriving > 0)
            came = self.mixes[e].arrived
            self.hops_us[span] += part * cost_us(came, costs.hop_cpu_us)
            self.received[span] += part * came[:, 2] * operators[senders[e]].tuple_bytes

    def leave(self, i: int, e: int, share: FloatArray, ends: Ends, costs: CostProfile) -> None:
        """Distribute what an operator emits on an edge over the edge's targets."""
        operator, span = self._operators[i], self._spans[i]
        if self._edges[e].grouping is Grouping.LOCAL_OR_SHUFFLE:
            self.shares[e], self.mixes[e] = kept_local(self.weight[span], share, ends)
        else:
            self.shares[e] = share
            self.mixes[e] = repartitioned(self.weight[span], share, ends)
        went = self.mixes[e].sent
        self.hops_us[span] += operator.selectivity * cost_us(went, costs.hop_cpu_us)
        self.sent[span] += operator.selectivity * went[:, 2] * operator.tuple_bytes


def wire(
    topology: Topology,
    plan: Plan,
    cluster: Cluster,
    keys: KeySpace,
    costs: CostProfile,
    source_parts: Mapping[str, float],
    routers: Mapping[str, str] | None = None,
) -> Wiring:
    """Compile a plan.

    Parameters
    ----------
    topology : Topology
        Runnable: without a cycle, all operators reached.
    plan : Plan
    cluster : Cluster
        Nodes that are there; instances on others stand still.
    keys : KeySpace
    costs : CostProfile
    source_parts : mapping of str to float
        Part of all source tuples that each source reads.
    routers : mapping of str to str, optional
        Router of the keyed edges into an operator, where it is not the grouping's own.
    """
    topology = topology.with_parallelism(plan.parallelism)
    operators, edges, index = topology.operators, topology.edges, topology.index
    counts = np.array([o.parallelism for o in operators], dtype=np.int64)
    first = np.concatenate(([0], np.cumsum(counts)))
    spans = [slice(a, b) for a, b in pairwise(first.tolist())]
    node_of, process_of, place = _places(plan, cluster)
    senders, targets = ([index[getattr(e, end)] for e in edges] for end in ("source", "target"))

    routes = _Routes(topology, counts, spans, senders, targets)
    for name in topology.order:
        i = index[name]
        into = [e for e, j in enumerate(targets) if j == i]
        routes.arrive(i, into, source_parts.get(name, 0.0), costs)
        for e in [e for e, j in enumerate(senders) if j == i]:
            to = spans[targets[e]]
            span = spans[i]
            ends = Ends(process_of[span], process_of[to], place[span], place[to])
            share = _share(edges[e], int(counts[targets[e]]), plan, keys, routers or {})
            routes.leave(i, e, share, ends, costs)
    own_us = [costs.cpu_us_per_tuple.get(o.name, o.cpu_us_per_tuple) for o in operators]
    overhead = costs.task_ms * 1e-3 / costs.batch_s if costs.micro_batch else 0.0
    in_order = range(len(edges))
    weight, mixes = routes.weight, routes.mixes
    every = tuple(routes.shares[e] for e in in_order)
    return Wiring(
        topology=topology,
        first=first,
        operator_of=np.repeat(np.arange(len(counts)), counts),
        node_of=node_of,
        process_of=process_of,
        weight=weight,
        flow=routes.flow,
        shares=every,
        mixes=tuple(mixes[e] for e in in_order),
        tiers=np.array([weight[spans[senders[e]]] @ mixes[e].sent for e in in_order]).reshape(
            -1, 3
        ),
        service_s=(np.repeat(own_us, counts) + routes.hops_us) * 1e-6,
        # What tasks cost in a micro-batch engine may be declared already.
        reserve_cores=np.repeat([max(o.cpu_pct / 100.0, overhead) for o in operators], counts),
        sent_bytes=routes.sent,
        received_bytes=routes.received,
        layers=layers_of(topology, first, every, routes.flow),
    )


def _places(plan: Plan, cluster: Cluster) -> tuple[IntArray, IntArray, IntArray]:
    """Node of each instance, -1 when it is gone; its process and node, counted through.

    An instance without a node is alone, beyond all others.
    """
    node_of = plan.node_of_in(cluster)
    there, alone = node_of >= 0, np.arange(len(node_of))
    process = cluster.first_process[np.maximum(node_of, 0)] + plan.process_of
    return (
        node_of,
        np.where(there, process, int(cluster.processes.sum()) + alone),
        np.where(there, node_of, len(cluster) + alone),
    )


def _share(
    edge: Edge, count: int, plan: Plan, keys: KeySpace, routers: Mapping[str, str]
) -> FloatArray:
    if edge.grouping is Grouping.ALL:
        return np.ones(count)
    if edge.grouping is Grouping.GLOBAL:
        return np.asarray(np.eye(1, count)[0])
    if edge.shares is not None:
        return np.array(edge.shares)
    if edge.grouping in KEYED:
        table = plan.routing.get(edge.target)
        router = routers.get(edge.target) or ("two-tier" if table else KEYED[edge.grouping])
        return keys.shares(router, count, table)
    return np.full(count, 1.0 / count)
