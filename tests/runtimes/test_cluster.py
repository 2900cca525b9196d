"""The engine on an embedded cluster of several processes: placement, equality, `kill -9`."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.runtimes.checked import checked

from penstock.apps import apps

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """All checks, on one cluster."""
    return checked()


@pytest.mark.parametrize("app", apps.names())
def test_every_application_gives_what_it_must(results: dict[str, Any], app: str) -> None:
    found = results["applications"][app]
    assert all(found["equal"].values()), found["equal"]
    assert (found["lost"], found["duplicated"]) == (0, 0)
    assert found["tasks"] == found["honoured"] > 0
    assert found["batches"] >= 5


def test_placement_uses_real_processes(results: dict[str, Any]) -> None:
    spread = results["applications"][apps.names()[0]]
    assert len(spread["executors"]) == 3
    assert spread["remote_bytes"] > 0


def test_the_engine_can_be_left_to_itself(results: dict[str, Any]) -> None:
    assert all(results["unpinned"]["equal"].values())
    assert results["unpinned"]["tasks"] == 0


def test_a_wrong_placement_is_noticed(results: dict[str, Any]) -> None:
    assert results["noticed"]["tasks"] > 0
    assert results["noticed"]["honoured"] == 0


@pytest.mark.parametrize("check", ["kill_worker", "kill_executor"])
def test_a_kill_leaves_no_trace_in_the_result(results: dict[str, Any], check: str) -> None:
    found = results[check]
    assert found["killed"] == 1
    assert all(found["equal"].values())
    assert (found["lost"], found["duplicated"]) == (0, 0)
    if check == "kill_executor":
        assert any("lost executors" in text for text in found["events"])


def test_a_task_that_spark_repeats_elsewhere_is_no_lost_state(results: dict[str, Any]) -> None:
    found = results["astray"]
    assert found["struck"] > 0
    assert found["equal"]
    assert any("tasks went astray" in text for text in found["events"]), found["events"]


def test_all_executors_may_be_lost_at_once(results: dict[str, Any]) -> None:
    found = results["kill_all"]
    assert found["killed"] == 3
    assert all(found["equal"].values()), found["events"]
    assert (found["lost"], found["duplicated"]) == (0, 0)


def test_relative_folders_are_those_of_the_driver(results: dict[str, Any]) -> None:
    assert results["relative"]["equal"]
    assert results["relative"]["state"] > 0


@pytest.mark.parametrize("check", ["precopy", "precopy_killed"])
def test_state_is_pre_copied_before_a_move(results: dict[str, Any], check: str) -> None:
    found = results[check]
    assert found["equal"], found
    assert found["lost_or_twice"] == [0, 0]
    assert found["waited"] > 0, "batches went on meanwhile"
    assert found["applied"] is not None
    assert not found["threads"]
    if check == "precopy":
        applied = found["applied"]
        assert applied["precopied_bytes"] > applied["inband_bytes"] > applied["state_bytes"] == 0
        assert any("3 instances moved" in text for text in found["events"])
        assert not [text for text in found["events"] if "not all state was pre-copied" in text]
    else:
        assert found["killed"] == 1
        assert any("lost executors" in text for text in found["events"])


def test_state_is_repartitioned_in_increments_while_executors_die(results: dict[str, Any]) -> None:
    found = results["increments_killed"]
    assert found["equal"], found
    assert found["lost_or_twice"] == [0, 0]
    assert found["reached"]
    assert found["shared"], "split keys were worked on elsewhere, too"
    *increments, last = found["applied"]
    assert len(increments) >= 2
    assert all(one["left"] for one in increments)
    assert not last["left"]
    assert all(one["inband_bytes"] > one["state_bytes"] == 0 for one in (*increments, last))
    assert any("lost executors" in text for text in found["events"])


def test_several_topologies_share_the_nodes(results: dict[str, Any]) -> None:
    found = results["together"]
    assert found["ended"]
    assert found["equal"]
    assert all(found["equal"].values()), found["equal"]
    assert "a function that fails" in found["failures"].pop("bad")
    assert not found["failures"]
    assert not found["planner"], found["events"]
    assert found["rows"]["words"] == found["rows"]["views"] == [0, 0, "finished"]
    assert any("bad failed" in text for text in found["events"]["words"])
