"""Every plan between two plans is sound, and the last one is the target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.control.scene import WORDS, small_nodes

from penstock.control.offer import (
    median_node,
    prefer_live,
    renamed,
    without_unused_spares,
)
from penstock.control.rollout import limited, plan_after, priced, stages_of
from penstock.control.runtime import SPARE
from penstock.model import Cluster, Node, Plan, Reason, RoutingTable, diff, schedule
from penstock.strategies import Request, make_plan
from penstock.strategies.route.two_tier import TwoTier, resize
from penstock.testing.plan_checks import check_complete, check_spots

NODES = small_nodes(3)


def plan_of(counts: tuple[int, int, int], seed: int, table: RoutingTable | None) -> Plan:
    topology = WORDS.with_parallelism(dict(zip(WORDS.parallelism, counts, strict=True)))
    rng = np.random.default_rng(seed)
    node_of = rng.integers(0, len(NODES), sum(counts))
    request = Request(topology, NODES)
    routing = {"count": resize(table, counts[2])} if table is not None else {}
    zeros = np.zeros(sum(counts), dtype=np.int64)
    return make_plan(request, "test", node_of, zeros, [Reason("drawn")], routing=routing)


COUNTS = st.tuples(st.integers(1, 4), st.integers(1, 6), st.integers(1, 6))


@given(COUNTS, COUNTS, st.integers(0, 99), st.booleans())
def test_plans_on_the_way_are_complete_and_route_to_instances_that_are_there(
    old: tuple[int, int, int], new: tuple[int, int, int], seed: int, routed: bool
) -> None:
    table = TwoTier(4).table(old[2]) if routed else None
    running, target = plan_of(old, seed, table), plan_of(new, seed + 1, table)
    change = diff(running, target)
    steps = schedule(change, WORDS)
    made = stages_of(running, target, steps, WORDS, lambda p: priced(p, WORDS, NODES, None))
    request = Request(WORDS, NODES)
    for stage in made:
        check_complete(stage.plan, request)
        check_spots(stage.plan, request)
    assert made[-1].plan is target
    assert sum(len(stage.moves) for stage in made) == len(change.moves)
    # Only `count` has state: its two halves, and all else with them.
    assert len(made) <= 2
    for stage in made:
        halves = [m for m in stage.moves if m.operator == "count" and m.origin and m.target]
        assert len(halves) <= (min(old[2], new[2]) + 1) // 2
    before = running
    for stage in made:
        moved = {(m.operator, m.index) for m in diff(before, stage.plan).moves}
        assert moved == {(m.operator, m.index) for m in stage.moves}
        before = stage.plan


@given(st.integers(1, 12), st.integers(0, 99))
def test_a_limit_cuts_to_the_first_moves(most: int, seed: int) -> None:
    running, target = plan_of((4, 6, 6), seed, None), plan_of((4, 6, 6), seed + 1, None)
    steps = limited(schedule(diff(running, target), WORDS), most)
    reached = plan_after(running, target, steps)
    check_complete(reached, Request(WORDS, NODES))
    moved = diff(running, reached).moves
    assert len(moved) == min(most, len(diff(running, target).moves))
    assert not {(m.operator, m.index) for m in diff(reached, target).moves} & {
        (m.operator, m.index) for m in moved
    }


def test_nothing_to_move_is_one_stage() -> None:
    running = plan_of((1, 1, 2), 0, TwoTier(4).table(2))
    split = replace(running.routing["count"], split={7: (0, 1)})
    target = replace(running, routing={"count": split})
    change = diff(running, target)
    (stage,) = stages_of(running, target, schedule(change, WORDS), WORDS, lambda p: p)
    assert stage.plan is target


def test_spare_nodes_get_the_names_of_those_that_came() -> None:
    plan = plan_of((2, 3, 3), 0, None)
    spare = renamed(plan, {"node-1": f"{SPARE}0"})
    assert diff(renamed(spare, {f"{SPARE}0": "node-1"}), plan).empty
    assert renamed(spare, {f"{SPARE}0": "node-1"}) == plan
    assert f"{SPARE}0" in spare.after.node_load


def test_idle_nodes_are_taken_before_spare_ones_of_their_shape() -> None:
    like = replace(NODES.nodes[0], name=f"{SPARE}0")
    small = replace(NODES.nodes[0], name="weak", cpu_cores=0.2)
    cluster = Cluster((*NODES.nodes, small, like))
    zeros = np.zeros(20, dtype=np.int64)
    node_of = np.array([0] * 10 + [4] * 10)
    plan = make_plan(Request(WORDS, cluster), "test", node_of, zeros, [Reason("drawn")])
    better = without_unused_spares(prefer_live(plan, cluster))
    assert better.active == ("node-0", "node-1")
    assert f"{SPARE}0" not in better.nodes
    assert better.after.node_load["node-1"] == pytest.approx(plan.after.node_load[f"{SPARE}0"])


def test_a_spare_node_is_like_the_median_one() -> None:
    nodes = [Node(str(i), cpu_cores=c) for i, c in enumerate((8, 1, 2, 2, 16))]
    assert median_node(Cluster(tuple(nodes))).cpu_cores == 2
