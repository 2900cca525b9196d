"""A pipeline on one node: what a user writes, sees and changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")


from tests.runtimes.word_count import LINES, WORDS, counted, rows, split, words

from penstock import functions as F
from penstock import spark as engine
from penstock.common.errors import UnknownKeyword
from penstock.engine.errors import StepFailed
from penstock.engine.job_graph import JobGraph
from penstock.model import InvalidValue, Keep, Plan, Reason
from penstock.pipeline import Memory, Pipeline, Rows
from penstock.runtimes.spark.recorder import FAILURE
from penstock.store.records import RunStatus
from penstock.strategies import Request
from penstock.strategies.penstock import Penstock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


@pytest.mark.spark
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
        told = [event.text for event in run.records().events if event.kind == FAILURE]
    assert len(told) == 1
    assert told[0].startswith("step 'bad' failed in instance ")
    assert "ValueError: no such line (bad, line " in told[0]
    assert "rows" not in told[0], "what a page shows holds no data of users"
    assert caught.value.step == "bad"
    assert caught.value.batch_id not in sink.batches
    done = sum(WORDS.values()) and 10 * len(sink.batches)
    assert sum(counted(sink).values()) == 4 * done


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
