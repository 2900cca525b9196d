"""Schedules of faults: made from a seed, never more at once than state should survive."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.apps import apps
from penstock.faults.fault import Fault
from penstock.model import InvalidValue
from penstock.testing.chaos import MATRIX, matrix, schedules


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


def test_all_kinds_come_up() -> None:
    kinds = {fault.kind for one in schedules(0, 40, ["wordcount"]) for fault in one.faults}
    assert kinds == {
        "kill-executor",
        "kill-worker",
        "move",
        "scale",
        "corrupt-fragment",
        "delete-fragment",
    }


def test_faults_read_as_they_are_written() -> None:
    for schedule in [*schedules(1, 20, ["wordcount"]), *matrix(["wordcount"])]:
        for fault in schedule.faults:
            assert Fault.parse(str(fault)) == fault


def test_the_matrix_has_every_fault_for_every_application() -> None:
    made = matrix(apps.names())
    assert len(made) == len(MATRIX) * len(apps.names())
    assert len({(one.app, one.name) for one in made}) == len(made)


def test_two_nodes_are_too_few() -> None:
    with pytest.raises(InvalidValue, match="at least 3"):
        schedules(0, 1, ["wordcount"], nodes=2)


@pytest.mark.parametrize(
    "text",
    ["kill-executor", "kill-executor@batch=x", "explode@batch=3", "scale@batch=3",
     "move@batch=3:to=2", "kill-executor@batch=3:count=0", "corrupt-fragment@batch=3:index=a",
     "kill-executor@batch=3:during=lunch"],
)  # fmt: skip
def test_a_bad_fault_is_named(text: str) -> None:
    with pytest.raises(InvalidValue):
        Fault.parse(text)
