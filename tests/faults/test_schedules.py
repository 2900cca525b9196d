"""Schedules of faults: made from a seed, never more at once than state should survive."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.apps import apps
from penstock.faults.fault import KINDS, Fault
from penstock.faults.schedules import ENDS
from penstock.model import InvalidValue
from penstock.testing.chaos import EVERY, ONCE, Schedule, matrix, schedules


@given(st.integers(0, 10_000), st.integers(3, 6))
def test_no_schedule_loses_more_at_once_than_may_be(seed: int, nodes: int) -> None:
    for schedule in schedules(seed, 3, ["wordcount"], nodes):
        spoilt = 0
        for batch in range(20):
            now = [fault for fault in schedule.faults if fault.batch == batch]
            spoilt += sum(fault.kind.endswith("-fragment") for fault in now)
            moved = any(fault.kind in ("move", "scale") for fault in now)
            killed = sum(int(f.options["count"]) for f in now if f.kind == "kill-executor")
            if killed:
                assert killed + spoilt + moved <= schedule.parity + 1
                assert killed < nodes - 1
        assert schedule.parity < nodes - 1


def test_schedules_follow_from_the_seed() -> None:
    made = schedules(3, 6, ["wordcount", "topn"])
    assert made == schedules(3, 6, ["wordcount", "topn"])
    assert made[:2] == schedules(3, 2, ["wordcount", "topn"])
    assert made != schedules(4, 6, ["wordcount", "topn"])
    assert [one.app for one in made[:3]] == ["wordcount", "topn", "wordcount"]
    assert "seed 3/1: topn" in str(made[1])


def test_random_schedules_have_the_faults_that_one_session_can_take() -> None:
    kinds = {fault.kind for one in schedules(0, 60, ["wordcount"]) for fault in one.faults}
    assert kinds == {
        "kill-executor",
        "kill-worker",
        "pause-executor",
        "pause-worker",
        "clock-back",
        "move",
        "scale",
        "corrupt-fragment",
        "delete-fragment",
    }


def test_faults_read_as_they_are_written() -> None:
    for schedule in [*schedules(1, 20, ["wordcount"]), *matrix(apps.names())]:
        for fault in schedule.faults:
            assert Fault.parse(str(fault)) == fault


def test_the_matrix_has_every_kind_of_fault() -> None:
    made = matrix(apps.names())
    assert len(made) == len(EVERY) * len(apps.names()) + len(ONCE)
    assert len({(one.app, one.name) for one in made}) == len(made)
    assert frozenset(KINDS) == frozenset().union(*(one.kinds for one in made))
    assert {one.load for one in made} == {"", "wait", "drop"}
    assert {int(f.options["seconds"]) for one in made for f in one.faults
            if f.kind == "pause-executor"} == {5, 60}  # fmt: skip


def test_one_application_has_all_rows_but_those_of_another() -> None:
    named = {one.name for one in matrix(["topn"])}
    assert {*EVERY, *ONCE} - named == {"kill-while-split", "kill-driver-dataframe"}


def test_one_row_can_be_run_alone_and_a_misspelt_one_is_answered() -> None:
    (row,) = matrix(["wordcount"], only="read-only")
    assert [str(fault) for fault in row.faults] == ["read-only@batch=5"]
    with pytest.raises(InvalidValue, match="did you mean 'kill-node'"):
        matrix(["wordcount"], only="kill-nod")


def test_faults_that_end_a_driver_have_a_checkpoint_to_go_on_from() -> None:
    for one in matrix(apps.names()):
        assert bool(one.first_driver) == bool(one.kinds & set(ENDS))
        assert not one.first_driver or one.state == "both"
        assert one.undisturbed().faults == ()
        assert not (one.first_driver and one.standalone)


def test_a_schedule_goes_to_another_process_as_json() -> None:
    for one in [*matrix(apps.names()), *schedules(1, 5, ["topn"])]:
        assert Schedule.from_dict(json.loads(json.dumps(one.to_dict()))) == one


def test_what_is_no_schedule() -> None:
    with pytest.raises(InvalidValue, match="source"):
        Schedule("a", "topn", source="kafka")
    with pytest.raises(InvalidValue, match="one of none, wait, drop"):
        Schedule("a", "topn", load="more")


def test_two_nodes_are_too_few() -> None:
    with pytest.raises(InvalidValue, match="at least 3"):
        schedules(0, 1, ["wordcount"], nodes=2)


@pytest.mark.parametrize(
    "text",
    ["kill-executor", "kill-executor@batch=x", "explode@batch=3", "scale@batch=3",
     "move@batch=3:to=2", "kill-executor@batch=3:count=0", "corrupt-fragment@batch=3:index=a",
     "kill-executor@batch=3:during=lunch", "pause-executor@batch=3:seconds=0",
     "pause-worker@batch=3:seconds=all", "pause-driver@batch=3:seconds=5",
     "disk-full@batch=3:where=moon", "clock-back@batch=3:seconds=-5", "split@batch=3:keys=0"],
)  # fmt: skip
def test_a_bad_fault_is_named(text: str) -> None:
    with pytest.raises(InvalidValue):
        Fault.parse(text)


def test_a_fault_happens_to_some_or_to_all() -> None:
    assert Fault.parse("kill-executor@batch=3:count=all").count(5) == 5
    assert Fault.parse("kill-executor@batch=3:count=2").count(5) == 2
    assert Fault.parse("pause-executor@batch=3:count=9").count(5) == 5
