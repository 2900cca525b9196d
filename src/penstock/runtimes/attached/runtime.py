"""An attached query as the control loop sees it: what was measured, and what can be done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from penstock.control.runtime import ActionFailed, Applied, Observation
from penstock.model import Cluster, Kind, Plan, Reason, Topology, diff
from penstock.runtimes.attached.balance import Halves
from penstock.runtimes.attached.loading import LoadTimes
from penstock.runtimes.attached.placement import (
    Partition,
    locations,
    misplaced,
    portion,
    ran_on,
    report_lines,
)
from penstock.runtimes.attached.progress import Batch
from penstock.runtimes.attached.reading import Reading
from penstock.runtimes.attached.records import charged, observe
from penstock.runtimes.attached.topology import QueryGraph
from penstock.runtimes.attached.unchanged import PAUSES
from penstock.runtimes.attached.warmup import Warmup, worthwhile
from penstock.runtimes.attached.work import WorkTimes
from penstock.runtimes.spark.executors import Executors, Manager
from penstock.runtimes.spark.measurement_window import MeasurementWindow
from penstock.runtimes.spark.monitor import Observed
from penstock.strategies import Request, make_plan

#: Batches in a row that Spark may run state partitions elsewhere before tasks wait for longer, and
#: how long they wait then, in seconds.
IMPATIENT, WAIT_S = 2, 30

#: Time that loading moved state may add to a batch, in ms, or that of a batch where it is longer.
LOAD_BUDGET_MS = 1000.0

#: Seconds in which rows that wait at the sources are to be worked off.
CATCH_UP_S = 300.0


class Steering(Manager, Protocol):
    """What Spark can be told; `Watch` does it."""

    def busy(self, query: str) -> bool:
        """Whether tasks of a query use its state just now."""
        ...

    def report(self, lines: str) -> None:
        """Tell where stores are, as `report_lines` spells them."""
        ...

    def warm(self, query: str, action: str, lines: str) -> int:
        """Load stores ahead, hand them over or drop them; return how many."""
        ...

    def wait_for_preferred(self, seconds: int) -> None:
        """Have tasks wait longer for the executor that they prefer."""
        ...

    def wait_as_before(self) -> None:
        """Undo `wait_for_preferred`."""
        ...


class AttachedRuntime:
    """Offers `penstock.control.runtime.Runtime` for one query.

    Parameters
    ----------
    query : str
        Id of the query.
    steering : Steering
    graph : QueryGraph
    first : Batch
        A batch that ran all of it: the first plan is where Spark ran its partitions.
    strategy : str
        Named in the first plan.
    clock : callable
        Seconds from any fixed start.
    fixed_nodes : callable
        Why executors must neither be asked for nor given up just now; empty when they may.
    """

    def __init__(
        self,
        query: str,
        steering: Steering,
        graph: QueryGraph,
        first: Batch,
        *,
        strategy: str,
        clock: Callable[[], float],
        fixed_nodes: Callable[[], str] = lambda: "",
    ) -> None:
        self.query, self.graph = query, graph
        self.window = MeasurementWindow()
        self._steering, self._clock, self._fixed_nodes = steering, clock, fixed_nodes
        self._began = clock()
        self.pool = Executors(steering)
        self._loads = LoadTimes()
        self._work = WorkTimes({stage.name: stage.partitions for stage in graph.stateful})
        #: What the last batches read of Kafka's topics.
        self.reading = Reading()
        self._warmup = Warmup(lambda action, lines: steering.warm(query, action, lines))
        self._lock = threading.RLock()
        self._batch = first.number
        self._last_start: float | None = None
        self._elsewhere = 0
        self._topology = graph.topology()
        self._plan = self._as_spark_did(first, strategy)

    @property
    def topology(self) -> Topology:
        """The query's stages, with the state that was measured."""
        return self._topology

    @property
    def plan(self) -> Plan:
        """The plan of the next batch."""
        return self._plan

    # ---- after every batch

    def take(self, batch: Batch, run: str) -> Observed | None:
        """Take note of a batch, and tell Spark again of partitions that ran elsewhere.

        Returns
        -------
        Observed or None
            What is to be recorded under the name of a run; None where the stages of the batch are
            not those of the query, as when it was cut off.
        """
        with self._lock:
            self._look()
            tasks = self.graph.tasks(batch)
            wanted = self._wanted()
            astray = misplaced(wanted, ran_on(self.graph, tasks))
            self._report(astray)
            if not any(tasks.values()):
                return None
            self._patience(len(astray))
            self._batch = batch.number
            self._loads.learn(self.graph, tasks)
            before, self._last_start = self._last_start, batch.started_at_s
            interval_s = max(batch.duration_ms / 1000.0, 1e-3)
            if before is not None:
                interval_s = max(batch.started_at_s - before, 1e-3)
            self.reading.add(batch, self.graph, tasks, interval_s)
            node_of = self._node_of()
            observed = observe(run, self.graph, batch, tasks, wanted, node_of, interval_s)
            if self._complete(observed):
                costs = charged(observed, self.graph, self._plan)
                waiting = observed.batch.queue_length
                self.window.add(observed, interval_s, waiting, costs=costs)
                self._work.add(observed.instances)
            self._topology = self.graph.topology(self._loads.state_mb(self.graph))
            return observed

    def _complete(self, observed: Observed) -> bool:
        """Whether every state partition was measured."""
        count = sum(one.operator in self._stateful for one in observed.instances)
        return count == sum(stage.partitions for stage in self.graph.stateful)

    @property
    def _stateful(self) -> frozenset[str]:
        return frozenset(stage.name for stage in self.graph.stateful)

    def _wanted(self) -> dict[Partition, str]:
        return locations(self._plan, self.graph, self._executor_at())

    def _report(self, moves: Mapping[Partition, str]) -> None:
        """Tell Spark where partitions are to run, unless they run just now."""
        if moves and not self._steering.busy(self.query):
            self._steering.report(report_lines(self.graph, moves, self.pool.executors()))

    def _patience(self, astray: int) -> None:
        """Have tasks wait for their executor where Spark keeps giving them to others."""
        self._elsewhere = self._elsewhere + 1 if astray else 0
        if self._elsewhere == IMPATIENT + 1:
            self._steering.wait_for_preferred(WAIT_S)

    def lost(self, executor: str) -> bool:
        """Hear that an executor is gone; return whether state partitions were to run there."""
        with self._lock:
            # A task whose executor is gone must not wait for it.
            self._steering.wait_as_before()
            self._elsewhere = 0
            return executor in self._wanted().values()

    # ---- what the loop calls

    def observe(self) -> Observation:
        """Say what was measured since the plan last changed."""
        with self._lock:
            cluster = self._look()
            processed, arriving = self._rates()
            sources = [s.name for s in self.graph.stages if s.kind is Kind.SOURCE]
            return Observation(
                now_s=self._clock() - self._began,
                batch=self._batch,
                cluster=cluster,
                measurements=self.window.measurements(sources, cluster),
                batch_ms=self.window.batch_ms,
                throughput_per_s=processed,
                arriving_per_s=arriving,
                queue_length=self.window.waiting,
                latency_ms=self.window.latency_ms(),
                remote_share=self.window.remote_share(),
            )

    def _rates(self) -> tuple[float, float]:
        """Rows a second that were processed, and that should be, so that what waits is worked off.

        Where batches end before their trigger comes nodes are not what rows wait for.
        """
        if self.waits:
            return self.window.rates(waiting=False)
        processed, arriving = self.window.rates()
        return processed, arriving + self.window.waiting / CATCH_UP_S

    def halves(self) -> Halves:
        """Say how the work of state partitions varied since the plan last changed."""
        with self._lock:
            return {stage.name: self._work.halves(stage.name) for stage in self.graph.stateful}

    @property
    def waits(self) -> bool:
        """Whether batches end before their trigger comes."""
        return self.window.idle_share >= PAUSES

    def request_nodes(self, total: int) -> None:
        """Ask Spark for executors until there are so many nodes."""
        self._require_elastic()
        self.pool.request(total)

    def vacate_nodes(self, names: tuple[str, ...], *, undo: bool = False) -> None:
        """See that no state partition is to run on the nodes; they keep nothing else of it."""
        used = {s.node for name in self._stateful for s in self._plan.placement[name]}
        if not undo and used & set(names):
            raise ActionFailed(f"state partitions run on {', '.join(sorted(used & set(names)))}")

    def release_nodes(self, names: tuple[str, ...]) -> None:
        """Give up the executors of nodes that no state partition runs on."""
        self._require_elastic()
        self.vacate_nodes(names)
        self.pool.release(names)

    def prepare(self, plan: Plan) -> bool:
        """Have state loaded ahead where that takes long, and say whether it is done."""
        with self._lock:
            wanted = locations(plan, self.graph, self._executor_at())
            moves = misplaced(wanted, self._wanted())
            costs, experienced = self._loads.cost_ms(self.graph), self._loads.experienced
            ahead = worthwhile(moves, costs, experienced)
            return self._warmup.begin(report_lines(self.graph, ahead, self.pool.executors()))

    def apply(self, plan: Plan) -> Applied:
        """Have state partitions run where a plan says from the next batch on, or a portion."""
        with self._lock:
            self._require_there(plan)
            budget = max(LOAD_BUDGET_MS, self.window.batch_ms)
            part = portion(self._plan, plan, self._loads.cost_ms(self.graph), budget)
            before = self._wanted()
            moved = any(move.origin for move in diff(self._plan, part).moves)
            self._plan = part
            wanted = self._wanted()
            moves = {one: to for one, to in wanted.items() if before.get(one) != to}
            self._report(moves)
            self._warmup.hand_over()
            if moved:
                self.window.changed()
                self._work.changed()
            self._elsewhere = 0
            return Applied(inband_bytes=self._loads.state_bytes(moves), left=part is not plan)

    @property
    def warmed(self) -> int:
        """Stores that were loaded ahead of a move so far."""
        return self._warmup.warmed

    def take_failure(self) -> str:
        """Return why state could not be loaded ahead, once; empty when nothing failed."""
        return self._warmup.take_failure()

    def end(self) -> None:
        """Leave nothing of it on executors."""
        if not self._steering.stopped:
            self._warmup.drop()

    # ---- nodes and executors

    def _require_elastic(self) -> None:
        why = self._fixed_nodes()
        if why:
            raise ActionFailed(why)

    def _require_there(self, plan: Plan) -> None:
        if dict(plan.parallelism) != dict(self._topology.parallelism):
            raise ActionFailed("the partitions of a query that is not changed stay as they are")
        self._look()
        there = self._executor_at()
        missing = {str(s) for own in plan.placement.values() for s in own if str(s) not in there}
        if missing:
            raise ActionFailed(f"{', '.join(sorted(missing))} are not there")

    def _look(self) -> Cluster:
        self.pool.warm_up_new()
        return self.pool.look()

    @property
    def cluster(self) -> Cluster:
        """The nodes as they were last looked at."""
        return self.pool.cluster

    def _executor_at(self) -> Mapping[str, str]:
        return self.pool.executor_ids

    def _node_of(self) -> dict[str, str]:
        return {executor: spot.rpartition("/")[0] for spot, executor in self._executor_at().items()}

    def _as_spark_did(self, batch: Batch, strategy: str) -> Plan:
        """Make the plan that is in force already: every partition where Spark ran it."""
        spots = {executor: spot for spot, executor in self._executor_at().items()}
        tasks = self.graph.tasks(batch)
        nodes, processes = [], []
        for stage in self.graph.stages:
            for number in range(stage.partitions):
                task = tasks[stage.name].get(number)
                spot = spots.get(task.executor if task else "", f"{self.cluster.names[0]}/0")
                name, _, process = spot.rpartition("/")
                nodes.append(self.cluster.index[name])
                processes.append(int(process))
        return make_plan(
            Request(self._topology, self.cluster),
            strategy,
            np.array(nodes),
            np.array(processes),
            [Reason("every state partition is where Spark first ran it")],
        )
