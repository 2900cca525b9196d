"""Pre-copy: state is copied while batches run, and only newer segments migrate later."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.engine.local_run import (
    SUMS,
    LocalRun,
    await_precopy,
    precopied_files,
    precopied_run,
    spoil_gone,
    spoil_length,
    spoil_names,
    spoil_some,
)

from penstock.engine.backend import Stage
from penstock.engine.migration import precopy
from penstock.state.store import clear_cache


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("mode", ["peers", "both"])
@pytest.mark.parametrize("batches", [0, 1, 12])
def test_only_what_is_newer_than_the_copies_is_migrated(
    tmp_path: Path, mode: str, batches: int
) -> None:
    whole = LocalRun(tmp_path / "whole", mode)
    run, plan = precopied_run(tmp_path / "ahead", mode)
    for rows in (200, 10):
        whole.batch(rows)
    before = run.driver.plan
    for _ in range(batches):
        run.batch(3)
        whole.batch(3)
    assert run.driver.plan is before
    assert precopied_files(run), "batches leave it alone"
    clear_cache()
    all_of_it, took = whole.driver.adopt(plan), run.driver.adopt(plan)
    assert took.moved == all_of_it.moved > 0
    assert took.precopied_bytes > 0
    assert took.not_precopied == ""
    assert all_of_it.precopied_bytes == 0
    assert took.state_bytes + took.precopied_bytes == all_of_it.state_bytes
    assert took.state_bytes < all_of_it.state_bytes / 2 or batches == 12
    if not batches:
        assert took.state_bytes == 0
    assert not precopied_files(run), "what was pre-copied was used"
    assert run.result() == whole.result() == SUMS


@pytest.mark.usefixtures("any_size")
def test_what_was_written_again_meanwhile_is_copied_again(tmp_path: Path) -> None:
    run, plan = precopied_run(tmp_path)
    for instance in run.driver.handles["sum"].instances:
        instance.damaged = True
    run.batch(40)
    assert not run.driver.precopy(plan), "the old base is of no use any more"
    await_precopy()
    assert run.driver.precopy(plan)
    took = run.driver.adopt(plan)
    assert (took.state_bytes, took.not_precopied) == (0, "")
    assert took.precopied_bytes > 0
    assert run.result() == SUMS


@pytest.mark.usefixtures("any_size")
def test_passes_come_to_an_end(tmp_path: Path) -> None:
    run, plan = precopied_run(tmp_path)
    for _ in range(precopy.PASSES - 1):
        run.batch(5)
        assert not run.driver.precopy(plan)
        await_precopy()
    run.batch(5)
    assert run.driver.precopy(plan)


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("mode", ["peers", "both"])
@pytest.mark.parametrize("spoil", [spoil_gone, spoil_names, spoil_some, spoil_length])
def test_copies_that_are_not_what_was_said_are_not_used(
    tmp_path: Path, mode: str, spoil: Any
) -> None:
    run, plan = precopied_run(tmp_path, mode)
    spoil(precopied_files(run))
    run.batch(5)
    clear_cache()
    took = run.driver.adopt(plan)
    assert "are gone" in took.not_precopied
    assert took.state_bytes > 0
    assert not precopied_files(run)
    assert run.result() == SUMS


@pytest.mark.usefixtures("any_size")
def test_segments_that_vanish_while_they_are_copied_are_migrated_later(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers")
    for rows in (200, *[4] * 6):
        run.batch(rows)
    job = run.backend.job

    def late(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        if background:
            # Many batches pass until the tasks begin: their segments are merged.
            held.wait(30)
        return job(name, stages, background=background)

    held = threading.Event()
    run.backend.job = late  # type: ignore[method-assign]
    plan = run.plan(1, 3)
    assert not run.driver.precopy(plan)
    for _ in range(12):
        run.batch(4)
        assert not run.driver.precopy(plan)
    held.set()
    await_precopy()
    assert run.driver.adopt(plan).not_precopied == ""
    assert run.result() == SUMS


@pytest.mark.usefixtures("any_size")
def test_a_copy_that_fails_is_told_and_everything_is_migrated(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers")
    run.batch(200)
    job = run.backend.job

    def failing(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        if background:
            raise RuntimeError("the executor is gone")
        return job(name, stages)

    run.backend.job = failing  # type: ignore[method-assign]
    plan = run.plan(1, 3)
    assert not run.driver.precopy(plan)
    await_precopy()
    assert run.driver.precopy(plan), "it is not tried again"
    took = run.driver.adopt(plan)
    assert took.not_precopied == "RuntimeError: the executor is gone"
    assert took.precopied_bytes == 0 < took.state_bytes
    assert run.result() == SUMS


@pytest.mark.usefixtures("any_size")
def test_a_background_job_is_cancelled_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precopy, "GRACE_S", 0.05)
    run = LocalRun(tmp_path, "peers")
    run.batch(200)
    cancelled = threading.Event()

    def stuck(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        assert cancelled.wait(30)
        raise RuntimeError("cancelled")

    run.backend.job = stuck  # type: ignore[method-assign]
    run.backend.cancel_background = cancelled.set  # type: ignore[method-assign]
    assert not run.driver.precopy(run.plan(1, 3))
    run.driver.close()
    assert cancelled.is_set()
    assert not [t for t in threading.enumerate() if t.name == "penstock-precopy"]


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("turn", [0, 2])
def test_copies_of_a_change_that_was_dropped_go(tmp_path: Path, turn: int) -> None:
    run, _ = precopied_run(tmp_path)
    first = set(precopied_files(run))
    assert first
    other = run.plan(turn, 3)
    assert run.driver.precopy(other) is (turn == 0), "the plan in force moves nothing"
    await_precopy()
    while not run.driver.precopy(other):
        await_precopy()
    took = run.driver.adopt(other)
    assert bool(took.precopied_bytes) is (turn == 2)
    run.batch(5)
    assert not precopied_files(run)
    assert run.result() == SUMS


@pytest.mark.usefixtures("any_size")
def test_copies_on_another_executor_are_not_used(tmp_path: Path) -> None:
    run, _ = precopied_run(tmp_path)
    took = run.driver.adopt(run.plan(2, 3))
    assert took.precopied_bytes == 0 < took.state_bytes
    run.batch(5)
    assert not precopied_files(run)
    assert run.result() == SUMS


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("lost", ["old", "new"])
def test_a_node_lost_after_its_state_was_precopied(tmp_path: Path, lost: str) -> None:
    run, plan = precopied_run(tmp_path, parity=2)
    where = run.driver.plan if lost == "old" else plan
    run.backend.lose(where.placement["sum"][0].node)
    run.driver.adopt(run.plan(1, 3))
    assert run.result() == SUMS
    assert not precopied_files(run)


def test_small_state_is_not_precopied(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers")
    run.batch(200)
    assert run.driver.precopy(run.plan(1, 3))
    assert not precopied_files(run)


def test_state_in_a_checkpoint_is_not_precopied(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "checkpoint")
    run.batch(200)
    assert run.driver.precopy(run.plan(1, 3))
