"""One interval of virtual time: what adds up over its steps, and the moment that it becomes."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import FloatArray, group_sums
from penstock.model import LoadWeights
from penstock.model.load import fraction, lin, lit
from penstock.model.operator import Kind
from penstock.runtimes.sim.fluid import Fluid, FluidStep
from penstock.runtimes.sim.moments import Moment


class Sums:
    """What adds up over the steps of an interval; instances as they were numbered last."""

    def __init__(self) -> None:
        self.offered = self.read = self.out = self.dropped = 0.0
        self.per_operator: FloatArray = np.zeros(1)
        self.step: FluidStep | None = None

    @property
    def whole(self) -> FluidStep:
        """All steps as one."""
        if self.step is None:
            raise RuntimeError("an interval has at least one step")
        return self.step

    def add(self, step: FluidStep) -> None:
        """Add a step; one under another plan begins the sums by instance anew."""
        before = self.step
        same = before is not None and len(before.processed) == len(step.processed)
        if before is None or not same or len(before.cores) != len(step.cores):
            self.step = step
            return
        seconds = before.seconds + step.seconds
        part = step.seconds / seconds
        self.step = FluidStep(
            seconds,
            before.processed + step.processed,
            before.able + step.able,
            before.emitted + step.emitted,
            before.cores * (1 - part) + step.cores * part,
            before.link_use * (1 - part) + step.link_use * part,
        )


def node_use(fluid: Fluid, step: FluidStep) -> tuple[FloatArray, FloatArray, FloatArray]:
    """CPU, memory and I/O use of each node in a step, as fractions."""
    wiring, cluster = fluid.wiring, fluid.cluster
    there = wiring.node_of >= 0
    node, count = np.maximum(wiring.node_of, 0), len(cluster)
    operators = wiring.topology.operators
    held = np.array([o.mem_mb + o.state_mb / o.parallelism for o in operators])
    io_bytes = np.array([o.io_bytes_per_tuple for o in operators])[wiring.operator_of]
    reserve = group_sums(node, np.where(there, wiring.reserve_cores, 0.0), count)
    mem = group_sums(node, np.where(there, held[wiring.operator_of], 0.0), count)
    io = group_sums(node, step.processed * io_bytes / 1e6 / step.seconds, count)
    return (
        np.minimum(fraction(step.cores + reserve, cluster.cpu_cores), 1.0),
        fraction(mem, cluster.mem_mb),
        fraction(io, cluster.io_mb_s),
    )


def busiest(fluid: Fluid) -> str:
    """Return the node whose instances had the most to do under the plan that runs."""
    wiring, cluster = fluid.wiring, fluid.cluster
    there = wiring.node_of >= 0
    load = fluid.processed * wiring.service_s + wiring.reserve_cores
    sums = group_sums(wiring.node_of[there], load[there], len(cluster))
    return cluster.names[int(np.argmax(sums))]


def moment_of(
    fluid: Fluid,
    total: Sums,
    step: FluidStep,
    *,
    at_s: float,
    seconds: float,
    latency_ms: FloatArray,
    use: tuple[FloatArray, FloatArray, FloatArray],
    moved: int,
    halted: int,
) -> Moment:
    """Make the moment of an interval that has passed.

    Parameters
    ----------
    fluid : Fluid
        As it is at the end.
    total : Sums
        What added up over the steps.
    step : FluidStep
        All steps as one.
    at_s, seconds : float
        End and length of the interval.
    latency_ms : array
        Latencies that were drawn for it.
    use : tuple of array
        CPU, memory and I/O use of each node.
    moved, halted : int
        Instances that moved in it, and that stand still at its end.
    """
    cpu, mem, io = use
    wiring = fluid.wiring
    used = np.unique(wiring.node_of[wiring.node_of >= 0])
    tiers = step.emitted @ wiring.tiers
    sent = float(tiers.sum())
    return Moment(
        at_s=at_s,
        seconds=seconds,
        arriving_per_s=total.offered / seconds,
        throughput_per_s=total.read / seconds,
        output_per_s=total.out / seconds,
        latency_ms=latency_ms,
        queued=float(fluid.queue.sum()),
        dropped=total.dropped,
        nodes=len(used),
        cpu_use=float(cpu[used].mean()) if len(used) else 0.0,
        remote_share=float(tiers[2]) / sent if sent > 0 else 0.0,
        lin=lin(LoadWeights().combine(cpu, mem, io)[used]),
        lit=_worst_lit(fluid, step.processed),
        moved=moved,
        halted=halted,
    )


def _worst_lit(fluid: Fluid, processed: FloatArray) -> float:
    """Imbalance of the stateful operator that is loaded the most unevenly."""
    wiring = fluid.wiring
    found = [
        lit(processed[wiring.span(i)])
        for i, o in enumerate(wiring.topology.operators)
        if o.kind is Kind.STATEFUL and o.parallelism > 1
    ]
    return max(found, default=0.0)
