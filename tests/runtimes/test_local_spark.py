"""The engine on one node: what a user writes, what fails, what is written down."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JJavaError

from penstock import functions as F
from penstock import spark as engine
from penstock.common.errors import UnknownKeyword
from penstock.engine.backend import Stage
from penstock.engine.errors import SinkFailed, StepFailed
from penstock.engine.job_graph import JobGraph
from penstock.model import InvalidValue, Keep, Plan, Reason
from penstock.pipeline import Call, Memory, Pipeline, Rows
from penstock.runtimes.spark import watch
from penstock.runtimes.spark.backend import SparkBackend
from penstock.runtimes.spark.errors import WorkerLost
from penstock.runtimes.spark.jvm import jvm_of
from penstock.store import MetricsStore
from penstock.store.records import RunStatus
from penstock.strategies import Request
from penstock.strategies.penstock import Penstock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = [f"a b c{i % 5} d{i % 3}" for i in range(300)]
WORDS = Counter(word for line in LINES for word in line.split())


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"word": pc.list_flatten(pc.split_pattern(batch.column("line"), " "))})


def words(source: Any, sink: Any) -> Pipeline:
    return (
        Pipeline("words")
        .source("lines", source, parallelism=2)
        .map("split", split)
        .aggregate("count", by="word", n=F.count(), parallelism=3)
        .sink("out", sink)
    )


def counted(sink: Memory) -> dict[str, int]:
    return {row["word"]: row["n"] for row in sink.latest("word").to_pylist()}


def test_a_task_that_belongs_elsewhere_fails(spark: SparkSession, tmp_path: Path) -> None:
    backend = SparkBackend(spark, str, str(tmp_path))
    (here,) = backend.alive()

    def body(partition: int, frames: Iterable[bytes], place: Path) -> Iterator[tuple[int, bytes]]:
        yield 0, b"".join(frames)

    stage = Stage((here,), body, ((b"given", b" frames"),))
    assert backend.job("here", [stage]) == [b"given frames"]
    sc = spark.sparkContext
    base = sc.parallelize([()], 1)._jrdd
    jvm = jvm_of(sc)
    assert jvm.pinned(base, ["executor_far_99"]).count() == 1, "a preference"
    with pytest.raises(Py4JJavaError, match="a task for executor_far_99 was given to executor"):
        jvm.pinned(base, ["!executor_far_99"]).count()


def rows(size: int) -> engine.QueueOptions:
    """Let a batch take no more than so many rows."""
    return engine.QueueOptions(size=size)


SESSIONS = """
import pyarrow as pa
from penstock import functions as F, spark as engine
from penstock.pipeline import Memory, Pipeline, Rows

for _ in range(3):
    sink = Memory()
    rows = Rows(pa.table({"k": ["a", "b", "a"]}))
    pipeline = Pipeline("p").source("rows", rows).aggregate("n", by="k", n=F.count())
    with engine.cluster("local[1]") as spark:
        with engine.start(pipeline.sink("out", sink), spark) as run:
            run.await_termination(60)
    print(sorted(sink.latest("k").to_pylist(), key=str))
"""


def test_one_session_after_the_other_in_a_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SESSIONS], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["[{'k': 'a', 'n': 2}, {'k': 'b', 'n': 1}]"] * 3


def test_a_pipeline_runs_to_its_end(spark: SparkSession, tmp_path: Path) -> None:
    sink = Memory()
    source = Rows(pa.table({"line": LINES}))
    with engine.start(
        words(source, sink), spark, queue=rows(70), store=tmp_path / "m.sqlite"
    ) as run:
        assert run.await_termination(120)
        records = run.records()
    assert counted(sink) == WORDS
    assert records.run.status is RunStatus.FINISHED
    assert (records.run.rows_lost, records.run.rows_duplicated) == (0, 0)
    assert len(records.batches) == 5
    assert sum(b.rows_in for b in records.batches) == 300
    assert all(b.tasks == b.tasks_honoured == 5 for b in records.batches)
    operators = {(i.operator, i.index) for i in records.instances}
    assert operators == {("lines+split", 0), ("lines+split", 1), *(("count", i) for i in range(3))}
    assert all(i.cpu_ms is not None and i.executor for i in records.instances)


def test_a_stopped_run_goes_on_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    source = Rows(pa.table({"line": LINES}))
    first = Memory()
    seen: list[int] = []
    runs: list[engine.Query] = []

    def stop_early(observed: Any) -> None:
        seen.append(observed.batch.batch)
        if len(seen) == 2:
            runs[0].stop()

    run = engine.start(
        words(source, first),
        spark,
        queue=rows(60),
        checkpoint=tmp_path,
        listener=stop_early,
    )
    runs.append(run)
    with run:
        run.await_termination(120)
    assert len(seen) == 2
    second = Memory()
    with engine.start(words(source, second), spark, queue=rows(60), checkpoint=tmp_path) as again:
        assert again.await_termination(120)
    assert sorted(second.batches) == [2, 3, 4]
    first.batches.update(second.batches)
    assert counted(first) == WORDS


def test_a_streaming_dataframe_is_a_source(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(3):
        (folder / f"{i}.txt").write_text("\n".join(LINES[i * 100 : (i + 1) * 100]) + "\n")
    stream = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(folder))
    sink = Memory()
    pipeline = words(stream.withColumnRenamed("value", "line"), sink)
    with engine.start(pipeline, spark, available_now=True, checkpoint=tmp_path / "c") as run:
        assert run.await_termination(120)
    assert counted(sink) == WORDS
    assert sorted(sink.batches) == [0, 1, 2]
    # Nothing new: a second run over the same checkpoint does nothing.
    with engine.start(pipeline, spark, available_now=True, checkpoint=tmp_path / "c") as run:
        assert run.await_termination(120)
    assert counted(sink) == WORDS


def test_two_streaming_dataframes_are_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    streams = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.txt").write_text("\n".join(f"{name}{i}" for i in range(20)) + "\n")
        streams.append(spark.readStream.format("text").load(str(tmp_path / name)))
    sink = Memory()
    pipeline = (
        Pipeline("two")
        .source("a", streams[0])
        .source("b", streams[1])
        .map(
            "tell",
            lambda batch, origin: batch.append_column("from", pa.array([origin] * len(batch))),
            after=["a", "b"],
            parallelism=2,
        )
        .sink("out", sink)
    )
    with engine.start(pipeline, spark, available_now=True) as run:
        assert run.await_termination(120)
    got = sink.table().to_pylist()
    assert len(got) == 40
    assert all(row["value"].startswith(row["from"]) for row in got)


def test_sources_of_two_kinds_are_refused(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    pipeline = (
        Pipeline("mixed")
        .source("a", stream)
        .source("b", Rows(pa.table({"x": [1]})))
        .map("m", lambda batch: None, after=["a", "b"])
        .sink("o", Memory())
    )
    with pytest.raises(InvalidValue, match="all"):
        engine.start(pipeline, spark)
    still = spark.range(3)
    with pytest.raises(InvalidValue, match="streaming DataFrame"):
        engine.start(Pipeline("p").source("a", still).sink("o", Memory()), spark)


def test_a_failing_step_stops_the_run_and_is_named(spark: SparkSession, tmp_path: Path) -> None:
    def bad(batch: pa.RecordBatch) -> pa.RecordBatch:
        if "a b c3 d1" in batch.column("line").to_pylist():
            raise ValueError("no such line")
        return split(batch)

    sink = Memory()
    source = Rows(pa.table({"line": LINES}))
    pipeline = (
        Pipeline("bad")
        .source("lines", source, parallelism=2)
        .map("bad", bad)
        .aggregate("count", by="word", n=F.count(), parallelism=2)
        .sink("out", sink)
    )
    with engine.start(pipeline, spark, queue=rows(10)) as run:
        with pytest.raises(StepFailed, match="no such line") as caught:
            run.await_termination(120)
        assert run.records().run.status is RunStatus.FAILED
    assert caught.value.step == "bad"
    assert caught.value.batch_id not in sink.batches
    done = sum(WORDS.values()) and 10 * len(sink.batches)
    assert sum(counted(sink).values()) == 4 * done


def test_a_failing_step_in_a_dataframe_stream_is_named_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("x\n")
    stream = spark.readStream.format("text").load(str(tmp_path / "in"))

    def bad(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise KeyError("word")

    pipeline = Pipeline("bad").source("s", stream).map("bad", bad).sink("o", Memory())
    with (
        engine.start(pipeline, spark, available_now=True) as run,
        pytest.raises(StepFailed, match="KeyError"),
    ):
        run.await_termination(120)


def test_a_plan_can_be_replaced_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    sink = Memory()
    table = pa.table({"k": [f"k{i % 50}" for i in range(2000)], "v": list(range(2000))})
    pipeline = (
        Pipeline("moving")
        .source("rows", Rows(table), parallelism=2)
        .aggregate("sum", by="k", t=F.sum("v"), parallelism=2)
        .sink("out", sink)
    )
    runs: list[engine.Query] = []

    def listen(observed: Any) -> None:
        if observed.batch.batch == 3:
            topology = JobGraph.of(pipeline).topology(2).with_parallelism({"sum": 5})
            plan = Penstock().plan(Request(topology, runs[0]._execution.executors.cluster))
            assert isinstance(plan, Plan)
            runs[0].replace_plan(plan, "five instances")

    run = engine.start(pipeline, spark, queue=rows(200), listener=listen, checkpoint=tmp_path)
    runs.append(run)
    with run:
        assert run.await_termination(120)
        events = [event.kind for event in run.records().events]
    got = {row["k"]: row["t"] for row in sink.latest("k").to_pylist()}
    wanted: Counter[str] = Counter()
    for row in table.to_pylist():
        wanted[row["k"]] += row["v"]
    assert got == wanted
    assert events.count("plan") >= 2
    commit_log = sorted((tmp_path / "commit-log" / "commits").glob("*.json"))
    last = json.loads(commit_log[-1].read_text())
    assert len(last["state"]["sum"]["versions"]) == 5


def test_a_batch_writer_of_sparks_is_a_sink(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def write(frame: Any, batch_id: int) -> None:
        frame.write.mode("overwrite").parquet(str(out / f"batch={batch_id}"))

    source = Rows(pa.table({"line": LINES}))
    with engine.start(words(source, engine.Writer(spark, write)), spark, queue=rows(100)) as run:
        assert run.await_termination(120)
    found = spark.read.parquet(str(out)).groupBy("word").max("n").collect()
    assert {row[0]: row[1] for row in found} == WORDS


def test_adaptive_execution_is_refused(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    try:
        with pytest.raises(InvalidValue, match="adaptive"):
            engine.start(words(Rows(pa.table({"line": LINES})), Memory()), spark)
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", "false")


def test_a_misspelt_keyword_is_answered(spark: SparkSession) -> None:
    pipeline = words(Rows(pa.table({"line": LINES})), Memory())
    with pytest.raises(UnknownKeyword, match="did you mean 'checkpoint'"):
        engine.start(pipeline, spark, checkpiont="ck")  # type: ignore[call-arg]
    with pytest.raises(UnknownKeyword, match="did you mean 'parity'"):
        engine.StateOptions(parityy=2)  # type: ignore[call-arg]
    with pytest.raises(InvalidValue, match="a QueueOptions"):
        engine.start(pipeline, spark, queue=70)  # type: ignore[arg-type]


def test_the_handle_explains_itself(spark: SparkSession) -> None:
    with engine.start(words(Rows(pa.table({"line": LINES})), Memory()), spark) as run:
        assert run.await_termination(120)
        assert run.explain().startswith("The plan of words by penstock:")
        assert not run.is_active
        assert run.exception is None
        assert run.status.batch == 0
        assert (run.status.rows_lost, run.status.retries) == (0, 0)
        with pytest.raises(InvalidValue, match="there is none yet"):
            run.explain(1)


def test_scaling_is_no_error_when_the_strategy_keeps_its_plan(spark: SparkSession) -> None:
    class Stubborn:
        name = "stubborn"

        def plan(self, request: Request) -> Plan | Keep:
            if request.running is not None:
                return Keep((Reason("no need"),))
            return Penstock().plan(request)

    answers: list[bool] = []
    runs: list[engine.Query] = []

    def listen(observed: Any) -> None:
        if runs and not answers:
            answers.append(runs[0].scale("count", 5))

    source = Rows(pa.table({"line": LINES}))
    made: Any = Stubborn()
    with engine.start(
        words(source, Memory()), spark, made, queue=rows(50), listener=listen, interval_s=0.3
    ) as run:
        runs.append(run)
        assert run.await_termination(120)
        texts = [event.text for event in run.records().events]
    assert answers == [False]
    assert any("keeps the plan" in text and "no need" in text for text in texts)


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
