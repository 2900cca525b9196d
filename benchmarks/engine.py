"""The engine beside plain Structured Streaming, on one cluster in one run: ``make bench-engine``.

``rate``
    WordCount over the same text files as fast as it goes: Penstock, Spark's own aggregation, and
    Spark's Python API for state (`applyInPandasWithState`).
``skew``
    Keys with a Zipf coefficient of 1.0 and a keyed operator that waits for every tuple, so that
    each node has a capacity of its own although the machine has fewer cores than nodes. Spark
    shuffles by hash; Penstock measures, and deals its router partitions anew once.
``latency``
    Lines at a fixed rate: from a line's arrival to the end of the batch that counted it. Spark
    reads files that are dropped into a folder and arrive when they are whole, Penstock reads its
    own source.
``placement``
    Every application under several strategies: part of the tasks that ran where the plan says, as
    Spark recorded it.

Each side gets a fresh session of the same cluster in turn, Spark's own with Spark's own settings:
tasks that wait for their executor, as ours do, would hold a plain query up. Ratios within a run are
what counts; the times are those of the machine it ran on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from rich.table import Table

from penstock import spark as engine
from penstock.apps import apps
from penstock.pipeline import Memory, Pipeline, count
from penstock.pipeline.generator import Generator, Keys
from penstock.pipeline.reduce import Reduce
from penstock.pipeline.replay import Replay, TextLines
from penstock.runtimes.spark.monitor import Observed
from penstock.store.histogram import Histogram

#: Batches that are run and not counted: compilers and caches warm up.
WARM = 4
NOTE = Console(stderr=True)


# ---- rate


def rate(
    spark: SparkSession, side: str, sizes: list[int], batches: int, nodes: int
) -> list[dict[str, Any]]:
    """Lines a second of three ways to count words, for several sizes of a batch."""
    rows: list[dict[str, Any]] = []
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            _write_lines(Path(folder), size, batches, nodes)
            for name, run in (
                ("penstock", _count_penstock),
                ("spark native", _count_native),
                ("spark python state", _count_python),
            ):
                if name.partition(" ")[0] != side:
                    continue
                if name == "spark python state" and size != sizes[0]:
                    continue
                NOTE.print(f"rate: {name}, {size} lines a batch", style="dim")
                seconds = run(spark, Path(folder), size, batches, nodes)
                rows.append(
                    {
                        "engine": name,
                        "lines_a_batch": size,
                        "batch_s": seconds,
                        "lines_per_s": size / seconds,
                    }
                )
    return rows


def compare_rate(rows: list[dict[str, Any]]) -> None:
    """Add how much faster Penstock is with batches of the same size."""
    ours = {r["lines_a_batch"]: r["lines_per_s"] for r in rows if r["engine"] == "penstock"}
    for row in rows:
        row["penstock_over_it"] = ours[row["lines_a_batch"]] / row["lines_per_s"]


def _write_lines(folder: Path, size: int, batches: int, nodes: int) -> None:
    """Write as many files a batch as there are nodes, so that all of them read."""
    app = apps.make("wordcount")
    source = app.source(1000.0, zipf=0.0, seed=3, rows=size * batches)
    part = size // nodes
    for number in range(batches * nodes):
        lines = source.read(number * part, (number + 1) * part).column("line").to_pylist()
        (folder / f"part-{number:06d}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _count_penstock(
    spark: SparkSession, folder: Path, size: int, batches: int, nodes: int
) -> float:
    app = apps.make("wordcount")
    source = Replay(str(folder / "*.txt"), TextLines(), 1e9).checked()
    ends: list[float] = []
    with engine.start(
        app.pipeline(source, parallelism=nodes),
        spark,
        "even",
        queue=size,
        interval_s=0.0,
        listener=lambda _: ends.append(time.monotonic()),
    ) as run:
        run.await_end(600)
    return _steady(ends)


def _count_native(spark: SparkSession, folder: Path, size: int, batches: int, nodes: int) -> float:
    words = _stream_of_words(spark, folder, nodes)
    return _timed(words.groupBy("word").count())


def _count_python(spark: SparkSession, folder: Path, size: int, batches: int, nodes: int) -> float:
    import pandas as pd

    def update(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        total = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        state.update((total,))
        yield pd.DataFrame({"word": [key[0]], "count": [total]})

    words = _stream_of_words(spark, folder, nodes)
    counted = words.groupBy("word").applyInPandasWithState(
        update, "word string, count long", "n long", "update", "NoTimeout"
    )
    return _timed(counted)


def _stream_of_words(spark: SparkSession, folder: Path, nodes: int) -> DataFrame:
    spark.conf.set("spark.sql.shuffle.partitions", str(nodes))
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", nodes).load(str(folder))
    return lines.select(sf.explode(sf.split("value", " ")).alias("word"))


def _timed(result: DataFrame) -> float:
    """Seconds a batch, once warm; each batch's rows are brought to the driver, as Penstock's."""
    ends: list[float] = []

    def on_batch(rows: DataFrame, _: int) -> None:
        rows.toArrow()
        ends.append(time.monotonic())

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as checkpoint:
        query = (
            result.writeStream.outputMode("update")
            .foreachBatch(on_batch)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(600)
        query.stop()
    return _steady(ends)


def _steady(ends: list[float]) -> float:
    """Median seconds from the end of one batch to the end of the next, once warm."""
    gaps = [b - a for a, b in itertools.pairwise(ends)][WARM:]
    return statistics.median(gaps)


# ---- skew


def skew(
    spark: SparkSession, side: str, size: int, batches: int, nodes: int, wait_us: float, zipf: float
) -> list[dict[str, Any]]:
    """Tuples a second of a keyed operator that waits for every tuple, with skewed keys."""
    rows: list[dict[str, Any]] = []
    source = Generator(1e9, Keys(keys=1000, zipf=zipf), seed=5, rows=size * batches)
    table = source.read(0, size * batches)
    key = "key"
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        part = size // nodes
        for number in range(batches * nodes):
            rows_of = table.slice(number * part, part).select([key])
            pq.write_table(rows_of, Path(folder) / f"part-{number:06d}.parquet")
        for name, run in (
            ("spark native", _wait_native),
            ("penstock, hash", lambda *a: _wait_penstock(*a, replan=False)),
            ("penstock, dealt anew", lambda *a: _wait_penstock(*a, replan=True)),
        ):
            if name.partition(" ")[0].rstrip(",") != side:
                continue
            NOTE.print(f"skew: {name}", style="dim")
            seconds = run(spark, Path(folder), table, key, size, nodes, wait_us)
            rows.append({"engine": name, "batch_s": seconds, "tuples_per_s": size / seconds})
    return rows


def compare_skew(rows: list[dict[str, Any]]) -> None:
    """Add how much faster each is than Spark's own."""
    native = next(r["tuples_per_s"] for r in rows if r["engine"] == "spark native")
    for row in rows:
        row["over_native"] = row["tuples_per_s"] / native


def _wait_native(
    spark: SparkSession,
    folder: Path,
    table: pa.Table,
    key: str,
    size: int,
    nodes: int,
    wait_us: float,
) -> float:
    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(batch.num_rows * wait_us * 1e-6)
            yield batch

    spark.conf.set("spark.sql.shuffle.partitions", str(nodes))
    schema = spark.read.parquet(str(folder)).schema
    stream = (
        spark.readStream.schema(schema).option("maxFilesPerTrigger", nodes).parquet(str(folder))
    )
    waited = stream.repartition(nodes, key).mapInArrow(wait, schema)
    return _timed(waited.groupBy(key).count())


def _wait_penstock(
    spark: SparkSession,
    folder: Path,
    table: pa.Table,
    key: str,
    size: int,
    nodes: int,
    wait_us: float,
    *,
    replan: bool,
) -> float:
    from penstock.strategies.penstock import Penstock

    reduce = Reduce((key,), (("n", count()),))

    def update(batch: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        time.sleep(batch.num_rows * wait_us * 1e-6)
        whole = batch.combine_chunks().to_batches()[0]
        return reduce.update(reduce.partial(whole), state)

    source = _Table(table, key)
    pipeline = (
        Pipeline("waiting")
        .source("keys", source, parallelism=nodes)
        .keyed("wait", by=key, update=update, state=reduce.state, parallelism=nodes)
        .sink("out", Memory())
    )
    ends: list[float] = []
    runs: list[engine.Run] = []

    def listen(observed: Observed) -> None:
        ends.append(time.monotonic())
        if replan and observed.batch.batch == WARM - 2:
            runs[0].ask_for_plan()

    # As many nodes as instances, whatever the load: the waiting is what counts here.
    strategy = Penstock(most=0.45, chi=0.02, overload=10.0, slack=0.0)
    with engine.start(
        pipeline, spark, strategy, queue=size, interval_s=0.0, listener=listen
    ) as run:
        runs.append(run)
        run.await_end(600)
        for event in run.records().events:
            NOTE.print(f"  {event.text}", style="dim")
    return _steady(ends)


class _Table:
    """Rows of a table, all there from the start."""

    stamp = None

    def __init__(self, table: pa.Table, key: str) -> None:
        self.table = table.select([key])
        self.schema = self.table.schema
        self.end = table.num_rows

    def available(self, elapsed_s: float) -> int:
        return int(self.end)

    def read(self, start: int, stop: int) -> pa.Table:
        return self.table.slice(start, stop - start)


# ---- latency


def latency(
    spark: SparkSession, side: str, lines_per_s: float, seconds: float, nodes: int
) -> list[dict[str, Any]]:
    """Percentiles from a line's arrival to the end of the batch that counted it."""
    NOTE.print(f"latency: {side}, {lines_per_s:.0f} lines/s", style="dim")
    run = _late_penstock if side == "penstock" else _late_native
    late = run(spark, lines_per_s, seconds, nodes)
    return [
        {
            "engine": "penstock" if side == "penstock" else "spark native",
            "lines_per_s": lines_per_s,
            "p50_ms": late[0],
            "p99_ms": late[1],
        }
    ]


def compare_latency(rows: list[dict[str, Any]]) -> None:
    """Add the percentiles over those of Spark's own."""
    native = next(r for r in rows if r["engine"] == "spark native")
    for row in rows:
        row["p50_over_native"] = row["p50_ms"] / native["p50_ms"]
        row["p99_over_native"] = row["p99_ms"] / native["p99_ms"]


def _drop(
    folder: Path,
    lines_per_s: float,
    seconds: float,
    drops: list[tuple[float, int]],
    halt: threading.Event,
) -> None:
    """Drop a file five times a second, whole or not at all."""
    pause = 0.2
    size = max(1, int(lines_per_s * pause))
    app = apps.make("wordcount")
    text = "\n".join(
        app.source(1000.0, zipf=0.0, seed=4, rows=size).read(0, size).column("line").to_pylist()
    )
    start = time.monotonic()
    number = 0
    while not halt.is_set() and number * pause < seconds:
        hidden = folder / f".{number:06d}"
        hidden.write_text(text + "\n", encoding="utf-8")
        hidden.rename(folder / f"{number:06d}.txt")
        drops.append((time.monotonic(), size))
        number += 1
        halt.wait(max(0.0, start + number * pause - time.monotonic()))


def _late_penstock(
    spark: SparkSession, lines_per_s: float, seconds: float, nodes: int
) -> tuple[float, float]:
    """Lines come one by one, each with its stamp."""
    app = apps.make("wordcount")
    source = app.source(lines_per_s, zipf=0.0, seed=4, rows=int(lines_per_s * seconds))
    with engine.start(
        app.pipeline(source, parallelism=nodes), spark, "even", interval_s=0.0
    ) as run:
        run.await_end(seconds * 5 + 120)
        batches = run.records().batches
    begun = batches[0].started_at_s
    late = Histogram.merged(
        b.latency for b in batches if b.started_at_s - begun > seconds / 3 and b.rows_in
    )
    return late.percentile(50) or 0.0, late.percentile(99) or 0.0


def _late_native(
    spark: SparkSession, lines_per_s: float, seconds: float, nodes: int
) -> tuple[float, float]:
    """Lines come in files, five a second; the time before a file is there does not count."""
    spark.conf.set("spark.sql.shuffle.partitions", str(nodes))
    drops: list[tuple[float, int]] = []
    ends: dict[int, float] = {}

    def on_batch(rows: DataFrame, number: int) -> None:
        rows.toArrow()
        ends[number] = time.monotonic()

    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as checkpoint,
    ):
        stream = spark.readStream.format("text").load(folder)
        words = stream.select(sf.explode(sf.split("value", " ")).alias("word"))
        query = (
            words.groupBy("word")
            .count()
            .writeStream.outputMode("update")
            .foreachBatch(on_batch)
            .option("checkpointLocation", checkpoint)
            .start()
        )
        _drop(Path(folder), lines_per_s, seconds, drops, threading.Event())
        time.sleep(3.0)
        done = [
            (ends[progress["batchId"]], int(progress["numInputRows"]))
            for progress in query.recentProgress
            if progress["numInputRows"]
        ]
        query.stop()
    late = _lateness(drops, done, skip_s=seconds / 3)
    return float(np.percentile(late, 50)), float(np.percentile(late, 99))


def _lateness(
    drops: list[tuple[float, int]], done: list[tuple[float, int]], skip_s: float
) -> list[float]:
    """Latency of every line in ms, by counting: files are read in the order of their drop."""
    late: list[float] = []
    queue = [(at, size) for at, size in drops]
    first = queue[0][0]
    for at, rows in done:
        while rows > 0 and queue:
            dropped, size = queue.pop(0)
            rows -= size
            if dropped - first > skip_s:
                late.append((at - dropped) * 1000.0)
    return late


# ---- placement


def placement(
    spark: SparkSession, side: str, seconds: float, names: list[str]
) -> list[dict[str, Any]]:
    """Part of the tasks that ran on the executor that the plan names."""
    rows: list[dict[str, Any]] = []
    for strategy in names if side == "penstock" else ():
        NOTE.print(f"placement: {strategy} for {seconds:g} s", style="dim")
        app = apps.make("wordcount")
        source = app.source(3000.0, zipf=1.0, seed=1, rows=int(3000 * seconds))
        pipeline = app.pipeline(source, parallelism=4, chain=False)
        with engine.start(pipeline, spark, strategy) as run:
            run.await_end(seconds * 4 + 120)
            batches = run.records().batches
        out = pipeline["counts"].sink
        assert out is not None
        equal = app.result("counts", out.table()).equals(
            app.result("counts", app.expected(source.read(0, source.end or 0))["counts"])
        )
        tasks = sum(b.tasks for b in batches)
        rows.append(
            {
                "strategy": strategy,
                "batches": len(batches),
                "tasks": tasks,
                "honoured": sum(b.tasks_honoured for b in batches) / tasks if tasks else None,
                "nodes": max(b.nodes_used for b in batches),
                "remote_bytes": sum(b.remote_bytes for b in batches),
                "equal_to_batch": equal,
            }
        )
    return rows


def main() -> None:
    """Run what is asked for on one cluster."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = ("rate", "skew", "latency", "placement")
    parser.add_argument("kinds", nargs="*", default=kinds, metavar="KIND", help=", ".join(kinds))
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--master", help="instead of an embedded cluster")
    parser.add_argument("--batches", type=int, default=14)
    parser.add_argument("--sizes", default="10000,40000", help="lines a batch, for rate")
    parser.add_argument("--zipf", type=float, default=1.0)
    parser.add_argument("--wait-us", type=float, default=300.0, help="for skew")
    parser.add_argument("--seconds", type=float, default=60.0, help="for latency and placement")
    parser.add_argument("--lines-per-s", type=float, default=5000.0, help="for latency")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    unknown = set(asked.kinds) - set(kinds)
    if unknown:
        parser.error(f"unknown {sorted(unknown)}; there are {', '.join(kinds)}")
    todo: dict[str, Callable[[SparkSession, str], list[dict[str, Any]]]] = {
        "rate": lambda s, side: rate(
            s, side, [int(v) for v in asked.sizes.split(",")], asked.batches, asked.nodes
        ),
        "skew": lambda s, side: skew(
            s, side, 20_000, asked.batches, asked.nodes, asked.wait_us, asked.zipf
        ),
        "latency": lambda s, side: latency(s, side, asked.lines_per_s, asked.seconds, asked.nodes),
        "placement": lambda s, side: placement(s, side, asked.seconds, ["even", "ra", "penstock"]),
    }
    results: dict[str, list[dict[str, Any]]] = {kind: [] for kind in asked.kinds}
    master = asked.master or engine.embedded(asked.nodes)
    for side, conf in (("penstock", {}), ("spark", {"spark.locality.wait": "3s"})):
        if side == "spark" and set(asked.kinds) == {"placement"}:
            continue
        with engine.cluster(master, conf=conf) as spark:
            for kind in asked.kinds:
                results[kind] += todo[kind](spark, side)
    for kind, compare in (
        ("rate", compare_rate),
        ("skew", compare_skew),
        ("latency", compare_latency),
    ):
        if kind in results:
            compare(results[kind])
    if not asked.json:
        for kind, rows in results.items():
            _show(kind, rows)
    if asked.json:
        json.dump(results, sys.stdout, indent=1)


def _show(title: str, rows: list[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
