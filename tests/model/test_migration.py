from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import (
    Cost,
    Diff,
    Edge,
    InvalidValue,
    Kind,
    MigrationStep,
    Move,
    Operator,
    PartitionMove,
    Plan,
    Reason,
    RoutingTable,
    Spot,
    Topology,
    diff,
    schedule,
)
from penstock.testing.generate import topologies

FREE = Cost(0, 0, 0, 0, {}, {}, 0)
CHAIN = Topology(
    "t",
    (Operator("c", parallelism=2), Operator("b", parallelism=3), Operator("a", Kind.SOURCE)),
    (Edge("a", "b"), Edge("b", "c")),
)


def plan(parallelism: dict[str, int], node_of: list[int], **changes: Any) -> Plan:
    values: dict[str, Any] = {
        "strategy": "mine",
        "topology": "t",
        "nodes": ("x", "y", "z"),
        "process_of": np.zeros(len(node_of), dtype=np.int64),
        "after": FREE,
        "reasons": (Reason("because"),),
    }
    return Plan(parallelism=parallelism, node_of=np.array(node_of), **{**values, **changes})


OLD = plan({"c": 2, "b": 3, "a": 1}, [0, 0, 0, 0, 0, 0])


def test_equal_plans_differ_in_nothing() -> None:
    assert diff(OLD, OLD) == Diff()
    assert diff(OLD, OLD).empty
    assert schedule(diff(OLD, OLD), CHAIN) == ()


def test_diff_by_hand() -> None:
    new = plan(
        {"c": 1, "b": 4, "a": 1},
        [0, 0, 1, 0, 1, 0],
        process_of=np.array([0, 0, 0, 1, 0, 0]),
    )
    change = diff(OLD, new)
    assert change.moves == (
        Move("c", 1, Spot("x"), None),
        Move("b", 1, Spot("x"), Spot("y")),
        Move("b", 2, Spot("x"), Spot("x", 1)),
        Move("b", 3, None, Spot("y")),
    )
    assert (change.woken, change.released) == (("y",), ())
    assert (diff(new, OLD).woken, diff(new, OLD).released) == ((), ("y",))
    assert [str(move) for move in change.moves] == [
        "c[1]: x/0 -> gone",
        "b[1]: x/0 -> y/0",
        "b[2]: x/0 -> x/1",
        "b[3]: new -> y/0",
    ]


def test_the_same_names_on_other_positions_do_not_move() -> None:
    reordered = plan({"c": 2, "b": 3, "a": 1}, [2, 2, 2, 2, 2, 2], nodes=("z", "y", "x"))
    assert diff(OLD, reordered).empty


def test_router_partitions_that_change_their_instance() -> None:
    counts = {"c": 2, "b": 3, "a": 1}
    tables = [
        plan(counts, [0] * 6, routing={"c": RoutingTable(parts, split)})
        for parts, split in (((0, 1, 0, 1), {}), ((0, 1, 1, 1), {7: (0, 1)}))
    ]
    change = diff(*tables)
    assert change.partitions == (PartitionMove("c", 2, 0, 1),)
    assert change.split_changed == ("c",)
    assert schedule(change, CHAIN) == (MigrationStep(2, 1, (), change.partitions),)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: diff(OLD, plan({"a": 1}, [0], topology="u")),
            "parameter topology of the next plan must be 't', got 'u'",
        ),
        (
            lambda: diff(
                plan({"c": 1}, [0], routing={"c": RoutingTable((0, 0))}),
                plan({"c": 1}, [0], routing={"c": RoutingTable((0, 0, 0))}),
            ),
            "parameter routing of operator 'c' must be a table of 2 partitions, the number it "
            "started with, got 3",
        ),
        (
            lambda: schedule(Diff((Move("gone", 0, Spot("x"), None),)), CHAIN),
            "parameter moves of a schedule for topology 't' must be of its own operators, "
            "got 'gone'",
        ),
    ],
)
def test_every_error_says_what_is_allowed(make: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        make()
    assert str(caught.value) == message


def test_schedule_by_hand() -> None:
    new = plan({"c": 2, "b": 3, "a": 1}, [1, 1, 1, 1, 1, 1])
    moves = {(m.operator, m.index): m for m in diff(OLD, new).moves}
    assert schedule(diff(OLD, new), CHAIN) == (
        MigrationStep(0, 0, (moves["a", 0],)),
        MigrationStep(1, 0, (moves["b", 0], moves["b", 1])),
        MigrationStep(1, 1, (moves["b", 2],)),
        MigrationStep(2, 0, (moves["c", 0],)),
        MigrationStep(2, 1, (moves["c", 1],)),
    )


@st.composite
def two_plans(draw: st.DrawFn) -> tuple[Topology, Plan, Plan]:
    topology = draw(topologies(cyclic=draw(st.booleans())))
    names = [operator.name for operator in topology.operators]

    def one() -> Plan:
        counts = {name: draw(st.integers(1, 5)) for name in names}
        n = sum(counts.values())
        numbers = st.lists(st.integers(0, 2), min_size=n, max_size=n)
        routed = {
            name: RoutingTable(tuple(draw(st.integers(0, counts[name] - 1)) for _ in range(6)))
            for name in names[-2:]
        }
        processes = np.array(draw(numbers))
        return plan(counts, draw(numbers), process_of=processes, routing=routed)

    return topology, one(), one()


@given(two_plans())
def test_half_of_every_operator_works_on_while_a_step_is_made(
    case: tuple[Topology, Plan, Plan],
) -> None:
    topology, old, new = case
    change = diff(old, new)
    steps = schedule(change, topology)

    made = [move for step in steps for move in step.moves]
    assert len(made) == len(change.moves)
    assert set(made) == set(change.moves)
    routed = [partition for step in steps for partition in step.partitions]
    assert sorted(map(str, routed)) == sorted(map(str, change.partitions))
    order = [(step.layer, step.half) for step in steps]
    assert order == sorted(set(order))

    now: dict[str, dict[int, Spot]] = {
        name: dict(enumerate(spots)) for name, spots in old.placement.items()
    }
    tables = {name: list(table.partitions) for name, table in old.routing.items()}
    for step in steps:
        for move in step.moves:
            assert move.operator in topology.layers[step.layer]
        for name in topology.layers[step.layer]:
            leaving = [m for m in step.moves if m.operator == name and m.origin is not None]
            working = len(now[name]) - len(leaving)
            # The first half leaves half of what there was, the second half of what will be.
            assert working >= (old if step.half == 0 else new).parallelism[name] // 2
        for move in step.moves:
            if move.origin is None:
                assert step.half == 0
                assert move.index not in now[move.operator]
            else:
                assert now[move.operator].pop(move.index) == move.origin
            if move.target is None:
                assert step.half == 1
            else:
                now[move.operator][move.index] = move.target
        for partition in step.partitions:
            tables[partition.operator][partition.partition] = partition.target
        for name, table in tables.items():
            assert set(table) <= set(now[name])
    assert {name: tuple(spots[i] for i in range(len(spots))) for name, spots in now.items()} == {
        **new.placement
    }
