"""The state part of Sl-Stream to the letter: eq. 24, Alg. 4 to 6, and where print is wrong."""

from __future__ import annotations

from itertools import combinations

import pytest

from penstock.state.backup.catalog import Catalog, FragmentedSegment
from penstock.state.backup.erasure_code import HEADER_BYTES, STRIPE_BYTES, Code, TooFewFragments
from penstock.state.backup.placement import fit_code, place_fragments, tolerance
from penstock.state.backup.recovery import Unrecoverable, plan_recovery

#: The example of section 6.5: eight places, five data and three parity fragments (fig. 13).
EXAMPLE = Code(5, 3)
STATE = b"".join(i.to_bytes(3, "big") for i in range(70_000))


def test_eq_24_in_the_papers_example() -> None:
    assert fit_code(5, 3, peers=8) == (5, 3)
    assert EXAMPLE.total == len(EXAMPLE.encode(STATE)) == 8
    kept = place_fragments("own", "v/0", [f"up{i}" for i in range(8)], 5, 3)
    assert kept.r + kept.c == len(kept.backup_nodes) == 8


@pytest.mark.parametrize("u", range(1, 16))
def test_eq_24_for_every_number_of_places(u: int) -> None:
    for r in range(1, 9):
        for c in range(6):
            made = place_fragments("own", "v/0", [f"up{i}" for i in range(u)], r, c)
            assert made.r + made.c == len(made.backup_nodes) == min(u, r + c)
            assert made.c == min(c, u - 1), "parity fragments go last: they are what is promised"


def test_alg_4_leaves_data_fragments_as_they_are() -> None:
    # The first r rows of the encoding matrix are the unit matrix.
    blob = STATE[: EXAMPLE.r * STRIPE_BYTES // 8]
    share = -(-len(blob) // EXAMPLE.r)
    for i, fragment in enumerate(EXAMPLE.encode(blob)[: EXAMPLE.r]):
        assert fragment[HEADER_BYTES:].endswith(blob[i * share : (i + 1) * share])


def test_alg_4_any_r_rows_of_the_matrix_can_be_inverted() -> None:
    # A Vandermonde matrix under a unit matrix, as printed, does not promise that for every r, c.
    for r, c in ((5, 3), (7, 3), (8, 4), (10, 4)):
        fragments = Code(r, c).encode(b"any r of them")
        for kept in combinations(fragments, r):
            assert Code.decode(kept) == b"any r of them"


def test_alg_5_in_the_papers_example() -> None:
    # B1, B3 and C1 are lost (fig. 14): exactly r are left, where the printed b > r gives up.
    fragments = EXAMPLE.encode(STATE)
    left = [fragments[i] for i in range(8) if i not in (0, 2, 5)]
    assert len(left) == EXAMPLE.r
    assert Code.decode(left) == STATE


@pytest.mark.parametrize("lost", range(9))
def test_alg_5_c_losses_are_survived_and_not_one_more(lost: int) -> None:
    backup_nodes = tuple(f"up{i}" for i in range(8))
    block = FragmentedSegment("t", "v", 0, 0, 0, EXAMPLE.r, EXAMPLE.c, backup_nodes)
    fragments = dict(zip(backup_nodes, EXAMPLE.encode(b"state"), strict=True))
    for gone in combinations(backup_nodes, lost):
        alive = set(backup_nodes) - set(gone)
        left = [fragments[backup_node] for backup_node in sorted(alive)]
        if lost <= EXAMPLE.c:
            plan = plan_recovery([block], alive, "own")
            assert len(plan.pulls) == EXAMPLE.r
            assert Code.decode([fragments[pull.backup_node] for pull in plan.pulls]) == b"state"
            assert Code.decode(left) == b"state"
        else:
            with pytest.raises(Unrecoverable):
                plan_recovery([block], alive, "own")
            with pytest.raises(TooFewFragments):
                Code.decode(left)


def test_the_promise_is_in_nodes_not_in_instances() -> None:
    # Eight upstream instances on four nodes, as the paper would do it, against one per node.
    nodes = ["own", *(f"n{i}" for i in range(8))]
    shared = FragmentedSegment("t", "v", 0, 0, 0, 5, 3, tuple(f"n{i % 4}" for i in range(8)))
    assert tolerance("own", [shared], nodes).nodes == 2, "two besides its own are too many"
    assert tolerance("own", [place_fragments("own", "v/0", nodes, 5, 3)], nodes).nodes == 4


def test_alg_6_goes_on_where_a_child_matches_and_gives_up_where_none_does() -> None:
    def block(topology: str, operator: str, instance: int, version: int) -> FragmentedSegment:
        return FragmentedSegment(
            topology, operator, instance, 0, version, 1, 0, (f"{topology}{instance}",)
        )

    # Names that are right on one level and wrong on another tell the levels apart.
    catalog = Catalog([block("x", "y", 1, 2), block("y", "x", 2, 1), block("x", "z", 2, 2)])
    assert [it.backup_nodes for it in catalog.find("x", "y", 1, 2)] == [("x1",)]
    assert [it.backup_nodes for it in catalog.find("y", "x", 2, 1)] == [("y2",)]
    assert len(catalog.find("x")) == 2
    for absent in (("z",), ("x", "x"), ("y", "y"), ("x", "y", 2), ("y", "x", 1)):
        assert catalog.find(*absent) == ()
    for version in (0, 1, 3):
        assert catalog.find("x", "y", 1, version) == ()
