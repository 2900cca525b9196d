"""Every part of Penstock breaks in turn: the query goes on, and an event says why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from tests.runtimes.attached.test_query import feed
from tests.runtimes.attached.test_runtime import Noted

from penstock.control.settings import Settings
from penstock.model import Keep, Plan
from penstock.runtimes.attached import query as attached_query
from penstock.runtimes.attached.attach import attach, attachment_of
from penstock.runtimes.attached.query import FORGOTTEN, PATIENCE, AttachedQuery, Watching
from penstock.runtimes.attached.runtime import AttachedRuntime
from penstock.strategies import Request, strategies

FAILED = "Penstock failed, the query goes on: ValueError: a mistake"
EAGER = Settings(every=1, cooldown=0, stable_rounds=1)


def broken(*_: object, **__: object) -> NoReturn:
    raise ValueError("a mistake")


@dataclass(frozen=True)
class Careless:
    """A strategy that raises what no strategy should."""

    name: ClassVar[str] = "careless"
    summary: ClassVar[str] = "for tests"
    origin: ClassVar[str] = "tests"

    def plan(self, request: Request) -> Plan | Keep:
        broken()


def attached(spark: Noted, left: list[str] | None = None, **options: Any) -> AttachedQuery:
    strategy = options.pop("strategy", strategies.make("penstock"))
    leave = broken if left is None else left.append
    watching = Watching(strategy, **options)
    return AttachedQuery("query", "clicks", spark, watching, leave=leave)


def test_after_some_failures_the_query_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[str] = []
    spark = Noted()
    query = attached(spark, left)
    monkeypatch.setattr(AttachedRuntime, "take", broken)
    feed(query, spark, PATIENCE - 1)
    assert query.attached
    feed(query, spark, 2)
    assert not query.attached
    assert left == ["query"]
    assert query.events == [FAILED] * PATIENCE + ["left alone after repeated failures"]


def test_failures_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Noted()
    query = attached(spark, [])
    for _ in range(PATIENCE + 1):
        with monkeypatch.context() as patch:
            patch.setattr(AttachedRuntime, "take", broken)
            query.batch(spark.text(0))
        feed(query, spark, FORGOTTEN)
    assert query.attached
    assert query.events == [FAILED] * (PATIENCE + 1)


def test_a_strategy_that_fails_at_every_evaluation_is_left_alone() -> None:
    spark = Noted()
    query = attached(spark, [], strategy=Careless(), control=Settings(every=5))
    feed(query, spark, 40)
    assert query.events[-1] == "left alone after repeated failures"
    assert spark.reported == []


def test_functions_of_the_user_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Noted()
    query = attached(spark, [], control=EAGER, on_batch=broken, on_decision=broken)
    feed(query, spark, 20)
    assert query.attached
    assert len(spark.ids) < 3, "decisions are made and carried out all the same"
    assert set(query.events) == {"broken, which was to be called, failed: ValueError: a mistake"}


def test_a_store_that_cannot_be_written_is_told_of(tmp_path: Path) -> None:
    spark = Noted()
    (tmp_path / "file").write_text("no folder")
    query = attached(spark, [], store=tmp_path / "file" / "metrics.sqlite")
    deadline = time.monotonic() + 20
    for number in range(1000):
        query.batch(spark.text(number))
        if query.events or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    (told,) = query.events
    assert told.startswith("what is measured cannot be stored for now: ")
    assert query.attached


def test_what_moves_no_partition_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Noted()
    query = attached(spark, [], control=EAGER)
    with monkeypatch.context() as patch:
        patch.setattr(Noted, "report", broken)
        feed(query, spark, 8)
    assert query.events
    assert set(query.events) <= {FAILED, "left alone after repeated failures"}


def test_leaving_takes_every_step_whatever_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Noted()
    query = attached(spark)
    feed(query, spark, 2)
    monkeypatch.setattr(AttachedRuntime, "end", broken)
    query.terminated()
    text = "leaving the query was not clean: ValueError: a mistake"
    assert query.events == [text, text, "the query has ended"]


# ---- on Spark


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counts = source.groupBy((source.value % 3).alias("k")).count()
    writer = counts.writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        yield query
    finally:
        query.stop()


def batches(stream: Any) -> int:
    return int((stream.lastProgress or {}).get("batchId", -1))


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def told(handle: Any, events: int) -> bool:
    return len(handle.events) >= events


def goes_on(stream: Any) -> None:
    seen = batches(stream)
    wait(lambda: batches(stream) >= seen + 2)
    assert stream.isActive
    assert stream.exception() is None


#: What breaks, and where.
PARTS: dict[str, tuple[Any, str]] = {
    "records": (attached_query, "parse"),
    "model": (attached_query, "graph_of"),
    "measurements": (AttachedRuntime, "take"),
    "loop": (AttachedRuntime, "observe"),
}


def test_a_query_goes_on_whatever_breaks(
    stream: Any, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    for where, name in PARTS.values():
        with monkeypatch.context() as patch:
            patch.setattr(where, name, broken)
            handle: Any = attach(stream, control=EAGER)
            wait(partial(told, handle, PATIENCE + 1))
        assert handle.events == [FAILED] * PATIENCE + ["left alone after repeated failures"]
        assert not handle.attached
        goes_on(stream)


def test_a_query_goes_on_when_the_thread_ends(stream: Any, spark: SparkSession) -> None:
    def end(observed: object) -> None:
        raise SystemExit("no more")

    handle: Any = attach(stream, adapt=False, on_batch=end)
    wait(partial(told, handle, 1))
    text = "Penstock hears of no more batches, the query goes on: SystemExit: no more"
    assert handle.events == [text]
    goes_on(stream)
    again: Any = attach(stream, adapt=False)
    wait(lambda: again.batches >= 1)
    again.detach()
    assert again.events == ["detached"]


def test_no_jar_stays_in_the_session(stream: Any, spark: SparkSession) -> None:
    def jars() -> str:
        context: Any = spark.sparkContext._jsc
        return str(context.sc().listJars().mkString(","))

    before = jars()
    handle: Any = attach(stream, adapt=False)
    wait(lambda: handle.batches >= 1)
    # No such operator: the classes are shipped, and nothing is loaded.
    line = "\t".join(["checkpoint", handle.run, "9", "0", "default", "host", "0"])
    for _ in range(2):
        handle = attach(stream, adapt=False)
        watch = attachment_of(spark).watch
        assert watch.warm(handle.id, "load", line) == 0
        assert "penstock-warm.jar" in jars()
        handle.detach()
        assert jars() == before


def test_a_query_that_was_started_again_is_attached_anew(
    spark: SparkSession, tmp_path: Path, stream: Any
) -> None:
    session: Any = attach(spark, adapt=False)
    (first,) = session.queries.values()
    wait(lambda: first.batches >= 1)
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    counts = frame.groupBy((frame.value % 3).alias("k")).count()
    stream.stop()
    writer = counts.writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        name = f"query-{str(query.id)[:8]}"
        wait(lambda: session.queries[name] is not first and session.queries[name].batches >= 1)
        assert first.events == ["the query has ended"]
    finally:
        query.stop()
        session.detach()
