"""One attached query: what it decides and records, and that its failures stay its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.runtimes.attached.test_runtime import Noted
from tests.runtimes.attached.texts import SAVE

from penstock.control.settings import Settings
from penstock.runtimes.attached.query import AttachedQuery, Watching
from penstock.runtimes.attached.support import (
    TESTED,
    in_real_time,
    why_not_query,
    why_not_session,
)
from penstock.runtimes.spark.recorder import FAILURE
from penstock.store.records import RunStatus
from penstock.store.store import MetricsStore
from penstock.strategies import strategies
from penstock.web.reader import RunReader


def attached(spark: Noted, **options: Any) -> AttachedQuery:
    watching = Watching(strategies.make(options.pop("strategy", "penstock")), **options)
    return AttachedQuery("query", "clicks", spark, watching)


def feed(query: AttachedQuery, spark: Noted, batches: int) -> None:
    for number in range(batches):
        query.batch(spark.text(number))


def test_the_loop_decides_and_the_partitions_follow() -> None:
    spark = Noted()
    query = attached(spark, control=Settings(every=2, cooldown=0, stable_rounds=1))
    feed(query, spark, 30)
    assert query.events == []
    (first, *_) = query.decisions
    assert first.nodes_after < first.nodes_before, "three executors for 0.6 cores are too many"
    assert query.plan is not None
    used = {spot.node for spot in query.plan.placement[SAVE]}
    assert {f"executor-{id}" for id in spark.ran[SAVE]} == used
    assert len(spark.ids) < 3, "executors that nothing runs on are released"
    assert "Decision 1" in query.explain()


def test_recommending_changes_nothing() -> None:
    spark = Noted()
    control = Settings(every=2, cooldown=0, stable_rounds=1, recommend_only=True)
    query = attached(spark, control=control)
    feed(query, spark, 30)
    assert {event.status.value for event in query.decisions} == {"recommended"}
    assert spark.reported == []
    assert len(spark.ids) == 3


def test_batches_and_decisions_are_recorded(tmp_path: Path) -> None:
    store, spark = tmp_path / "metrics.sqlite", Noted()
    control = Settings(every=2, cooldown=0, stable_rounds=1)
    query = attached(spark, control=control, store=store)
    feed(query, spark, 12)
    query.terminated()
    with MetricsStore.open(store) as opened:
        records = opened.read(query.run)
    assert (records.run.topology, records.run.status) == ("clicks", RunStatus.FINISHED)
    assert len(records.batches) == 12
    assert records.batches[0].figures["phase_addBatch_ms"] == 700
    assert [event.kind for event in records.events].count("decision") == len(query.decisions)


def test_a_query_that_fails_is_told_of(tmp_path: Path) -> None:
    store, spark = tmp_path / "metrics.sqlite", Noted()
    query = attached(spark, store=store)
    feed(query, spark, 2)
    query.terminated("[DIVIDE_BY_ZERO] Division by zero.")
    assert query.events[-1] == "the query has failed: [DIVIDE_BY_ZERO] Division by zero."
    with MetricsStore.open(store) as opened:
        records = opened.read(query.run)
    assert records.run.status is RunStatus.FAILED
    assert records.events[-1].kind == FAILURE


def test_a_lost_executor_is_answered_at_once() -> None:
    spark = Noted()
    query = attached(spark, control=Settings(every=100), strategy="even")
    feed(query, spark, 4)
    spark.ids.remove("1")
    spark.ran = {name: ["0" if e == "1" else e for e in own] for name, own in spark.ran.items()}
    query.lost("1", "killed")
    assert query.events == ["executor 1 is gone: killed"]
    assert query.plan is not None
    assert "executor-1" not in {s.node for own in query.plan.placement.values() for s in own}


def test_where_it_cannot_work_it_says_so_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    assert "Spark Connect" in why_not_session(connect)
    assert why_not_session(object()) == ""
    monkeypatch.setattr("pyspark.__version__", "9.1.0")
    assert f"attaches to Spark {TESTED[0]}" in why_not_session(object())


def test_what_runs_in_batches_is_attached() -> None:
    def query(trigger: str) -> Any:
        kind = SimpleNamespace(getSimpleName=lambda: trigger)
        made = SimpleNamespace(getClass=lambda: kind)
        execution = SimpleNamespace(trigger=lambda: made)
        return SimpleNamespace(
            name="clicks", _jsq=SimpleNamespace(streamingQuery=lambda: execution)
        )

    assert "ContinuousTrigger" in why_not_query(query("ContinuousTrigger"))
    assert not in_real_time(query("ProcessingTimeTrigger"))
    assert in_real_time(query("RealTimeTrigger"))
    for trigger in ("ProcessingTimeTrigger", "RealTimeTrigger"):
        assert why_not_query(query(trigger)) == ""


def test_the_page_shows_state_partitions_by_executor(tmp_path: Path) -> None:
    store, spark = tmp_path / "metrics.sqlite", Noted()
    query = attached(spark, store=store, control=None)
    feed(query, spark, 4)
    query.terminated()
    reader = RunReader(store)
    frame = reader.frame(query.run)
    kinds = {one["name"]: one["kind"] for one in frame["operators"]}
    assert kinds[SAVE] == "stateful"
    assert "source" in kinds.values()
    saved = next(one for one in frame["operators"] if one["name"] == SAVE)
    assert len(saved["state"]) == saved["parallelism"]
    there = [node["name"] for node in frame["nodes"] if node["there"]]
    assert there == [f"executor-{id}" for id in sorted(spark.ids)]
    assert reader.series(query.run)["phases"], "those of Spark's batch"
    assert "triggerExecution" not in reader.series(query.run)["phases"], "which is their sum"
