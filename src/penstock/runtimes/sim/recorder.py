"""Writes a simulation into a metrics store, so that the page shows it as it shows a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.control.events import Event
from penstock.model import Plan, Topology
from penstock.runtimes.sim.faults import SimulatedFault
from penstock.runtimes.sim.fluid import Fluid, FluidStep
from penstock.runtimes.sim.interval import node_use
from penstock.runtimes.sim.moments import Moment
from penstock.store import (
    BatchRecord,
    EdgeRecord,
    EventRecord,
    Histogram,
    InstanceRecord,
    MetricsStore,
    NodeRecord,
    PlanRecord,
    RunRecord,
    RunStatus,
)
from penstock.store.outline import outline

#: Pairs of instances of an edge that are written; of larger ones only their operators are known.
MOST_PAIRS = 4_096


class SimulationRecorder:
    """Writes what one simulation does: an interval of virtual time is a batch.

    Parameters
    ----------
    store : MetricsStore
    run : str
        Id of the run in the store.
    strategy : str
    topology : Topology
    started_at_s : float
        Seconds since 1970 that virtual time counts from.
    faults : sequence of SimulatedFault
        What is going to happen.
    """

    def __init__(
        self,
        store: MetricsStore,
        run: str,
        strategy: str,
        topology: Topology,
        started_at_s: float,
        faults: Sequence[SimulatedFault] = (),
    ) -> None:
        self._store, self._started_at_s = store, started_at_s
        config = {"topology": outline(topology), "virtual_time": True}
        self._record = RunRecord(run, topology.name, strategy, started_at_s, config=config)
        self._numbers: dict[int, int] = {}
        self._plan: Plan | None = None
        self._batch = 0
        store.put_run(self._record)
        for number, fault in enumerate(faults):
            at_s = started_at_s + fault.at_s
            store.put_event(EventRecord(run, number, at_s, "fault", str(fault)))
        self._first = len(faults)

    def plan(self, plan: Plan) -> None:
        """Write the plan that runs, if it is another one than before."""
        if plan is not self._plan:
            self._plan = plan
            self._store.put_plan(PlanRecord(self._record.id, self._batch, plan))

    def decided(self, event: Event) -> None:
        """Write a decision, or more of one."""
        number = self._first + self._numbers.setdefault(event.number, len(self._numbers))
        at_s = self._started_at_s + event.now_s
        self._store.put_event(event.record(self._record.id, number, at_s))

    def moment(self, moment: Moment, fluid: Fluid, step: FluidStep) -> None:
        """Write an interval that has passed."""
        run, number = self._record.id, self._batch
        sent = float(step.emitted.sum())
        crossing = round(sent * moment.remote_share)
        batch = BatchRecord(
            run,
            number,
            self._started_at_s + moment.at_s - moment.seconds,
            1000.0 * moment.seconds,
            rows_in=round(moment.throughput_per_s * moment.seconds),
            rows_out=round(moment.output_per_s * moment.seconds),
            queue_length=round(moment.queued),
            dropped=round(moment.dropped),
            # Tuples stand for bytes: their part across nodes is what is shown.
            local_bytes=round(sent) - crossing,
            remote_bytes=crossing,
            nodes_used=moment.nodes,
            lin=moment.lin,
            latency=Histogram.of(moment.latency_ms),
        )
        cpu, mem, io = node_use(fluid, step)
        nodes = [
            NodeRecord(run, number, name, float(cpu[i]), float(mem[i]), float(io[i]))
            for i, name in enumerate(fluid.cluster.names)
        ]
        self._store.put_batch(batch, self._instances(fluid, step), self._edges(fluid, step), nodes)
        self._batch += 1

    def end(self) -> None:
        """Write that the simulation is over."""
        ended = self._started_at_s + self._batch
        record = self._record
        self._store.put_run(
            RunRecord(
                record.id,
                record.topology,
                record.strategy,
                record.started_at_s,
                ended,
                RunStatus.FINISHED,
                record.config,
            )
        )

    def _instances(self, fluid: Fluid, step: FluidStep) -> list[InstanceRecord]:
        wiring, names = fluid.wiring, fluid.cluster.names
        planned = self._plan.placement if self._plan is not None else {}
        found = []
        for i, operator in enumerate(wiring.topology.operators):
            first = wiring.span(i).start
            for index in range(operator.parallelism):
                at = first + index
                node, tuples = int(wiring.node_of[at]), float(step.processed[at])
                busy_ms = 1000.0 * tuples * float(wiring.service_s[at])
                gone = planned[operator.name][index].node if operator.name in planned else "gone"
                found.append(
                    InstanceRecord(
                        self._record.id,
                        self._batch,
                        operator.name,
                        index,
                        names[node] if node >= 0 else gone,
                        tuples_in=round(tuples),
                        tuples_out=round(tuples * operator.selectivity),
                        cpu_ms=busy_ms,
                        run_ms=busy_ms,
                    )
                )
        return found

    def _edges(self, fluid: Fluid, step: FluidStep) -> list[EdgeRecord]:
        """Tuples between instances, each sender's spread over the receivers as those share them."""
        wiring = fluid.wiring
        sums: dict[tuple[str, str], np.ndarray[tuple[int, int], np.dtype[np.float64]]] = {}
        for e, edge in enumerate(wiring.topology.edges):
            weight = wiring.weight[wiring.span(wiring.topology.index[edge.source])]
            if len(weight) * len(wiring.shares[e]) > MOST_PAIRS:
                continue
            matrix = float(step.emitted[e]) * np.outer(weight, wiring.shares[e])
            pair = (edge.source, edge.target)
            sums[pair] = sums[pair] + matrix if pair in sums else matrix
        return [
            EdgeRecord.of(self._record.id, self._batch, *pair, np.round(matrix).astype(np.int64))
            for pair, matrix in sums.items()
        ]
