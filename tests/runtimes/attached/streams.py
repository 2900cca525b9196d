"""Queries of every kind with state, over the same small files, as plain PySpark writes them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark.sql.functions as sf
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

#: Columns of the files: a key, event time, and a value.
SCHEMA = "k INT, t TIMESTAMP, v INT"


def write_files(folder: Path, files: int, rows: int = 300, seed: int = 7) -> None:
    """Write files whose event time goes on by ten seconds each, some rows out of order."""
    folder.mkdir(parents=True)
    draw = random.Random(seed)
    for number in range(files):
        at = [number * 10 + draw.randint(-8, 9) for _ in range(rows)]
        table = pa.table(
            {
                "k": pa.array([int(draw.paretovariate(0.7)) % 40 for _ in at], pa.int32()),
                "t": pa.array([(1_700_000_000 + s) * 1_000_000 for s in at], pa.timestamp("us")),
                "v": pa.array([draw.randint(0, 9) for _ in at], pa.int32()),
            }
        )
        pq.write_table(table, folder / f"{number:04d}.parquet")


def read(spark: SparkSession, folder: Path) -> DataFrame:
    """Read one file a batch."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def aggregation(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").agg(sf.count("*").alias("n"), sf.sum("v").alias("total"))


def window(rows: DataFrame) -> DataFrame:
    late = rows.withWatermark("t", "10 seconds")
    return late.groupBy(sf.window("t", "20 seconds", "10 seconds"), "k").agg(sf.sum("v"))


def join(rows: DataFrame) -> DataFrame:
    left = rows.withWatermark("t", "10 seconds").where("v < 5")
    right = rows.withWatermark("t", "10 seconds").where("v >= 5")
    right = right.select(sf.col("k").alias("k2"), sf.col("t").alias("t2"), sf.col("v").alias("v2"))
    near = sf.expr("k = k2 AND t2 BETWEEN t AND t + INTERVAL 3 SECONDS")
    paired = left.join(right, near)
    return paired.groupBy(sf.window("t", "10 seconds"), "k").agg(sf.count("*"), sf.sum("v2"))


def deduplication(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("t", "10 seconds").dropDuplicates(["k", "t"])


def session(rows: DataFrame) -> DataFrame:
    late = rows.withWatermark("t", "10 seconds")
    return late.groupBy(sf.session_window("t", "2 seconds"), "k").agg(sf.count("*"), sf.sum("v"))


OUTPUT = StructType([StructField("k", IntegerType()), StructField("total", LongType())])


def _running_total(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    total = state.get[0] if state.exists else 0
    total += sum(int(frame["v"].sum()) for frame in frames)
    state.update((total,))
    yield pd.DataFrame({"k": [key[0]], "total": [total]})


def pandas_with_state(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").applyInPandasWithState(
        _running_total, OUTPUT, "total LONG", "update", "NoTimeout"
    )


class RunningTotal(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self._total = handle.getValueState("total", "total LONG")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        total = self._total.get()[0] if self._total.exists() else 0
        total += sum(int(frame["v"].sum()) for frame in rows)
        self._total.update((total,))
        yield pd.DataFrame({"k": [key[0]], "total": [total]})

    def close(self) -> None:
        pass


def transform_with_state(rows: DataFrame) -> DataFrame:
    return rows.groupBy("k").transformWithStateInPandas(RunningTotal(), OUTPUT, "update", "none")


#: Every kind of query with state, and the mode that its rows are written in.
KINDS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "aggregation": (aggregation, "update"),
    "window": (window, "append"),
    "join": (join, "append"),
    "deduplication": (deduplication, "append"),
    "session": (session, "append"),
    "pandas_with_state": (pandas_with_state, "update"),
    "transform_with_state": (transform_with_state, "update"),
}
