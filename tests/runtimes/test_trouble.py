"""Functions that hang or leave, sources and sinks that fail, a store that is away."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")


from tests.runtimes.word_count import LINES, WORDS, counted, rows, words

from penstock import spark as engine
from penstock.engine.errors import SinkFailed, StepFailed
from penstock.pipeline import Call, Memory, Pipeline, Rows
from penstock.runtimes.spark import watch
from penstock.runtimes.spark.errors import WorkerLost
from penstock.store import MetricsStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Flaky:
    """A source and a function of a sink that fail some times, then work."""

    stamp = None

    def __init__(self, table: pa.Table, failures: int) -> None:
        self.inner, self.failures = Rows(table), failures
        self.end, self.schema = self.inner.end, self.inner.schema

    def available(self, elapsed_s: float) -> int:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the broker is away")
        return self.inner.available(elapsed_s)

    def read(self, start: int, stop: int) -> pa.Table:
        return self.inner.read(start, stop)


SOON = engine.RecoveryOptions(retry_pause_s=0.01, retries=3)


def test_a_source_that_comes_back_is_asked_again(spark: SparkSession) -> None:
    sink = Memory()
    source = Flaky(pa.table({"line": LINES}), 3)
    with engine.start(words(source, sink), spark, recovery=SOON) as run:
        assert run.await_termination(120)
        assert run.status.retries == 3
        texts = [event.text for event in run.records().events if event.kind == "retry"]
    assert counted(sink) == WORDS
    assert len(texts) == 3
    assert "source 'lines': ConnectionError: the broker is away; try 1 of 3" in texts[0]


def test_a_source_that_stays_away_ends_the_run(spark: SparkSession) -> None:
    source = Flaky(pa.table({"line": LINES}), 4)
    with (
        engine.start(words(source, Memory()), spark, recovery=SOON) as run,
        pytest.raises(ConnectionError, match="away"),
    ):
        run.await_termination(120)


@pytest.mark.parametrize("failures", [3, 4])
def test_a_sink_is_tried_again_within_bounds(spark: SparkSession, failures: int) -> None:
    taken: dict[int, pa.Table] = {}
    left = [failures]

    def write(batch: int, table: pa.Table) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError("no space")
        taken[batch] = table

    pipeline = words(Rows(pa.table({"line": LINES})), Call(write))
    with engine.start(pipeline, spark, recovery=SOON) as run:
        if failures > SOON.retries:
            with pytest.raises(SinkFailed, match="sink 'out' did not take batch 0: OSError"):
                run.await_termination(120)
        else:
            assert run.await_termination(120)
            assert run.status.retries == failures
            assert sum(row["n"] for row in taken[0].to_pylist()) == sum(WORDS.values())


def test_a_function_that_never_returns_fails_with_its_step(spark: SparkSession) -> None:
    def hang(batch: pa.RecordBatch) -> pa.RecordBatch:
        time.sleep(3600)
        return batch

    source = Rows(pa.table({"line": LINES}))
    pipeline = Pipeline("p").source("lines", source).map("hang", hang).sink("out", Memory())
    recovery = engine.RecoveryOptions(task_timeout_s=2.0)
    started = time.monotonic()
    with (
        engine.start(pipeline, spark, recovery=recovery, on_error="skip") as run,
        pytest.raises(StepFailed, match=r"did not return within 2 s \(hang, line") as caught,
    ):
        run.await_termination(120)
    assert caught.value.step == "hang"
    assert time.monotonic() - started < 60


def test_a_worker_that_hears_no_alarm_is_ended(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf(batch: pa.RecordBatch) -> pa.RecordBatch:
        import signal

        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        time.sleep(3600)
        return batch

    monkeypatch.setattr(watch, "GRACE_S", 1.0)
    source = Rows(pa.table({"line": LINES}))
    pipeline = Pipeline("p").source("lines", source).map("deaf", deaf).sink("out", Memory())
    recovery = engine.RecoveryOptions(task_timeout_s=1.0)
    with (
        engine.start(pipeline, spark, recovery=recovery) as run,
        pytest.raises(StepFailed, match="its worker was ended") as caught,
    ):
        run.await_termination(120)
    assert "deaf" in caught.value.step
    sink = Memory()
    with engine.start(words(source, sink), spark) as after:
        assert after.await_termination(120), "what comes after it is not held up"
    assert counted(sink) == WORDS


def test_a_function_that_ends_the_process_fails_with_its_step(spark: SparkSession) -> None:
    def leave(batch: pa.RecordBatch) -> pa.RecordBatch:
        sys.exit(3)

    source = Rows(pa.table({"line": LINES}))
    pipeline = Pipeline("p").source("lines", source).map("leave", leave).sink("out", Memory())
    with (
        engine.start(pipeline, spark, on_error="skip") as run,
        pytest.raises(StepFailed, match="SystemExit: 3") as caught,
    ):
        run.await_termination(120)
    assert caught.value.step == "leave"


def test_a_killed_worker_is_told_in_a_sentence(spark: SparkSession) -> None:
    def die(batch: pa.RecordBatch) -> pa.RecordBatch:
        os.kill(os.getpid(), signal.SIGKILL)
        return batch

    source = Rows(pa.table({"line": LINES}))
    pipeline = Pipeline("p").source("lines", source).map("die", die).sink("out", Memory())
    with (
        engine.start(pipeline, spark) as run,
        pytest.raises(WorkerLost, match="a Python worker ended in the middle of a task"),
    ):
        run.await_termination(120)


@pytest.mark.parametrize("how", ["locked", "damaged"])
def test_a_store_in_trouble_stops_no_run(spark: SparkSession, tmp_path: Path, how: str) -> None:
    place = tmp_path / "ck" / "metrics.sqlite"
    place.parent.mkdir()
    other = None
    if how == "damaged":
        place.write_bytes(b"no database" * 1000)
    else:
        MetricsStore.open(place).close()
        other = sqlite3.connect(place, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
    sink = Memory()
    source = Rows(pa.table({"line": LINES}))
    with engine.start(
        words(source, sink), spark, queue=rows(70), checkpoint=tmp_path / "ck"
    ) as run:
        assert run.await_termination(120), "the end is told whatever the store does"
        if other is not None:
            other.execute("ROLLBACK")
            other.close()
        assert len(run.records().batches) == 5
    assert counted(sink) == WORDS
