"""Asynchronous backup: the driver has what changed, and backs it up while batches run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from tests.engine.local_run import (
    SUMS,
    LocalRun,
    await_backup,
    fragment_files,
)

from penstock.engine.backend import Stage
from penstock.engine.state import async_backup
from penstock.state import store as store_module


def test_batches_whose_changes_go_to_the_driver_have_no_backup_layer(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", every=3)
    for number in range(9):
        spec = run.driver.transition.spec({}, run.driver.progress.number + 1)
        assert spec.async_backup
        assert not spec.backup_nodes
        await_backup()
        assert bool(fragment_files(run)) is (number >= 3)
        run.batch()
    run.driver.close()
    assert run.result() == SUMS


def test_a_node_is_restored_from_the_driver_alone(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", every=100)
    for _ in range(6):
        run.batch()
    assert not fragment_files(run)
    for index in (0, 1):
        run.backend.lose(run.driver.plan.placement["sum"][index].node)
    took = run.driver.adopt(run.plan(1, 3))
    assert took.restored >= 2
    assert run.result() == SUMS


@pytest.mark.parametrize("every", [1, 2, 100])
def test_what_was_saved_without_backup_nodes_is_backed_up_when_there_are_some(
    tmp_path: Path, every: int
) -> None:
    run = LocalRun(tmp_path, "peers", every=every)
    run.batch(100)
    home = run.driver.plan.placement["sum"][0].node
    run.driver.registry.retiring |= {node for node in run.backend.nodes if node != home}
    run.batch(10)
    run.driver.registry.retiring.clear()
    for _ in range(3):
        run.batch(10)
    run.backend.lose(home)
    assert run.driver.adopt(run.plan(1, 3)).restored
    assert run.result() == SUMS


def test_a_node_is_restored_from_backup_nodes_and_the_driver(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", every=4)
    # All keys, then few of them at a time: what changed is less than half, and is not all written.
    run.batch(100)
    for _ in range(4):
        run.batch(10)
        await_backup()
    blocks = run.driver.registry.segments("sum", 0)
    assert {block.on_driver for block in blocks} == {True, False}
    run.backend.lose(run.driver.plan.placement["sum"][0].node)
    assert run.driver.adopt(run.plan(1, 3)).restored
    assert run.result() == SUMS


def test_after_failed_jobs_batches_store_fragments_themselves(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", every=1 + 1)
    inner = run.backend.job

    def job(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        if background:
            raise OSError("no space left")
        return inner(name, stages, background=background)

    run.backend.job = job  # type: ignore[method-assign]
    told = []
    for _ in range(8):
        run.batch(20)
        await_backup()
        told.append(run.driver.pop_backup_failure())
    assert "OSError: no space left" in told
    assert fragment_files(run), "after two failures, batches end with fragments"
    run.backend.lose(run.driver.plan.placement["sum"][0].node)
    run.driver.adopt(run.plan(1, 3))
    assert run.result() == SUMS


@pytest.mark.parametrize("limit", ["SHORT_BYTES", "MAX_PENDING_BYTES"])
def test_large_changes_are_backed_up_with_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(store_module if limit == "SHORT_BYTES" else async_backup, limit, 100)
    run = LocalRun(tmp_path, "peers", every=100)
    held = []
    for _ in range(8):
        held.append(run.driver.transition.spec({}, run.driver.progress.number + 1).async_backup)
        run.batch(30)
    assert held[0]
    assert not all(held)
    assert fragment_files(run)
    run.backend.lose(run.driver.plan.placement["sum"][0].node)
    run.driver.adopt(run.plan(1, 3))
    assert run.result() == SUMS
