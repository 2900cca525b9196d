"""State that is lost with its executor is restored: from fragments, the driver, a checkpoint."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tests.engine.local_run import (
    NODES,
    SUMS,
    LocalRun,
    crash_in_next_batch,
    fragment_files,
    without_copies,
)

from penstock.engine.driver.driver import Driver
from penstock.engine.state.backup import fragment_messages
from penstock.model import Cluster, InvalidValue
from penstock.runtimes.local import LocalBackend
from penstock.state.backup import fragments as fragments_module
from penstock.state.config import StateConfig
from penstock.state.files.filesystem import RemoteFiles
from penstock.state.store import clear_cache
from penstock.state.versions import Segment, StateLost


@pytest.mark.parametrize("mode", ["peers", "both"])
@pytest.mark.parametrize("lost", [1, 2])
@pytest.mark.parametrize("inband", [True, False])
def test_a_lost_node_is_restored_from_its_backup(
    tmp_path: Path, mode: str, lost: int, inband: bool
) -> None:
    run = LocalRun(tmp_path, mode, parity=2)
    for _ in range(5):
        run.batch()
    assert "survives any 3 nodes" in str(run.driver.survives())
    victims = {run.driver.plan.placement["sum"][i].node for i in range(lost)}
    for node in victims:
        run.backend.lose(node)
    took = run.driver.adopt(run.plan(1, 3), inband=inband)
    assert took.restored >= lost
    assert took.state_bytes > 0
    run.batch()
    assert "survives any" in str(run.driver.survives())
    assert run.result() == SUMS


def test_corrupt_and_missing_fragments_count_as_lost(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", parity=2)
    for _ in range(4):
        run.batch()
    victim = run.driver.plan.placement["sum"][0].node
    run.backend.lose(victim)
    fragments = sorted((tmp_path / "nodes").rglob("fragments/sum/0/*"))
    by_run: dict[str, list[Path]] = {}
    for path in fragments:
        by_run.setdefault(path.stem, []).append(path)
    for paths in by_run.values():
        paths[0].write_bytes(b"\0" + paths[0].read_bytes()[1:])
        paths[1].unlink()
    run.driver.adopt(run.plan(1, 3))
    assert run.result() == SUMS


def test_too_few_fragments_are_named(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", parity=1)
    run.batch()
    before = run.driver.plan
    run.backend.lose(run.driver.plan.placement["sum"][0].node)
    for path in (tmp_path / "nodes").rglob("fragments/sum/0/*"):
        path.unlink()
    with pytest.raises(StateLost, match=r"sum\[0\]: versions 0-0"):
        run.driver.adopt(run.plan(1, 3))
    assert run.driver.plan is before, "the plan in force stays in force"


def test_the_checkpoint_helps_where_peers_cannot(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "both", parity=1)
    run.batch()
    run.backend.lose(run.driver.plan.placement["sum"][0].node)
    for path in (tmp_path / "nodes").rglob("fragments/sum/0/*"):
        path.unlink()
    run.driver.adopt(run.plan(1, 3))
    assert run.result() == SUMS


def test_what_was_restored_from_damaged_fragments_is_backed_up_again(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", data=1, parity=1)
    for rows in (40, 5, 5):
        run.batch(rows)
    instance = run.driver.handles["sum"].instances[0]
    for path in (tmp_path / "nodes").rglob("fragments/sum/0/*.0"):
        path.unlink()
    run.backend.lose(instance.executor.partition("/")[0])
    # An executor that stores none of its fragments, so that only the damage asks for new ones.
    backup_nodes = {
        k
        for block in run.driver.registry.catalog.find("sums", "sum", 0)
        for k in block.backup_nodes
    }
    plans = [run.plan(turn, 3) for turn in range(NODES)]
    run.driver.adopt(next(p for p in plans if str(p.placement["sum"][0]) not in backup_nodes))
    assert instance.damaged
    run.batch(2)
    assert not instance.damaged
    kept = {p.name for p in (tmp_path / "nodes").rglob("fragments/sum/0/*")}
    assert {
        f"{b.first}-{b.last}.0of1.0" for b in run.driver.registry.catalog.find("sums", "sum", 0)
    } <= kept
    assert run.result() == SUMS


@pytest.mark.parametrize(
    ("mode", "every", "said"),
    [
        ("peers", 1, "survives any 3 nodes"),
        ("peers", 3, "survives any 3 nodes; the driver holds what changed of late"),
        ("checkpoint", 1, "all of it is in the checkpoint at "),
        ("both", 1, "survives any 3 nodes; all of it is in the checkpoint at "),
    ],
)
def test_the_promise_says_what_is_survived(
    tmp_path: Path, mode: str, every: int, said: str
) -> None:
    run = LocalRun(tmp_path, mode, parity=2, every=every)
    assert run.driver.promise() == ""
    said_of_batches = set()
    for _ in range(9):
        run.batch(20)
        said_of_batches.add(run.driver.promise())
    assert len(said_of_batches) == 1, "it is an event whenever it changes"
    assert said_of_batches.pop().startswith(said)


def test_the_promise_follows_losses(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", parity=2)
    run.batch()
    for node in run.backend.nodes[2:]:
        run.backend.lose(node)
    run.driver.adopt(run.plan(0, 3))
    run.batch()
    assert "survives any 1 node; 2 were asked for: 1 more node" in run.driver.promise()


def test_state_never_starts_empty(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers")
    run.batch()
    before = run.driver.handles["sum"].instances[0].version
    without_copies(run, "sum")
    for path in fragment_files(run):
        path.unlink()
    with pytest.raises(StateLost, match=r"cannot be restored from its backup: sum\[\d\]"):
        run.batch()
    assert run.driver.batch == 0, "nothing of the batch was committed"
    assert run.driver.handles["sum"].instances[0].version == before
    assert set(run.sink.batches) == {0}


def test_state_that_is_gone_from_a_node_comes_back_from_the_checkpoint(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "both")
    run.batch()
    for vertex in ("sum", "again"):
        without_copies(run, vertex)
        run.batch()
    assert run.result() == SUMS


def test_a_copy_that_is_gone_is_moved_from_the_checkpoint(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "both")
    run.batch()
    without_copies(run, "sum")
    run.driver.adopt(run.plan(1, 3))
    assert run.result() == SUMS


def test_state_never_goes_back_when_every_batch_should_be_kept(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers")
    run.batch()
    home = run.driver.plan.placement["sum"][0].node
    run.driver.registry.retiring |= {node for node in run.backend.nodes if node != home}
    run.batch()
    run.backend.lose(home)
    with pytest.raises(StateLost, match="its backup is of version 0"):
        run.driver.adopt(run.plan(1, 3))


@pytest.mark.usefixtures("small_parts")
def test_segments_are_sent_and_stored_in_parts(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", parity=2)
    for _ in range(3):
        run.batch(100)
    assert not any("of1." in path.name for path in fragment_files(run))
    run.backend.lose(run.driver.plan.placement["sum"][0].node)
    for path in fragment_files(run):
        # One fragment of every part.
        if path.name.endswith(".0"):
            path.unlink()
    took = run.driver.adopt(run.plan(1, 3))
    assert took.restored
    assert took.moved
    assert run.result() == SUMS
    assert not list(run.backend.root.glob("*/incoming-*"))


@pytest.mark.usefixtures("small_parts")
def test_a_part_that_is_missing_is_noticed(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", parity=1)
    run.batch(100)
    run.backend.lose(run.driver.plan.placement["sum"][0].node)
    for path in fragment_files(run):
        if ".1of" in path.name:
            path.unlink()
    with pytest.raises(StateLost, match=r"sum\[0\]: versions 0-0"):
        run.driver.adopt(run.plan(1, 3))


def test_coding_holds_one_part_in_memory_at_a_time(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", parity=1)
    spec = run.driver.transition.spec({}, 1)
    content = bytes(8 * fragments_module.PART_BYTES)
    tracemalloc.start()
    try:
        size = sum(
            len(m.piece.content)
            for _, m in fragment_messages(spec, "sum", 0, Segment(0, 0), content)
        )
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > len(content)
    assert most < 5 * fragments_module.PART_BYTES


@pytest.mark.parametrize("mode", ["checkpoint", "both"])
def test_a_new_driver_goes_on_from_the_checkpoint(tmp_path: Path, mode: str) -> None:
    run = LocalRun(tmp_path, mode)
    for instances in (3, 5):
        run.driver.adopt(run.plan(1, instances))
        run.batch()
    for node in list(run.backend.nodes):
        run.backend.lose(node)
    again = LocalBackend(tmp_path / "later", Cluster.of(3).names)
    run.backend = again
    run.driver = Driver(
        run.job_graph, again, tmp_path, run.plan(0, 2), state_config=run.state_config
    )
    assert run.driver.positions() == {"rows": (80,)}
    assert run.result() == SUMS


@pytest.mark.parametrize("mode", ["checkpoint", "both"])
def test_a_checkpoint_may_be_an_address(tmp_path: Path, mode: str) -> None:
    run = LocalRun(tmp_path, "checkpoint")
    far = f"file://{tmp_path}/far"
    run.state_config = StateConfig(mode, shared=f"{far}/state")
    run.driver = Driver(
        run.job_graph, run.backend, far, run.plan(0, 3), state_config=run.state_config
    )
    for turn, instances in enumerate((3, 5, 5)):
        run.driver.adopt(run.plan(turn, instances))
        for _ in range(4):
            run.batch(10)
    assert list((tmp_path / "far").rglob("commit-log/commits/*.json"))
    runs = list((tmp_path / "far" / "state" / "sum").rglob("*-*"))
    assert 5 <= len(runs) <= 5 * 20, "old runs go"
    for node in list(run.backend.nodes):
        run.backend.lose(node)
    again = LocalBackend(tmp_path / "later", Cluster.of(3).names)
    run.backend = again
    run.driver = Driver(run.job_graph, again, far, run.plan(0, 2), state_config=run.state_config)
    assert run.driver.positions() == {"rows": (120,)}
    assert run.result() == SUMS


def test_an_address_that_nothing_opens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="a file system that Arrow can open"):
        RemoteFiles("nosuch://place/folder")


def test_state_kept_by_peers_alone_does_not_outlive_its_driver(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers")
    run.batch()
    with pytest.raises(StateLost, match="kept by its executors alone"):
        Driver(
            run.job_graph,
            run.backend,
            tmp_path,
            run.driver.plan,
            state_config=StateConfig("peers"),
        )


def scaled(run: LocalRun) -> None:
    run.driver.adopt(run.plan(1, 5))
    run.driver.adopt(run.plan(1, 2))


def inband(run: LocalRun) -> None:
    run.driver.adopt(run.plan(1, 5), inband=True)


def retired(run: LocalRun) -> None:
    run.driver.retire([run.backend.nodes[-1]])


@pytest.mark.parametrize("mode", ["checkpoint", "both"])
@pytest.mark.parametrize("change", [scaled, inband, retired])
def test_a_driver_may_die_right_after_a_change(tmp_path: Path, mode: str, change: Any) -> None:
    run = LocalRun(tmp_path, mode)
    run.batch()
    run.batch()
    change(run)
    crash_in_next_batch(run)
    clear_cache()
    run.backend = LocalBackend(tmp_path / "later", Cluster.of(3).names)
    run.driver = Driver(
        run.job_graph, run.backend, tmp_path, run.plan(0, 2), state_config=run.state_config
    )
    assert run.driver.pending() == {"rows": ((80, 120),)}
    assert run.result() == SUMS


@pytest.mark.parametrize("inband", [True, False])
def test_a_batch_that_was_begun_is_remembered_through_a_change(
    tmp_path: Path, inband: bool
) -> None:
    run = LocalRun(tmp_path, "checkpoint")
    run.batch()
    crash_in_next_batch(run)
    run.driver.adopt(run.plan(1, 5), inband=inband)
    again = LocalBackend(tmp_path / "later", Cluster.of(3).names)
    later = Driver(run.job_graph, again, tmp_path, run.plan(0, 2), state_config=run.state_config)
    assert later.pending() == {"rows": ((40, 80),)}
