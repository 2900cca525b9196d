"""One decision in flight, failures as data, nothing repeated blindly, nothing done on advice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.control.scene import WORDS, Scene, first_plan, scene, small_nodes

from penstock.control import apply
from penstock.control.decision import SPARE_NODES
from penstock.control.evaluate import evaluate
from penstock.control.events import DecisionStatus, Event
from penstock.control.loop import Loop
from penstock.control.runtime import SPARE, Applied, Observation
from penstock.control.settings import Settings
from penstock.control.states import TRANSITIONS, IllegalTransition, State, StateMachine
from penstock.model import Cluster, InvalidValue, Keep, Node, Plan, Reason, Refused, Topology, diff
from penstock.strategies import Request, make_plan, strategies
from penstock.testing.fake_runtime import FakeRuntime


@dataclass(frozen=True)
class Scripted:
    """A strategy that answers as it is told."""

    answer: Callable[[Request], Plan | Keep]
    name: ClassVar[str] = "scripted"
    summary: ClassVar[str] = "for tests"
    origin: ClassVar[str] = "here"

    def plan(self, request: Request) -> Plan | Keep:
        return self.answer(request)


def turned(request: Request, by: int = 1) -> Plan:
    """Every instance one node further: moves a lot and gains nothing."""
    assert request.running is not None
    current = request.running.node_of_in(request.cluster)
    node_of = (np.maximum(current, 0) + by) % len(request.cluster)
    zeros = np.zeros(len(node_of), dtype=np.int64)
    return make_plan(request, "scripted", node_of, zeros, [Reason("turned")])


def lying(request: Request) -> Plan:
    """Promise half the load, and move everything in vain."""
    plan = turned(request)
    load = {n: v / 2 for n, v in plan.after.node_load.items()}
    return replace(plan, after=replace(plan.after, node_load=load))


def methods(runtime: FakeRuntime) -> set[str]:
    return {method for _, method, _ in runtime.calls}


def rising(at_s: float) -> float:
    return 2000.0 if at_s < 50 else 4500.0


# ---- advice only


class Untouchable:
    """A runtime whose every method but `observe` fails the test."""

    def __init__(self, inner: FakeRuntime) -> None:
        self._inner = inner
        self.touched: list[str] = []

    @property
    def topology(self) -> Topology:
        return self._inner.topology

    @property
    def plan(self) -> Plan:
        return self._inner.plan

    def observe(self) -> Observation:
        return self._inner.observe()

    def request_nodes(self, total: int) -> None:
        self.touched.append("request_nodes")

    def vacate_nodes(self, names: tuple[str, ...], *, undo: bool = False) -> None:
        self.touched.append("vacate_nodes")

    def release_nodes(self, names: tuple[str, ...]) -> None:
        self.touched.append("release_nodes")

    def prepare(self, plan: Plan) -> bool:
        self.touched.append("prepare")
        return True

    def apply(self, plan: Plan) -> Applied:
        self.touched.append("apply")
        return Applied()


@pytest.mark.parametrize("strategy", ["penstock", "ra", "sra"])
def test_recommend_only_shows_everything_and_changes_nothing(strategy: str) -> None:
    cluster = small_nodes(4)
    inner = FakeRuntime(
        scene().runtime.topology, first_plan(strategy, cluster), cluster, rising, noise=0.05
    )
    runtime, before, events = Untouchable(inner), inner.plan, list[Event]()
    loop = Loop(
        runtime,
        strategies.make(strategy),
        Settings(recommend_only=True, max_nodes=8),
        clock=lambda: 0.0,
        listener=events.append,
    )
    for _ in range(120):
        inner.run()
        loop.tick()
    assert runtime.touched == []
    assert inner.calls == []
    assert inner.plan is before
    assert loop.state is State.IDLE
    assert events
    assert {e.status for e in events} == {DecisionStatus.RECOMMENDED}
    moving = [e for e in events if e.moved]
    assert moving
    assert moving[0].predicted is not None
    # The same advice is given once, not every round.
    assert len(events) <= 6


# ---- guards


def test_a_change_must_be_wanted_for_the_rounds_and_then_cools_down() -> None:
    asked: list[int] = []

    def answer(request: Request) -> Plan | Keep:
        asked.append(int(request.now_s))
        return turned(request)

    settings = Settings(every=2, stable_rounds=3, cooldown=20, verify=1)
    turning = scene(
        strategy=Scripted(answer), settings=settings, plan=first_plan("even", small_nodes(4))
    )
    turning.run(60)
    first, second = itertools.islice(turning.events.values(), 2)
    # Too little was measured until batch 3.
    assert asked[:3] == [4, 6, 8]
    assert first.batch == 7
    assert second.batch - first.batch >= 20
    assert not [at for at in asked if 9 < at < first.batch + 20]


def test_a_gain_that_did_not_come_is_noticed_and_not_repeated_blindly() -> None:
    settings = Settings(every=1, stable_rounds=1, cooldown=5, verify=1)
    vain = scene(
        strategy=Scripted(lying), settings=settings, plan=first_plan("even", small_nodes(4))
    )
    vain.run(300)
    done = [e for e in vain.events.values() if e.status is DecisionStatus.DONE]
    assert [e.gained.came for e in done if e.gained] == [False] * len(done)
    gaps = np.diff([e.batch for e in done])
    assert len(done) >= 3
    assert (gaps[1:] >= 1.5 * gaps[:-1]).all(), gaps
    refused = [e for e in vain.events.values() if e.status is DecisionStatus.REFUSED]
    assert refused
    assert "in vain" in refused[0].text
    # Once for each back-off, not in every round of it.
    assert len(refused) <= len(done)


def test_without_back_off_a_vain_change_is_made_again() -> None:
    settings = Settings(every=1, stable_rounds=1, cooldown=5, verify=1, back_off=0)
    vain = scene(
        strategy=Scripted(lying), settings=settings, plan=first_plan("even", small_nodes(4))
    )
    vain.run(100)
    done = [e for e in vain.events.values() if e.status is DecisionStatus.DONE]
    assert len(done) >= 6
    assert not [e for e in vain.events.values() if e.status is DecisionStatus.REFUSED]


def test_moves_of_a_round_are_limited() -> None:
    settings = Settings(
        every=1, stable_rounds=1, cooldown=1, verify=1, max_moves=5, max_moves_share=0
    )
    roomy = scene(
        lambda _: 500.0,
        strategy=Scripted(turned),
        settings=settings,
        plan=first_plan("even", small_nodes(4)),
    )
    roomy.run(8)
    first = roomy.events[1]
    assert first.moved == 5
    assert "only the first 5 moves" in first.reasons[0].text


def test_the_limit_of_moves_grows_with_the_instances() -> None:
    plan = first_plan("even", small_nodes(4))
    count = len(plan.node_of)
    settings = Settings(
        every=1, stable_rounds=1, cooldown=1, verify=1, max_moves=1, max_moves_share=0.5
    )
    roomy = scene(lambda _: 500.0, strategy=Scripted(turned), settings=settings, plan=plan)
    roomy.run(8)
    assert roomy.events[1].moved == count // 2 > 1
    assert Settings().moves_of(128) == 64
    # A plan for a large graph moves more than 64 at once, or it can never be made.
    assert Settings().moves_of(5402) == 2701
    assert Settings(max_moves_share=0).moves_of(5402) == 64


def test_a_cut_change_that_would_overload_a_node_is_refused() -> None:
    def together(request: Request) -> Plan:
        zeros = np.zeros(len(request.graph), dtype=np.int64)
        return make_plan(request, "scripted", zeros, zeros, [Reason("all on one")])

    settings = Settings(every=1, stable_rounds=1, max_moves=9, max_moves_share=0)
    packed = scene(
        lambda _: 3000.0,
        strategy=Scripted(together),
        settings=settings,
        plan=first_plan("even", small_nodes(2)),
        nodes=2,
    )
    packed.run(10)
    assert packed.events[1].status is DecisionStatus.REFUSED
    assert "apply" not in methods(packed.runtime)


# ---- failures are data


def test_a_step_that_fails_leaves_the_plan_and_is_not_repeated_at_once() -> None:
    broken = scene(rising, settings=Settings(max_nodes=8))
    broken.run(50)
    broken.runtime.fails["apply"] = "the state could not be carried"
    before = broken.runtime.plan
    broken.run(30)
    assert broken.runtime.plan is before
    failed = [e for e in broken.events.values() if e.status is DecisionStatus.FAILED]
    assert len(failed) == 1
    assert failed[0].steps[-1].failed == "the state could not be carried"
    assert broken.loop.state is State.IDLE
    broken.runtime.fails.clear()
    broken.run(60)
    assert broken.runtime.plan is not before
    assert broken.runtime.observe().throughput_per_s > 4500


def test_nodes_that_do_not_come_are_given_up() -> None:
    alone = scene(rising, nodes=2, settings=Settings(max_nodes=6, node_wait=10), start_batches=None)
    before = alone.runtime.plan
    alone.run(90)
    given_up = [e for e in alone.events.values() if e.status is DecisionStatus.GIVEN_UP]
    assert given_up
    assert "0 of" in given_up[0].steps[1].failed
    assert alone.runtime.calls[-1][1:] == ("request_nodes", 2)
    assert {s.node for spots in alone.runtime.plan.placement.values() for s in spots} <= {
        s.node for spots in before.placement.values() for s in spots
    }
    assert SPARE_NODES in alone.loop.guards.disappointments


def test_nodes_that_came_take_the_places_of_the_spare_ones() -> None:
    grown = scene(rising, nodes=2, settings=Settings(max_nodes=6))
    grown.run(100)
    plan = grown.runtime.plan
    assert not any(name.startswith(SPARE) for name in plan.nodes)
    assert not any(name.startswith(SPARE) for name in plan.after.node_load)
    assert set(plan.active) <= set(grown.runtime.cluster.names)


def test_a_cluster_that_cannot_change_is_said_once_and_lived_with() -> None:
    fixed = scene(rising, nodes=2, settings=Settings(max_nodes=6), elastic=False)
    fixed.run(150)
    metrics = [e for e in fixed.events.values() if e.status is DecisionStatus.NOTED]
    assert len(metrics) == 1
    assert "fixed" in metrics[0].text
    asked = [call for call in fixed.runtime.calls if call[1] == "request_nodes"]
    assert len(asked) == 1


def test_a_release_that_fails_leaves_the_plan_in_force() -> None:
    kept = scene(settings=Settings(every=2))
    kept.runtime.fails["release_nodes"] = "not now"
    kept.run(40)
    assert len(kept.runtime.cluster) == 4
    assert len([c for c in kept.runtime.calls if c[1] == "release_nodes"]) == 1
    assert "not now" in kept.events[1].steps[-1].failed


def test_a_strategy_that_refuses_keeps_the_plan() -> None:
    def refuse(request: Request) -> Plan:
        raise Refused("too large for me")

    settings = Settings(min_nodes=4)
    refusing = scene(
        strategy=Scripted(refuse), settings=settings, plan=first_plan("even", small_nodes(4))
    )
    refusing.run(30)
    assert refusing.events == {}
    assert refusing.loop.decision is not None
    assert "too large for me" in refusing.loop.decision.reasons[0].text


# ---- losses


def lose_one(lossy: Scene) -> str:
    victim = lossy.runtime.plan.active[0]
    lossy.runtime.lose(victim)
    return victim


@pytest.mark.parametrize("strategy", ["penstock", "ra", "sra", "even"])
def test_a_lost_node_is_planned_around_at_once(strategy: str) -> None:
    settings = Settings(stable_rounds=50, cooldown=1000, min_nodes=4)
    lossy = scene(strategy=strategy, settings=settings)
    lossy.run(31)
    victim = lose_one(lossy)
    lossy.runtime.run()
    lossy.loop.tick(urgent=True)
    assert victim not in lossy.runtime.plan.active
    (event,) = lossy.since(31)
    assert victim in event.reasons[0].text


def test_a_lost_node_is_planned_around_where_all_else_is_only_recommended() -> None:
    lossy = scene(settings=Settings(recommend_only=True))
    lossy.run(31)
    before = lossy.runtime.plan
    victim = lose_one(lossy)
    lossy.runtime.run()
    lossy.loop.tick(urgent=True, must_act=True)
    assert victim not in lossy.runtime.plan.active
    assert before is not lossy.runtime.plan
    changed = lossy.runtime.plan
    lossy.run(31)
    assert lossy.runtime.plan is changed


def test_a_node_with_fewer_processes_than_the_plan_uses_is_lost() -> None:
    cluster = Cluster((Node("a", processes=2), Node("b", processes=2)))
    plan = first_plan("even", cluster)
    used = max(plan.process_of.tolist())
    assert used == 1, "the plan uses the second processes"
    fewer = Cluster((Node("a", processes=1), Node("b", processes=2)))
    found = evaluate(Observation(1.0, 3, fewer), WORDS, plan)
    assert found.lost == ("a",)


def test_a_loss_interrupts_the_decision_in_flight() -> None:
    lossy = scene(
        rising, nodes=3, settings=Settings(max_nodes=6, node_wait=500), start_batches=None
    )
    lossy.run(70)
    assert lossy.loop.state is State.WAITING
    victim = lose_one(lossy)
    lossy.run(1)
    assert victim not in lossy.runtime.plan.active
    ended = [e for e in lossy.events.values() if e.status is DecisionStatus.GIVEN_UP]
    assert victim in ended[0].steps[-1].what


def test_nodes_below_the_minimum_are_asked_for() -> None:
    short = scene(nodes=2, settings=Settings(min_nodes=3, max_nodes=4))
    short.run(40)
    assert len(short.runtime.cluster) == 3
    assert short.loop.state is State.IDLE


# ---- state that is pre-copied


def turning(**runtime: Any) -> Scene:
    """A loop that moves everything once, as soon as it has measured."""
    settings = Settings(every=1, stable_rounds=1, cooldown=1000, verify=1, max_moves_share=1.0)
    plan = first_plan("even", small_nodes(4))
    return scene(strategy=Scripted(turned), settings=settings, plan=plan, **runtime)


def steps(found: Scene) -> list[tuple[int, str]]:
    return [(step.batch, step.what) for step in found.events[1].steps]


def test_a_step_waits_for_its_state_to_be_copied_ahead() -> None:
    plain, waiting = turning(), turning(ahead_batches=3)
    plain.run(30)
    waiting.run(4)
    assert waiting.loop.state is State.MOVING
    assert "apply" not in methods(waiting.runtime)
    waiting.run(26)
    assert [event.status for event in waiting.told[:2]] == [
        DecisionStatus.DECIDED,
        DecisionStatus.MOVING,
    ]
    assert waiting.events[1].status is DecisionStatus.DONE
    moved = [step for step in steps(waiting) if step[1].startswith("step")]
    assert [what for _, what in moved] == [what for _, what in steps(plain)]
    assert [batch for batch, what in steps(waiting) if what.startswith("copy state ahead of")] == [
        batch - 3 for batch, _ in moved
    ], "told once for each step"
    assert diff(waiting.runtime.plan, plain.runtime.plan).empty


def test_a_step_is_made_in_as_many_portions_as_it_takes() -> None:
    plain, slowly = turning(), turning(portions=3)
    plain.run(30)
    slowly.run(30)
    assert slowly.events[1].status is DecisionStatus.DONE
    whole = [what for _, what in steps(plain)]
    assert [what for _, what in steps(slowly)] == [
        told for what in whole for told in (*(2 * [f"a portion of {what}"]), what)
    ]
    batches = [batch for batch, _ in steps(slowly)]
    assert len(set(batches)) == len(batches), "a batch between two of them"
    assert diff(slowly.runtime.plan, plain.runtime.plan).empty


def test_a_step_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "AHEAD_BATCHES", 5)
    slow = turning(ahead_batches=10_000)
    slow.run(60)
    assert slow.events[1].status is DecisionStatus.DONE
    waits = [batch for batch, _ in steps(slow)]
    assert all(b - a == 5 for a, b in zip(waits[::2], waits[1::2], strict=True))


def test_a_loss_ends_what_is_copied_ahead_and_waits_for_nothing() -> None:
    lossy = turning(ahead_batches=10_000)
    lossy.run(10)
    assert lossy.loop.state is State.MOVING
    before = lossy.runtime.plan
    victim = lose_one(lossy)
    lossy.run(1)
    assert lossy.events[1].status is DecisionStatus.GIVEN_UP
    assert (10, before) in lossy.runtime.prepared, "what is in force moves nothing"
    assert [call[0] for call in lossy.runtime.calls if call[1] == "apply"] == [10]
    assert victim not in lossy.runtime.plan.active


# ---- skew


def test_skewed_keys_are_dealt_anew_without_moving_an_instance() -> None:
    cluster = small_nodes(4)
    plan = first_plan("penstock", cluster)
    weights = np.ones(len(plan.routing["count"].partitions))
    weights[:: plan.parallelism["count"]] = 3.0
    skewed = scene(
        lambda _: 1500.0,
        settings=Settings(min_nodes=4),
        plan=plan,
        weights={"count": weights / weights.sum()},
    )
    skewed.run(60)
    repartitioned = [e for e in skewed.events.values() if e.partitions]
    assert len(repartitioned) == 1
    assert repartitioned[0].gained is not None
    assert repartitioned[0].gained.came
    assert skewed.loop.assessment is not None
    assert skewed.loop.assessment.lit["count"] < 0.3


# ---- the machine and the settings


def test_every_state_can_be_reached_and_left() -> None:
    assert {state for state, _ in TRANSITIONS} == set(State)
    assert set(TRANSITIONS.values()) == set(State)


def test_an_illegal_transition_tells_its_history() -> None:
    machine = StateMachine()
    machine.on("ask for nodes")
    machine.on("nodes came")
    with pytest.raises(IllegalTransition, match=r"idle, ask for nodes -> waiting.*-> moving"):
        machine.on("judged")


@pytest.mark.parametrize(
    "wrong",
    [
        {"every": 0},
        {"stable_rounds": 0},
        {"cooldown": -1},
        {"max_moves": 1.5},
        {"max_moves_share": 1.5},
        {"min_nodes": -1},
        {"min_nodes": 5, "max_nodes": 4},
        {"verify": True},
        {"recommend_only": 1},
    ],
)
def test_settings_say_what_is_allowed(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="of Settings must be"):
        Settings(**wrong)


def test_a_bound_left_open_is_the_cluster_at_the_start() -> None:
    assert Settings().starting_with(4).max_nodes == 4
    assert Settings(min_nodes=6).starting_with(4).max_nodes == 6
    assert Settings(max_nodes=2).starting_with(4).max_nodes == 2


def test_as_many_nodes_stay_as_the_state_needs_to_survive() -> None:
    assert Settings().starting_with(4).min_nodes == 1
    assert Settings().starting_with(4, losses=2).min_nodes == 3
    assert Settings(max_nodes=2).starting_with(4, losses=2).min_nodes == 2
    assert Settings(min_nodes=1).starting_with(4, losses=2).min_nodes == 1


def test_the_loop_measures_its_own_time_apart_from_that_of_actions() -> None:
    clock = [0.0]

    class Slow(FakeRuntime):
        def observe(self) -> Observation:
            clock[0] += 1.0
            return super().observe()

        def apply(self, plan: Plan) -> Applied:
            clock[0] += 100.0
            return super().apply(plan)

    cluster = small_nodes(4)
    topology = scene().runtime.topology
    runtime = Slow(topology, first_plan("ra", cluster), cluster, rising)
    settings = Settings(min_nodes=4)
    loop = Loop(runtime, strategies.make("ra"), settings, clock=lambda: clock[0])
    for _ in range(100):
        runtime.run()
        loop.tick()
    applied = [call for call in runtime.calls if call[1] == "apply"]
    assert applied
    assert loop.acting_s == 100.0 * len(applied)
    assert loop.spent_s == runtime.observed


def test_equal_seeds_decide_alike() -> None:
    def told() -> list[dict[str, Any]]:
        one = scene(rising, settings=Settings(max_nodes=8), noise=0.1, seed=5)
        one.run(120)
        return [event.to_dict() for event in one.told]

    assert told() == told()


def test_a_strategy_that_finds_no_other_plan_is_not_asked_every_round() -> None:
    asked: list[float] = []

    def same(request: Request) -> Plan:
        asked.append(request.now_s)
        return turned(request, by=0)

    settings = Settings(every=2, cooldown=10, min_nodes=3)
    plan = first_plan("even", small_nodes(3))
    made = scene(strategy=Scripted(same), nodes=3, settings=settings, plan=plan)
    made.run(100)
    assert not made.events
    assert len(asked) <= 100 / 10 + 1
