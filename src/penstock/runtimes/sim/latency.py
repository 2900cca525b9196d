"""Latency as a distribution: paths of tuples, drawn through the queues as they stand.

Sampled rather than convolved: paths share operators, fan out and join, and the slowest branch
counts, which is a maximum of dependent sums. A few hundred paths a second give the percentiles of
a run with less error than the queueing model has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.model import Cluster, Grouping, Kind
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.fluid import FluidStep
from penstock.runtimes.sim.wiring import Wiring

#: Use beyond which the random part of a wait is not extrapolated; the queues tell the rest.
SATURATED = 0.98

#: Copies of a tuple that are followed where an operator emits many.
COPIES = 8


@dataclass(frozen=True, eq=False)
class Delays:
    """Time that a tuple spends at each instance, in seconds.

    Parameters
    ----------
    fixed : array
        Service, stretched by the node's other work, behind what is queued and what pauses.
    busy : array
        Chance to find the instance busy.
    wait : array
        Mean wait in that case.
    link_s_per_byte : array
        Time on each node's link.
    """

    fixed: FloatArray
    busy: FloatArray
    wait: FloatArray
    link_s_per_byte: FloatArray


def delays(
    wiring: Wiring,
    cluster: Cluster,
    step: FluidStep,
    queue: FloatArray,
    speed: FloatArray,
    pause_s: FloatArray,
) -> Delays:
    """Work out the delays after a step.

    The wait for a core is that of a queue with as many servers (Sakasegawa's approximation of
    M/M/c), the wait for the instance's thread that of M/D/1 at the stretched service time, as a
    tuple's cost is a constant here. A queue that does not empty adds its length over the rate at
    which it is served.
    """
    node = np.maximum(wiring.node_of, 0)
    reserve = group_sums(
        node, np.where(wiring.node_of >= 0, wiring.reserve_cores, 0.0), len(cluster)
    )
    cores = np.maximum(cluster.cpu_cores, 1e-9)
    use = np.minimum((step.cores + reserve) / cores, SATURATED)
    runnable = use ** (np.sqrt(2.0 * (cores + 1.0)) - 1.0) / (cores * (1.0 - use))
    service = wiring.service_s / speed[node] * (1.0 + runnable[node])
    rate = step.processed / step.seconds
    busy = np.minimum(rate * service, SATURATED)
    wait = service / (2.0 * (1.0 - busy))
    served = step.able / step.seconds
    alone = np.divide(1.0, service, out=np.full_like(service, np.inf), where=service > 0)
    served = np.where(served > 0, served, alone)
    behind = np.where(queue > 1e-9, queue / np.maximum(served, 1e-9), 0.0)
    link_use = np.minimum(step.link_use, SATURATED)
    link = 1.0 / np.maximum(cluster.bandwidth_mb_s * 1e6, 1e-9) / (1.0 - link_use)
    return Delays(service + behind + pause_s, busy, wait, link)


def sample_ms(
    wiring: Wiring, found: Delays, costs: CostProfile, rng: np.random.Generator, count: int
) -> FloatArray:
    """Draw times of tuples from source to the end of the slowest branch, in milliseconds."""
    topology, index = wiring.topology, wiring.topology.index
    done = np.zeros(count)
    time_at: dict[int, FloatArray] = {}
    where: dict[int, IntArray] = {}
    sources = [index[o.name] for o in topology.operators if o.kind is Kind.SOURCE]
    parts = np.cumsum(wiring.flow[sources])
    chosen = np.searchsorted(parts / parts[-1], rng.random(count), side="right")
    for number, i in enumerate(sources):
        at = _drawn(wiring.weight[wiring.span(i)], rng.random(count)) + int(wiring.first[i])
        spent = _spent(found, at, rng)
        time_at[i] = np.where(chosen == number, spent, -np.inf)
        where[i] = at
    for name in topology.order:
        i = index[name]
        if i not in time_at:
            continue
        here, at = time_at[i], where[i]
        np.maximum(done, here, out=done)
        operator = topology.operators[i]
        for e, edge in enumerate(topology.edges):
            if edge.source != name:
                continue
            j = index[edge.target]
            emitted = operator.selectivity * float(wiring.shares[e].sum())
            # Of an operator that emits less than it gets, only some tuples go on.
            goes = here if emitted >= 1 else np.where(rng.random(count) < emitted, here, -np.inf)
            best, reached = time_at.get(j), where.get(j)
            for _ in range(min(max(round(emitted), 1), COPIES)):
                to = _drawn(wiring.shares[e], rng.random(count)) + int(wiring.first[j])
                hop = _hop(wiring, e, at, to, found, costs, edge.grouping, operator.tuple_bytes)
                arrived = goes + hop + _spent(found, to, rng)
                if best is None or reached is None:
                    best, reached = arrived, to
                else:
                    later = arrived > best
                    best, reached = np.where(later, arrived, best), np.where(later, to, reached)
            assert best is not None
            assert reached is not None
            time_at[j], where[j] = best, reached
    return done * 1e3


def _drawn(shares: FloatArray, uniform: FloatArray) -> IntArray:
    ends = np.cumsum(shares)
    at = np.searchsorted(ends, uniform * ends[-1], side="right")
    return np.asarray(np.minimum(at, len(shares) - 1), dtype=np.int64)


def _spent(found: Delays, at: IntArray, rng: np.random.Generator) -> FloatArray:
    draws = rng.random((2, len(at)))
    waits = draws[0] < found.busy[at]
    return found.fixed[at] - np.where(waits, found.wait[at] * np.log1p(-draws[1]), 0.0)


def _hop(
    wiring: Wiring,
    edge: int,
    at: IntArray,
    to: IntArray,
    found: Delays,
    costs: CostProfile,
    grouping: Grouping,
    size: float,
) -> FloatArray:
    tiers = costs.hop_us
    node, other = wiring.node_of[at], wiring.node_of[to]
    near = wiring.process_of[at] == wiring.process_of[to]
    if grouping is Grouping.LOCAL_OR_SHUFFLE:
        first = int(wiring.first[wiring.operator_of[at[0]]])
        near = near | (wiring.mixes[edge].sent[at - first, 0] > 0.5)
    link = size * (found.link_s_per_byte[node] + found.link_s_per_byte[other])
    across = tiers.across_us * 1e-6 + link
    return np.where(
        near,
        tiers.in_process_us * 1e-6,
        np.where(node == other, tiers.in_node_us * 1e-6, across),
    )
