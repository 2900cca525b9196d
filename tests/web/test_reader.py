"""What the page is told of a run: series, frames and events, from the store."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.common.errors import PenstockError
from penstock.control.events import DecisionStatus, Event
from penstock.control.explain import explain
from penstock.model import Reason, RoutingTable
from penstock.store import BatchRecord, EventRecord, MetricsStore, PlanRecord, StoreError
from penstock.store.records import RunStatus
from penstock.testing.page_store import STARTED_S, example_topology, fill_store, first_plan
from penstock.web.frame import Detail, frame_of
from penstock.web.reader import NoBatch, RunReader
from penstock.web.series import series_of


def test_a_store_that_is_not_there_yet_has_no_runs(tmp_path: Path) -> None:
    reader = RunReader(tmp_path / "later.sqlite")
    assert reader.runs() == []
    with pytest.raises(PenstockError, match="not there yet"):
        reader.run("r1")
    fill_store(tmp_path / "later.sqlite")
    assert [run["id"] for run in reader.runs()] == ["r1"]
    reader.close()


def test_a_store_that_is_replaced_is_read_anew(tmp_path: Path) -> None:
    place, other = tmp_path / "m.sqlite", tmp_path / "other.sqlite"
    fill_store(place, run="old")
    reader = RunReader(place)
    assert reader.frame("old")["batch"] == 9
    fill_store(other, run="new", batches=3)
    other.replace(place)
    assert [run["id"] for run in reader.runs()] == ["new"]
    place.unlink()
    assert reader.runs() == []
    reader.close()


def test_an_event_that_changes_is_told_anew(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    fill_store(place)
    reader = RunReader(place)
    reader.run("r1")
    with MetricsStore.open(place) as store:
        before = reader.events("r1")
        changed = replace(store.events("r1")[0], text="state survives nothing")
        store.put_event(changed)
    assert before[0]["text"] != "state survives nothing"
    assert [event["text"] for event in reader.events("r1")] == ["state survives nothing"]
    reader.close()


def test_a_run_as_a_whole(store: Path) -> None:
    found = RunReader(store).run("r1")
    assert found["status"] == "finished"
    assert found["summary"]["rows_in"] == 20_000
    assert (found["first_batch"], found["last_batch"]) == (0, 9)
    assert "topology" not in found["config"], "the outline is part of every frame"


def test_a_frame_matches_the_plan(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    plan = fill_store(place, parallelism=5, nodes=3)
    frame = RunReader(place).frame("r1")
    names = [node["name"] for node in frame["nodes"]]
    for operator in frame["operators"]:
        spots = plan.placement[operator["name"]]
        assert [names[number] for number in operator["node"]] == [spot.node for spot in spots]
    assert [o["layer"] for o in frame["operators"]] == [0, 1, 2]
    assert [o["kind"] for o in frame["operators"]] == ["source", "stateless", "stateful"]


def test_rates_and_the_remote_share_of_edges(store: Path) -> None:
    frame = RunReader(store).frame("r1")
    edge = {(e["source"], e["target"]): e for e in frame["edges"]}
    # Three batches in 1.5 seconds, 4 pairs of 3 tuples each; half of them cross the two nodes.
    assert edge["parse", "count"]["per_s"] == pytest.approx(3 * 12 / 1.5)
    assert edge["parse", "count"]["remote_share"] == pytest.approx(0.5)
    assert edge["parse", "count"]["grouping"] == "fields"
    count = next(o for o in frame["operators"] if o["name"] == "count")
    assert count["rate"] == pytest.approx([200.0, 400.0])
    assert count["state_bytes"] == 3000
    assert count["hot_keys"][0]["name"] == "home"
    assert count["hot_keys"][0]["share"] == pytest.approx(60 / 300)
    assert count["late_rows"] == 3, "those of the three batches that are averaged"


def test_a_split_key_is_told_with_its_instances(store: Path) -> None:
    reader = RunReader(store)
    plan = first_plan(example_topology(2), 2)
    split = replace(plan, routing={"count": RoutingTable((0, 1), {42: (0, 1)})})
    with MetricsStore.open(store) as opened:
        opened.put_plan(PlanRecord("r1", 9, split))
    count = next(o for o in reader.frame("r1")["operators"] if o["name"] == "count")
    assert count["split"] == [{"hash": "42", "name": "home", "instances": [0, 1]}]
    assert count["hot_keys"][0]["split"] == [0, 1]
    assert reader.frame("r1", batch=8)["operators"][2]["split"] == [], "not yet split then"


def test_a_node_that_is_gone_is_told(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    plan = fill_store(place, nodes=2)
    database = sqlite3.connect(place)
    database.execute("DELETE FROM penstock_nodes WHERE node = ? AND batch = 9", (plan.nodes[1],))
    database.commit()
    database.close()
    reader = RunReader(place)
    there = {node["name"]: node["there"] for node in reader.frame("r1")["nodes"]}
    assert there == {plan.nodes[0]: True, plan.nodes[1]: False}
    before = {node["name"]: node["there"] for node in reader.frame("r1", batch=8)["nodes"]}
    assert all(before.values())


def test_replay_equals_live(tmp_path: Path) -> None:
    """What was shown while a batch was the last is shown when one goes back to it."""
    place = tmp_path / "m.sqlite"
    fill_store(place, batches=5, status=RunStatus.RUNNING)
    watching = RunReader(place)
    live = watching.frame("r1")
    fill_store(place, batches=9, status=RunStatus.FINISHED)
    assert watching.frame("r1", batch=4) == live
    assert RunReader(place).frame("r1", batch=4) == live
    assert RunReader(place).frame("r1", t=live["t"]) == live
    assert watching.frame("r1")["batch"] == 8


def test_detail_that_was_dropped_leaves_the_plan(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    fill_store(place, batches=20, detail=5)
    frame = RunReader(place).frame("r1", batch=3)
    assert not frame["detailed"]
    assert frame["operators"][0]["node"] == [0, 1]
    assert frame["edges"][0]["per_s"] is None


def test_a_run_without_batches_and_without_outline(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    fill_store(place, batches=0)
    with pytest.raises(NoBatch, match="no batch yet"):
        RunReader(place).frame("r1")
    with pytest.raises(StoreError, match="no run 'r2'"):
        RunReader(place).frame("r2")
    batch = BatchRecord("r", 0, 10.0, 100.0)
    frame = frame_of(Detail([batch], None, (), (), (), ()), (), {}, 10.0)
    assert frame["operators"] == []
    assert frame["plan"] is None


def test_series_have_equal_columns_and_lose_no_rows() -> None:
    batches = [
        BatchRecord("r", n, 10.0 + 0.5 * n, 100.0, rows_in=7, queue_length=n) for n in range(1000)
    ]
    whole = series_of(batches, 10.0)
    assert len(whole["t"]) <= 600
    assert all(len(c) == len(whole["t"]) for c in whole.values() if isinstance(c, list))
    ends = [0.1, *whole["t"]]
    spans = [after - before for before, after in pairwise(ends)]
    rows = sum(
        rate * span for rate, span in zip(whole["processed_per_s"][1:], spans[1:], strict=True)
    )
    assert rows == pytest.approx(7 * (1000 - 1), rel=0.02)
    assert whole["batch"][-1] == 999


def test_series_of_rolled_up_batches_give_phases_of_one() -> None:
    rolled = BatchRecord("r", 9, 10.0, 200.0, figures={"phase_x_ms": 500.0, "rolled_up": 10})
    assert series_of([rolled], 0.0)["phases"] == {"x": [50.0]}


def test_series_after_a_batch(store: Path) -> None:
    reader = RunReader(store)
    more = reader.series("r1", since=6)
    assert more["batch"] == [7, 8, 9]
    whole = reader.series("r1")
    assert whole["processed_per_s"][-3:] == more["processed_per_s"]
    assert reader.series("r1", since=9).get("batch") is None


def test_a_decision_is_explained_as_the_command_does(store: Path) -> None:
    event = Event(
        1, 5, 2.5, DecisionStatus.DONE, "2 -> 1 nodes", (Reason("little to do"),), {"lin": 0.2}
    )
    with MetricsStore.open(store) as opened:
        opened.put_event(event.record("r1", 7, STARTED_S + 3.0))
        opened.put_event(EventRecord("r1", 8, STARTED_S + 3.5, "decision", "odd", {"format": 99}))
    told = {one["number"]: one for one in RunReader(store).events("r1")}
    assert told[7]["explanation"] == explain(event, 7)
    assert told[7]["status"] == "done"
    assert told[7]["decision"]["reasons"] == ["little to do"]
    assert "format" in told[8]["explanation"], "one that cannot be read says so"
    assert told[0]["kind"] == "state"
    assert told[0]["explanation"] is None
