"""Single flipped bits, anywhere in a checkpoint: the same result or a clear error."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock import functions as F
from penstock.common.errors import PenstockError
from penstock.engine.driver.commit_log import CommitLogDamaged
from penstock.engine.driver.driver import Driver
from penstock.engine.job_graph import JobGraph
from penstock.model import Cluster, Plan
from penstock.pipeline import Memory, Pipeline, Rows
from penstock.runtimes.local import LocalBackend, run_to_end
from penstock.state.config import StateConfig
from penstock.state.files import checksum
from penstock.state.files.checksum import ChecksumWriter, Damaged, verify
from penstock.state.files.filesystem import folder_name
from penstock.state.files.local import LocalSegments
from penstock.state.store import StateStore, clear_cache
from penstock.state.table import KeyedTable
from penstock.state.versions import Segment, StateLost
from penstock.strategies import Request, strategies

ROWS = 300
DATA = pa.table({"k": [f"w{i % 23}" for i in range(ROWS)], "v": list(range(ROWS))})
SUMS = {f"w{r}": sum(v for v in range(ROWS) if v % 23 == r) for r in range(23)}
CUTS = list(range(30, ROWS, 30))


def flip(path: Path, offset: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1 << bit
    path.write_bytes(content)


def job(sink: Memory) -> tuple[JobGraph, Plan]:
    pipeline = (
        Pipeline("sums")
        .source("rows", Rows(DATA), parallelism=1)
        .aggregate("sum", by="k", n=F.count(), t=F.sum("v"), parallelism=1)
        .sink("out", sink)
    )
    graph = JobGraph.of(pipeline)
    plan = strategies.make("even").plan(Request(graph.topology(1), Cluster.of(1)))
    assert isinstance(plan, Plan)
    return graph, plan


def driver_on(root: Path, sink: Memory, **state_config: Any) -> Driver:
    graph, plan = job(sink)
    backend = LocalBackend(root / "nodes", Cluster.of(1).names)
    return Driver(graph, backend, root, plan, state_config=StateConfig(sync=False, **state_config))


def totals(sink: Memory) -> dict[str, int]:
    return {row["k"]: row["t"] for row in sink.latest("k").to_pylist()}


def half_a_run(root: Path) -> Memory:
    """Run some batches, and begin one more."""
    sink = Memory()
    driver = driver_on(root, sink)
    run_to_end_of(driver, 5)
    driver.progress.begin({"ranges": {"rows": [[150, 180]]}})
    clear_cache()
    return sink


def run_to_end_of(driver: Driver, batches: int) -> None:
    for number in range(batches):
        driver.run_batch({"rows": ((number * 30, number * 30 + 30),)})


def go_on(root: Path, before: Memory) -> tuple[dict[str, int] | str, Driver | None]:
    """Start again; return the result, or the error."""
    clear_cache()
    sink = Memory(batches=dict(before.batches))
    try:
        driver = driver_on(root, sink)
        run_to_end(driver, CUTS)
    except PenstockError as error:
        return str(error), None
    return totals(sink), driver


def test_a_flipped_bit_anywhere_gives_the_same_result_or_a_clear_error(tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    before = half_a_run(origin)
    files = sorted(p.relative_to(origin) for p in origin.rglob("*") if p.is_file())
    kinds = {str(path.parent).split("/")[0] + path.suffix for path in files}
    assert kinds == {"commit-log.json", "state.arrow"}
    random_ = random.Random(7)
    equal = refused = 0
    for number, name in enumerate(files):
        size = (origin / name).stat().st_size
        for offset in random_.sample(range(size), min(size, 8)):
            root = tmp_path / f"{number}-{offset}"
            shutil.copytree(origin, root)
            flip(root / name, offset, random_.randrange(8))
            found, _ = go_on(root, before)
            if isinstance(found, str):
                assert name.name in found, f"{name} at {offset}: the file is not named: {found}"
                assert "damaged" in found
                refused += 1
            else:
                assert found == SUMS, f"{name} at byte {offset}"
                equal += 1
            shutil.rmtree(root)
    assert equal > 60, "damage that does not matter, or that there is a way round, is no error"
    assert refused > 5


def test_the_commit_before_a_damaged_one_is_used(tmp_path: Path) -> None:
    before = half_a_run(tmp_path)
    newest = max((tmp_path / "commit-log" / "commits").iterdir())
    flip(newest, 5, 3)
    found, driver = go_on(tmp_path, before)
    assert found == SUMS
    assert driver is not None
    notes = driver.progress.commit_log.notes
    assert any("set aside" in note and newest.name in note for note in notes)
    # Once more: what was set aside is left alone.
    assert driver_on(tmp_path, Memory()).next_batch == driver.next_batch == 10


def test_the_version_before_damaged_state_is_used(tmp_path: Path) -> None:
    before = half_a_run(tmp_path)
    newest = max(tmp_path.rglob("segment-*.arrow"), key=lambda p: int(p.stem.split("-")[2]))
    flip(newest, 40, 0)
    found, driver = go_on(tmp_path, before)
    assert found == SUMS
    assert driver is not None
    assert any(newest.name in note for note in driver.progress.commit_log.notes)


def test_a_run_does_not_start_when_all_commits_are_damaged(tmp_path: Path) -> None:
    before = half_a_run(tmp_path)
    for path in (tmp_path / "commit-log" / "commits").iterdir():
        flip(path, 9, 1)
    sink = Memory(batches=dict(before.batches))
    with pytest.raises(CommitLogDamaged, match=r"000004\.json is damaged at byte 0: the checksum"):
        driver_on(tmp_path, sink)
    assert sink.batches == before.batches, "results stay"


def test_stray_files_in_the_commit_log_are_ignored_with_a_note(tmp_path: Path) -> None:
    before = half_a_run(tmp_path)
    for folder in ("offsets", "commits", "epochs"):
        for name in ("notes.txt", "12.json", "000000000001.json~", "x.json"):
            (tmp_path / "commit-log" / folder / name).write_text("?")
    found, driver = go_on(tmp_path, before)
    assert found == SUMS
    assert driver is not None
    assert any("notes.txt is not an entry" in note for note in driver.progress.commit_log.notes)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../../etc", "ä" * 200, ".hidden"])
def test_an_operator_never_writes_outside_its_folder(tmp_path: Path, name: str) -> None:
    root = tmp_path / "inner" / "state"
    store = StateStore(StateConfig("checkpoint", str(root), sync=False), root, "t")
    clear_cache()
    changed = pa.table({"k": [1], "v": [2]})
    store.save(name, 0, -1, 0, changed, KeyedTable(("k",)).put(changed))
    clear_cache()
    rows = store.load(name, 0, ("k",), 0).rows()
    assert rows is not None
    assert rows.to_pylist() == [{"k": 1, "v": 2}]
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert [p.parent.parent for p in files] == [root / folder_name(name)]
    assert folder_name(name) not in ("..", ".", "")


def test_damage_is_located_to_the_block(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 100)
    path = tmp_path / "file"
    with path.open("wb") as out:
        writer = ChecksumWriter(out)
        for length in (1, 99, 100, 250, 7):
            writer.write(bytes(range(250))[:length])
        writer.finish()
    sound = path.read_bytes()
    assert verify(sound) == 457
    for offset in range(len(sound)):
        for bit in range(8):
            spoilt = bytearray(sound)
            spoilt[offset] ^= 1 << bit
            with pytest.raises(Damaged) as caught:
                verify(bytes(spoilt))
            if offset < 457:
                assert caught.value.offset == offset // 100 * 100
            else:
                assert caught.value.offset >= 457
    for length in range(len(sound)):
        with pytest.raises(Damaged):
            verify(sound[:length])
    with pytest.raises(Damaged):
        verify(sound + b"\0")


def test_every_byte_of_a_segment_and_of_its_hashes_is_covered(tmp_path: Path) -> None:
    files = LocalSegments(str(tmp_path))
    keys = np.arange(50)
    state = KeyedTable(("k",)).put(pa.table({"k": keys, "v": keys * 3}))
    files.write("op", 0, Segment(0, 0), state)
    path = files.path("op", 0, Segment(0, 0))
    expected = sorted((r["k"], r["v"]) for r in (state.rows() or pa.table({})).to_pylist())
    for name in (path, path.with_suffix(".hashes")):
        sound = name.read_bytes()
        for offset in range(len(sound)):
            flip(name, offset, offset % 8)
            if name == path:
                with pytest.raises(StateLost, match=f"{path} is damaged at byte"):
                    files.load("op", 0, ("k",), 0, mapped_from=1)
            else:
                # The hashes of a damaged file are made again from the rows.
                found = files.load("op", 0, ("k",), 0, mapped_from=1)
                rows = found.get(pa.table({"k": keys}))
                assert rows is not None
                assert sorted((r["k"], r["v"]) for r in rows.to_pylist()) == expected
            name.write_bytes(sound)


def peers_on(root: Path, sink: Memory, mode: str) -> tuple[Driver, LocalBackend]:
    pipeline = (
        Pipeline("sums")
        .source("rows", Rows(DATA), parallelism=1)
        .aggregate("sum", by="k", n=F.count(), t=F.sum("v"), parallelism=2)
        .sink("out", sink)
    )
    graph, cluster = JobGraph.of(pipeline), Cluster.of(4)
    plan = strategies.make("even").plan(Request(graph.topology(1), cluster))
    assert isinstance(plan, Plan)
    backend = LocalBackend(root / "nodes", cluster.names)
    config = StateConfig(mode, parity=1, every=1, sync=False)
    return Driver(graph, backend, root, plan, state_config=config), backend


@pytest.mark.parametrize("mode", ["peers", "both"])
@pytest.mark.parametrize("spoil", ["flip", "remove"])
def test_damaged_state_of_a_living_node_is_restored(tmp_path: Path, mode: str, spoil: str) -> None:
    sink = Memory()
    driver, backend = peers_on(tmp_path, sink, mode)
    for number in range(10):
        driver.run_batch({"rows": ((number * 30, number * 30 + 30),)})
        clear_cache()
        files = sorted(backend.root.glob("*/state/sum/*/segment-*.arrow"))
        assert files
        victim = files[number % len(files)]
        if spoil == "flip":
            flip(victim, number * 37 % victim.stat().st_size, number % 8)
        else:
            victim.unlink()
    assert totals(sink) == SUMS
    assert sorted(sink.batches) == list(range(10))


def test_damaged_state_without_enough_of_a_backup_is_an_error(tmp_path: Path) -> None:
    sink = Memory()
    driver, backend = peers_on(tmp_path, sink, "peers")
    for number in range(3):
        driver.run_batch({"rows": ((number * 30, number * 30 + 30),)})
    clear_cache()
    for path in backend.root.glob("*/state/sum/0/segment-*.arrow"):
        flip(path, 70, 2)
    for path in backend.root.glob("*/fragments/sum/0/*"):
        flip(path, 50, 2)
    with pytest.raises(StateLost, match=r"sum\[0\]"):
        driver.run_batch({"rows": ((90, 120),)})
    assert sorted(sink.batches) == [0, 1, 2]
