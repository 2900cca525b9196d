"""What a run writes down: its batches, plans and events, in the metrics store."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from penstock.common.errors import PenstockError
from penstock.control.events import Event
from penstock.control.recorder import Recorder
from penstock.engine.errors import StepFailed
from penstock.engine.results import MigrationResult
from penstock.model import Plan
from penstock.runtimes.spark.monitor import Observed
from penstock.store.background import BackgroundWriter
from penstock.store.records import EventRecord, PlanRecord, RunRecord, RunRecords, RunStatus

#: Kinds of events, other than decisions and what the state survives.
PLAN, MOVE, EXECUTORS, RETRY, FAULT = "plan", "move", "executors", "retry", "fault"

#: Kind of the event that says why a run failed.
FAILURE = "failure"


class MetricsRecorder:
    """Writes down what one run does, beside the batches; nothing here waits or fails.

    Parameters
    ----------
    run : RunRecord
    place : str or Path
        Where the metrics store lies.
    own : bool
        Whether the store belongs to the run, and not to the user: a damaged one is then set aside.
    next_batch : callable
        The number of the next batch.

    Attributes
    ----------
    lost, duplicated : int
        Rows that went astray between instances so far.
    retries : int
        Times that something was tried again because a source or a sink failed.
    """

    def __init__(
        self, run: RunRecord, place: str | Path, *, own: bool, next_batch: Callable[[], int]
    ) -> None:
        self._run, self._next_batch = run, next_batch
        self._numbers = itertools.count()
        self._writer = BackgroundWriter(place, run, set_aside=own)
        self._writer.number_events_by(lambda: next(self._numbers))
        self._decisions: dict[tuple[int, int], Event] = {}
        self._loops = itertools.count()
        self.lost = self.duplicated = self.retries = 0

    @property
    def decisions(self) -> tuple[Event, ...]:
        """Decisions so far, each as it was last told."""
        return tuple(self._decisions.values())

    def batch(self, observed: Observed) -> None:
        """Write down a batch."""
        self.lost += observed.lost
        self.duplicated += observed.duplicated
        self._writer.put(
            lambda store: store.put_batch(
                observed.batch,
                observed.instances,
                observed.edges,
                observed.nodes,
                observed.operators,
            )
        )

    def plan(self, plan: Plan, why: str = "") -> None:
        """Write down the plan of the next batch, and why it is."""
        record = PlanRecord(self._run.id, self._next_batch(), plan)
        self._writer.put(lambda store: store.put_plan(record))
        if why:
            reasons = "; ".join(str(reason) for reason in plan.reasons)
            self.event(PLAN, f"{why}: {reasons}")

    def event(self, kind: str, text: str) -> None:
        """Write down something that happened."""
        record = EventRecord(
            self._run.id, next(self._numbers), time.time(), kind, text, batch=self._next_batch()
        )
        self._writer.put(lambda store: store.put_event(record))

    def moved(self, took: MigrationResult) -> None:
        """Write down what a change of plan moved before the next batch."""
        if took.moved or took.restored or took.repartitioned:
            self.event(
                MOVE,
                f"{took.moved} instances moved, {took.restored} restored elsewhere, "
                f"{took.repartitioned} repartitioned: {took.state_bytes / 1e6:.1f} MB in "
                f"{took.seconds:.2f} s, {took.inband_bytes / 1e6:.1f} MB with the next batch",
            )
        if took.not_precopied:
            self.event(MOVE, f"not all state was pre-copied: {took.not_precopied}")

    def moved_with_batch(self, inband: MigrationResult) -> None:
        """Write down what came with a batch, or why the plan before it is still in force."""
        if inband.failed:
            text = f"state could not be moved, the plan before stays in force: {inband.failed}"
        elif inband.not_precopied:
            text = (
                "state did not come with the batch, and was migrated before it: "
                f"{inband.not_precopied}"
            )
        else:
            text = (
                f"{inband.moved} instances moved and {inband.repartitioned} were repartitioned "
                f"with the batch: {inband.inband_bytes / 1e6:.1f} MB came, "
                f"{inband.precopied_bytes / 1e6:.1f} MB were there"
            )
        self.event(MOVE, text)

    def of_loop(
        self, on_decision: Callable[[Event], None] | None = None
    ) -> Callable[[Event], None]:
        """Return what listens to one control loop; each loop numbers its decisions by itself."""
        loop = next(self._loops)
        written = Recorder(
            self._run.id,
            self._put_event,
            clock=time.time,
            number=lambda: next(self._numbers),
        )

        def hear(event: Event) -> None:
            self._decisions[loop, event.number] = event
            written(event)
            if on_decision is not None:
                on_decision(event)

        return hear

    def _put_event(self, record: EventRecord) -> None:
        self._writer.put(lambda store: store.put_event(record))

    def end(self, status: RunStatus, *, compared: bool) -> None:
        """Write down that the run is over.

        Parameters
        ----------
        status : RunStatus
        compared : bool
            Whether rows that were sent and rows that were received were compared.
        """
        self._run = replace(
            self._run,
            ended_at_s=time.time(),
            status=status,
            rows_lost=self.lost if compared else None,
            rows_duplicated=self.duplicated if compared else None,
        )
        self._writer.end(self._run)

    def records(self) -> RunRecords:
        """Return all that the store has of the run; raise `StoreError` if it cannot be read."""
        return self._writer.read()

    def close(self) -> None:
        """Write what waits, if the store takes it soon, and close it."""
        self._writer.close()


def told_failure(error: BaseException) -> str:
    r"""Say in a line what a run failed with; the rows that a step failed on are left out.

    Examples
    --------
    >>> told_failure(OSError("no space left\nat java.io"))
    'OSError: no space left'
    >>> told_failure(StepFailed("parse", 2, 7, "ValueError: no number", ["secret"]))
    "step 'parse' failed in instance 2, batch 7: ValueError: no number"
    """
    text = str(error)
    if isinstance(error, StepFailed):
        where = f"instance {error.instance}, batch {error.batch_id}"
        text = f"step {error.step!r} failed in {where}: {error.cause}"
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if isinstance(error, PenstockError) and first:
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
