"""State is repartitioned and migrated between batches: the result is as if it were not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.local_run import (
    SUMS,
    LocalRun,
    await_precopy,
    executors,
    in_increments,
)

from penstock.engine.backend import Stage
from penstock.state.store import clear_cache
from penstock.state.versions import StateLost


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("inband", [True, False])
@pytest.mark.parametrize("mode", ["peers", "checkpoint", "both"])
def test_instances_move_and_are_repartitioned(
    tmp_path: Path, mode: str, inband: bool, every: int
) -> None:
    run = LocalRun(tmp_path, mode, every=every)
    for turn, instances in enumerate((3, 3, 4, 7, 7, 3, 1, 5)):
        run.driver.adopt(run.plan(turn, instances), inband=inband)
        if turn % 2:
            clear_cache()
        run.batch()
    assert run.result() == SUMS


@pytest.mark.parametrize("inband", [True, False])
def test_old_fragments_and_copies_go(tmp_path: Path, inband: bool) -> None:
    run = LocalRun(tmp_path, "peers")
    sizes = []
    for turn in range(26):
        if turn % 6 == 5:
            run.driver.adopt(run.plan(turn, 3), inband=inband)
        run.driver.run_batch({"rows": ((0, 40),)})
        sizes.append(len([p for p in (tmp_path / "nodes").rglob("*") if p.is_file()]))
    assert max(sizes) < 5 * 20 * 4
    copies = {p.parent.name for p in (tmp_path / "nodes").rglob("state/sum/*/*")}
    assert copies == {"0", "1", "2"}
    holders = [p for p in (tmp_path / "nodes").glob("*/state/sum/*") if any(p.iterdir())]
    assert len(holders) == 3, "one copy of each instance"


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("move"), st.integers(0, 4)),
        st.tuples(st.just("precopy"), st.integers(0, 4)),
        st.tuples(st.just("scale"), st.integers(1, 6)),
        st.tuples(st.just("increments"), st.integers(1, 6)),
        st.tuples(st.just("lose"), st.integers(0, 4)),
        st.tuples(st.just("forget"), st.just(0)),
        st.tuples(st.just("batch"), st.integers(1, 60)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("mode", ["peers", "both"])
@pytest.mark.parametrize("instances", [1, 2, 3, 7])
@pytest.mark.parametrize("inband", [True, False])
def test_partitions_are_moved_in_increments(
    tmp_path: Path, mode: str, instances: int, inband: bool
) -> None:
    run = LocalRun(tmp_path, mode)
    run.batch(200)
    plan, took = run.plan(1, instances), []
    for one in in_increments(run, plan, 700, inband=inband):
        took.append(one)
        used = run.driver.plan.routing["sum"].partitions
        assert max(used) < len(run.driver.handles["sum"].instances)
        run.batch(5)
        clear_cache()
    assert run.driver.plan.parallelism["sum"] == instances
    if instances != 3:
        assert len(took) > 2
    assert run.result() == SUMS


@pytest.mark.parametrize("most", [1, 10_000_000])
def test_an_increment_is_one_partition_at_least_and_all_if_there_is_room(
    tmp_path: Path, most: int
) -> None:
    run = LocalRun(tmp_path, "peers")
    run.batch(200)
    table, plan = run.driver.plan.routing["sum"], run.plan(0, 4)
    moved = []
    for _ in in_increments(run, plan, most):
        after = run.driver.plan.routing["sum"]
        moved.append(sum(a != b for a, b in zip(table.partitions, after.partitions, strict=True)))
        table = after
    assert moved == [48] if most > 1 else set(moved) == {1}


@pytest.mark.parametrize("inband", [True, False])
def test_an_executor_lost_between_increments_costs_nothing(tmp_path: Path, inband: bool) -> None:
    run = LocalRun(tmp_path, "peers", parity=2)
    run.batch(200)
    for number, _ in enumerate(in_increments(run, run.plan(0, 5), 400, inband=inband)):
        run.batch(5)
        if number == 1:
            break
    run.backend.lose(run.driver.plan.placement["sum"][0].node)
    run.driver.adopt(run.plan(0, 5), inband=inband)
    assert run.result() == SUMS


def test_without_backup_all_is_repartitioned_at_once(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "checkpoint")
    run.batch(200)
    assert len(list(in_increments(run, run.plan(0, 5), 1))) == 1
    assert run.result() == SUMS


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(ACTIONS, st.sampled_from(["peers", "both"]), st.sampled_from([1, 2, 8]), st.booleans())
@pytest.mark.usefixtures("any_size", "small_parts")
def test_any_schedule_of_moves_and_losses(
    tmp_path_factory: pytest.TempPathFactory,
    actions: list[tuple[str, int]],
    mode: str,
    every: int,
    inband: bool,
) -> None:
    run = LocalRun(tmp_path_factory.mktemp("run"), mode, every=every)
    run.batch()
    turn, instances = 0, 3
    for kind, number in actions:
        if kind == "move":
            turn = number
            run.driver.adopt(run.plan(turn, instances), inband=inband)
        elif kind == "precopy":
            # Pre-copy goes on while other things happen, or is over when they do.
            run.driver.precopy(run.plan(number, instances))
            if number % 2:
                await_precopy()
        elif kind == "scale":
            instances = number
            run.driver.adopt(run.plan(turn, instances), inband=inband)
        elif kind == "increments":
            instances = number
            for _ in in_increments(run, run.plan(turn, instances), 1500, inband=inband):
                run.batch(5)
        elif kind == "lose" and len(run.backend.nodes) > 2:
            run.backend.lose(run.backend.nodes[number % len(run.backend.nodes)])
            run.driver.adopt(run.plan(turn, instances), inband=inband)
            run.batch(10)
        elif kind == "forget":
            clear_cache()
        elif kind == "batch":
            run.batch(number)
    assert run.result() == SUMS
    run.driver.close()


def test_a_change_that_fails_halfway_leaves_executors_as_they_were(tmp_path: Path) -> None:
    run = LocalRun(tmp_path, "peers")
    run.batch(200)
    homes, job = executors(run), run.backend.job

    def failing(name: str, stages: Sequence[Stage], *, background: bool = False) -> Iterable[bytes]:
        if name.startswith("repartition"):
            raise StateLost("the disk is full")
        return job(name, stages, background=background)

    run.backend.job = failing  # type: ignore[method-assign]
    with pytest.raises(StateLost, match="full"):
        run.driver.adopt(run.plan(1, 5))
    assert executors(run) == homes
    assert run.result() == SUMS
