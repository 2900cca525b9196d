"""The simulator as a runtime: what the control loop sees of Spark, it sees of this."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from penstock.common.arrays import FloatArray
from penstock.control.runtime import ActionFailed, Applied, Observation
from penstock.model import Cluster, InvalidValue, NotAllowed, Plan, Topology
from penstock.runtimes.sim.arrivals import Arrivals
from penstock.runtimes.sim.backup import Fragments
from penstock.runtimes.sim.batches import MOST
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.counters import Counters
from penstock.runtimes.sim.faults import SimulatedFault, SimulatedFaultKind
from penstock.runtimes.sim.fluid import Fluid, FluidStep
from penstock.runtimes.sim.interval import Sums, busiest, moment_of, node_use
from penstock.runtimes.sim.keys import KeySpace
from penstock.runtimes.sim.latency import delays, sample_ms
from penstock.runtimes.sim.measure import SimulatedWindow, measured
from penstock.runtimes.sim.migration import change_of
from penstock.runtimes.sim.moments import Moment
from penstock.runtimes.sim.nodes import SimulatedNodes
from penstock.runtimes.sim.wiring import wire
from penstock.runtimes.sim.workload import Workload

#: Steps while something changes, and while nothing does, in seconds. Where moments are long, so are
#: steps: a tenth of one.
FINE_S, COARSE_S = 0.1, 1.0

#: How long after a change steps stay fine, in seconds.
UNSETTLED_S = 3.0

#: Paths that are drawn for the latency of an interval.
PATHS = 256

#: Intervals that a measurement looks back on.
WINDOW = 10


class SimRuntime:
    """Runs one topology under a plan in virtual time: a `penstock.control.runtime.Runtime`.

    Parameters
    ----------
    topology : Topology
        Parallelism as declared.
    cluster : Cluster
        Nodes that are there.
    plan : Plan
    workload : Workload
    costs : CostProfile, optional
    faults : sequence of SimulatedFault
    drop : bool
        Drop the newest tuples of full queues instead of holding senders back.
    seed : int
    interval_s : float
        Length of the moments in `moments`.
    """

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        plan: Plan,
        workload: Workload,
        *,
        costs: CostProfile | None = None,
        faults: Sequence[SimulatedFault] = (),
        drop: bool = False,
        seed: int = 0,
        interval_s: float = 1.0,
    ) -> None:
        topology.require_runnable()
        missing = [o.name for o in topology.sources if o.name not in workload.rates]
        if missing:
            raise NotAllowed(f"the workload has no rate for source {missing[0]!r}; give one")
        for fault in faults:
            if fault.node is not None and fault.node not in cluster.index:
                raise InvalidValue("node", f"fault {fault}", "a node of the cluster", fault.node)
        self._topology, self._plan, self._workload = topology, plan, workload
        self._costs, self._drop = costs or CostProfile(), drop
        self._machines = SimulatedNodes(cluster, self._costs)
        self._faults = deque(sorted(faults, key=lambda f: f.at_s))
        self.fragments = Fragments(topology, self._costs.state_config)
        # Who keeps what matters only if a node will be lost.
        self._at_risk = any(fault.kind is SimulatedFaultKind.KILL_NODE for fault in faults)
        self._retiring: set[str] = set()
        noise, self._paths = (
            np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2)
        )
        self._arrivals = Arrivals(workload, noise)
        self.interval_s = interval_s
        self.now_s, self._changed_s = 0.0, 0.0
        self.moments: list[Moment] = []
        self.last_step: FluidStep | None = None
        self._counters = Counters(len(topology.operators))
        self._pause_until = np.zeros(len(plan.node_of))
        self._window: deque[SimulatedWindow] = deque(maxlen=WINDOW)
        self.migrated_bytes = self.changes = 0
        self._moved = self._seen_moves = 0
        self._wire(None)
        self._settle()

    # ---- what the loop asks for

    @property
    def topology(self) -> Topology:
        """What is planned; parallelism as declared."""
        return self._topology

    @property
    def plan(self) -> Plan:
        """The plan that runs."""
        return self._plan

    @property
    def cluster(self) -> Cluster:
        """Nodes as far as anybody knows: one that was lost is seen until that is noticed."""
        return self._machines.seen

    @property
    def keys(self) -> KeySpace:
        """The keys of the stream."""
        return self._workload.keys

    def observe(self) -> Observation:
        """Say what was measured; see `Runtime.observe`."""
        last = self.moments[-1] if self.moments else None
        if last is None:
            return Observation(self.now_s, -1, self.cluster)
        window = list(self._window)
        found = measured(window, self) if len(window) >= 3 else None
        p50, p95, p99 = last.percentiles_ms
        return Observation(
            now_s=self.now_s,
            batch=len(self.moments) - 1,
            cluster=self.cluster,
            measurements=found,
            batch_ms=self._batch_s() * 1e3,
            throughput_per_s=last.throughput_per_s,
            arriving_per_s=last.arriving_per_s,
            queue_length=round(self._beyond()),
            latency_ms={"p50": p50, "p95": p95, "p99": p99},
            remote_share=last.remote_share,
        )

    def request_nodes(self, total: int) -> None:
        """Ask for nodes until there are so many; they come after ``arrival_s``."""
        self._machines.request(total, self.now_s)

    def vacate_nodes(self, names: tuple[str, ...], *, undo: bool = False) -> None:
        """Check that nodes hold no instance, and spread what they keep over the others."""
        if undo:
            self._retiring -= set(names)
            return
        held = {self._plan.nodes[i] for i in np.unique(self._plan.node_of).tolist()}
        for name in names:
            if name in held:
                raise ActionFailed(f"node {name!r} cannot be released: it holds instances")
        self._retiring |= set(names)
        self._settle()

    def release_nodes(self, names: tuple[str, ...]) -> None:
        """Give up nodes that hold no instance any more."""
        self.vacate_nodes(names)
        try:
            self._machines.release(names)
        finally:
            self._retiring -= set(names)
        self._rewire()

    def prepare(self, plan: Plan) -> bool:
        """Say that all is done: state is not pre-copied here."""
        return True

    def apply(self, plan: Plan) -> Applied:
        """Use a plan from now on; what it moves stands still meanwhile, the rest goes on.

        Raises
        ------
        StateLost
            When state went with its node and cannot be had from peers or from a checkpoint. A run
            on Spark ends with the same.
        """
        gone = [plan.nodes[i] for i in np.unique(plan.node_of).tolist()]
        gone = [name for name in gone if name not in self._machines.there.index]
        if gone:
            raise ActionFailed(f"the plan uses node {gone[0]!r}, which is not there")
        there = self._machines.there
        change = change_of(self._topology, self._plan, plan, there, self._costs, self.fragments)
        before, old = self._plan, self.fluid
        self._plan = plan
        pause = np.maximum(change.migrated(self._pause_until - self.now_s), change.pause_s)
        self._pause_until = self.now_s + np.maximum(pause, 0.0)
        self._moved += change.moved
        self.changes += 1
        self.migrated_bytes += change.state_bytes
        self._window.clear()
        self._counters.close(old)
        same = dict(before.parallelism) == dict(plan.parallelism)
        self._wire(old.queue if same else None, old)
        self._settle()
        return Applied(float(change.pause_s.max(initial=0.0)), change.state_bytes)

    # ---- virtual time

    def advance(self, seconds: float) -> None:
        """Let time pass; every whole interval becomes a moment."""
        end_s = self.now_s + seconds
        while self.now_s < end_s - 1e-9:
            self._interval(min(self.interval_s, end_s - self.now_s))

    def _interval(self, seconds: float) -> None:
        end_s, moved = self.now_s + seconds, self._seen_moves
        total = Sums()
        while self.now_s < end_s - 1e-9:
            self._events()
            self._step(min(self._step_s(), end_s - self.now_s), total)
        self.now_s = end_s  # without the rounding of many small steps
        self._record(seconds, total, self._moved - moved)
        self._seen_moves = self._moved

    def _step_s(self) -> float:
        settled = self.now_s - self._changed_s >= UNSETTLED_S
        still = bool((self._pause_until > self.now_s).any())
        length = max(COARSE_S, self.interval_s / 10) if settled and not still else FINE_S
        times = self._machines.next_s + [fault.at_s for fault in self._faults]
        ahead = [t - self.now_s for t in times if t - self.now_s > 1e-9]
        return min([length, *ahead])

    def _step(self, seconds: float, total: Sums) -> None:
        offered = self._arrivals.offered(self.fluid.wiring.topology, self.now_s, seconds)
        halted = self._pause_until > self.now_s + 1e-9
        dropped = float(self.fluid.dropped.sum())
        step = self.fluid.step(seconds, offered, self.speed, halted)
        total.offered += offered.sum()
        total.dropped += float(self.fluid.dropped.sum()) - dropped
        total.read += float(step.processed[self.fluid.is_source].sum())
        total.out += float((step.processed * self._leaves).sum())
        total.per_operator = total.per_operator + offered
        total.add(step)
        self.now_s += seconds

    def _record(self, seconds: float, total: Sums, moved: int) -> None:
        """Draw latencies for the interval that has passed, and write down its moment."""
        step = self.last_step = total.whole
        wiring, cluster = self.fluid.wiring, self.fluid.cluster
        pause = np.maximum(self._pause_until - self.now_s, 0.0)
        lost_s = self._costs.detect_s + self._costs.restart_s
        pause = np.where(wiring.node_of < 0, np.maximum(pause, lost_s), pause)
        if self.fluid.clock is not None:
            behind_s = self._beyond() * seconds / total.read if total.read > 0 else 0.0
            drawn = self.fluid.clock.sample_ms(self._paths, PATHS, behind_s)
        else:
            found = delays(wiring, cluster, step, self.fluid.queue, self.speed, pause)
            drawn = sample_ms(wiring, found, self._costs, self._paths, PATHS)
        use = node_use(self.fluid, step)
        offered, taken = total.per_operator / seconds, 1.0 - self.speed
        self._window.append(
            SimulatedWindow(seconds, cluster.names, offered, taken, use[1], use[2], drawn)
        )
        self.moments.append(
            moment_of(
                self.fluid,
                total,
                step,
                at_s=self.now_s,
                seconds=seconds,
                latency_ms=drawn,
                use=use,
                moved=moved,
                halted=int((pause > 0).sum()),
            )
        )

    def totals(self) -> dict[str, FloatArray]:
        """Tuples of each operator since the start: arrived, processed, dropped, and queued now."""
        return self._counters.totals(self.fluid)

    # ---- parts

    def _wire(self, queue: FloatArray | None, old: Fluid | None = None) -> None:
        """Compile the plan that now runs, and carry the queues over."""
        there = self._machines.there
        wiring = wire(
            self._topology,
            self._plan,
            there,
            self._workload.keys,
            self._costs,
            self._workload.parts(self.now_s),
            self._workload.routers,
        )
        clock = old.clock if old is not None else None
        self.fluid = Fluid(wiring, there, self._costs, self._drop, clock)
        if queue is not None:
            self.fluid.queue = queue.copy()
        elif old is not None:
            sums = np.add.reduceat(old.queue, old.wiring.first[:-1])
            self.fluid.queue = sums[wiring.operator_of] * wiring.weight
        senders = {edge.source for edge in wiring.topology.edges}
        ends = [o.selectivity if o.name not in senders else 0.0 for o in wiring.topology.operators]
        self._leaves = np.array(ends)[wiring.operator_of]
        self.speed = self._machines.speed
        self._changed_s = self.now_s

    def _events(self) -> None:
        """Let happen what is due."""
        known = self._machines.seen.names
        changed = self._machines.pass_time(self.now_s)
        while self._faults and self._faults[0].at_s <= self.now_s + 1e-9:
            fault = self._faults.popleft()
            self._machines.strike(fault, fault.node or busiest(self.fluid), self.now_s)
            changed = True
        if changed:
            self._rewire()
        if self._machines.seen.names != known:
            self._settle()

    def _settle(self) -> None:
        """Spread state anew where that helps, unless a node is gone and not yet missed.

        A batch that such a node was to take part in fails, and saves nothing.
        """
        nodes = self._machines.there.names
        if self._at_risk and self._machines.seen is self._machines.there:
            self.fragments.settle(self._plan, [n for n in nodes if n not in self._retiring])

    def _rewire(self) -> None:
        """Go on under the same plan on other nodes, or at other speeds."""
        old = self.fluid
        self._counters.close(old)
        self._wire(old.queue, old)

    def _batch_s(self) -> float:
        clock = self.fluid.clock
        return self.interval_s if clock is None else clock.batch.duration_s

    def _beyond(self) -> float:
        """Source tuples that wait beyond those of the next batch."""
        waiting = float(self.fluid.queue[self.fluid.is_source].sum())
        return waiting if self.fluid.clock is None else max(0.0, waiting - MOST)
