"""One step of virtual time: tuples as a fluid through bounded queues, all instances at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.common.arrays import BoolArray, FloatArray, IntArray, group_sums
from penstock.model import Cluster, Kind
from penstock.runtimes.sim.batches import BatchClock, BatchTimes
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.wiring import Wiring

#: However much is reserved, this part of a node's cores is left for tuples.
LEAST_LEFT = 0.02

#: How often in a step the CPU that some threads cannot use is given to others.
ROUNDS = 5

#: Part of the CPU that was granted which may stay unused.
UNUSED = 0.02


@dataclass(frozen=True, eq=False)
class FluidStep:
    """What happened in one step.

    Parameters
    ----------
    seconds : float
    processed : array
        Tuples that each instance processed.
    able : array
        Tuples that it could have processed with the CPU, links and room downstream that it had.
    emitted : array
        Tuples sent on each edge.
    cores : array
        Cores that each node used for tuples, on average.
    link_use : array
        Use of each node's busier direction, as a fraction.
    """

    seconds: float
    processed: FloatArray
    able: FloatArray
    emitted: FloatArray
    cores: FloatArray
    link_use: FloatArray


class Fluid:
    """Queues and counters of all instances under one plan.

    A tuple that arrives within a step may be processed within it, and go on: what a step moves is
    bounded by capacity, not by the step. Three passes over the layers: what would flow if nothing
    was short, from which each node's CPU is shared out; then from the last layer up, what there is
    room for, after which CPU that is left over is shared out again; then what flows.

    Parameters
    ----------
    wiring : Wiring
    cluster : Cluster
    costs : CostProfile
    drop : bool
        Drop the newest tuples of a full queue instead of holding the senders back.
    clock : BatchClock, optional
        That of the plan before.
    """

    def __init__(
        self,
        wiring: Wiring,
        cluster: Cluster,
        costs: CostProfile,
        drop: bool = False,
        clock: BatchClock | None = None,
    ) -> None:
        self.wiring = wiring
        self.cluster = cluster
        self.drop = drop
        n = len(wiring)
        kinds = np.array([o.kind is Kind.SOURCE for o in wiring.topology.operators])
        self.is_source: BoolArray = kinds[wiring.operator_of]
        room = np.where(self.is_source, costs.source_queue, costs.queue)
        # Without dropping, what a source has not read yet waits outside, where there is room.
        self.room = room if drop else np.where(self.is_source, np.inf, room)
        self.selectivity = np.array([o.selectivity for o in wiring.topology.operators])
        self.clock: BatchClock | None = None
        if costs.micro_batch:
            self.clock = BatchClock(BatchTimes.of(wiring, cluster, costs), clock)
        self.queue = np.zeros(n)
        self.arrived = np.zeros(n)
        self.processed = np.zeros(n)
        self.dropped = np.zeros(n)
        self.emitted = np.zeros(len(wiring.topology.edges))

    def step(
        self, seconds: float, offered: FloatArray, speed: FloatArray, halted: BoolArray
    ) -> FluidStep:
        """Move on.

        Parameters
        ----------
        seconds : float
        offered : array
            Tuples that come to each operator from outside in this step.
        speed : array
            Speed of each node, as a part of its own.
        halted : array of bool
            Instances that stand still.
        """
        w = self.wiring
        lost = w.node_of < 0
        stopped = halted | lost
        node = np.where(lost, 0, w.node_of)
        service = w.service_s / speed[node]
        outside = np.where(self.is_source, offered[w.operator_of] * w.weight, 0.0)
        with np.errstate(divide="ignore"):
            most = np.where(service > 0, seconds / service, np.inf)
        most[stopped] = 0.0
        in_batches = np.inf
        if self.clock is not None:
            waiting = float(self.queue[self.is_source].sum())
            in_batches = self.clock.advance(seconds, waiting, float(outside.sum()))
        # What would flow if nothing but the instances' own threads was short.
        wanted, _, _ = self._passed(outside, most)
        for _ in range(ROUNDS):
            able, short = self._granted(wanted, service, node, seconds)
            link_use = self._linked(able, node, seconds)
            read = float(able[self.is_source].sum())
            if read > in_batches:
                able[self.is_source] *= in_batches / read
            if self.drop:
                break
            free = able.copy()
            self._held_back(able)
            if not short.any():
                break
            # CPU that a thread cannot use, because it is held back or too little reaches it, goes
            # to the others of its node.
            used, _, _ = self._passed(outside, able)
            idle = short & (used < able * (1.0 - UNUSED))
            held = short & (able < free)
            if not (idle | held).any():
                break
            wanted = np.where(idle, used * (1.0 + UNUSED), np.where(held, able, wanted))
        processed, emitted = self._flow(outside, able)
        used = group_sums(node, processed * service, len(self.cluster)) / seconds
        return FluidStep(seconds, processed, able, emitted, used, link_use)

    def _granted(
        self, wanted: FloatArray, service: FloatArray, node: IntArray, seconds: float
    ) -> tuple[FloatArray, BoolArray]:
        """Tuples for which each instance gets CPU, and whether its node is short of it.

        A node's cores go to its instances in fair shares (max-min).
        """
        w, count = self.wiring, len(self.cluster)
        demand = wanted * service
        cores = self.cluster.cpu_cores
        # The tasks of batches are in the time that batches take.
        own = np.where((w.node_of >= 0) & (self.clock is None), w.reserve_cores, 0.0)
        reserve = group_sums(node, own, count)
        supply = np.maximum(cores - reserve, LEAST_LEFT * cores) * seconds
        total = group_sums(node, demand, count)
        over = total > supply
        if not over.any():
            return wanted.copy(), over[node]
        got = demand.copy()
        short = np.flatnonzero(over[node] & (demand > 0))
        got[short] = fair(demand[short], node[short], supply)
        ratio = np.divide(got, demand, out=np.ones_like(got), where=demand > 0)
        return np.asarray(wanted * ratio), over[node]

    def _linked(self, able: FloatArray, node: IntArray, seconds: float) -> FloatArray:
        """Hold what crosses nodes to their links, in place; the links' use is returned."""
        w, count = self.wiring, len(self.cluster)
        capacity = np.maximum(self.cluster.bandwidth_mb_s * 1e6 * seconds, 1e-9)
        out = group_sums(node, able * w.sent_bytes, count) / capacity
        come = group_sums(node, able * w.received_bytes, count) / capacity
        if out.max() > 1:
            able *= np.where(w.sent_bytes > 0, 1.0 / np.maximum(out, 1.0)[node], 1.0)
        if come.max() > 1:
            able *= np.where(w.received_bytes > 0, 1.0 / np.maximum(come, 1.0)[node], 1.0)
        return np.minimum(np.maximum(out, come), 1.0)

    def _held_back(self, able: FloatArray) -> None:
        """Let no operator emit more than its targets have room for, in place.

        The fullest target holds back all senders of an edge, as a blocked shuffle does.
        """
        w = self.wiring
        for layer in reversed(w.layers):
            if not len(layer.leaving):
                continue
            at = layer.entries
            accepted = np.maximum(self.room[at] - self.queue[at] + able[at], 0.0)
            limit = np.minimum.reduceat(accepted * layer.portions / layer.values, layer.starts)
            sums = np.add.reduceat(able, w.first[:-1])
            volume = self.selectivity[layer.senders] * sums[layer.senders]
            part = np.divide(limit, volume, out=np.ones_like(limit), where=volume > limit)
            factor = np.ones(len(sums))
            np.minimum.at(factor, layer.senders, part)
            able[layer.instances] *= factor[w.operator_of[layer.instances]]

    def _passed(
        self, outside: FloatArray, able: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Tuples processed and arriving at each instance, and emitted on each edge."""
        w = self.wiring
        arriving, emitted = outside.copy(), np.zeros(len(self.emitted))
        processed = np.zeros(len(w))
        for layer in w.layers:
            at = layer.instances
            arriving[at] += layer.routing @ emitted
            processed[at] = np.minimum(self.queue[at] + arriving[at], able[at])
            self._emit(layer.leaving, layer.senders, processed, emitted)
        return processed, arriving, emitted

    def _flow(self, outside: FloatArray, able: FloatArray) -> tuple[FloatArray, FloatArray]:
        processed, arriving, emitted = self._passed(outside, able)
        self.queue += arriving - processed
        np.maximum(self.queue, 0.0, out=self.queue)
        if self.drop:
            over = np.maximum(self.queue - self.room, 0.0)
            self.queue -= over
            self.dropped += over
        self.arrived += arriving
        self.processed += processed
        self.emitted += emitted
        return processed, emitted

    def _emit(
        self, edges: IntArray, senders: IntArray, processed: FloatArray, emitted: FloatArray
    ) -> None:
        if len(edges):
            sums = np.add.reduceat(processed, self.wiring.first[:-1])
            emitted[edges] = self.selectivity[senders] * sums[senders]


def fair(demand: FloatArray, group: IntArray, supply: FloatArray) -> FloatArray:
    """Share each group's supply among its members: nobody gets more than asked, the rest is even.

    Examples
    --------
    >>> fair(np.array([1.0, 4.0, 9.0]), np.zeros(3, dtype=int), np.array([9.0])).tolist()
    [1.0, 4.0, 4.0]
    """
    order = np.lexsort((demand, group))
    d, g = demand[order], group[order]
    starts = np.flatnonzero(np.concatenate(([True], g[1:] != g[:-1])))
    size = np.diff(np.append(starts, len(g)))
    before = np.cumsum(d) - d
    before -= np.repeat(before[starts], size)
    left = np.repeat(size, size) - (np.arange(len(g)) - np.repeat(starts, size))
    # The level if this member and all larger ones get the same. It rises while members are sated
    # and falls from the first that is not.
    level = np.maximum(supply[g] - before, 0.0) / left
    got = np.minimum(d, np.repeat(np.maximum.reduceat(level, starts), size))
    out = np.empty_like(demand)
    out[order] = got
    return out
