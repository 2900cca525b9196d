"""In-band migration: state migrates with a batch, or else the plan before stays in force."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.engine.local_run import (
    NODES,
    SUMS,
    LocalRun,
    crash_in_next_batch,
    executors,
    precopied_files,
    precopied_run,
    spoil_gone,
    spoil_length,
    spoil_names,
    spoil_some,
    start_again,
)

from penstock.common.arrays import frozen_ints
from penstock.engine.backend import Stage
from penstock.engine.migration.inband import InbandMigration
from penstock.state.store import clear_cache
from penstock.state.versions import StateLost


@pytest.mark.usefixtures("small_parts")
def test_state_migrates_with_the_batch_and_no_job_is_run_for_it(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", every=100)
    run.batch(200)
    before, plan = executors(run), run.plan(1, 3)

    def job(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        raise AssertionError(f"no batch can run while jobs {name}")

    run.backend.job = job  # type: ignore[method-assign]
    told = run.driver.adopt(plan, inband=True)
    assert (told.state_bytes, told.moved) == (0, 5)
    assert told.inband_bytes > 0
    assert executors(run) == before, "the plan before is in force until it is committed"
    assert "survives" in run.driver.promise()
    result = run.driver.run_batch({"rows": ((200, 210),)})
    assert result.inband is not None
    assert (result.inband.moved, result.inband.failed, result.inband.not_precopied) == (5, "", "")
    assert result.inband.inband_bytes == told.inband_bytes
    assert executors(run) == [str(spot) for spot in plan.placement["sum"]] != before
    assert not list(run.backend.root.glob("*/incoming-*"))
    run.position = 210
    assert run.result() == SUMS


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("mode", ["peers", "both"])
def test_what_was_precopied_is_not_sent_again(tmp_path: Path, mode: str) -> None:
    run, plan = precopied_run(tmp_path, mode)
    run.batch(3)
    told = run.driver.adopt(plan, inband=True)
    clear_cache()
    run.position += 3
    inband = run.driver.run_batch({"rows": ((run.position - 3, run.position),)}).inband
    assert inband is not None
    assert inband.precopied_bytes == told.precopied_bytes > 0
    assert 0 < inband.inband_bytes == told.inband_bytes < inband.precopied_bytes
    assert not precopied_files(run)
    assert run.result() == SUMS


def test_state_is_repartitioned_with_the_batch(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers")
    run.batch(200)
    told = run.driver.adopt(run.plan(2, 5), inband=True)
    assert told.repartitioned == 5
    assert told.moved > 0
    run.position += 5
    inband = run.driver.run_batch({"rows": ((200, 205),)}).inband
    assert inband is not None
    assert inband.inband_bytes > 0
    assert len(run.driver.handles["sum"].instances) == 5
    assert "survives any 2 nodes" in run.driver.promise()
    assert run.result() == SUMS


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("instances", [2, 3, 5])
@pytest.mark.parametrize("again", [True, False])
def test_a_batch_that_fails_leaves_the_plan_before_in_force(
    tmp_path: Path, instances: int, again: bool
) -> None:
    run, _ = precopied_run(tmp_path)
    before, homes = run.driver.plan, executors(run)
    plan = run.plan(1, instances)
    run.driver.adopt(plan, inband=True)
    crash_in_next_batch(run)
    del run.backend.run
    assert executors(run)[:3] == homes[: len(executors(run))]
    if not again:
        run.driver.adopt(before, inband=True)
    run.batch()
    assert run.driver.plan.parallelism["sum"] == (instances if again else 3)
    assert run.result() == SUMS


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("spoil", [spoil_gone, spoil_names, spoil_some, spoil_length])
def test_state_that_is_not_received_migrates_before_the_batch(tmp_path: Path, spoil: Any) -> None:
    run, plan = precopied_run(tmp_path)
    spoil(precopied_files(run))
    clear_cache()
    run.driver.adopt(plan, inband=True)
    run.position += 5
    inband = run.driver.run_batch({"rows": ((run.position - 5, run.position),)}).inband
    assert inband is not None
    assert "was not received" in inband.not_precopied
    assert inband.state_bytes > 0
    assert executors(run) == [str(spot) for spot in plan.placement["sum"]]
    assert run.result() == SUMS


def test_where_state_cannot_be_migrated_the_plan_before_stays_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = LocalRun(tmp_path, "peers")
    run.batch(200)
    before, homes = run.driver.plan, executors(run)
    monkeypatch.setattr(InbandMigration, "senders", lambda inband, spec: {})

    def job(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        raise StateLost("the disk is full")

    run.backend.job = job  # type: ignore[method-assign]
    run.driver.adopt(run.plan(1, 3), inband=True)
    inband = run.driver.run_batch({"rows": ((200, 205),)}).inband
    run.position = 205
    assert inband is not None
    assert inband.failed == "the disk is full"
    assert run.driver.plan.placement == before.placement
    assert executors(run) == homes
    assert run.result() == SUMS


def test_nodes_that_state_has_yet_to_leave_are_not_retired_before_it_has(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers")
    run.batch(200)
    before = run.driver.plan
    gone = before.placement["sum"][0].node
    number = before.nodes.index(gone)
    homes = np.where(before.node_of == number, (number + 1) % NODES, before.node_of)
    plan = replace(before, node_of=frozen_ints(homes), active=())
    run.driver.adopt(plan, inband=True)
    run.driver.retire([gone])
    assert executors(run) == [str(spot) for spot in plan.placement["sum"]]
    run.backend.lose(gone)
    run.batch()
    assert run.result() == SUMS


def test_a_node_lost_while_state_has_yet_to_leave_it(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", parity=2)
    run.batch(200)
    lost = run.driver.plan.placement["sum"][0].node
    run.driver.adopt(run.plan(1, 3), inband=True)
    run.backend.lose(lost)
    took = run.driver.adopt(run.plan(1, 3), inband=True)
    assert took.restored
    assert run.result() == SUMS


@pytest.mark.parametrize("instances", [7, 2])
@pytest.mark.parametrize(
    ("mode", "restart"),
    [
        ("peers", False),
        ("both", False),
        ("both", True),
        ("checkpoint", False),
        ("checkpoint", True),
    ],
)
def test_what_a_failed_attempt_wrote_removes_nothing_else(
    tmp_path: Path, mode: str, restart: bool, instances: int
) -> None:
    run = LocalRun(tmp_path, mode, parity=2)
    run.batch(200)
    for _ in range(2):
        run.batch(5)
    # Instances that send more than half of their rows write all of them again, in vain.
    run.driver.adopt(run.plan(1, instances), inband=True)
    crash_in_next_batch(run)
    del run.backend.run
    clear_cache()
    if restart:
        start_again(run)
    else:
        run.driver.adopt(run.plan(0, 3), inband=True)
    for _ in range(3):
        run.batch(5)
    if mode == "peers":
        run.backend.lose(run.driver.plan.placement["sum"][0].node)
        assert run.driver.adopt(run.plan(0, 3), inband=True).restored
    else:
        start_again(run)
    assert run.result() == SUMS


def test_a_node_lost_while_a_change_is_looked_at(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers", parity=2)
    run.batch(200)
    lost, alive, asked = (
        run.driver.plan.placement["sum"][0].node,
        run.backend.alive,
        list[int](),
    )

    def dying() -> frozenset[str]:
        found = alive()
        asked.append(1)
        if len(asked) == 1:
            run.backend.lose(lost)
        return found

    run.backend.alive = dying  # type: ignore[method-assign]
    plan = run.plan(1, 3)
    told = run.driver.adopt(plan, inband=True)
    assert told.moved, "it is to be sent from where it was, which fails the batch, not the run"
    run.driver.adopt(run.plan(1, 3), inband=True)
    assert run.result() == SUMS


def test_a_plan_on_nodes_that_are_not_there_is_refused_at_once(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers")
    run.batch(200)
    before, asked = run.driver.plan, list[str]()
    plan = replace(before, nodes=tuple(f"spare-{n}" for n in before.nodes), active=())

    def job(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        asked.append(name)
        raise StateLost("no such place")

    run.backend.job = job  # type: ignore[method-assign]
    with pytest.raises(StateLost, match="no such place"):
        run.driver.adopt(plan, inband=True)
    assert asked == ["migrate state"]
    assert run.driver.plan is before
    assert run.result() == SUMS
