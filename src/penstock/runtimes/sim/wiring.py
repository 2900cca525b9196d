"""A topology under a plan, compiled to arrays: who sends how much to whom, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
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
KEYED = {Grouping.FIELDS: "hash", Grouping.PARTIAL_KEY: "partial_key"}


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

    weight, flow = np.repeat(1.0 / counts, counts), np.zeros(len(counts))
    shares: dict[int, FloatArray] = {}
    mixes: dict[int, Mix] = {}
    hops_us, sent, received = (np.zeros(len(weight)) for _ in range(3))
    for name in topology.order:
        i = index[name]
        operator, span = operators[i], spans[i]
        into = [e for e, j in enumerate(targets) if j == i]
        got = {e: shares[e] * flow[senders[e]] * operators[senders[e]].selectivity for e in into}
        arriving = np.sum(list(got.values()), axis=0) if into else np.zeros(counts[i])
        if operator.kind is Kind.SOURCE:
            arriving = arriving + source_parts[name] / counts[i]
        flow[i] = float(arriving.sum())
        if flow[i] > 0:
            weight[span] = arriving / flow[i]
        for e in into:
            part = np.divide(got[e], arriving, out=np.zeros(counts[i]), where=arriving > 0)
            hops_us[span] += part * cost_us(mixes[e].arrived, costs.hop_cpu_us)
            received[span] += part * mixes[e].arrived[:, 2] * operators[senders[e]].tuple_bytes
        for e in [e for e, j in enumerate(senders) if j == i]:
            to = spans[targets[e]]
            ends = Ends(process_of[span], process_of[to], place[span], place[to])
            share = _share(edges[e], int(counts[targets[e]]), plan, keys, routers or {})
            if edges[e].grouping is Grouping.LOCAL_OR_SHUFFLE:
                shares[e], mixes[e] = kept_local(weight[span], share, ends)
            else:
                shares[e], mixes[e] = share, repartitioned(weight[span], share, ends)
            hops_us[span] += operator.selectivity * cost_us(mixes[e].sent, costs.hop_cpu_us)
            sent[span] += operator.selectivity * mixes[e].sent[:, 2] * operator.tuple_bytes
    own_us = [costs.cpu_us_per_tuple.get(o.name, o.cpu_us_per_tuple) for o in operators]
    overhead = costs.task_ms * 1e-3 / costs.batch_s if costs.micro_batch else 0.0
    in_order = range(len(edges))
    every = tuple(shares[e] for e in in_order)
    return Wiring(
        topology=topology,
        first=first,
        operator_of=np.repeat(np.arange(len(counts)), counts),
        node_of=node_of,
        process_of=process_of,
        weight=weight,
        flow=flow,
        shares=every,
        mixes=tuple(mixes[e] for e in in_order),
        tiers=np.array([weight[spans[senders[e]]] @ mixes[e].sent for e in in_order]).reshape(
            -1, 3
        ),
        service_s=(np.repeat(own_us, counts) + hops_us) * 1e-6,
        # What tasks cost in a micro-batch engine may be declared already.
        reserve_cores=np.repeat([max(o.cpu_pct / 100.0, overhead) for o in operators], counts),
        sent_bytes=sent,
        received_bytes=received,
        layers=layers_of(topology, first, every, flow),
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
        router = routers.get(edge.target) or ("two_tier" if table else KEYED[edge.grouping])
        return keys.shares(router, count, table)
    return np.full(count, 1.0 / count)
