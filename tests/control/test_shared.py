"""Several topologies under one planner: joined, split, and not stopped by one that fails."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.control.scene import WORDS, first_plan, small_nodes

from penstock.control.events import Event
from penstock.control.joint.join import (
    join_measurements,
    join_observations,
    join_plans,
    join_topologies,
    split_plan,
)
from penstock.control.joint.runtime import JointRuntime
from penstock.control.loop import Loop
from penstock.control.runtime import ActionFailed, Observation
from penstock.control.settings import Settings
from penstock.model import InvalidValue, Keep, Measurements, PenstockError, Plan, Utilisation, diff
from penstock.strategies import Request, strategies
from penstock.testing import FakeRuntime
from penstock.testing.plan_checks import check_complete, check_spots
from penstock.testing.scenarios import wordcount

PARTS = {"big": WORDS, "small": wordcount(2)}


@pytest.mark.parametrize("strategy", ["penstock", "ra", "sra", "ts", "even"])
def test_a_plan_for_all_is_a_plan_for_each(strategy: str) -> None:
    cluster = small_nodes(6)
    request = Request(join_topologies(PARTS), cluster, rng=np.random.default_rng(0))
    plan = strategies.make(strategy).plan(request)
    assert isinstance(plan, Plan)
    parts = split_plan(plan, PARTS)
    for name, part in parts.items():
        own = Request(PARTS[name], cluster)
        check_complete(part, own)
        check_spots(part, own)
    again = join_plans(parts)
    assert diff(plan, again).empty
    answer = strategies.make(strategy).plan(replace(request, running=plan))
    assert isinstance(answer, Keep) or answer.feasible


def test_joined_plans_count_what_a_node_carries_for_all() -> None:
    cluster = small_nodes(4)
    plans = {name: first_plan("even", cluster, t) for name, t in PARTS.items()}
    joined = join_plans(plans)
    for node, load in joined.after.node_load.items():
        each = [p.after.node_load.get(node, 0.0) for p in plans.values()]
        assert load == pytest.approx(sum(each))
    check_spots(joined, Request(join_topologies(PARTS), cluster))


def test_measurements_keep_to_their_topology_and_rate() -> None:
    one = Measurements(
        {"lines": 100.0}, cpu_cores={"count": np.ones(2)}, nodes={"n": Utilisation(0.3)}
    )
    joined = join_measurements({"a": one, "b": replace(one, nodes={"n": Utilisation(0.5, 0.1)})})
    assert joined.source_rates == {"a/lines": 100.0, "b/lines": 100.0}
    assert set(joined.cpu_cores) == {"a/count", "b/count"}
    assert joined.nodes["n"] == Utilisation(0.5, 0.1)
    cluster = small_nodes(2)
    seen = Observation(1.0, 3, cluster, one, arriving_per_s=100.0)
    rising = replace(seen, arriving_per_s=300.0, batch=5)
    both = join_observations({"a": seen, "b": rising})
    assert both.measurements is not None
    assert both.measurements.source_rates == {"a/lines": 100.0, "b/lines": pytest.approx(300.0)}
    assert both.arriving_per_s == 400.0
    unmeasured = replace(seen, measurements=None)
    assert join_observations({"a": seen, "b": unmeasured}).measurements is None


@pytest.mark.parametrize("names", [(), ("",), ("a/b",)])
def test_names_must_tell_the_parts_apart(names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidValue):
        join_topologies(dict.fromkeys(names, WORDS))


class Failing(FakeRuntime):
    broken = False

    def observe(self) -> Observation:
        if self.broken:
            raise RuntimeError("the query died")
        return super().observe()


class Pair:
    """Two topologies on the same nodes under one loop."""

    def __init__(self, rate: float = 1000.0) -> None:
        cluster = small_nodes(4)
        self.level = rate
        self.parts = {
            name: Failing(WORDS, first_plan("penstock", cluster), cluster, lambda _: self.level)
            for name in ("a", "b")
        }
        self.events: dict[int, Event] = {}
        self.failed: list[str] = []
        self.together = JointRuntime(self.parts, lambda name, _: self.failed.append(name))
        self.loop = Loop(
            self.together,
            strategies.make("penstock"),
            Settings(max_nodes=8),
            clock=lambda: 0.0,
            listener=lambda e: self.events.__setitem__(e.number, e),
        )

    def run(self, batches: int) -> None:
        first, second = self.parts.values()
        for _ in range(batches):
            for part in self.parts.values():
                part.run()
            second.cluster = first.cluster
            self.loop.tick()
            second.cluster = first.cluster


def test_one_planner_sees_all_and_nodes_follow_all() -> None:
    pair = Pair()
    pair.run(60)
    low = len(pair.together.observe().cluster)
    plan = pair.together.plan
    assert plan.after.max_node_load <= 0.8 + 1e-9
    pair.level = 3500.0
    pair.run(60)
    high = len(pair.together.observe().cluster)
    pair.level = 1000.0
    pair.run(60)
    assert low < high > len(pair.together.observe().cluster)
    assert not pair.failed


def test_a_runtime_that_fails_drops_out_and_the_others_go_on() -> None:
    pair = Pair(2000.0)
    pair.run(60)
    before = len(pair.parts["a"].cluster)
    pair.parts["b"].broken = True
    pair.run(80)
    assert pair.failed == ["b"]
    assert "died" in str(pair.together.failures["b"])
    assert list(pair.together.plan.parallelism) == [f"a/{n}" for n in WORDS.parallelism]
    # The nodes of the other are not needed any more.
    assert len(pair.parts["a"].cluster) < before
    assert pair.parts["a"].observe().queue_length == 0
    pair.parts["a"].broken = True
    with pytest.raises(PenstockError, match=r"no topology is left.*the query died"):
        pair.run(5)


@pytest.mark.parametrize("method", ["apply", "request_nodes", "release_nodes"])
def test_a_failure_in_an_action_drops_one_and_a_refusal_none(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair()
    together, first = pair.together, pair.parts["a"]
    turned = replace(together.plan, node_of=(together.plan.node_of + 1) % 4)
    argument = {"apply": turned, "request_nodes": 5, "release_nodes": ("node-3",)}[method]
    first.fails[method] = "not today"
    with pytest.raises(ActionFailed, match="not today"):
        getattr(together, method)(argument)
    assert set(together.runtimes) == {"a", "b"}

    def crash(_: object) -> None:
        raise RuntimeError("the session is gone")

    monkeypatch.setattr(first, method, crash)
    getattr(together, method)(argument)
    assert set(together.runtimes) == {"b"}
    assert pair.failed == ["a"]
    assert pair.parts["b"].calls
    together.add("a", first)
    assert set(together.runtimes) == {"a", "b"}
    assert not together.failures


def test_a_plan_is_applied_when_all_have_made_their_portions() -> None:
    pair = Pair()
    together = pair.together
    turned = replace(together.plan, node_of=(together.plan.node_of + 1) % 4)
    pair.parts["a"].portions = 3
    assert [together.apply(turned).left for _ in range(3)] == [True, True, False]
    assert not diff(together.plan, turned).moves


def test_a_plan_is_prepared_when_all_have_prepared_their_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = Pair()
    together, slow = pair.together, pair.parts["a"]
    turned = replace(together.plan, node_of=(together.plan.node_of + 1) % 4)
    slow.ahead_batches = 2
    for done in (False, False, True):
        assert together.prepare(turned) is done
        slow.run()
    assert all(len(part.prepared) == 1 for part in pair.parts.values())
    assert together.prepare(together.plan), "what is in force moves nothing"

    def crash(_: object) -> bool:
        raise RuntimeError("the session is gone")

    monkeypatch.setattr(slow, "prepare", crash)
    assert together.prepare(turned)
    assert pair.failed == ["a"]


def idle_node(pair: Pair) -> str:
    """Name a node that neither uses."""
    used = {pair.together.plan.nodes[i] for i in pair.together.plan.node_of.tolist()}
    return next(name for name in pair.parts["a"].cluster.names if name not in used)


def test_nodes_are_vacated_by_all_before_one_gives_them_up() -> None:
    pair = Pair(200.0)
    name = idle_node(pair)
    pair.together.release_nodes((name,))
    calls = {part: [call[1] for call in r.calls] for part, r in pair.parts.items()}
    assert calls["a"][:2] == ["vacate_nodes", "release_nodes"]
    assert calls["b"] == ["vacate_nodes"]
    assert name not in pair.parts["a"].cluster.index
    assert pair.parts["b"].vacated == {name}


@pytest.mark.parametrize(("part", "method"), [("b", "vacate_nodes"), ("a", "release_nodes")])
def test_nodes_that_are_not_given_up_are_used_as_before(part: str, method: str) -> None:
    pair = Pair(200.0)
    name = idle_node(pair)
    pair.parts[part].fails[method] = "not today"
    if method == "vacate_nodes":
        del pair.parts["b"].fails[method]
        pair.parts["b"].plan = replace(
            pair.parts["b"].plan, nodes=(name, *pair.parts["b"].plan.nodes[1:])
        )
    with pytest.raises(ActionFailed):
        pair.together.release_nodes((name,))
    assert all(not runtime.vacated for runtime in pair.parts.values())
    assert name in pair.parts["a"].cluster.index


def test_only_nodes_that_all_know_are_shared() -> None:
    three = Observation(1.0, 1, small_nodes(3))
    two = replace(three, cluster=small_nodes(2))
    assert join_observations({"a": three, "b": two}).cluster.names == small_nodes(2).names
