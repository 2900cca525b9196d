"""Keyed state and its log: a dict is the reference, and every version stays what it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import key_hashing
from penstock.common.arrow_keys import KeyCollision
from penstock.state import table as module
from penstock.state.config import StateConfig
from penstock.state.store import StateStore, clear_cache
from penstock.state.table import KeyedTable, changes, removal
from penstock.state.versions import FAN, StateLost

rows = st.lists(st.tuples(st.integers(0, 30), st.integers(-9, 9)), max_size=12)


def table(pairs: list[tuple[int, int]]) -> pa.Table:
    keys, values = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64())})


def content(state: KeyedTable) -> dict[int, int]:
    found = state.rows()
    return {} if found is None else {r["k"]: r["v"] for r in found.to_pylist()}


@given(st.lists(rows, max_size=8))
def test_it_is_a_dict_with_versions(batches: list[list[tuple[int, int]]]) -> None:
    state = KeyedTable(("k",))
    wanted: dict[int, int] = {}
    versions = []
    for pairs in batches:
        state = state.put(table(pairs))
        wanted = {**wanted, **dict(pairs)}
        versions.append((state, dict(wanted)))
    for version, expected in versions:
        assert content(version) == expected
        assert version.size == len(expected)
        asked = version.get(table([(k, 0) for k in range(0, 31, 3)]))
        got = {} if asked is None else {r["k"]: r["v"] for r in asked.to_pylist()}
        assert got == {k: v for k, v in expected.items() if k % 3 == 0}


def test_the_overlay_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MERGE_ROWS", 5)
    state = KeyedTable(("k",))
    for start in range(0, 60, 4):
        state = state.put(table([(k, k) for k in range(start, start + 4)]))
        state = state.compact() if state.due_for_compaction else state
    assert state.base.size > 0
    assert content(state) == {k: k for k in range(60)}


def test_a_collision_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    def zeros(rows: pa.Table, by: tuple[str, ...]) -> Any:
        return np.zeros(rows.num_rows, dtype=np.uint64)

    for where in (module, key_hashing):
        monkeypatch.setattr(where, "key_hashes", zeros)
    state = KeyedTable(("k",)).put(table([(1, 1)]))
    assert content(state) == {1: 1}
    with pytest.raises(KeyCollision, match=r"'k': 1} and {'k': 2} have the same hash"):
        state.get(table([(2, 0)]))
    with pytest.raises(KeyCollision, match=r"'k': 2} and {'k': 1} have the same hash"):
        state.get(table([(1, 0), (2, 0)]))


def saved(root: Path, versions: range, **options: Any) -> StateStore:
    store = StateStore(StateConfig("checkpoint", str(root), **options), root, "t")
    clear_cache()
    state = KeyedTable(("k",))
    for version in versions:
        changed = table([(version, version), (0, version)])
        state = state.put(changed)
        state = store.save("op", 0, version - 1, version, changed, state).state
    clear_cache()
    return store


@pytest.mark.parametrize("version", [0, 1, 7, 8, 21, 64, 70, 150])
def test_every_committed_version_loads(tmp_path: Path, version: int) -> None:
    store = saved(tmp_path, range(version + 1))
    expected = {k: (version if k == 0 else k) for k in range(version + 1)}
    assert content(store.load("op", 0, ("k",), version)) == expected
    if version:
        # The one before it, for a batch that has to be run again.
        before = {k: (version - 1 if k == 0 else k) for k in range(version)}
        assert content(store.load("op", 0, ("k",), version - 1)) == before


def test_old_files_go_and_chains_stay_short(tmp_path: Path) -> None:
    saved(tmp_path, range(600))
    assert len(list(tmp_path.rglob("*.arrow"))) <= 4 * FAN


def test_state_beyond_its_memory_is_mapped(tmp_path: Path) -> None:
    store = StateStore(StateConfig("checkpoint", str(tmp_path), memory_mb=0.5), tmp_path, "t")
    clear_cache()
    rng = np.random.default_rng(0)
    state, expected = KeyedTable(("k",)), {}
    for version in range(12):
        keys = rng.integers(0, 200_000, 30_000)
        changed = pa.table({"k": keys, "v": np.full(len(keys), version)})
        if version % 3 == 2:
            gone = changed.slice(0, 1000).select(["k"])
            removed = set(gone.column("k").to_pylist())
            changed = changes([changed, removal(gone, ("k",))])
        else:
            removed = set()
        state = store.save("op", 0, version - 1, version, changed, state.put(changed)).state
        expected.update(dict.fromkeys(keys.tolist(), version))
        for key in removed:
            expected.pop(key, None)
    assert state.base.rows is not None
    assert state.base.rows.column(0).num_chunks > 1, "it was to be mapped, in chunks"
    assert state.size == len(expected)
    assert content(state) == expected
    asked = pa.table({"k": list(range(0, 200_000, 7))})
    found = state.get(asked)
    assert found is not None
    assert dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == {
        k: v for k, v in expected.items() if k % 7 == 0
    }
    clear_cache()
    assert content(store.load("op", 0, ("k",), 11)) == expected


def test_a_missing_version_is_never_an_empty_start(tmp_path: Path) -> None:
    store = saved(tmp_path, range(5))
    next(tmp_path.rglob("segment-3-3.arrow")).unlink()
    with pytest.raises(StateLost, match="no segment ends at version 3"):
        store.load("op", 0, ("k",), 4)
    for file in tmp_path.rglob("*.arrow"):
        file.write_bytes(b"not arrow")
    with pytest.raises(StateLost, match="is damaged at byte 0"):
        store.load("op", 0, ("k",), 2)


@given(st.lists(st.tuples(st.sampled_from("pr"), st.sets(st.integers(0, 9))), max_size=20))
def test_removal_is_what_a_dict_does(steps: list[tuple[str, set[int]]]) -> None:
    state, expected = KeyedTable(("k",)), {}
    for turn, (kind, keys) in enumerate(steps):
        if kind == "p":
            state = state.put(table([(k, turn) for k in keys]))
            expected.update(dict.fromkeys(keys, turn))
        else:
            state = state.remove(table([(k, 0) for k in keys]))
            for key in keys:
                expected.pop(key, None)
        if turn % 5 == 4:
            state = state.compact()
        assert state.size == len(expected)
        assert content(state) == expected
        found = state.get(table([(k, 0) for k in range(10)]))
        assert {r["k"]: r["v"] for r in ([] if found is None else found.to_pylist())} == expected
        batches = [batch for batch, _ in state.chunks()]
        assert sum(batch.num_rows for batch in batches) == len(expected)


@given(st.lists(st.tuples(st.sampled_from("pr"), st.sets(st.integers(0, 40))), max_size=12))
def test_rows_are_picked_without_putting_all_together(steps: list[tuple[str, set[int]]]) -> None:
    state = KeyedTable(("k",))
    expected: dict[int, int] = {}
    for turn, (kind, keys) in enumerate(steps):
        changed = table([(k, turn) for k in keys])
        state = state.put(changed) if kind == "p" else state.remove(changed)
        for key in keys:
            expected.pop(key, None)
        if kind == "p":
            expected.update(dict.fromkeys(keys, turn))
        if turn == 5:
            state = state.compact()
        found = state.where(lambda rows: np.asarray(rows.column("v")) <= 4)
        picked = [] if found is None else found.to_pylist()
        assert {r["k"]: r["v"] for r in picked} == {k: v for k, v in expected.items() if v <= 4}
        assert len(picked) == len({r["k"] for r in picked})


def test_a_batch_costs_by_what_it_touches_however_much_changed_before() -> None:
    state = KeyedTable(("k",)).put(pa.table({"k": np.arange(200_000), "v": np.zeros(200_000)}))
    state = state.compact()
    merged = []
    for start in range(0, 40_000, 500):
        before = {id(part) for part in state.recent}
        state = state.put(pa.table({"k": np.arange(start, start + 500), "v": np.ones(500)}))
        merged.append(sum(part.size for part in state.recent if id(part) not in before))
    assert len(state.recent) < 10
    assert np.mean(merged) < 500 * 10, "every row is merged a few times, not with every batch"
    assert state.size == 200_000


def test_hashes_are_mapped_from_a_file_that_is_removed_with_its_run(tmp_path: Path) -> None:
    store = StateStore(StateConfig("checkpoint", str(tmp_path), memory_mb=0.5), tmp_path, "t")
    clear_cache()
    state, changed = KeyedTable(("k",)), pa.table({"k": np.arange(50_000), "v": np.arange(50_000)})
    for version in range(3):
        state = store.save("op", 0, version - 1, version, changed, state.put(changed)).state
    names = {path.stem for path in tmp_path.rglob("segment-*.arrow")}
    assert {path.stem for path in tmp_path.rglob("segment-*.hashes")} == names
    assert not state.base.hashes.flags.writeable, "mapped, and only to be read"
    for path in tmp_path.rglob("segment-*.hashes"):
        path.write_bytes(b"of another length")
    clear_cache()
    assert content(store.load("op", 0, ("k",), 2)) == content(state)
