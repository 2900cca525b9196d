"""Keyed state and its log: a dict is the reference, and every version stays what it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import RoutingTable
from penstock.state import keyed as module
from penstock.state.keyed import KeyCollision, KeyedTable
from penstock.state.log import Epoch, StateLog, StateLost
from penstock.strategies.route.two_tier import TwoTier

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
    assert state.base.size > 0
    assert content(state) == {k: k for k in range(60)}


def test_a_collision_is_loud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "key_hashes", lambda t, by: np.zeros(t.num_rows, dtype=np.uint64))
    state = KeyedTable(("k",)).put(table([(1, 1)]))
    with pytest.raises(KeyCollision, match="shares its hash"):
        state.get(table([(2, 0)]))


def saved(log: StateLog, epoch: Epoch, versions: range) -> KeyedTable:
    state = KeyedTable(("k",))
    for version in versions:
        changed = table([(version, version), (0, version)])
        state = state.put(changed)
        log.save("op", epoch, 0, version, changed, state)
    return state


@pytest.mark.parametrize("version", [0, 1, 19, 20, 21, 44])
def test_every_kept_version_loads(tmp_path: Path, version: int) -> None:
    log, epoch = StateLog(str(tmp_path)), Epoch(0, 1, -1)
    saved(log, epoch, range(version + 1))
    loaded = log.load("op", ("k",), (epoch,), 0, version)
    assert content(loaded) == {k: (version if k == 0 else k) for k in range(version + 1)}


def test_old_files_go(tmp_path: Path) -> None:
    log, epoch = StateLog(str(tmp_path)), Epoch(0, 1, -1)
    saved(log, epoch, range(200))
    assert len(list(tmp_path.rglob("*.arrow"))) <= 2 * module_snapshot_every() + 1


def module_snapshot_every() -> int:
    from penstock.state.log import SNAPSHOT_EVERY

    return SNAPSHOT_EVERY


def test_a_missing_version_is_never_an_empty_start(tmp_path: Path) -> None:
    log, epoch = StateLog(str(tmp_path)), Epoch(0, 1, -1)
    saved(log, epoch, range(5))
    next(tmp_path.rglob("delta-3.arrow")).unlink()
    with pytest.raises(StateLost, match="version 3 is missing"):
        log.load("op", ("k",), (epoch,), 0, 4)
    for file in tmp_path.rglob("snapshot-*.arrow"):
        file.write_bytes(b"not arrow")
    with pytest.raises(StateLost, match="cannot be read"):
        log.load("op", ("k",), (epoch,), 0, 2)
    for file in tmp_path.rglob("*.arrow"):
        file.unlink()
    with pytest.raises(StateLost, match="no snapshot"):
        log.load("op", ("k",), (epoch,), 0, 2)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (4, 7), (7, 3)])
def test_a_new_epoch_deals_every_key_once(tmp_path: Path, before: int, after: int) -> None:
    from penstock.state.keyed import key_hashes
    from penstock.state.log import homes
    from penstock.strategies.route.two_tier import resize

    first = TwoTier(8).table(before)
    second: RoutingTable = resize(first, after)
    old, new = Epoch(0, before, -1, first), Epoch(1, after, 0, second)
    log = StateLog(str(tmp_path))
    whole = table([(k, k * k) for k in range(500)])
    home = homes(key_hashes(whole, ("k",)), old)
    for instance in range(before):
        part = whole.filter(pa.array(home == instance))
        log.save("op", old, instance, 0, part, KeyedTable(("k",)).put(part))
    parts = [log.load("op", ("k",), (old, new), instance, 0) for instance in range(after)]
    assert sum(p.size for p in parts) == 500
    together: dict[int, int] = {}
    for part_of in parts:
        together |= content(part_of)
    assert together == {k: k * k for k in range(500)}
