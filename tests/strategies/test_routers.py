"""Routers: the contract over the registry, and each one's own promises by hand."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.key_hashing import BLOCK
from penstock.model import InvalidValue, NotAllowed, RoutingTable
from penstock.model.load import lit
from penstock.strategies.route import Destination, Router, combine, hash_keys, routers
from penstock.strategies.route.fill import level_counts
from penstock.strategies.route.hash import Hash
from penstock.strategies.route.hot_key import HotKey
from penstock.strategies.route.partial_key import PartialKey, two_choices
from penstock.strategies.route.two_tier import TwoTier, rebalance, resize
from penstock.testing.broken import ContractBroken
from penstock.testing.routers import ROUTER_CHECKS, Check, check_router

WRAP = 2**64
SEED, GOLDEN = 0x5DEECE66D2B4A1C7, 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@pytest.mark.parametrize("check", ROUTER_CHECKS.values(), ids=ROUTER_CHECKS)
@pytest.mark.parametrize("name", routers.names())
def test_contract(name: str, check: Check) -> None:
    check(routers.make(name))


class Broken(Hash):
    """Sends everything one instance too far."""

    def route_hashes(self, hashes, to):  # type: ignore[no-untyped-def]
        return super().route_hashes(hashes, to) + 1


def test_contract_finds_what_is_broken() -> None:
    with pytest.raises(ContractBroken, match="from 0 to"):
        check_router(Broken())


def mixed(value: int) -> int:
    """splitmix64's finaliser, one number at a time."""
    value = (value + GOLDEN) % WRAP
    value = (value ^ (value >> 30)) * FIRST % WRAP
    value = (value ^ (value >> 27)) * SECOND % WRAP
    return value ^ (value >> 31)


def hashed(key: int | str) -> int:
    """The hash of one key in plain Python."""
    if isinstance(key, int):
        return mixed((key % WRAP) ^ SEED)
    data = key.encode("utf-8", "surrogatepass")
    words = [data[i : i + 8] for i in range(0, max(len(data), 1), 8)]
    numbers = [int.from_bytes(word, "little") for word in words]
    total = sum((n ^ (n >> 29)) * factor(i) for i, n in enumerate(numbers))
    return mixed((total % WRAP ^ SEED) + len(data) * SECOND)


def factor(position: int) -> int:
    """Multiplier of a word."""
    return mixed(SEED + position * GOLDEN) | 1


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_numbers_hash_as_one_by_one(keys: list[int]) -> None:
    assert hash_keys(np.array(keys, dtype=np.int64)).tolist() == [hashed(k) for k in keys]


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\0"), max_size=40), min_size=1))
def test_strings_hash_as_one_by_one(keys: list[str]) -> None:
    expected = [hashed(key) for key in keys]
    assert hash_keys(keys).tolist() == expected
    assert hash_keys(np.array(keys)).tolist() == expected


def test_arrow_strings_hash_as_one_by_one() -> None:
    arrow = pytest.importorskip("pyarrow")
    keys = [chr(97 + i % 26) * (i % 40) for i in range(2000)] + ["é" * 300, "日本" * 50]
    assert hash_keys(arrow.array(keys)).tolist() == [hashed(key) for key in keys]


@pytest.mark.parametrize("length", [0, 5, 8, 36, 128, 129, 300])
def test_strings_of_one_length_hash_as_one_by_one(length: int) -> None:
    """Keys at equal distances are read another way; three blocks, and a slice in the middle."""
    arrow = pytest.importorskip("pyarrow")
    keys = [f"{i:0{length}d}"[:length] for i in range(2 * BLOCK + 3)]
    column = arrow.array(keys)
    whole = hash_keys(column)
    for i in (0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 2):
        assert whole[i] == hashed(keys[i])
    assert (hash_keys(column.slice(7, BLOCK)) == whole[7 : 7 + BLOCK]).all()
    assert (hash_keys(np.array(keys)) == whole).all()
    assert (hash_keys(np.array(keys).astype("S")) == whole).all()


def test_the_end_of_a_buffer_is_not_passed() -> None:
    """A buffer that ends with its last key, as one of another library may."""
    arrow = pytest.importorskip("pyarrow")
    ends = arrow.py_buffer(np.array([0, 3, 12], np.int32).tobytes())
    keys = arrow.Array.from_buffers(
        arrow.string(), 2, [None, ends, arrow.py_buffer(b"abcdefghijkl")]
    )
    assert hash_keys(keys).tolist() == [hashed("abc"), hashed("defghijkl")]


def test_keys_that_look_alike_do_not_collide() -> None:
    """Digits up in one word and down in another, and bits that flip in several words at once."""
    digits = [f"{a:08d}{b:08d}" for a in range(300) for b in range(300)]
    assert len(np.unique(hash_keys(digits))) == len(digits)
    swapped = [f"{a:08d}-{b:08d}-{c:08d}" for a, b, c in itertools.permutations(range(40), 3)]
    assert len(np.unique(hash_keys(swapped))) == len(swapped)
    words = np.array([0, 1 << 63, 1 << 31, 1 << 7, (1 << 63) | (1 << 31)], dtype="<u8")
    flipped = [b"".join(four) for four in itertools.product((w.tobytes() for w in words), repeat=4)]
    assert len(np.unique(hash_keys(flipped))) == len(flipped)


def test_every_bit_of_a_string_changes_half_of_its_hash() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, (2000, 20), dtype=np.uint8)
    before = hash_keys([row.tobytes() for row in rows])
    for bit in range(160):
        other = rows.copy()
        other[:, bit // 8] ^= np.uint8(1 << (bit % 8))
        changed = before ^ hash_keys([row.tobytes() for row in other])
        flips = np.unpackbits(changed.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
        assert 0.44 < flips.min() <= flips.max() < 0.56


def test_hashes_are_the_same_in_every_process() -> None:
    code = (
        "from penstock.strategies.route import hash_keys; print(hash_keys(['stable', '']).tolist())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert seen == {f"[{hashed('stable')}, {hashed('')}]\n"}


def test_arrow_times_structs_nulls_and_views() -> None:
    arrow = pytest.importorskip("pyarrow")
    days = arrow.array([1, 2, None], arrow.date32())
    assert hash_keys(days)[:2].tolist() == [hashed(1), hashed(2)]
    assert hash_keys(days)[2] == hash_keys(arrow.array([None, "a"]))[0] == hash_keys([None])[0]
    at = arrow.array([5], arrow.timestamp("us", tz="UTC"))
    assert hash_keys(at).tolist() == [hashed(5)]
    both = arrow.StructArray.from_arrays([arrow.array(["a", "b"]), arrow.array([1, 2])], ["x", "y"])
    assert (hash_keys(both) == combine([hash_keys(["a", "b"]), hash_keys([1, 2])])).all()
    assert hash_keys(arrow.array(["v"], arrow.string_view())).tolist() == [hashed("v")]
    assert hash_keys(arrow.array([True])).tolist() == [hashed(1)]
    assert len(hash_keys(arrow.chunked_array([], arrow.string()))) == 0
    assert len(hash_keys(arrow.array([], arrow.string()))) == 0
    assert hash_keys(arrow.array([0.5])).tolist() == hash_keys(np.array([0.5])).tolist()
    assert hash_keys([0.5]).tolist() == hash_keys(np.array([0.5], np.float32)).tolist()
    with pytest.raises(NotAllowed, match="map"):
        hash_keys(arrow.array([[("a", 1)]], arrow.map_(arrow.string(), arrow.int64())))
    with pytest.raises(InvalidValue, match="Table"):
        hash_keys(arrow.table({"a": [1]}))


def test_order_of_fields_counts() -> None:
    one, two = hash_keys([1]), hash_keys([2])
    assert combine([one, two]) != combine([two, one])


def test_a_table_is_not_a_column() -> None:
    with pytest.raises(InvalidValue, match="one column"):
        hash_keys(np.zeros((2, 2), dtype=np.int64))


@pytest.mark.parametrize("name", routers.names())
def test_a_million_keys(name: str) -> None:
    """Well under 100 ms on an idle machine; the bound here forgives a busy one."""
    router: Router = routers.make(name)
    keys = np.random.default_rng(0).integers(0, 2**40, 1_000_000)
    start = time.process_time()
    router.route(keys, Destination(16))
    assert time.process_time() - start < 0.3


# Two tiers.


def test_partition_by_hash_then_instance_by_table() -> None:
    """Eq. 27-28: the hash modulo the partitions, looked up."""
    table = RoutingTable((2, 0, 1, 1, 0))
    keys = list(range(50))
    expected = [table.partitions[hashed(key) % 5] for key in keys]
    assert TwoTier().route(keys, Destination(3, table)).tolist() == expected


def test_first_table_is_the_hash() -> None:
    keys = np.arange(1000)
    table = TwoTier().table(6)
    assert len(table.partitions) == 6 * 64
    routed = TwoTier().route(keys, Destination(6, table))
    assert (routed == Hash().route(keys, Destination(6))).all()


def test_split_keys_go_where_least_of_the_batch_goes() -> None:
    hot, warm = hashed("hot"), hashed("warm")
    table = RoutingTable((0,), {hot: (1, 3), warm: (2, 0, 1)})
    keys = ["hot", "cold", "warm", "hot", "warm", "hot", "warm", "cold"]
    # Two cold ones at 0. Three hot ones at 1 and 3; then the warm ones level 2, 1 and 0.
    went = TwoTier().route(keys, Destination(4, table)).tolist()
    assert [i for i, key in zip(went, keys, strict=True) if key == "hot"] == [1, 1, 3]
    assert [i for i, key in zip(went, keys, strict=True) if key == "warm"] == [2, 2, 2]
    # What does not come out even begins elsewhere next time.
    later = TwoTier().route(keys, Destination(4, table, position=1)).tolist()
    assert [i for i, key in zip(later, keys, strict=True) if key == "hot"] == [1, 3, 3]


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.integers(0, 5000), st.integers(0, 9)
)
def test_pouring_levels_the_lowest(loads: list[int], tuples: int, turn: int) -> None:
    before = np.array(loads, dtype=np.int64)
    counts = level_counts(before, tuples, turn)
    after = before + counts
    assert counts.min() >= 0
    assert int(counts.sum()) == tuples
    # Whoever got something is no higher than the lowest of all, but for the one that was left over.
    assert not tuples or after[counts > 0].max() <= after.min() + 1


def test_a_split_key_levels_a_batch_that_chance_made_uneven() -> None:
    rng = np.random.default_rng(1)
    keys = np.where(rng.random(4000) < 0.2, 7, rng.integers(100, 1100, 4000))
    table = replace(TwoTier().table(6), split={int(hash_keys([7])[0]): tuple(range(6))})
    assert lit(np.bincount(TwoTier().route(keys, Destination(6))).astype(float)) > 0.1
    assert lit(np.bincount(TwoTier().route(keys, Destination(6, table))).astype(float)) < 0.01


def test_tables_name_instances_that_exist() -> None:
    with pytest.raises(InvalidValue, match="of instances from 0 to 1"):
        Destination(2, RoutingTable((0, 2)))
    with pytest.raises(InvalidValue, match="of instances from 0 to 1"):
        Destination(2, RoutingTable((0, 1), {7: (0, 5)}))
    with pytest.raises(InvalidValue, match="instances"):
        Destination(0)
    with pytest.raises(InvalidValue, match="loads"):
        Destination(2, loads=np.zeros(3))
    with pytest.raises(InvalidValue, match="position"):
        Destination(2, position=-1)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 6))
def test_resize_moves_only_what_it_must(old: int, new: int, each: int) -> None:
    table = TwoTier(each).table(old)
    resized = resize(table, new)
    held = Counter(resized.partitions)
    counts = [held[i] for i in range(new)]
    assert len(resized.partitions) == len(table.partitions)
    assert max(counts) - min(counts) <= 1
    moved = sum(a != b for a, b in zip(table.partitions, resized.partitions, strict=True))
    # A new instance must get its share from others, and the share of one that goes must leave it.
    even, rest = divmod(old * each, new)
    least = (new - old) * even + max(rest - old, 0) if new > old else (old - new) * each
    assert moved == least
    assert resize(resized, new) == resized


def test_resize_keeps_what_is_left_of_splits() -> None:
    table = RoutingTable((0, 1, 2), {1: (0, 1, 2), 2: (1, 2), 3: (0, 1)})
    assert resize(table, 2).split == {1: (0, 1), 3: (0, 1)}
    with pytest.raises(InvalidValue, match="at least 1"):
        resize(table, 0)


# Rebalancing.


def carried(partitions: tuple[int, ...], loads: np.ndarray, instances: int) -> np.ndarray:
    return np.bincount(partitions, weights=loads, minlength=instances)


def test_nothing_moves_below_chi() -> None:
    """Loads 30, 10, 20: mean 20, LIT = max(10/20, 10/20) = 0.5."""
    table, loads = RoutingTable((0, 1, 2)), np.array([30.0, 10.0, 20.0])
    kept = rebalance(table, loads, 3, chi=0.5)
    assert kept.table is table
    assert not kept.moves
    assert kept.reasons[0].figures["lit"] == 0.5
    assert rebalance(RoutingTable((0, 0, 1, 2)), np.array([15.0, 15, 10, 20]), 3, chi=0.4).moves


def test_eq_29_by_hand() -> None:
    """Mean 10, chi 1: the bound is 20; instance 0 carries 26 and must shed at least 6."""
    table = RoutingTable((0, 0, 0, 0, 1, 2))
    loads = np.array([10.0, 7.0, 5.0, 4.0, 3.0, 1.0])
    done = rebalance(table, loads, 3, operator="count")
    assert [(m.partition, m.origin, m.target) for m in done.moves] == [(1, 0, 2)]
    assert done.moves[0].operator == "count"
    assert done.table.partitions == (0, 2, 0, 0, 1, 2)
    assert done.reasons[0].figures["lit_after"] == pytest.approx(0.9)


def test_a_hot_partition_is_told() -> None:
    done = rebalance(RoutingTable((0, 1, 2, 0)), np.array([90.0, 1.0, 1.0, 4.0]), 3)
    assert any("splitting" in r.text for r in done.reasons)
    assert lit(carried(done.table.partitions, np.array([90.0, 1, 1, 4]), 3)) < lit(
        np.array([94.0, 1.0, 1.0])
    )
    alone = rebalance(RoutingTable((0, 1, 2)), np.array([90.0, 1.0, 1.0]), 3)
    assert not alone.moves
    assert "no move lowers it" in alone.reasons[0].text


def test_other_loads_count() -> None:
    table, loads = RoutingTable((0, 0, 1, 2)), np.array([4.0, 4.0, 4.0, 4.0])
    assert not rebalance(table, loads, 3).moves
    done = rebalance(table, loads, 3, other_loads=np.array([30.0, 0.0, 0.0]))
    assert {m.origin for m in done.moves} == {0}


@pytest.mark.parametrize(
    ("loads", "instances", "chi", "parameter"),
    [
        ([1.0], 2, 1.0, "partition_loads"),
        ([1.0, -1.0], 2, 1.0, "partition_loads"),
        ([1.0, 1.0], 2, -1.0, "chi"),
        ([1.0, 1.0], 1, 1.0, "table"),
    ],
)
def test_rebalance_refuses(loads: list[float], instances: int, chi: float, parameter: str) -> None:
    with pytest.raises(InvalidValue, match=parameter):
        rebalance(RoutingTable((0, 1)), np.array(loads), instances, chi)


@given(
    st.integers(2, 8).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.tuples(st.integers(0, n - 1), st.floats(0, 100)), min_size=1, max_size=60),
        )
    ),
    st.floats(0, 3),
)
def test_rebalance_never_makes_it_worse(
    drawn: tuple[int, list[tuple[int, float]]], chi: float
) -> None:
    instances, rows = drawn
    table = RoutingTable(tuple(home for home, _ in rows))
    loads = np.array([load for _, load in rows])
    before = lit(carried(table.partitions, loads, instances))
    done = rebalance(table, loads, instances, chi)
    after = lit(carried(done.table.partitions, loads, instances))
    assert after <= before
    if before <= chi:
        assert not done.moves
    if done.moves:
        assert after < before
    changed = {
        p
        for p, (a, b) in enumerate(zip(table.partitions, done.table.partitions, strict=True))
        if a != b
    }
    assert changed == {m.partition for m in done.moves}


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), min_size=3, max_size=6),
    st.sampled_from([0.25, 0.5, 0.8, 1.0]),
)
def test_the_smallest_sufficient_set(rows: list[tuple[int, int]], chi: float) -> None:
    table = RoutingTable(tuple(home for home, _ in rows))
    loads = np.array([float(load) for _, load in rows])
    done = rebalance(table, loads, 3, chi)
    sufficient = [
        sum(a != b for a, b in zip(table.partitions, other, strict=True))
        for other in itertools.product(range(3), repeat=len(rows))
        if lit(carried(other, loads, 3)) <= chi * (1 + 1e-9)
    ]
    if sufficient:
        assert len(done.moves) == min(sufficient)
        assert lit(carried(done.table.partitions, loads, 3)) <= chi * (1 + 1e-6)


def test_a_large_table_is_quick() -> None:
    rng = np.random.default_rng(0)
    table = TwoTier().table(100)
    loads = rng.zipf(1.5, len(table.partitions)).clip(max=2000).astype(float)
    start = time.process_time()
    done = rebalance(table, loads, 100, chi=0.5)
    assert time.process_time() - start < 5
    assert done.reasons


# Partial key.


@given(st.lists(st.integers(0, 5), max_size=100), st.integers(2, 6))
def test_partial_key_is_the_lighter_of_two(keys: list[int], instances: int) -> None:
    """As long as a batch has no more tuples than rounds, it is the paper's rule to the letter."""
    loads = [0] * instances
    expected = []
    for key in keys:
        a, b = (int(c[0]) for c in two_choices(hash_keys([key]), instances))
        chosen = b if loads[b] < loads[a] else a
        loads[chosen] += 1
        expected.append(chosen)
    assert PartialKey().route(keys, Destination(instances)).tolist() == expected


def test_partial_key_stays_near_it_in_rounds() -> None:
    keys = np.random.default_rng(0).zipf(1.5, 50_000) % 1000
    exact = PartialKey(rounds=50_000).route(keys, Destination(8))
    rough = PartialKey(rounds=256).route(keys, Destination(8))
    one, two = (np.bincount(went, minlength=8).max() for went in (exact, rough))
    assert two <= one + 2 * 50_000 / 256
    assert one < np.bincount(Hash().route(keys, Destination(8)), minlength=8).max()


def test_two_choices_differ() -> None:
    first, second = two_choices(hash_keys(np.arange(1000)), 3)
    assert (first != second).all()
    assert {*second.tolist()} == {0, 1, 2}


# Hot keys.


def test_hot_keys_are_shuffled_and_cold_ones_hashed() -> None:
    keys = ["hot", "a", "hot", "b", "hot", "hot"]
    hot = frozenset([hashed("hot")])
    went = HotKey().route(keys, Destination(3, hot=hot, position=2))
    assert went[[0, 2, 4, 5]].tolist() == [2, 0, 1, 2]
    assert went[[1, 3]].tolist() == [hashed("a") % 3, hashed("b") % 3]


def test_hot_is_above_the_threshold() -> None:
    """Of 100 tuples and 4 instances, an even share is 25 and 0.2 of it 5: more than 5 is hot."""
    keys = ["a"] * 6 + ["b"] * 5 + [f"c{i}" for i in range(89)]
    assert HotKey().hot(hash_keys(keys), 4) == {hashed("a")}
