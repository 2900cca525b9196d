"""Segments make up versions; fragmented segments are found and forgotten by prefix."""

from __future__ import annotations

import itertools
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import InvalidValue
from penstock.state.backup.catalog import Catalog, FragmentedSegment
from penstock.state.versions import ChainBroken, chain


def block(
    first: int, last: int, *, operator: str = "count", instance: int = 0, topology: str = "t"
) -> FragmentedSegment:
    return FragmentedSegment(topology, operator, instance, first, last, 2, 1, ("a", "b", "c"))


def spans(blocks: tuple[FragmentedSegment, ...]) -> list[tuple[int, int]]:
    return [(one.first, one.last) for one in blocks]


SPANS = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 4)).map(lambda it: (it[0], it[0] + it[1])),
    max_size=9,
    unique=True,
)


def test_a_chain_goes_back_to_the_last_snapshot() -> None:
    parts = [block(0, 0), block(1, 1), block(0, 2), block(3, 3), block(2, 2), block(4, 4)]
    assert spans(chain(parts, 4)) == [(4, 4), (3, 3), (0, 2)]
    assert spans(chain(parts, 2)) == [(0, 2)], "the smallest first wins"
    assert spans(chain(parts, 1)) == [(1, 1), (0, 0)]
    assert chain(parts, -1) == ()


def test_a_run_that_leads_to_a_gap_is_passed_over() -> None:
    parts = [block(0, 5), block(3, 9), block(6, 9)]
    assert spans(chain(parts, 9)) == [(6, 9), (0, 5)]


@pytest.mark.parametrize(
    ("parts", "version", "missing"),
    [
        ([], 0, 0),
        ([(0, 3)], 4, 4),
        ([(0, 3), (5, 5)], 5, 4),
        ([(1, 1), (2, 2)], 2, 0),
        ([(0, 3)], 2, 2),
    ],
)
def test_the_missing_version_is_named(
    parts: list[tuple[int, int]], version: int, missing: int
) -> None:
    with pytest.raises(ChainBroken, match=f"no segment ends at version {missing}") as caught:
        chain([block(*part) for part in parts], version)
    assert (caught.value.version, caught.value.missing) == (version, missing)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@settings(max_examples=300, deadline=None)
@given(SPANS, st.integers(0, 9))
def test_a_chain_covers_every_version_once_and_is_found_when_there_is_one(
    parts: list[tuple[int, int]], version: int
) -> None:
    blocks = [block(*part) for part in parts]
    possible = any(
        covers(subset, version)
        for size in range(1, len(blocks) + 1)
        for subset in itertools.combinations(blocks, size)
    )
    if possible:
        assert covers(chain(blocks, version), version)
    else:
        with pytest.raises(ChainBroken):
            chain(blocks, version)


def covers(blocks: tuple[FragmentedSegment, ...], version: int) -> bool:
    versions = sorted(v for one in blocks for v in range(one.first, one.last + 1))
    return versions == list(range(version + 1))


@settings(max_examples=100, deadline=None)
@given(SPANS)
def test_what_is_retained_is_enough_and_nothing_of_it_can_go(parts: list[tuple[int, int]]) -> None:
    blocks = [block(*part) for part in parts]
    versions = [v for v in range(10) if whole(blocks, v)]
    catalog = Catalog(blocks)
    gone = catalog.retain("t", "count", 0, versions)
    for version in versions:
        assert chain(catalog, version) == chain(blocks, version)
    used = {one for version in versions for one in chain(blocks, version)}
    assert set(catalog) == used
    assert set(gone) == set(blocks) - used


def whole(blocks: list[FragmentedSegment], version: int) -> bool:
    try:
        chain(blocks, version)
    except ChainBroken:
        return False
    return True


def test_retaining_a_version_that_is_broken_says_so() -> None:
    with pytest.raises(ChainBroken):
        Catalog([block(0, 1)]).retain("t", "count", 0, [2])


@pytest.fixture
def catalog() -> Catalog:
    return Catalog(
        block(first, last, operator=operator, instance=instance, topology=topology)
        for topology in ("t", "u")
        for operator in ("count", "rank")
        for instance in (0, 1)
        for first, last in ((0, 0), (1, 1), (0, 1))
    )


def test_every_prefix_finds_what_is_under_it(catalog: Catalog) -> None:
    # Sl Alg. 6, its flag read the right way round: on where a child matches, nothing where none.
    every = tuple(catalog)
    assert len(catalog) == len(every) == 24
    for topology, operator, instance, version in itertools.product(
        ("t", "u"), ("count", "rank"), (0, 1), (0, 1)
    ):
        path = (topology, operator, instance, version)
        for depth in range(1, 5):
            prefix = path[:depth]
            expected = [
                one
                for one in every
                if (one.topology, one.operator, one.instance, one.last)[:depth] == prefix
            ]
            assert list(catalog.find(*prefix)) == expected  # type: ignore[arg-type]
            assert expected


@pytest.mark.parametrize(
    "prefix", [("v",), ("t", "split"), ("t", "count", 2), ("t", "count", 0, 2)]
)
def test_a_prefix_that_is_not_there_finds_nothing(
    catalog: Catalog, prefix: tuple[str, str, int, int]
) -> None:
    assert catalog.find(*prefix) == ()
    assert catalog.forget(*prefix) == ()
    assert len(catalog) == 24


def test_a_prefix_with_a_hole_is_refused(catalog: Catalog) -> None:
    with pytest.raises(InvalidValue, match="given from the left"):
        catalog.find("t", instance=1)


def test_forgetting_takes_what_is_under_a_prefix_and_leaves_the_rest(catalog: Catalog) -> None:
    before = set(catalog)
    gone = catalog.forget("t", "count", 0)
    assert len(gone) == 3
    assert set(catalog) == before - set(gone)
    assert catalog.find("t", "count", 0) == ()
    assert len(catalog.forget("t")) == 9
    assert len(catalog.forget("u")) == 12
    assert catalog == Catalog()


def test_retaining_forgets_what_no_version_needs(catalog: Catalog) -> None:
    assert spans(catalog.retain("t", "count", 0, [1])) == [(0, 0), (1, 1)]
    assert spans(catalog.find("t", "count", 0)) == [(0, 1)]
    assert len(catalog) == 22


def test_a_later_attempt_takes_the_place_of_the_one_before(catalog: Catalog) -> None:
    again = FragmentedSegment("t", "count", 0, 0, 1, 1, 0, ("z",))
    assert catalog.add(again) == block(0, 1)
    assert len(catalog) == 24
    assert again in catalog.find("t", "count", 0, 1)


def test_blocks_make_an_equal_catalogue(catalog: Catalog) -> None:
    assert Catalog(reversed(list(catalog))) == catalog


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (2, 1)])
def test_impossible_versions_are_refused(first: int, last: int) -> None:
    with pytest.raises(InvalidValue, match="0 <= first <= last"):
        block(first, last)


def test_eq_24_is_held() -> None:
    with pytest.raises(InvalidValue, match=r"one for each of 5 fragments \(Sl eq. 24\)"):
        FragmentedSegment("t", "count", 0, 0, 0, 3, 2, ("a", "b"))
