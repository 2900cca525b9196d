"""From an assessment to a decision: keep, refuse or change. Pure; only `apply` acts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.control.decision import LOST, RELEASE, SPARE_NODES, Choice, Decision
from penstock.control.evaluate import Assessment
from penstock.control.gain import Expectation, expect
from penstock.control.guards import Guards
from penstock.control.offer import (
    known_nodes,
    offered,
    prefer_live,
    spares_of,
    without_unused_spares,
)
from penstock.control.rollout import RolloutStage, limited, plan_after, priced, stages_of
from penstock.control.settings import Settings
from penstock.model import (
    Cluster,
    Cost,
    Diff,
    Keep,
    Measurements,
    PenstockError,
    Plan,
    Reason,
    Topology,
    diff,
    schedule,
)
from penstock.strategies import Request, Strategy

#: Part of a node that others take from which on what was in vain before is tried again.
BURDENED = 0.3

#: Seconds that a rate may go on moving before it is answered all the same: batches of nodes that
#: are overloaded grow and grow.
PATIENCE_S = 20.0


@dataclass(frozen=True, eq=False)
class Situation:
    """All that a decision looks at.

    Parameters
    ----------
    topology : Topology
        With the parallelism of the running plan.
    recent : tuple of Measurements
        Demands of the evaluations before, since the plan last changed.
    """

    assessment: Assessment
    topology: Topology
    running: Plan
    recent: tuple[Measurements, ...]
    rng: np.random.Generator

    @property
    def batch(self) -> int:
        """The last committed batch."""
        return self.assessment.observation.batch

    @property
    def live(self) -> Cluster:
        """The nodes that are there."""
        return self.assessment.cluster

    def request(self, cluster: Cluster) -> Request:
        """Put the question to a strategy."""
        return Request(
            self.topology,
            cluster,
            self.assessment.demand,
            self.running,
            self.assessment.observation.now_s,
            self.rng,
            self.recent,
        )


def decide(
    now: Situation, strategy: Strategy, settings: Settings, guards: Guards
) -> tuple[Decision, Guards]:
    """Decide, and say what to remember."""
    if now.assessment.lost:
        return _forced(now, strategy, settings), replace(guards, wanted_rounds=0)
    taken = now.assessment.taken.items()
    guards = guards.seeing(frozenset(name for name, part in taken if part >= BURDENED))
    if now.assessment.demand is None:
        return _keep("too little was measured yet"), guards
    if now.batch < guards.quiet_until:
        text = f"cool-down until batch {guards.quiet_until} after the last change"
        return _keep(text, quiet_until=guards.quiet_until), guards
    known = known_nodes(now.assessment, _spare_nodes(now, settings, guards))
    cluster = offered(now.assessment, known, settings.max_nodes)
    answer = _ask(strategy, now.request(cluster))
    if isinstance(answer, Keep):
        return _kept(now, answer, settings, guards)
    target = without_unused_spares(prefer_live(answer, cluster))
    change = diff(now.running, target)
    if change.empty:
        decision, guards = _kept(now, Keep(target.reasons), settings, guards)
        if decision.changes or guards.idle_rounds or now.assessment.moving:
            return decision, guards
        # The strategy wants another plan and finds none: it would search in vain every round.
        return decision, replace(guards, quiet_until=now.batch + settings.cooldown)
    expected = expect(now.assessment, now.running, target, target.after, change)
    key = _key(now.running, target, expected)
    refusal = guards.refuses(key, now.batch)
    if refusal is not None:
        text = (
            f"a change of this kind is refused until batch {refusal.until_batch}, "
            f"after {refusal.times} in vain: {refusal.why}"
        )
        figures = {"times": refusal.times, "until_batch": refusal.until_batch}
        reasons = (Reason(text, figures), *target.reasons)
        return Decision(Choice.REFUSE, reasons, key), replace(guards, wanted_rounds=0)
    waiting = replace(guards.wanting(now.assessment.observation.now_s), idle_rounds=0)
    held = _held_back(now, settings, waiting)
    if held is not None:
        return Decision(Choice.KEEP, (held, *target.reasons)), waiting
    return _change(now, known, target, change, key, expected, settings, guards), waiting


def _held_back(now: Situation, settings: Settings, guards: Guards) -> Reason | None:
    """Return why a change that is wanted has to wait."""
    used = {now.running.nodes[i] for i in np.unique(now.running.node_of).tolist()}
    if now.assessment.slow & used:
        # That was looked at for several batches before it was believed, and every batch waits.
        return None
    patience = settings.stable_rounds + math.ceil(settings.patience / settings.every)
    waited_s = now.assessment.observation.now_s - guards.wanted_since_s
    hasty = guards.wanted_rounds < patience and waited_s < PATIENCE_S
    if settings.patience and now.assessment.moving and hasty:
        text = f"a change is wanted, but the rate still moves: {now.assessment.change:+.0%}"
        return Reason(text, {"rate_change": now.assessment.change})
    if guards.wanted_rounds < settings.stable_rounds:
        text = f"a change is wanted in {guards.wanted_rounds} of {settings.stable_rounds} rounds"
        return Reason(text, {"rounds": guards.wanted_rounds, "asked": settings.stable_rounds})
    return None


def _change(
    now: Situation,
    known: Cluster,
    target: Plan,
    change: Diff,
    key: str,
    expected: Expectation | None,
    settings: Settings,
    guards: Guards,
) -> Decision:
    def price(plan: Plan) -> Plan:
        return priced(plan, now.topology, known, now.assessment.demand)

    reasons = target.reasons
    steps = schedule(change, now.topology)
    most = settings.moves_of(len(now.running.node_of))
    kept = limited(steps, most)
    if kept != steps:
        target = without_unused_spares(price(plan_after(now.running, target, kept)))
        if _harms(now.assessment.cost, target.after):
            text = (
                f"it would take more than {most} moves, and the first of them alone "
                f"would put {target.after.max_node_load:.2f} on a node"
            )
            return Decision(Choice.REFUSE, (Reason(text), *reasons), key)
        text = f"only the first {most} moves of more: the limit of a round"
        reasons = (Reason(text, {"max_moves": most}), *reasons)
        change = diff(now.running, target)
        expected = expect(now.assessment, now.running, target, target.after, change)
    spares = spares_of(target)
    nodes = len(now.live) + len(spares)
    return Decision(
        Choice.CHANGE,
        reasons,
        key,
        before=now.assessment.cost,
        after=target.after,
        target=target,
        change=change,
        stages=stages_of(now.running, target, kept, now.topology, price),
        nodes=nodes if guards.fixed_nodes else max(nodes, settings.min_nodes),
        spares=spares,
        release=_releasable(now, target, nodes, settings, guards),
        expected=expected,
    )


def _forced(now: Situation, strategy: Strategy, settings: Settings) -> Decision:
    """Plan at once on what is there, in one step: half of the old plan does not work anyway."""
    names = ", ".join(now.assessment.lost)
    why = Reason(f"the plan uses nodes that are gone: {names}", {"lost": len(now.assessment.lost)})
    cluster = offered(now.assessment, now.live, settings.max_nodes)
    answer = _ask(strategy, replace(now.request(cluster), recent=()))
    if isinstance(answer, Keep):
        return Decision(Choice.REFUSE, (why, *answer.reasons), LOST, forced=True)
    change = diff(now.running, answer)
    return Decision(
        Choice.CHANGE,
        (why, *answer.reasons),
        LOST,
        forced=True,
        after=answer.after,
        target=answer,
        change=change,
        stages=(RolloutStage(answer, change.moves, len(change.partitions)),),
        nodes=len(now.live),
    )


def _kept(
    now: Situation, answer: Keep, settings: Settings, guards: Guards
) -> tuple[Decision, Guards]:
    """Keep the plan; nodes that it leaves idle go, and those that are missing come."""
    # A rate that moves is a reason for a change by itself, as soon as the strategy wants one.
    seen = now.assessment.observation
    moving = now.assessment.moving
    guards = guards.wanting(seen.now_s) if moving else replace(guards, wanted_rounds=0)
    live = len(now.live)
    short = settings.min_nodes - live
    if short > 0 and _spare_nodes(now, settings, guards):
        text = f"{live} nodes are there, at least {settings.min_nodes} are asked for"
        return _of_nodes(now, Reason(text, {"nodes": live}), SPARE_NODES, live + short), guards
    release = _releasable(now, now.running, live, settings, guards)
    if not release:
        return Decision(Choice.KEEP, answer.reasons), replace(guards, idle_rounds=0)
    guards = replace(guards, idle_rounds=guards.idle_rounds + 1)
    if guards.idle_rounds < settings.stable_rounds:
        return Decision(Choice.KEEP, answer.reasons), guards
    text = f"{len(release)} nodes hold nothing that the plan needs"
    reason = Reason(text, {"idle": len(release), "nodes": live})
    return _of_nodes(now, reason, RELEASE, live, release), guards


def _of_nodes(
    now: Situation, reason: Reason, key: str, nodes: int, release: tuple[str, ...] = ()
) -> Decision:
    cost = now.assessment.cost
    return Decision(
        Choice.CHANGE, (reason,), key, before=cost, after=cost, nodes=nodes, release=release
    )


def _spare_nodes(now: Situation, settings: Settings, guards: Guards) -> int:
    """Count the nodes that could be had."""
    if guards.fixed_nodes or guards.refuses(SPARE_NODES, now.batch):
        return 0
    return max(0, settings.max_nodes - len(now.live))


def _releasable(
    now: Situation, plan: Plan, nodes: int, settings: Settings, guards: Guards
) -> tuple[str, ...]:
    """Live nodes that a plan does not keep, slow ones first, down to `min_nodes`."""
    if guards.fixed_nodes or guards.refuses(RELEASE, now.batch):
        return ()
    slow = now.assessment.slow
    unused = [name for name in now.live.names if name not in plan.active]
    unused.sort(key=lambda name: name not in slow)
    return tuple(unused[: max(0, nodes - settings.min_nodes)])


def _ask(strategy: Strategy, request: Request) -> Plan | Keep:
    try:
        return strategy.plan(request)
    except PenstockError as error:
        return Keep((Reason(f"the strategy has no plan: {error}"),))


def _harms(before: Cost | None, after: Cost) -> bool:
    load = before.max_node_load if before is not None else 1.0
    return after.max_node_load > max(1.0, load) * (1 + 1e-6)


def _key(running: Plan, target: Plan, expected: Expectation | None) -> str:
    """Say what kind of change it is, by its aim and size and not by every spot."""
    aim = expected.figure if expected is not None else "plan"
    grown = [n for n, c in target.parallelism.items() if running.parallelism.get(n) != c]
    parts = [aim, f"{len(running.active)} -> {len(target.active)} nodes"]
    if expected is not None and expected.operator:
        parts.append(expected.operator)
    return ", ".join([*parts, *(f"{n} x {target.parallelism[n]}" for n in grown)])


def _keep(text: str, **figures: float) -> Decision:
    return Decision(Choice.KEEP, (Reason(text, figures),))
