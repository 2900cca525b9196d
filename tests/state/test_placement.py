"""Where fragments are: one a node, evenly, none on the instance's own; and what that survives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import InvalidValue
from penstock.state.backup.erasure_code import Code, TooFewFragments
from penstock.state.backup.placement import (
    FragmentPlacement,
    Tolerance,
    fit_code,
    place_fragments,
    tolerance,
    worst,
)

BLOB = b"what was counted so far"


def names(count: int) -> list[str]:
    return [f"n{i}" for i in range(count)]


def survives(node: str, segments: Iterable[FragmentPlacement], lost: Iterable[str]) -> bool:
    """Encode, lose nodes, and really decode."""
    gone = set(lost)
    if node not in gone:
        return True
    for segment in segments:
        if not segment.backup_nodes:
            return False
        pieces = zip(segment.backup_nodes, Code(segment.r, segment.c).encode(BLOB), strict=True)
        try:
            assert (
                Code.decode([piece for backup_node, piece in pieces if backup_node not in gone])
                == BLOB
            )
        except TooFewFragments:
            return False
    return True


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 14), st.integers(1, 9), st.integers(0, 5), st.text(max_size=8))
def test_one_fragment_per_node_and_none_at_home(n: int, r: int, c: int, key: str) -> None:
    nodes = names(n)
    made = place_fragments("n0", key, nodes, r, c)
    assert (
        len(set(made.backup_nodes))
        == len(made.backup_nodes)
        == made.r + made.c
        == min(r + c, n - 1)
    )
    assert "n0" not in made.backup_nodes
    assert set(made.backup_nodes) <= set(nodes)
    assert made == place_fragments("n0", key, reversed(nodes), r, c), (
        "the order of nodes must not count"
    )


@pytest.mark.parametrize("peers", range(15))
def test_eq_24_keeps_c_as_long_as_r_is_at_least_one(peers: int) -> None:
    r, c = fit_code(7, 3, peers)
    assert r + c == min(10, peers)
    if peers:
        assert r >= 1
        assert c == min(3, peers - 1)


def test_two_nodes_keep_one_copy_and_a_single_one_none() -> None:
    assert place_fragments("a", "x", ["a", "b"]) == FragmentPlacement(1, 0, ("b",))
    assert place_fragments("a", "x", ["a"]) == FragmentPlacement(0, 0, ())


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 9),
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 3), st.text(max_size=4), st.integers(1, 9)),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 8),
)
def test_the_tolerance_is_exact(n: int, codes: list[tuple[int, int, str, int]], moved: int) -> None:
    nodes = names(n)
    # Segments may be older than the newest node, and the instance may have moved to a backup node.
    segments = [place_fragments("n0", key, nodes[:older], r, c) for r, c, key, older in codes]
    node = nodes[moved % n]
    said = tolerance(node, segments, nodes)
    exact(node, segments, said.nodes, [[one] for one in nodes])


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 8), st.data())
def test_the_tolerance_counts_what_is_lost_already(n: int, data: st.DataObject) -> None:
    nodes = names(n)
    segments = [
        place_fragments(
            "n0", "k", nodes, data.draw(st.integers(1, 3)), data.draw(st.integers(0, 3))
        )
    ]
    dead = set(data.draw(st.lists(st.sampled_from(nodes), unique=True)))
    said = tolerance("n0", segments, [node for node in nodes if node not in dead])
    if said.nodes < 0:
        assert not survives("n0", segments, dead)
        assert str(said).startswith("cannot be restored")
    else:
        exact("n0", segments, said.nodes, [[one] for one in nodes if one not in dead], dead)


def exact(
    node: str,
    segments: list[FragmentPlacement],
    said: int,
    groups: Iterable[list[str]],
    dead: Iterable[str] = (),
) -> None:
    """No loss of `said` groups is fatal, and some loss of one more is."""
    every, gone = list(groups), set(dead)
    for lost in combinations(every, said):
        assert survives(node, segments, gone.union(*lost)), f"{lost} should be survived"
    assert any(
        not survives(node, segments, gone.union(*lost)) for lost in combinations(every, said + 1)
    ), f"{said + 1} should not always be survived"


def test_c_losses_are_survived_and_the_home_is_one_more() -> None:
    # "c losses are survived, not fewer than c" (Sl 6.5 has it both ways).
    nodes = names(11)
    made = place_fragments("n0", "count/3", nodes)
    assert (made.r, made.c) == (7, 3)
    assert survives("n0", [made], ["n0", *made.backup_nodes[:3]])
    assert not survives("n0", [made], ["n0", *made.backup_nodes[:4]])
    assert tolerance("n0", [made], nodes).nodes == 4


def test_load_is_even_over_nodes() -> None:
    nodes = names(12)
    kept: Counter[str] = Counter()
    data: Counter[str] = Counter()
    for i in range(1200):
        made = place_fragments(nodes[i % 12], f"topology/op{i % 7}/{i}", nodes, 4, 2)
        kept.update(made.backup_nodes)
        data.update(made.backup_nodes[: made.r])
    for counted in (kept, data):
        mean = sum(counted.values()) / 12
        assert max(counted.values()) < 1.15 * mean
        assert min(counted.values()) > 0.85 * mean


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (Tolerance(4, asked=3), "survives any 4 nodes"),
        (Tolerance(1, 1, 1), "survives any 1 node"),
        (
            Tolerance(0, asked=1, more_nodes=1),
            "survives the loss of no node; 1 was asked for: 1 more node is needed",
        ),
        (
            Tolerance(2, asked=5, more_nodes=3),
            "survives any 2 nodes; 5 were asked for: 3 more nodes are needed",
        ),
        (
            Tolerance(2, asked=3),
            "survives any 2 nodes; 3 were asked for: "
            "what was saved before there were enough nodes is still in use",
        ),
    ],
)
def test_sentences(said: Tolerance, sentence: str) -> None:
    assert str(said) == sentence


@pytest.mark.parametrize("asked", range(1, 6))
@pytest.mark.parametrize("n", range(1, 8))
def test_the_nodes_said_to_be_needed_are_enough_and_not_too_many(n: int, asked: int) -> None:
    def reached(nodes: list[str]) -> Tolerance:
        return tolerance("n0", [place_fragments("n0", "k", nodes, 7, asked)], nodes, asked)

    said = reached(names(n))
    assert (said.nodes >= asked) == (said.more_nodes == 0)
    assert reached(names(n + said.more_nodes)).nodes >= asked
    if said.more_nodes:
        assert reached(names(n + said.more_nodes - 1)).nodes < asked


def test_state_that_nothing_keeps_survives_nothing() -> None:
    assert tolerance("a", [], ["a", "b"]).nodes == 0
    assert tolerance("a", [], ["b"]).nodes == -1
    assert tolerance("a", [FragmentPlacement(0, 0, ())], ["a"]).nodes == 0


def test_the_worst_instance_counts() -> None:
    assert worst([Tolerance(4, 2), Tolerance(1, 3, 2)]) == Tolerance(1, 3, 2)
    with pytest.raises(InvalidValue):
        worst([])


@pytest.mark.parametrize(("r", "c"), [(0, 1), (1, -1)])
def test_impossible_codes_are_refused(r: int, c: int) -> None:
    with pytest.raises(InvalidValue, match="of a fragment placement"):
        place_fragments("a", "k", ["a", "b"], r, c)
