"""A gain is judged by the figure that a change was made for, and not at another rate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.control.scene import WORDS, first_plan, small_nodes

from penstock.control.evaluate import Assessment, at_rate, evaluate
from penstock.control.gain import Expectation, Gained, expect, judge
from penstock.control.guards import BACK_OFF, DOUBLINGS, Guards
from penstock.control.runtime import Observation
from penstock.model import Cost, Diff, Measurements, PartitionMove, RoutingTable, Utilisation

COST = Cost(0, 0, 100, 10_000.0, {"a": 0.9, "b": 0.3}, {}, 0.5)


def assessed(cost: Cost | None = COST, rate: float = 1000.0, **more: object) -> Assessment:
    seen = Observation(10.0, 10, small_nodes(2))
    made = Assessment(seen, Measurements(), seen.cluster, cost, rate_per_s=rate)
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("after", "figure"),
    [
        (replace(COST, node_load={"a": 0.5, "b": 0.5}), "load"),
        (replace(COST, node_load={"a": 1.0}), "nodes"),
        (replace(COST, communication_us_per_s=5000.0), "communication_us"),
        (replace(COST, communication_us_per_s=5000.0, lin=0.1), "communication_us"),
        (replace(COST, communication_us_per_s=11_000.0, lin=0.1), "lin"),
        (replace(COST, lin=0.49), None),
        (COST, None),
    ],
)
def test_a_change_is_made_for_one_figure(after: Cost, figure: str | None) -> None:
    plan = first_plan("even", small_nodes(2))
    found = expect(assessed(), plan, plan, after, Diff())
    assert (found.figure if found else None) == figure


def test_nothing_is_expected_where_nothing_was_known() -> None:
    plan = first_plan("even", small_nodes(2))
    assert expect(assessed(None), plan, plan, COST, Diff()) is None


def test_new_tables_are_made_for_the_imbalance_that_they_end() -> None:
    plan = first_plan("even", small_nodes(2))
    plan = replace(plan, parallelism=WORDS.with_parallelism({"count": 8}).parallelism)
    old = RoutingTable((0, 0, *range(2, 8)))
    split = RoutingTable((0, 1, *range(2, 8)), {8: (0, 1)})
    rates = np.array([6.0, 2.0, *[2.0] * 6])
    demand = Measurements(
        partition_rates={"count": rates}, hot_keys={"count": {8: 4.0}}, source_rates={"lines": 20}
    )
    running, target = (replace(plan, routing={"count": t}) for t in (old, split))
    change = Diff(partitions=(PartitionMove("count", 1, 0, 1),), split_changed=("count",))
    found = expect(assessed(demand=demand), running, target, COST, change)
    assert found is not None
    assert found.figure == "lit"
    assert found.before == pytest.approx(8 / 2.5 - 1)
    assert found.predicted == pytest.approx(4 / 2.5 - 1)


@pytest.mark.parametrize(
    ("real", "came"), [(0.5, True), (0.65, True), (0.75, False), (0.9, False), (1.2, False)]
)
def test_half_of_the_gain_must_come(real: float, came: bool) -> None:
    expected = Expectation("load", 0.9, 0.5, rate_per_s=1000.0)
    now = assessed(replace(COST, node_load={"a": real}))
    assert judge(expected, now).came is came
    # The same load at a fifth more tuples is a smaller one.
    assert judge(expected, replace(now, rate_per_s=1200.0)).real == pytest.approx(real / 1.2)


@pytest.mark.parametrize(
    ("expected", "now"),
    [
        (None, assessed()),
        (Expectation("load", 0.9, 0.5, rate_per_s=1000.0), assessed(None)),
        (Expectation("load", 0.9, 0.5, rate_per_s=2000.0), assessed()),
        (Expectation("lit", 0.9, 0.5, "count", 1000.0), assessed()),
    ],
)
def test_what_cannot_be_told_is_not(expected: Expectation | None, now: Assessment) -> None:
    gained = judge(expected, now)
    assert gained.came is None
    assert Gained.from_dict(gained.to_dict()) == gained


def test_fewer_nodes_are_no_gain_when_they_are_overloaded() -> None:
    expected = Expectation("nodes", 3, 2, rate_per_s=1000.0)
    assert judge(expected, assessed()).came is True
    assert judge(expected, assessed(replace(COST, node_load={"a": 1.1, "b": 1}))).came is False


def test_nodes_that_were_to_be_levelled_are_looked_at() -> None:
    expected = Expectation("lin", 0.5, 0.1, rate_per_s=1000.0)
    assert judge(expected, assessed(replace(COST, lin=0.2))).came is True
    gained = judge(expected, assessed(replace(COST, lin=0.4)))
    assert gained.came is False
    assert "LIN" in gained.text


def test_communication_is_counted_for_a_tuple() -> None:
    expected = Expectation("communication_us", 20.0, 10.0, rate_per_s=900.0)
    assert judge(expected, assessed()).real == pytest.approx(10.0)
    assert judge(expected, assessed()).came


def test_a_back_off_grows_to_a_bound_and_is_forgotten_on_success() -> None:
    guards = Guards()
    waits = []
    for _ in range(12):
        guards = guards.disappointed("x", 100, 10, "why")
        waits.append(guards.disappointments["x"].until_batch - 100)
    assert waits[:3] == [10 * BACK_OFF, 20 * BACK_OFF, 40 * BACK_OFF]
    assert waits[-1] == 10 * BACK_OFF * 2**DOUBLINGS
    assert guards.refuses("x", 101)
    assert guards.refuses("x", 10**9) is None
    assert guards.satisfied("x").refuses("x", 101) is None


def test_what_others_take_is_remembered_while_nobody_measures() -> None:
    cluster = small_nodes(2)
    plan = first_plan("even", cluster)
    uses = {"node-0": Utilisation(cpu=1.0), "node-1": Utilisation(cpu=0.5)}
    seen = Measurements(source_rates={"lines": 1000.0}, nodes=uses)
    observation = Observation(0.0, 0, cluster, seen, arriving_per_s=1000.0)
    first = evaluate(observation, WORDS, plan)
    assert first.slow == {"node-0"}
    assert first.cluster.nodes[0].cpu_cores < 0.5
    blind = replace(observation, measurements=replace(seen, nodes={}))
    assert evaluate(blind, WORDS, plan, first).slow == {"node-0"}
    calm = replace(seen, nodes={name: Utilisation(cpu=0.25) for name in uses})
    assert not evaluate(replace(observation, measurements=calm), WORDS, plan, first).taken


def test_what_comes_counts_and_not_what_full_nodes_get_to() -> None:
    seen = Measurements(
        {"lines": 100.0},
        cpu_cores={"count": np.ones(2)},
        hot_keys={"count": {3: 10.0}},
        partition_rates={"count": np.ones(4)},
    )
    assert at_rate(seen, 110.0) is seen
    assert at_rate(seen, 0.0) is seen
    more = at_rate(seen, 250.0)
    assert more.cpu_cores["count"].tolist() == [2.5, 2.5]
    assert more.hot_keys["count"][3] == 25.0
    assert more.partition_rates["count"].tolist() == [2.5] * 4


def test_the_imbalance_of_parts_is_seen_too() -> None:
    split = WORDS["split"]
    parts = replace(
        WORDS,
        operators=tuple(
            replace(o, splittable=True) if o.name == split.name else o for o in WORDS.operators
        ),
    )
    plan = first_plan("even", small_nodes(2), parts)
    seen = Measurements(tuples_per_s={"split": np.array([8.0] + [0.0] * 7)})
    found = evaluate(Observation(1.0, 1, small_nodes(2), seen), parts, plan)
    assert found.lit["split"] == pytest.approx(7.0)
