"""Streaming DataFrames run by the engine: the same rows as Spark gives, or a refusal by name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.engine.driver.fingerprint import Fingerprint
from penstock.engine.job_graph import JobGraph
from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline import Memory

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.runtimes.spark.plan_reader import pipeline_of
from penstock.spark import PlanNotUnderstood, start

ROWS, FILES = 300, 3

Make = Callable[[DataFrame], DataFrame]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of rows whose times go on, out of order by less than two seconds."""
    at: Path = tmp_path_factory.mktemp("frames")
    draw = np.random.default_rng(3)
    late = draw.integers(0, 1_500_000, ROWS)
    times = 1_700_000_000_000_000 + np.arange(ROWS) * 100_000 - late
    table = pa.table(
        {
            "t": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "k": pa.array(["a", "b", "c", None]).take(pa.array(draw.integers(0, 4, ROWS))),
            "v": pa.array(draw.integers(-5, 50, ROWS)),
            "x": pa.array(np.where(draw.random(ROWS) < 0.1, np.nan, draw.integers(0, 9, ROWS))),
        }
    )
    for number in range(FILES):
        part = table.slice(number * ROWS // FILES, ROWS // FILES)
        pq.write_table(part, at / f"{number}.parquet")
        # Spark reads files in the order of their times.
        os.utime(at / f"{number}.parquet", (1_700_000_000 + number,) * 2)
    return at


@pytest.fixture
def stream(spark: SparkSession, folder: Path) -> DataFrame:
    schema = spark.read.parquet(str(folder)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def ours(spark: SparkSession, frame: DataFrame, mode: str) -> pa.Table:
    sink = Memory()
    with start(frame, spark, "even", sink=sink, mode=mode, available_now=True, control=None) as run:
        run.await_termination(120)
    return sink.table()


def theirs(frame: DataFrame, mode: str, folder: Path) -> pa.Table:
    parts: list[pa.Table] = []
    query = (
        frame.writeStream.outputMode(mode)
        .foreachBatch(lambda rows, _: parts.append(rows.toArrow()))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return pa.concat_tables(parts)


def as_rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, (tuple(row.values()) for row in table.to_pylist())))


def windowed(rows: DataFrame) -> DataFrame:
    return rows.groupBy(sf.window("t", "5 seconds"), "k").count()


ONCE: dict[str, Make] = {
    "filter behind the watermark": lambda s: windowed(
        s.withWatermark("t", "2 seconds").select("k", "t", "v").where("v > 3")
    ),
    "table behind the watermark": lambda s: windowed(
        s.withWatermark("t", "2 seconds").join(
            s.sparkSession.createDataFrame([("a", 1), ("a", 2)], "k string, w int"), "k", "left"
        )
    ),
    "tumbling": lambda s: (
        s.withWatermark("t", "2 seconds")
        .groupBy(sf.window("t", "5 seconds"), "k")
        .agg(sf.count("*").alias("n"), sf.max("v"))
    ),
    "sliding": lambda s: (
        s.withWatermark("t", "2 seconds")
        .groupBy("k", sf.window("t", "6 seconds", "2 seconds"))
        .agg(sf.sum("v").alias("s"))
        .select("k", "window.start", "s")
        .where("s > 30 and k is not null")
    ),
    "session": lambda s: (
        s.withWatermark("t", "2 seconds").groupBy(sf.session_window("t", "1 seconds"), "k").count()
    ),
    "stateless": lambda s: s.where("v > 3").select("k", (sf.col("v") * 2).alias("twice")),
    "distinct": lambda s: s.select("k").distinct(),
    "within": lambda s: (
        s.withWatermark("t", "2 seconds").dropDuplicatesWithinWatermark(["k"]).select("k")
    ),
}

REPLACED: dict[str, Make] = {
    "count": lambda s: s.groupBy("k").count(),
    "several": lambda s: (
        s.where("v > 0")
        .groupBy("k", (sf.col("v") % 2).alias("odd"))
        .agg(
            sf.sum("v").alias("total"),
            sf.avg("x"),
            sf.min("x"),
            sf.count("k").alias("there"),
            sf.count_if(sf.col("v") > 20).alias("big"),
            sf.expr("sum(v) filter (where v < 10)").alias("small"),
        )
    ),
    "everything": lambda s: s.groupBy().agg(sf.count("*"), sf.max("v").alias("most")),
    "having": lambda s: s.groupBy("k").agg(sf.sum("v").alias("s")).where("s >= 100"),
    # NaN is above all numbers and equals itself.
    "having of NaN": lambda s: s.groupBy("k").agg(sf.max("x").alias("m")).where("m > 5"),
    "having equal to NaN": lambda s: (
        s.groupBy("k")
        .agg(sf.max("x").alias("m"), sf.min("x").alias("n"))
        .where("m = double('NaN') and not (n >= m)")
    ),
    "having with casts": lambda s: (
        s.groupBy("k")
        .agg(sf.sum("v").alias("s"), sf.max("t").alias("t"), sf.expr("sum(cast(v as dec(9, 2))) d"))
        .where("s > '40' and s > 1.5 and t > timestamp'2023-11-14 00:00:00' and d > 0.25")
    ),
    "constants": lambda s: s.groupBy("k").agg(
        *(sf.expr(f"count{e}") for e in ("(null)", "(1)", "(1, v)", "_if(false)", "_if(true)"))
    ),
}

REFUSED: dict[str, tuple[Make, str]] = {
    "sort": (lambda s: s.groupBy("k").count().orderBy("k"), "node Sort"),
    "two": (lambda s: s.groupBy("k", "v").count().groupBy("k").count(), "node Aggregate"),
    "window": (lambda s: s.groupBy(sf.window("t", "5 seconds")).count(), "use withWatermark"),
    "start": (
        lambda s: (
            s.withWatermark("t", "2 seconds")
            .groupBy(sf.window("t", "5 seconds", "5 seconds", "-1 seconds"))
            .count()
        ),
        "a start of its own",
    ),
    "join behind the watermark": (
        lambda s: windowed(
            s.withWatermark("t", "2 seconds").join(
                s.sparkSession.createDataFrame([("a",)], "k string"), "k"
            )
        ),
        "Join stands behind withWatermark",
    ),
    "time behind the watermark": (
        lambda s: windowed(s.withWatermark("t", "2 seconds").where("year(t) > 1990")),
        "a filter by the time",
    ),
    "two watermarks": (
        lambda s: windowed(
            s.withWatermark("t", "2 seconds").union(s.withWatermark("t", "9 seconds"))
        ),
        "more than one withWatermark",
    ),
    "time itself": (
        lambda s: s.withWatermark("t", "2 seconds").groupBy("t").count(),
        "the time of its watermark itself",
    ),
    "collation": (
        lambda s: s.groupBy(sf.expr("k collate utf8_lcase")).count(),
        "has a collation",
    ),
    "quotient": (
        lambda s: s.groupBy("k").agg((sf.sum("v") / sf.count("*")).alias("r")),
        "column 'r' is not an aggregate alone",
    ),
    "order": (
        lambda s: s.groupBy("k").agg(sf.max(sf.struct("v", "x")).alias("m")),
        "'m' is of a type without an order",
    ),
    "function": (lambda s: s.groupBy("k").agg(sf.stddev("v").alias("d")), "of 'd' only avg"),
    "worked out": (
        lambda s: s.groupBy("k").count().select((sf.col("count") + 1).alias("more")),
        "node Project",
    ),
}


@pytest.mark.parametrize("name", ONCE)
def test_rows_that_are_emitted_once(
    spark: SparkSession, stream: DataFrame, tmp_path: Path, name: str
) -> None:
    frame = ONCE[name](stream)
    got, wanted = ours(spark, frame, "append"), theirs(frame, "append", tmp_path)
    assert got.column_names == wanted.column_names
    assert got.num_rows > 0
    assert as_rows(got) == as_rows(wanted)


@pytest.mark.parametrize("name", REPLACED)
def test_rows_that_are_replaced(
    spark: SparkSession, stream: DataFrame, tmp_path: Path, name: str
) -> None:
    frame = REPLACED[name](stream)
    got, wanted = ours(spark, frame, "update"), theirs(frame, "update", tmp_path)
    assert got.column_names == wanted.column_names
    assert as_rows(got) == as_rows(wanted)


def test_different_values_are_counted(spark: SparkSession, stream: DataFrame, folder: Path) -> None:
    """Structured Streaming refuses this, so it is compared with a query over the whole table."""
    got = ours(spark, stream.groupBy("k").agg(sf.countDistinct("v").alias("n")), "update")
    whole = spark.read.parquet(str(folder)).groupBy("k").agg(sf.countDistinct("v").alias("n"))
    last = {row["k"]: row["n"] for row in got.to_pylist()}
    assert last == {row["k"]: row["n"] for row in whole.collect()}


def test_nodes_before_the_aggregation_stay_in_spark(
    spark: SparkSession, stream: DataFrame, tmp_path: Path
) -> None:
    names = spark.createDataFrame([("a", "Ada"), ("b", "Ben")], "k string, name string")
    frame = stream.join(names, "k").groupBy("name").count()
    assert as_rows(ours(spark, frame, "update")) == as_rows(theirs(frame, "update", tmp_path))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_named(spark: SparkSession, stream: DataFrame, name: str) -> None:
    make, said = REFUSED[name]
    with pytest.raises(PlanNotUnderstood, match=said) as told:
        start(make(stream), spark, sink=Memory())
    assert "penstock.spark.attach" in str(told.value)


def fingerprint(frame: DataFrame, mode: str = "update") -> Fingerprint:
    return Fingerprint.of(JobGraph.of(pipeline_of(frame, Memory(), mode)))


def kept(frame: DataFrame, mode: str = "update") -> dict[str, tuple[object, object]]:
    """Return what a checkpoint says of the state of a query: its key, and what it means."""
    stateful = fingerprint(frame, mode).stateful
    return {name: (one["key"], one["state"]) for name, one in stateful.items()}


def test_a_checkpoint_belongs_to_the_query_that_wrote_it(stream: DataFrame) -> None:
    """State has no names of Spark's own: another key or aggregate must not go on with it."""
    keyed = stream.groupBy("k")
    before = kept(keyed.agg(sf.sum("v"), sf.max("x")))
    assert kept(keyed.agg(sf.sum("v").alias("s"), sf.max("x")).where("s > 3")) == before
    assert kept(keyed.agg(sf.sum("v"), sf.max("x")).select("max(x)", "k")) == before
    for other in (
        keyed.agg(sf.sum("x"), sf.max("x")),
        keyed.agg(sf.sum("v"), sf.max("v")),
        keyed.agg(sf.sum("v")),
        keyed.agg(sf.expr("sum(v) filter (where v > 1)"), sf.max("x")),
        stream.groupBy("v").agg(sf.sum("v"), sf.max("x")),
        stream.groupBy(sf.upper("k").alias("k")).agg(sf.sum("v"), sf.max("x")),
    ):
        assert kept(other) != before
    firsts = kept(stream.dropDuplicates(["k"]), "append")
    assert kept(stream.select("v", "k").dropDuplicates(["k"]), "append") == firsts
    assert kept(stream.dropDuplicates(["v"]), "append") != firsts


def test_a_column_may_be_called_as_an_attribute_of_a_source(stream: DataFrame) -> None:
    named = stream.select(sf.col("v").alias("identity"))
    assert fingerprint(named).sources == {"rows": "DataFrame"}


def test_aggregates_in_another_order_keep_their_state(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    files = sorted(folder.glob("*.parquet"))
    found: dict[str, dict[str, object]] = {}
    for columns, names in ((["v", "t"], ["0", "1"]), (["t", "v"], ["2"])):
        for file in files:
            if file.stem in names:
                shutil.copy2(file, tmp_path / "in")
        rows = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
        query = rows.parquet(str(tmp_path / "in")).groupBy("k").agg(*map(sf.max, columns))
        sink = Memory()
        with start(
            query,
            spark,
            "even",
            sink=sink,
            available_now=True,
            control=None,
            checkpoint=tmp_path / "checkpoint",
        ) as run:
            run.await_termination(120)
        found |= {row["k"]: row for row in sink.table().to_pylist()}
    wanted = pa.concat_tables(map(pq.read_table, files)).group_by("k")
    for row in wanted.aggregate([("v", "max"), ("t", "max")]).to_pylist():
        assert found[row["k"]] == {
            "k": row["k"],
            "max(v)": row["v_max"],
            "max(t)": row["t_max"],
        }


def test_no_end_to_emit_at(spark: SparkSession, stream: DataFrame) -> None:
    with pytest.raises(PlanNotUnderstood, match="without a window there is no end"):
        start(stream.groupBy("k").count(), spark, sink=Memory(), mode="append")


def test_two_columns_of_one_name(spark: SparkSession, stream: DataFrame) -> None:
    with pytest.raises(NotAllowed, match="two columns called 'k'"):
        start(stream.groupBy("k").agg(sf.max("v").alias("k")), spark, sink=Memory())


def test_a_sink_and_a_stream_are_needed(spark: SparkSession, stream: DataFrame) -> None:
    with pytest.raises(InvalidValue, match="sink"):
        start(stream.groupBy("k").count(), spark)
    with pytest.raises(InvalidValue, match="streaming"):
        start(spark.range(3), spark, sink=Memory())
