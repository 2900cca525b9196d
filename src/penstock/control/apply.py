"""Carries out one decision, one action a batch boundary; failures come back as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from penstock.control.decision import Decision
from penstock.control.events import DecisionStatus, Event, StepTaken
from penstock.control.offer import renamed
from penstock.control.rollout import RolloutStage
from penstock.control.runtime import ActionFailed, Observation, Runtime
from penstock.control.states import State, StateMachine
from penstock.model import Plan

#: Batches that the pre-copy of state may take; then the step is made as it is.
AHEAD_BATCHES = 100


class Ending(str, Enum):
    """How a decision ended before it was judged."""

    FAILED = "failed"
    NO_NODES = "no nodes"
    FIXED_NODES = "nodes are fixed"


@dataclass(frozen=True, eq=False)
class InFlight:
    """The decision that is carried out.

    Parameters
    ----------
    since_batch : int
        When it began.
    before : frozenset of str
        Nodes that were there then.
    names : mapping of str to str
        Nodes that came, by the spare ones that they stand for.
    done : int
        Stages that were made.
    waited : int
        Batches that the next one has waited for its state to be pre-copied.
    """

    decision: Decision
    event: Event
    since_batch: int
    before: frozenset[str]
    names: Mapping[str, str]
    done: int = 0
    waited: int = 0
    ending: Ending | None = None
    why: str = ""


class Applier:
    """Takes a decision through the states of `machine`.

    It never repeats an action by itself: what fails ends the decision, and the plan that was in
    force stays so.

    Parameters
    ----------
    runtime : Runtime
    node_wait : int
        Batches that nodes may take to come.
    """

    def __init__(self, runtime: Runtime, node_wait: int) -> None:
        self.runtime = runtime
        self.node_wait = node_wait
        self.machine = StateMachine()
        self.flight: InFlight | None = None

    @property
    def state(self) -> State:
        """What is being done."""
        return self.machine.state

    @property
    def busy(self) -> bool:
        """Whether actions of a decision are still to be made."""
        return self.state in (State.WAITING, State.MOVING, State.RELEASING)

    def begin(self, decision: Decision, event: Event, observation: Observation) -> None:
        """Take on a decision; its first action is made at once."""
        live = observation.cluster.names
        self.flight = InFlight(decision, event, observation.batch, frozenset(live), {})
        if decision.nodes > len(live):
            self.machine.on("ask for nodes")
            self._ask_for(decision.nodes, observation)
        elif decision.stages:
            self.machine.on("move")
            self._move(observation.batch)
        else:
            self.machine.on("release")
            self._release(observation.batch)

    def go_on(self, batch: int, observation: Observation | None) -> None:
        """Make the next action; while waiting for nodes, only with an observation."""
        if self.state is State.WAITING and observation is not None:
            self._look_for_nodes(observation)
        elif self.state is State.MOVING:
            self._move(batch)
        elif self.state is State.RELEASING:
            self._release(batch)

    def interrupt(self, batch: int, why: str) -> InFlight:
        """Drop the decision in flight; the plan that it has reached stays."""
        flight = self._flight()
        if flight.waited:
            # What is in force moves nothing: nothing is copied any more.
            self.runtime.prepare(self.runtime.plan)
        self.machine.on("interrupt")
        made = flight.event.status is DecisionStatus.VERIFYING
        status = DecisionStatus.DONE if made else DecisionStatus.GIVEN_UP
        self._tell(replace(flight.event.taking(StepTaken(why, batch)), status=status))
        return self._end()

    def judged(self, event: Event) -> InFlight:
        """End a decision whose gain was looked at."""
        self.machine.on("judged")
        self._tell(event)
        return self._end()

    def take_ended(self) -> InFlight | None:
        """Return the decision that just failed or was given up, once."""
        if self.flight is None or self.flight.ending is None:
            return None
        return self._end()

    # ---- actions

    def _ask_for(self, nodes: int, observation: Observation) -> None:
        batch = observation.batch
        what = f"ask for {nodes} nodes, {len(observation.cluster)} are there"
        try:
            self.runtime.request_nodes(nodes)
        except ActionFailed as error:
            self.machine.on("give up")
            self._fail(StepTaken(what, batch, failed=str(error)), Ending.FIXED_NODES)
            return
        self._did(StepTaken(what, batch), DecisionStatus.WAITING)

    def _look_for_nodes(self, observation: Observation) -> None:
        flight, batch = self._flight(), observation.batch
        live = observation.cluster.names
        came = [name for name in live if name not in flight.before]
        if len(live) >= flight.decision.nodes and len(came) >= len(flight.decision.spares):
            names = dict(zip(flight.decision.spares, came, strict=False))
            self.flight = replace(flight, names=names)
            waited = batch - flight.since_batch
            self._did(StepTaken(f"{_arrivals(came, names)} after {waited} batches", batch))
            if flight.decision.stages:
                self.machine.on("nodes came")
                self._move(batch)
            else:
                self.machine.on("nothing to move")
                self._release(batch)
        elif batch - flight.since_batch >= self.node_wait:
            self.machine.on("give up")
            why = f"{len(came)} of {len(flight.decision.spares)} nodes came in {self.node_wait}"
            step = StepTaken("wait for nodes", batch, failed=f"{why} batches")
            self._fail(step, Ending.NO_NODES)
            self._stop_asking(len(live), batch)

    def _stop_asking(self, nodes: int, batch: int) -> None:
        what = f"ask for no more than the {nodes} nodes that are there"
        try:
            self.runtime.request_nodes(nodes)
        except ActionFailed as error:
            self._did(StepTaken(what, batch, failed=str(error)))
        else:
            self._did(StepTaken(what, batch))

    def _move(self, batch: int) -> None:
        flight = self._flight()
        stages = flight.decision.stages
        stage = stages[flight.done]
        what = _words(stage, flight.done + 1, len(stages))
        plan = renamed(stage.plan, flight.names)
        if self._must_wait(plan, flight):
            self.flight = replace(flight, waited=flight.waited + 1)
            if not flight.waited:
                self._did(StepTaken(f"copy state ahead of {what}", batch), DecisionStatus.MOVING)
            return
        try:
            applied = self.runtime.apply(plan)
        except ActionFailed as error:
            self.machine.on("fail")
            self._fail(StepTaken(what, batch, failed=str(error)), Ending.FAILED)
            return
        done = flight.done if applied.left else flight.done + 1
        self.flight = replace(flight, done=done, waited=0)
        step = StepTaken(
            f"a portion of {what}" if applied.left else what,
            batch,
            applied.seconds,
            applied.state_bytes,
            precopied_bytes=applied.precopied_bytes,
            inband_bytes=applied.inband_bytes,
        )
        self._did(step, DecisionStatus.MOVING)
        self.machine.on("all moved" if done == len(stages) else "moved")

    def _must_wait(self, plan: Plan, flight: InFlight) -> bool:
        """Whether state is still being pre-copied; after a loss nobody waits for that."""
        if flight.decision.forced or flight.waited >= AHEAD_BATCHES:
            return False
        return not self.runtime.prepare(plan)

    def _release(self, batch: int) -> None:
        names = self._flight().decision.release
        self.machine.on("released")
        if names:
            what = f"release {', '.join(names)}"
            try:
                self.runtime.release_nodes(names)
            except ActionFailed as error:
                # The plan stands all the same; the nodes only stay idle.
                self._did(StepTaken(what, batch, failed=str(error)))
                self.flight = replace(self._flight(), why=str(error))
            else:
                self._did(StepTaken(what, batch))
        self._tell(replace(self._flight().event, status=DecisionStatus.VERIFYING))

    # ---- bookkeeping

    def _flight(self) -> InFlight:
        assert self.flight is not None, "no decision is in flight"
        return self.flight

    def _did(self, step: StepTaken, status: DecisionStatus | None = None) -> None:
        event = self._flight().event.taking(step)
        self._tell(replace(event, status=status) if status is not None else event)

    def _fail(self, step: StepTaken, ending: Ending) -> None:
        status = DecisionStatus.FAILED if ending is Ending.FAILED else DecisionStatus.GIVEN_UP
        self._did(step, status)
        self.flight = replace(self._flight(), ending=ending, why=step.failed)

    def _tell(self, event: Event) -> None:
        self.flight = replace(self._flight(), event=event)

    def _end(self) -> InFlight:
        flight, self.flight = self._flight(), None
        return flight


def _words(stage: RolloutStage, number: int, count: int) -> str:
    moved = f"{len(stage.moves)} instances"
    if stage.partitions:
        moved = f"{moved} and {stage.partitions} router partitions"
    return f"step {number} of {count}: {moved}"


def _arrivals(came: list[str], names: Mapping[str, str]) -> str:
    meant = {node: spare for spare, node in names.items()}
    told = [f"{node} for {meant[node]}" if node in meant else node for node in came]
    return f"{', '.join(told)} came"
