"""What a batch costs besides the work on its rows: ``python benchmarks/batch_cost.py``.

A count by key in small batches with data always waiting, on two cores of one process. A cycle is
the time from the end of one batch to the end of the next; CPU is that of the whole cycle, by
process: this one, Spark's JVM, and the Python workers. Calls are those that Python makes into the
JVM.

``source``
    A source of Penstock's own, `ROWS` rows a batch.
``frame``
    The same rows from Parquet files through a streaming DataFrame, one file a batch.
``empty``
    Jobs of the same shape, two stages of two tasks, whose Python functions do nothing: what Spark
    takes for itself, below which no batch can be.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
from py4j.java_gateway import GatewayClient
from pyspark.sql import SparkSession
from tables import check_kinds, tell

from penstock import functions as F
from penstock import spark as engine
from penstock.pipeline import Memory, Pipeline
from penstock.pipeline.sources.generator import Generator, Keys
from penstock.runtimes.spark.job import JobRunner, JobStage
from penstock.runtimes.spark.worker import key_of

#: Batches before anything counts.
WARM = 40


class Meter:
    """Reads clocks at the end of every batch."""

    def __init__(self) -> None:
        self.calls = 0
        self.reads: list[tuple[float, float, float, float, int]] = []
        self._send: Callable[..., Any] = GatewayClient.send_command

    def __enter__(self) -> Meter:
        send = self._send

        def counted(client: Any, *arguments: Any, **more: Any) -> Any:
            self.calls += 1
            return send(client, *arguments, **more)

        GatewayClient.send_command = counted
        return self

    def __exit__(self, *_: object) -> None:
        GatewayClient.send_command = self._send

    def read(self, _: object = None) -> None:
        """Note wall clock, CPU by process, and calls."""
        jvm = workers = 0.0
        for child in psutil.Process().children(recursive=True):
            try:
                used = child.cpu_times()
                java = child.name().startswith("java")
            except psutil.NoSuchProcess:
                continue
            jvm, workers = (
                (jvm + used.user + used.system, workers)
                if java
                else (jvm, workers + used.user + used.system)
            )
        self.reads.append((time.monotonic(), time.process_time(), jvm, workers, self.calls))

    def row(self, name: str, rows: int) -> dict[str, Any]:
        """Say what a batch cost, once warm."""
        read = self.reads[WARM:]
        batches = len(read) - 1
        first, last = read[0], read[-1]
        each = [(b - a) / batches for a, b in zip(first, last, strict=True)]
        cycles = [b[0] - a[0] for a, b in itertools.pairwise(read)]
        return {
            "what": name,
            "batches": batches,
            "cycle_ms": statistics.median(cycles) * 1e3,
            "driver_cpu_ms": each[1] * 1e3,
            "jvm_cpu_ms": each[2] * 1e3,
            "workers_cpu_ms": each[3] * 1e3,
            "calls": each[4],
            "rows_per_s": rows * batches / (last[0] - first[0]),
        }


def source(spark: SparkSession, rows: int, batches: int) -> dict[str, Any]:
    """Run batches of a source of our own."""
    pipeline = (
        Pipeline("cost")
        .source("keys", Generator(1e9, Keys(keys=1000), seed=1, rows=rows * batches), parallelism=2)
        .aggregate("count", by="key", n=F.count(), parallelism=2)
        .sink("out", Memory())
    )
    with (
        Meter() as meter,
        engine.start(
            pipeline,
            spark,
            "even",
            interval_s=0.0,
            control=None,
            queue=engine.QueueOptions(size=rows),
            listener=meter.read,
        ) as run,
    ):
        run.await_termination(300)
    return meter.row("source", rows)


def frame(spark: SparkSession, rows: int, batches: int) -> dict[str, Any]:
    """Run batches of a streaming DataFrame."""
    made = Generator(1e9, Keys(keys=1000), seed=1, rows=rows * batches).read(0, rows * batches)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, Meter() as meter:
        for number in range(batches):
            part = made.slice(number * rows, rows).select(["key"])
            pq.write_table(part, Path(folder) / f"part-{number:06d}.parquet")
        schema = spark.read.parquet(folder).schema
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
        pipeline = (
            Pipeline("cost")
            .source("keys", stream, parallelism=2)
            .aggregate("count", by="key", n=F.count(), parallelism=2)
            .sink("out", Memory())
        )
        with engine.start(
            pipeline,
            spark,
            "even",
            interval_s=0.0,
            control=None,
            available_now=True,
            listener=meter.read,
        ) as run:
            run.await_termination(300)
    return meter.row("frame", rows)


def _nothing(partition: int, arrived: Iterator[bytes]) -> Iterator[bytes]:
    for _ in arrived:
        pass
    yield key_of(partition)
    yield b""


def empty(spark: SparkSession, rows: int, batches: int) -> dict[str, Any]:
    """Run jobs that do nothing."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, Meter() as meter:
        runner = JobRunner(spark.sparkContext, Path(folder))
        stages = [JobStage(["", ""], _nothing, strict=False)] * 2
        for number in range(batches):
            group = f"penstock-empty-{number}"
            runner.run("nothing", group, stages, lambda at: runner.first(at, _nothing))
            meter.read()
    return meter.row("empty", 0)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", default=["empty", "source", "frame"], metavar="KIND")
    parser.add_argument("--rows", type=int, default=2000, help="rows a batch")
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    kinds = {"empty": empty, "source": source, "frame": frame}
    check_kinds(parser, asked.kinds, kinds)
    spark = engine.session("local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    try:
        rows = [kinds[kind](spark, asked.rows, asked.batches) for kind in asked.kinds]
    finally:
        spark.stop()
    tell("what a batch costs", rows, as_json=asked.json)


if __name__ == "__main__":
    main()
