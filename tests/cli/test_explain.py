"""``penstock explain`` on stores with and without decisions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.control.events import DecisionStatus, Event, StepTaken
from penstock.control.explain import ENDINGS, explain
from penstock.control.gain import Gained
from penstock.model import Cost, Reason
from penstock.store import DECISION, EventRecord, MetricsStore, RunRecord

RUNNER = CliRunner()

BEFORE = Cost(10, 20, 30, 5000.0, {"a": 1.8}, {"a/0": 1.8}, 0.0)
AFTER = Cost(40, 20, 0, 400.0, {"a": 0.7, "b": 0.7}, {"a/0": 0.7, "b/0": 0.7}, 0.0)
EVENT = Event(
    1,
    109,
    110.0,
    DecisionStatus.DONE,
    "1 -> 2 nodes, 13 instances move: the busiest node is at 1.80",
    (Reason("the busiest node is at 1.80", {"load": 1.8}),),
    {
        "arriving_per_s": 4500.0,
        "throughput_per_s": 2500.0,
        "queue_length": 20_000.0,
        "latency_p95_ms": 900.0,
        "max_node_load": 1.8,
        "nodes": 1.0,
        "nodes_used": 1.0,
        "lin": 0.0,
        "lit_count": 0.4,
        "taken_a": 0.3,
    },
    "load, 1 -> 2 nodes",
    BEFORE,
    AFTER,
    1,
    2,
    tuple(f"split[{i}]: a/0 -> b/0" for i in range(13)),
    13,
    4,
    ("b",),
    (),
    0.05,
    (
        StepTaken("step 1 of 2: 13 instances", 110, 0.4, 2_000_000),
        StepTaken("step 2 of 2: 1 instances", 112, 0.2, 500_000, precopied_bytes=90_000_000),
        StepTaken("x", 113, failed="no"),
        StepTaken("y", 114, precopied_bytes=8_000_000, inband_bytes=1_000_000),
    ),
    Gained("the load went from 1.8 to 0.7, predicted 0.7", True, 0.7, 1.0),
)


@pytest.fixture
def store(tmp_path: Path) -> str:
    place = tmp_path / "metrics.sqlite"
    with MetricsStore.open(place) as made:
        made.put_run(RunRecord("r1", "words", "penstock", 10.0))
        made.put_run(RunRecord("r0", "words", "penstock", 5.0))
        made.put_event(EventRecord("r1", 0, 11.0, "plan", "the first plan"))
        made.put_event(EVENT.record("r1", 7, 12.0))
    return str(place)


def test_decisions_are_listed(store: str) -> None:
    shown = RUNNER.invoke(app, ["explain", "latest", "--store", store])
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [f"7  batch 109: {EVENT.text} (done, gained)"]


def test_one_decision_is_told_in_plain_words(store: str) -> None:
    shown = RUNNER.invoke(app, ["explain", "r1", "7", "--store", store])
    assert shown.exit_code == 0
    for words in (
        "Decision 7 after batch 109, at 110.0 s: done.",
        "the busiest node is at 1.80",
        "4,500 tuples/s came, 2,500 were processed, 20,000 waited",
        "imbalance (LIT) of count: 0.40",
        "others take 30% of the CPU of a",
        "busiest node 1.80 -> 0.70",
        "tuples that cross nodes 50% -> 0%",
        "split[0]: a/0 -> b/0",
        "and 1 more",
        "4 router partitions",
        "2.0 MB of state while the stream stood still for 0.40 s",
        "90.0 MB of state pre-copied, 0.5 MB of state while the stream stood still for 0.20 s",
        "y, 8.0 MB of state pre-copied, 1.0 MB of state with the next batch",
        "it failed: no",
        "Gained: as predicted",
        "Deciding took 50 ms.",
    ):
        assert words in shown.stdout


def test_json_is_one_object_a_decision(store: str) -> None:
    shown = RUNNER.invoke(app, ["explain", "r1", "--store", store, "--json"])
    values = json.loads(shown.stdout)
    assert values["number"] == 7
    assert values["gained"]["came"] is True
    one = RUNNER.invoke(app, ["explain", "r1", "7", "--store", store, "--json"])
    assert json.loads(one.stdout) == values


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["r1", "8"], "must be one of 7, got 8"),
        (["r0", "1"], "there is no decision"),
        (["nobody"], "has no run 'nobody'"),
        (["r1", "0"], "must be one of 7, got 0"),
    ],
)
def test_bad_input_is_a_line_and_a_code(store: str, arguments: list[str], words: str) -> None:
    shown = RUNNER.invoke(app, ["explain", *arguments, "--store", store])
    assert shown.exit_code == 2
    assert words in shown.stderr


def test_no_store_and_no_decision_are_said(store: str, tmp_path: Path) -> None:
    nothing = RUNNER.invoke(app, ["explain", "r1", "--store", str(tmp_path / "no.sqlite")])
    assert nothing.exit_code == 2
    quiet = RUNNER.invoke(app, ["explain", "r0", "--store", store])
    assert quiet.exit_code == 0
    assert "made no decision" in quiet.stderr
    with MetricsStore.open(store) as opened:
        opened.put_event(EventRecord("r1", 9, 0.0, DECISION, "of another kind"))
    odd = RUNNER.invoke(app, ["explain", "r1", "--store", store])
    assert odd.exit_code == 2


def test_every_status_can_be_told() -> None:
    assert set(ENDINGS) == set(DecisionStatus)
    bare = Event(1, 3, 4.0, DecisionStatus.NOTED, "the number of nodes is fixed")
    assert explain(bare).endswith("the number of nodes is fixed")
