"""The loop: collect, evaluate, decide, apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from penstock.control.apply import Applier, Ending, InFlight
from penstock.control.decide import Situation, decide
from penstock.control.decision import RELEASE, SPARE_NODES, Choice, Decision
from penstock.control.evaluate import Assessment, evaluate
from penstock.control.events import DecisionStatus, Event, event_of
from penstock.control.gain import judge
from penstock.control.guards import Guards
from penstock.control.runtime import Observation, Runtime
from penstock.control.settings import Settings
from penstock.control.states import State
from penstock.model import Measurements
from penstock.strategies import Strategy

#: Demands of earlier evaluations that a strategy may look back on.
RECENT = 10


class Loop:
    """Keeps the plan of one runtime fitting; call `tick` after every committed batch.

    Parameters
    ----------
    runtime : Runtime
    strategy : Strategy
    settings : Settings
    clock : callable
        Seconds from any fixed start, to measure what the loop itself costs.
    seed : int
        Equal seeds and equal observations give equal decisions.
    listener : callable, optional
        Gets an event when it is decided, and again whenever more is known of it.

    Attributes
    ----------
    spent_s, acting_s : float
        Time that it took to collect, evaluate and decide, and that the actions took.
    assessment, decision
        The latest, whatever came of them.
    """

    def __init__(
        self,
        runtime: Runtime,
        strategy: Strategy,
        settings: Settings | None = None,
        *,
        clock: Callable[[], float],
        seed: int = 0,
        listener: Callable[[Event], None] | None = None,
    ) -> None:
        self.runtime = runtime
        self.strategy = strategy
        self.settings = settings or Settings()
        self.guards = Guards()
        self.assessment: Assessment | None = None
        self.decision: Decision | None = None
        self.decided = 0
        self.ticks = 0
        self.spent_s = 0.0
        self.acting_s = 0.0
        self._applier = Applier(runtime, self.settings.node_wait)
        self._clock = clock
        self._seed = seed
        self._listener = listener
        self._recent: tuple[Measurements, ...] = ()
        self._batch = -1
        self._verified = 0
        self._told: Event | None = None
        self._shown: tuple[Choice, str, int] | None = None

    @property
    def state(self) -> State:
        """What is being done with the decision in flight."""
        return self._applier.state

    def tick(self, *, urgent: bool = False, must_act: bool = False) -> None:
        """Do what is due after a batch.

        Parameters
        ----------
        urgent : bool
            Look now, whenever the next evaluation were: a node was lost.
        must_act : bool
            Nothing runs until the plan is changed that uses it: act even where everything else is
            only recommended.
        """
        began, acted = self._clock(), self.acting_s
        self.ticks += 1
        self._batch += 1
        observation = self._collect(urgent)
        if observation is not None:
            assessment = self._evaluate(observation)
            if assessment.lost or not self._applier.busy:
                self._decide(assessment, must_act=must_act)
        if self._applier.busy:
            self._apply(observation)
        self.spent_s += self._clock() - began - (self.acting_s - acted)

    # ---- collect, evaluate

    def _collect(self, urgent: bool) -> Observation | None:
        """Look when an evaluation is due, and after every batch while nodes are waited for."""
        due = self.ticks % self.settings.every == 0
        if not (due or urgent or self.state is State.WAITING):
            return None
        observation = self.runtime.observe()
        self._batch = observation.batch
        self.settings = self.settings.starting_with(len(observation.cluster))
        return observation

    def _evaluate(self, observation: Observation) -> Assessment:
        plan = self.runtime.plan
        topology = self.runtime.topology.with_parallelism(plan.parallelism)
        assessment = evaluate(observation, topology, plan, self.assessment)
        if self.ticks % self.settings.every == 0 or assessment.lost:
            self.assessment = assessment
        return assessment

    # ---- decide

    def _decide(self, now: Assessment, *, must_act: bool) -> None:
        if self.state is not State.IDLE:
            if now.lost:
                why = f"nodes were lost: {', '.join(now.lost)}"
                self._closed(self._applier.interrupt(self._batch, why))
            elif not self._verify(now):
                return
        began = self._clock()
        plan = self.runtime.plan
        situation = Situation(
            now,
            self.runtime.topology.with_parallelism(plan.parallelism),
            plan,
            self._recent,
            np.random.default_rng([self._seed, max(now.observation.batch, 0)]),
        )
        decision, self.guards = decide(situation, self.strategy, self.settings, self.guards)
        self.decision = decision
        if now.demand is not None:
            self._recent = (*self._recent, now.demand)[-RECENT:]
        if decision.choice is Choice.KEEP:
            return
        recommended = self.settings.recommend_only and not (must_act and decision.forced)
        advised = recommended or decision.choice is Choice.REFUSE
        if advised and not now.lost:
            # Nothing will be different so soon, and planning costs time.
            self.guards = self.guards.after_change(self._batch, self.settings.cooldown)
        if advised and self._shown_before(decision):
            return
        target = decision.target.active if decision.target is not None else plan.active
        self.decided += 1
        event = event_of(
            self.decided,
            decision,
            now,
            (len(plan.active), len(target)),
            self._clock() - began,
            recommended=recommended,
        )
        self._tell(event)
        if decision.changes and not recommended:
            self._verified = 0
            self._act(lambda: self._applier.begin(decision, event, now.observation))

    def _shown_before(self, decision: Decision) -> bool:
        """Whether the same was refused, or recommended, the last time."""
        known = self.guards.disappointments.get(decision.key)
        shown = (decision.choice, decision.key, known.times if known else 0)
        before, self._shown = self._shown, shown
        return shown == before

    def _verify(self, now: Assessment) -> bool:
        """Judge what the last decision gained, once enough was seen; return whether it is over."""
        flight = self._applier.flight
        assert flight is not None
        if now.demand is None:
            return False
        self._verified += 1
        if self._verified < self.settings.verify and not now.moving:
            return False
        gained = judge(flight.decision.expected, now)
        event = replace(flight.event, status=DecisionStatus.DONE, gained=gained)
        ended = self._applier.judged(event)
        key = ended.decision.key
        if gained.came is False:
            self._disappointed(key, gained.text)
        elif gained.came:
            self.guards = self.guards.satisfied(key)
        self._tell(event)
        return True

    # ---- apply

    def _apply(self, observation: Observation | None) -> None:
        flight = self._applier.flight
        assert flight is not None
        if flight.since_batch < self._batch:
            self._act(lambda: self._applier.go_on(self._batch, observation))

    def _act(self, action: Callable[[], None]) -> None:
        """Let the runtime act; tell what was done, and remember what did not work."""
        began = self._clock()
        action()
        self.acting_s += self._clock() - began
        ended = self._applier.take_ended()
        if ended is not None:
            self._closed(ended)
        flight = ended or self._applier.flight
        if flight is not None:
            self._tell(flight.event)
        if ended is None and flight is not None and self.state is State.VERIFYING:
            self._changed(flight)

    def _changed(self, flight: InFlight) -> None:
        """Start to measure anew, and be quiet for a while; after a loss more may have to follow."""
        cooldown = 0 if flight.decision.forced else self.settings.cooldown
        self.guards = self.guards.after_change(self._batch, cooldown)
        self._recent = ()
        if flight.why:
            self._without(RELEASE, flight.why)

    def _closed(self, flight: InFlight) -> None:
        """Remember a decision that did not come to its end."""
        self._tell(flight.event)
        self._recent = () if flight.done else self._recent
        self.guards = self.guards.after_change(self._batch, 0)
        if flight.ending is Ending.FAILED:
            self._disappointed(flight.decision.key, flight.why)
        elif flight.ending is Ending.NO_NODES:
            self._without(SPARE_NODES, flight.why)
        elif flight.ending is Ending.FIXED_NODES:
            self.guards = replace(self.guards, fixed_nodes=True)
            self._note(f"the number of nodes is fixed from here on: {flight.why}")

    def _without(self, key: str, why: str) -> None:
        """Do without what the cluster manager cannot do, whatever the settings are."""
        self.guards = self.guards.disappointed(key, self._batch, self.settings.cooldown, why)

    def _disappointed(self, key: str, why: str) -> None:
        """Refuse such a change for a while, if that is asked for."""
        cooldown, back_off = self.settings.cooldown, self.settings.back_off
        if back_off:
            self.guards = self.guards.disappointed(key, self._batch, cooldown, why, back_off)

    # ---- telling

    def _note(self, text: str) -> None:
        self.decided += 1
        seen = self.assessment.observation if self.assessment is not None else None
        now_s = seen.now_s if seen is not None else 0.0
        self._tell(Event(self.decided, self._batch, now_s, DecisionStatus.NOTED, text))

    def _tell(self, event: Event) -> None:
        if self._listener is not None and event != self._told:
            self._listener(event)
        self._told = event
