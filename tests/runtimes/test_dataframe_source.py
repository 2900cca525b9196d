"""Streaming DataFrames as sources, and a batch writer of Spark's as a sink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")


from tests.runtimes.word_count import LINES, WORDS, counted, rows, words

from penstock import spark as engine
from penstock.engine.errors import StepFailed
from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline import Memory, Pipeline, Rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    with pytest.raises(NotAllowed, match="has sources of one of these kinds"):
        engine.start(pipeline, spark)
    still = spark.range(3)
    with pytest.raises(InvalidValue, match="streaming DataFrame"):
        engine.start(Pipeline("p").source("a", still).sink("o", Memory()), spark)


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


def test_a_batch_writer_of_sparks_is_a_sink(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def write(frame: Any, batch_id: int) -> None:
        frame.write.mode("overwrite").parquet(str(out / f"batch={batch_id}"))

    source = Rows(pa.table({"line": LINES}))
    with engine.start(words(source, engine.Writer(spark, write)), spark, queue=rows(100)) as run:
        assert run.await_termination(120)
    found = spark.read.parquet(str(out)).groupBy("word").max("n").collect()
    assert {row[0]: row[1] for row in found} == WORDS
