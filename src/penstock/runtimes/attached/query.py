"""One attached query: measured after every batch, and kept fitting by the control loop."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from penstock.control.events import Event
from penstock.control.explain import explain
from penstock.control.loop import Loop
from penstock.control.recorder import Recorder
from penstock.control.settings import Settings
from penstock.model import Plan
from penstock.runtimes.attached.advising import Advisor
from penstock.runtimes.attached.progress import parse
from penstock.runtimes.attached.runtime import AttachedRuntime, Steering
from penstock.runtimes.attached.topology import graph_of
from penstock.runtimes.attached.unchanged import Unchanged
from penstock.runtimes.spark.monitor import Observed
from penstock.runtimes.spark.recorder import FAILURE
from penstock.store.background import BackgroundWriter
from penstock.store.records import EventRecord, PlanRecord, RunRecord, RunStatus
from penstock.store.store import MetricsStore
from penstock.strategies import Strategy
from penstock.strategies.penstock import Penstock

T = TypeVar("T")

#: Kind of the events that say how attaching goes.
ATTACHED = "attached"

#: Failures after which a query is left alone, and good batches after which they are forgotten.
PATIENCE, FORGOTTEN = 3, 50


@dataclass(frozen=True)
class Watching:
    """How queries are attached.

    Parameters
    ----------
    strategy : Strategy
    control : Settings or None
        How the loop behaves; None: measure only.
    store : str, path or None
        Where every batch and decision is recorded; None: nowhere.
    seed : int
    on_batch, on_decision : callable, optional
        Told every batch and every decision.
    """

    strategy: Strategy
    control: Settings | None = None
    store: str | Path | None = None
    seed: int = 0
    on_batch: Callable[[Observed], None] | None = None
    on_decision: Callable[[Event], None] | None = None


class AttachedQuery:
    """What Penstock sees and does of one streaming query that runs unchanged.

    Made by `attach`. Everything happens in a thread beside the query; what goes wrong there becomes
    one of `events`, and the query goes on.

    Parameters
    ----------
    id, name : str
        Of the query.
    steering : Steering
    watching : Watching
    fixed_nodes : callable
        As in `AttachedRuntime`.
    leave : callable
        Tells Spark's listener that the query is of no interest any more.
    real_time : bool
        Its tasks run for as long as a batch lasts: it is measured and advised, and nothing moves.

    Attributes
    ----------
    run : str
        Under which the store keeps it.
    decisions : list of Event
        All decisions of the loop, each as far as it is.
    events : list of str
        What else is worth knowing, a sentence each.
    """

    def __init__(
        self,
        id: str,
        name: str,
        steering: Steering,
        watching: Watching,
        *,
        fixed_nodes: Callable[[], str] = lambda: "",
        leave: Callable[[str], None] = lambda _: None,
        real_time: bool = False,
    ) -> None:
        self.id, self.name = id, name
        self.run = uuid.uuid4().hex[:12]
        self.events: list[str] = []
        self.runtime: AttachedRuntime | None = None
        self.loop: Loop | None = None
        self.attached = True
        self.batches = 0
        self._decisions: dict[int, Event] = {}
        self._steering = steering
        self._watching = replace(watching, control=None) if real_time else watching
        self._advisor = Advisor(self.note, self._cores, real_time=real_time)
        self._fixed_nodes, self._leave = fixed_nodes, leave
        self._numbers = itertools.count()
        self._failures = self._good = 0
        self._trouble = ""
        config = {"attached": True}
        self._record = RunRecord(self.run, name, watching.strategy.name, time.time(), config=config)
        self._writer: BackgroundWriter | None = None
        if watching.store is not None:
            self._writer = BackgroundWriter(watching.store, self._record)
            self._writer.number_events_by(lambda: next(self._numbers))
        self._recorder = Recorder(
            self.run, self._put_event, clock=time.time, number=lambda: next(self._numbers)
        )

    # ---- what a user calls

    @property
    def decisions(self) -> list[Event]:
        """Decisions of the loop in their order, each as far as it is."""
        return list(self._decisions.values())

    @property
    def plan(self) -> Plan | None:
        """Where every state partition is to run; None until a batch was seen."""
        return self.runtime.plan if self.runtime is not None else None

    @property
    def advice(self) -> tuple[str, ...]:
        """What could be better and only a person can change, as it was last seen."""
        return self._advisor.found

    def explain(self) -> str:
        """Tell what was decided and why, what is advised, and what went wrong."""
        told = [explain(event) for event in self.decisions]
        if not told:
            told = [f"{self.batches} batches of {self.name} were seen, nothing was decided."]
        return "\n".join([*told, *self.advice, *self.events])

    def detach(self) -> None:
        """Leave the query alone from now on; Spark's settings are as they were."""
        self._detach("detached", RunStatus.STOPPED)

    # ---- what the listener's thread calls

    def batch(self, text: str) -> None:
        """Take note of a batch; whatever goes wrong is told and not raised."""
        if not self.attached:
            return
        try:
            self._batch(text)
            self._good += 1
            if self._good == FORGOTTEN:
                self._failures = 0
        except Exception as error:  # noqa: BLE001 - the query must not notice
            self.failed(error)

    def submitted(self, batch: str, tasks: int) -> None:
        """Hear that a stage of a query in real-time mode begins."""
        if not self.attached:
            return
        try:
            self._advisor.submitted(batch, tasks)
        except Exception as error:  # noqa: BLE001 - the query must not notice
            self.failed(error)

    def lost(self, executor: str, why: str) -> None:
        """Hear that an executor is gone."""
        if not self.attached or self.runtime is None:
            return
        try:
            if self.runtime.lost(executor):
                self.note(f"executor {executor} is gone: {why}")
                if self.loop is not None:
                    self.loop.tick(urgent=True)
        except Exception as error:  # noqa: BLE001 - the query must not notice
            self.failed(error)

    def terminated(self, failure: str = "") -> None:
        """Hear that the query has ended, and what it failed with if it did."""
        if failure:
            self._detach(f"the query has failed: {failure}", RunStatus.FAILED, FAILURE)
        else:
            self._detach("the query has ended", RunStatus.FINISHED)

    def left_alone(self, error: BaseException) -> None:
        """Hear that nobody listens to the query any more."""
        text = f"Penstock hears of no more batches, the query goes on: {type(error).__name__}"
        self._detach(f"{text}: {error}", RunStatus.FAILED)

    def failed(self, error: Exception) -> None:
        """Tell what went wrong; after some failures leave the query alone."""
        self._failures, self._good = self._failures + 1, 0
        self.note(f"Penstock failed, the query goes on: {type(error).__name__}: {error}")
        if self._failures >= PATIENCE:
            self._detach("left alone after repeated failures", RunStatus.FAILED)

    def note(self, text: str, kind: str = ATTACHED) -> None:
        """Keep a sentence, in the store too."""
        self.events.append(text)
        self._put_event(EventRecord(self.run, next(self._numbers), time.time(), kind, text))

    def _put_event(self, record: EventRecord) -> None:
        self._write(lambda store: store.put_event(record))

    def _write(self, write: Callable[[MetricsStore], None]) -> None:
        if self._writer is not None:
            self._writer.put(write)

    def _batch(self, text: str) -> None:
        batch = parse(text)
        if self.runtime is None:
            graph = graph_of(self.name, batch)
            if graph is None:
                return
            for problem in graph.not_placed:
                self.note(problem)
            self.runtime = AttachedRuntime(
                self.id,
                self._steering,
                graph,
                batch,
                strategy=self._watching.strategy.name,
                clock=time.monotonic,
                fixed_nodes=self._fixed_nodes,
            )
            self._begin_loop(self.runtime)
            self._put_plan(batch.number)
        observed = self.runtime.take(batch, self.run)
        if observed is None:
            return
        self.batches += 1
        if failed := self.runtime.take_failure():
            self.note(failed)
        self._tell_of_the_store()
        detail = observed.instances, observed.edges, observed.nodes, observed.operators
        self._write(lambda store: store.put_batch(observed.batch, *detail))
        self._call(self._watching.on_batch, observed)
        if self.loop is not None:
            self.loop.strategy = self._strategy(self.runtime)
            self.loop.tick()
        decided = self.loop.decision if self.loop is not None else None
        reasons = decided.reasons if decided is not None else ()
        self._advisor.after(observed, self.runtime.reading, self.runtime.waits, reasons)

    def _cores(self) -> int:
        return sum(executor.cores for executor in self._steering.executors())

    def _begin_loop(self, runtime: AttachedRuntime) -> None:
        watching = self._watching
        if watching.control is None:
            return
        self.loop = Loop(
            runtime,
            self._strategy(runtime),
            watching.control.starting_with(len(runtime.cluster)),
            clock=time.perf_counter,
            seed=watching.seed,
            listener=self._decided,
        )

    def _strategy(self, runtime: AttachedRuntime) -> Unchanged:
        """Say what the strategy has to know of the query beside what is measured."""
        asked = self._watching
        stay = len(runtime.cluster)
        if not self._fixed_nodes() and asked.control is not None:
            stay = asked.control.min_nodes
        return Unchanged(
            asked.strategy,
            # The papers' strategies are compared as they are.
            balance=asked.strategy.name == Penstock.name,
            least_nodes=stay,
            idle_share=runtime.window.idle_share,
            halves=runtime.halves(),
        )

    def _decided(self, event: Event) -> None:
        self._decisions[event.number] = event
        self._recorder(event)
        self._call(self._watching.on_decision, event)

    def _call(self, told: Callable[[T], None] | None, what: T) -> None:
        """Call a function of the user's, whose mistakes are not to stop anything."""
        if told is None:
            return
        try:
            told(what)
        except Exception as error:  # noqa: BLE001 - told, and the query goes on
            name = getattr(told, "__name__", type(told).__name__)
            self.note(f"{name}, which was to be called, failed: {type(error).__name__}: {error}")

    def _tell_of_the_store(self) -> None:
        """Say once that the store cannot be written, and why."""
        trouble = self._writer.trouble if self._writer is not None else ""
        if trouble != self._trouble:
            self._trouble = trouble
            if trouble:
                self.note(f"what is measured cannot be stored for now: {trouble}")

    def _put_plan(self, batch: int) -> None:
        if self.plan is not None:
            record = PlanRecord(self.run, batch, self.plan)
            self._write(lambda store: store.put_plan(record))

    def _detach(self, why: str, status: RunStatus, kind: str = ATTACHED) -> None:
        if not self.attached:
            return
        self.attached = False
        if self.runtime is not None:
            self._try(self.runtime.end)
        self._try(lambda: self._leave(self.id))
        self.note(why, kind)
        if self._writer is not None:
            self._writer.end(replace(self._record, ended_at_s=time.time(), status=status))
            self._try(self._writer.close)
            if self._writer.dropped:
                self.events.append(f"{self._writer.dropped} records were not stored")

    def _try(self, action: Callable[[], None]) -> None:
        """Do one step of leaving; the others are done even if it fails."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - told, and the query goes on
            self.note(f"leaving the query was not clean: {type(error).__name__}: {error}")
