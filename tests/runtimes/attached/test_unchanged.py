"""What of a strategy's plan an unchanged query can have, and what is said as advice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

pytest.importorskip("pyspark")

import numpy as np
from tests.runtimes.attached.test_runtime import Noted, made
from tests.runtimes.attached.texts import SAVE

from penstock.model import Keep, Plan, RoutingTable, diff
from penstock.runtimes.attached.unchanged import ADVICE, Unchanged
from penstock.strategies import Request, strategies


@dataclass(frozen=True)
class Wishes:
    """Wants whatever it is made with."""

    name: ClassVar[str] = "wishes"
    summary: ClassVar[str] = "for tests"
    origin: ClassVar[str] = "tests"

    answer: Plan

    def plan(self, request: Request) -> Plan | Keep:
        return self.answer


def request() -> Request:
    runtime = made(Noted())
    return Request(runtime.topology, runtime.cluster, running=runtime.plan)


def test_placement_of_state_is_taken_and_other_stages_follow_it() -> None:
    asked = request()
    running = asked.running
    assert running is not None
    node_of = np.array([2, 2, 2, 2, 0, 0, 0, 0])
    wanted = replace(running, node_of=node_of, active=())
    found = Unchanged(Wishes(wanted)).plan(asked)
    assert isinstance(found, Plan)
    assert {spot.node for own in found.placement.values() for spot in own} == {"executor-0"}
    assert found.active == ("executor-0",)


def test_more_partitions_are_advice() -> None:
    asked = request()
    counts = {**asked.topology.parallelism, SAVE: 5}
    many = np.zeros(sum(counts.values()), dtype=np.int64)
    plan = asked.running
    assert plan is not None
    wide = replace(plan, parallelism=counts, node_of=many, process_of=many, active=())
    found = Unchanged(Wishes(wide)).plan(asked)
    assert isinstance(found, Plan)
    assert dict(found.parallelism) == dict(asked.topology.parallelism)
    told = [reason.text for reason in found.reasons if reason.text.startswith(ADVICE)]
    assert len(told) == 1
    assert "5 state partitions instead of 2" in told[0]


def test_split_keys_are_advice_and_no_reason_to_move() -> None:
    asked = request()
    assert asked.running is not None
    split = replace(asked.running, routing={SAVE: RoutingTable((0, 1), {7: (0, 1)})})
    found = Unchanged(Wishes(split)).plan(asked)
    assert isinstance(found, Keep)
    assert any("split 1 hot keys" in reason.text for reason in found.reasons)


@pytest.mark.parametrize("name", strategies.names())
def test_every_strategy_plans_a_query(name: str) -> None:
    asked = replace(request(), running=None)
    found = Unchanged(strategies.make(name)).plan(asked)
    assert isinstance(found, Plan)
    assert dict(found.parallelism) == dict(asked.topology.parallelism)
    assert not found.routing
    again = Unchanged(strategies.make(name)).plan(replace(asked, running=found))
    assert isinstance(again, Keep) or not diff(found, again).split_changed
