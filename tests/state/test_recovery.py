"""Recovery plans: enough, even, and exact about what is missing."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.backup.catalog import LOST, FragmentedSegment
from penstock.state.backup.erasure_code import Code
from penstock.state.backup.placement import place_fragments
from penstock.state.backup.recovery import Pull, Unrecoverable, plan_recovery

NODES = tuple(f"n{i}" for i in range(12))


def blocks(count: int, r: int = 4, c: int = 2, nodes: int = 12) -> list[FragmentedSegment]:
    made = []
    for version in range(count):
        kept = place_fragments("n0", f"count/{version}", NODES[:nodes], r, c)
        made.append(
            FragmentedSegment("t", "count", 0, version, version, kept.r, kept.c, kept.backup_nodes)
        )
    return made


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(2, 10),
    st.sets(st.sampled_from(NODES)),
    st.sampled_from(NODES),
)
def test_a_plan_rebuilds_or_names_what_is_missing(
    count: int, r: int, c: int, nodes: int, dead: set[str], target: str
) -> None:
    chain = blocks(count, r, c, nodes)
    alive = set(NODES) - dead
    left = {one: [k for k in one.backup_nodes if k in alive] for one in chain}
    # Sl Alg. 5 prints b > r; b == r must do.
    hopeless = [one for one in chain if len(left[one]) < one.r]
    if hopeless:
        with pytest.raises(Unrecoverable) as caught:
            plan_recovery(chain, alive, target)
        assert [it.segment for it in caught.value.missing] == hopeless
        for it in caught.value.missing:
            assert str(it.segment) in str(caught.value)
            assert set(it.lost_with) == set(it.segment.backup_nodes) & dead
        return
    plan = plan_recovery(chain, alive, target)
    for one in chain:
        blob = f"version {one.last}".encode()
        fragments = Code(one.r, one.c).encode(blob)
        pulls = [pull for pull in plan.pulls if pull.segment == one]
        assert len(pulls) == one.r
        assert Code.decode([fragments[pull.index] for pull in pulls]) == blob
        spares = [pull for pull in plan.spares if pull.segment == one]
        assert sorted(p.backup_node for p in pulls + spares) == sorted(left[one])
        for pull in pulls + spares:
            assert one.backup_nodes[pull.index] == pull.backup_node
        if target in left[one]:
            assert target in [pull.backup_node for pull in pulls], "that costs nothing"


def test_exactly_r_are_enough_and_r_minus_1_are_not() -> None:
    (one,) = blocks(1, 3, 2)
    for alive in combinations(one.backup_nodes, 3):
        plan = plan_recovery([one], alive, "n0")
        assert {pull.backup_node for pull in plan.pulls} == set(alive)
        assert not plan.spares
    for few in combinations(one.backup_nodes, 2):
        with pytest.raises(Unrecoverable, match=r"2 of 5 fragments left and needs 3"):
            plan_recovery([one], few, "n0")


@pytest.mark.parametrize("count", [1, 2, 5, 10, 21])
def test_keepers_send_equally_much(count: int) -> None:
    backup_nodes = NODES[1:11]
    chain = [FragmentedSegment("t", "count", 0, v, v, 7, 3, backup_nodes) for v in range(count)]
    sent = Counter(pull.backup_node for pull in plan_recovery(chain, NODES, "n0").pulls)
    assert sum(sent.values()) == 7 * count
    assert max(sent.values()) - min(sent[backup_node] for backup_node in backup_nodes) <= 1


def test_a_large_block_is_made_up_for_by_small_ones() -> None:
    backup_nodes = ("a", "b", "c")
    small = [
        FragmentedSegment("t", "count", 0, v, v, 1, 2, backup_nodes, size_bytes=10)
        for v in range(1, 21)
    ]
    large = FragmentedSegment("t", "count", 0, 0, 0, 1, 2, backup_nodes, size_bytes=100)
    plan = plan_recovery([large, *small], backup_nodes, "x")
    assert plan.pulls[0].segment == large, "in the order of the chain"
    bytes_sent: Counter[str] = Counter()
    for pull in plan.pulls:
        bytes_sent[pull.backup_node] += pull.segment.size_bytes
    assert sorted(bytes_sent.values()) == [100, 100, 100]


def test_pulls_by_sender_are_all_pulls() -> None:
    plan = plan_recovery(blocks(5), NODES, "n0")
    grouped = plan.by_sender()
    assert sorted(map(repr, plan.pulls)) == sorted(repr(p) for ps in grouped.values() for p in ps)
    assert all(
        pull.backup_node == backup_node for backup_node, pulls in grouped.items() for pull in pulls
    )


def test_planning_again_goes_round_bad_fragments() -> None:
    (one,) = blocks(1, 3, 2)
    bad: list[Pull] = []
    for _ in range(2):
        bad.append(plan_recovery([one], NODES, "n0", bad).pulls[0])
        assert not set(bad) & set(plan_recovery([one], NODES, "n0", bad).pulls)
    bad.append(plan_recovery([one], NODES, "n0", bad).pulls[0])
    with pytest.raises(Unrecoverable) as caught:
        plan_recovery([one], NODES, "n0", bad)
    assert set(caught.value.missing[0].lost_with) == {pull.backup_node for pull in bad}


def test_what_is_missing_is_said() -> None:
    first = FragmentedSegment("t", "count", 3, 0, 6, 2, 1, ("a", "b", "c"))
    second = FragmentedSegment("t", "count", 3, 7, 7, 2, 1, (LOST, LOST, "c"))
    third = FragmentedSegment("t", "count", 3, 8, 8, 0, 0, ())
    with pytest.raises(Unrecoverable) as caught:
        plan_recovery([first, second, third], ["c"], "c")
    assert str(caught.value) == (
        "t/count/3/0-6 has 1 of 3 fragments left and needs 2; lost with a, b; "
        "t/count/3/7-7 has 1 of 3 fragments left and needs 2; "
        "lost with nodes that are not known any more; "
        "t/count/3/8-8 was not kept by any other node"
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_nothing_to_recover() -> None:
    plan = plan_recovery([], [], "a")
    assert (plan.pulls, plan.spares, dict(plan.by_sender())) == ((), (), {})
