"""A decision survives JSON and the store, and completes itself there."""

from __future__ import annotations

import json

import pytest
from tests.control.scene import Scene, scene

from penstock.control.events import DecisionStatus, Event
from penstock.control.recorder import Recorder
from penstock.control.settings import Settings
from penstock.model import InvalidValue
from penstock.store import DECISION, EventRecord, MetricsStore, RunRecord


@pytest.fixture(scope="module")
def grown() -> Scene:
    made = scene(lambda t: 2000 if t < 50 else 4500, settings=Settings(max_nodes=8))
    made.run(120)
    return made


def test_events_are_json_and_come_back_equal(grown: Scene) -> None:
    for event in grown.told:
        text = json.dumps(event.to_dict())
        again = Event.from_dict(json.loads(text))
        assert again == event
        assert json.dumps(again.to_dict()) == text


def test_an_event_has_all_that_happened(grown: Scene) -> None:
    event = next(e for e in grown.events.values() if e.moved)
    assert event.status is DecisionStatus.DONE
    assert event.measured["arriving_per_s"] > 4000
    assert event.before is not None
    assert event.predicted is not None
    assert event.predicted.max_node_load < event.before.max_node_load
    assert event.moves
    assert event.woken
    assert sum(step.state_bytes for step in event.steps) > 0
    assert event.gained is not None
    assert event.gained.came


def test_the_recorder_completes_an_event_under_its_number(grown: Scene) -> None:
    numbers = iter(range(10, 100))
    with MetricsStore.open(":memory:") as store:
        store.put_run(RunRecord("r1", "wordcount", "penstock", 0.0))
        recorder = Recorder("r1", store.put_event, clock=lambda: 5.0, number=lambda: next(numbers))
        for event in grown.told:
            recorder(event)
        records = store.read("r1").decisions
    assert [r.number for r in records] == [10 + i for i in range(len(grown.events))]
    assert [Event.of_record(r) for r in records] == list(grown.events.values())
    assert {(r.kind, r.at_s) for r in records} == {(DECISION, 5.0)}


def test_what_is_no_decision_is_said() -> None:
    with pytest.raises(InvalidValue, match="event 3 of run 'r1'"):
        Event.of_record(EventRecord("r1", 3, 0.0, DECISION, "moved", {"lit": 1.0}))
    with pytest.raises(InvalidValue, match="format"):
        Event.from_dict({"format": 99})
