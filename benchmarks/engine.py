"""The engine beside plain Structured Streaming, on one cluster in one run: ``make bench-engine``.

``rate``
    WordCount over the same text files as fast as it goes: Penstock, Spark's own aggregation, and
    Spark's Python API for state (`applyInPandasWithState`).
``skew``
    Keys with a Zipf coefficient of 1.0 and a keyed operator that waits for every tuple, so that
    each node has a capacity of its own although the machine has fewer cores than nodes. Spark
    shuffles by hash; Penstock measures, and deals its router partitions anew once.
``sustained``
    Lines at a rate that grows by half every ten seconds: the largest at which they are counted
    within five seconds of their arrival. Spark reads files that are dropped into a folder five
    times a second and arrive when they are whole. Penstock reads such files through a streaming
    DataFrame as well, and its own source.
``latency``
    The same at half of the smallest of those rates, or at ``--lines-per-s``: from a line's arrival
    to the end of the batch that counted it.
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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from tables import check_kinds, show

from penstock import functions as F
from penstock import spark as engine
from penstock.apps import apps
from penstock.common.arrays import FloatArray
from penstock.model import Plan
from penstock.pipeline import Memory, Pipeline
from penstock.pipeline.keyed.reduce import Reduce
from penstock.pipeline.sources.files import Replay
from penstock.pipeline.sources.generator import Generator, Keys
from penstock.pipeline.sources.rates import Profile
from penstock.pipeline.sources.readers import TextLines
from penstock.runtimes.spark.batch_loop import BatchLoop
from penstock.runtimes.spark.monitor import Observed
from penstock.runtimes.spark.options import Options
from penstock.runtimes.spark.query import launch

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
        queue=engine.QueueOptions(size=size),
        interval_s=0.0,
        listener=lambda _: ends.append(time.monotonic()),
    ) as run:
        run.await_termination(600)
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
            ("penstock, repartitioned", lambda *a: _wait_penstock(*a, replan=True)),
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

    reduce = Reduce((key,), (("n", F.count()),))

    def update(batch: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        time.sleep(batch.num_rows * wait_us * 1e-6)
        whole = batch.combine_chunks().to_batches()[0]
        return reduce.update(reduce.partial(whole), state)

    source = _Table(table, key)
    pipeline = (
        Pipeline("waiting")
        .source("keys", source, parallelism=nodes)
        .stateful("wait", by=key, update=update, state=reduce.state, parallelism=nodes)
        .sink("out", Memory())
    )
    ends: list[float] = []
    runs: list[BatchLoop] = []

    def listen(observed: Observed) -> None:
        ends.append(time.monotonic())
        if replan and observed.batch.batch == WARM - 2:
            execution = runs[0].execution
            request = execution.request(execution.plan)
            answer = strategy.plan(replace(request, measurements=execution.measurements()))
            if isinstance(answer, Plan):
                execution.change(answer, "what was measured")

    # As many nodes as instances, whatever the load: the waiting is what counts here.
    strategy = Penstock(most=0.45, chi=0.02, overload=10.0, slack=0.0)
    options = Options(queue=engine.QueueOptions(size=size), interval_s=0.0)
    runs.append(launch(pipeline, spark, strategy, options, listen))
    with engine.Query(runs[0]) as run:
        run.await_termination(600)
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


# ---- sustained, latency

#: A rate is sustained while lines are counted within so many seconds of their arrival.
LATE_S = 5.0
#: Seconds of each step of the ramp, by what it grows, and its first rate.
STEP_S, GROWTH, FIRST = 10.0, 1.5, 40_000.0
#: Seconds at the first rate before anything counts, after as many batches as `WARMING`.
WARM_S, WARMING = 10.0, 20
#: Seconds between two files.
PAUSE_S = 0.2
#: Seconds of single lines that count as one arrival.
TICK_S = 0.01
#: Contestants of each side.
FED = {"penstock": ("penstock", "penstock, DataFrame"), "spark": ("spark native",)}


@dataclass
class Feeding:
    """Lines that come by a profile, and when batches of them were done, in seconds since the start.

    Lines are counted in the order in which they came. A start at infinity is still to come.
    """

    profile: Profile
    seconds: float
    start: float = float("inf")
    arrived: list[tuple[float, int]] = field(default_factory=list)
    done: list[tuple[float, int]] = field(default_factory=list)

    def lateness(self) -> tuple[FloatArray, FloatArray]:
        """Return when every line that was counted arrived, and how late it was counted."""
        came, sizes = zip(*self.arrived, strict=True)
        at = np.repeat(came, sizes)
        ended, rows = zip(*self.done, strict=True)
        end = np.repeat(ended, rows)[: len(at)]
        return at[: len(end)], end - at[: len(end)]

    @property
    def waiting_s(self) -> float:
        """Age of the oldest line that is not counted, at the last arrival."""
        counted = sum(rows for _, rows in self.done)
        for at, size in self.arrived:
            counted -= size
            if counted < 0:
                return self.arrived[-1][0] - at
        return 0.0


def sustained(spark: SparkSession, side: str, steps: int, nodes: int) -> list[dict[str, Any]]:
    """Largest rate of a ramp at which lines are not counted later than `LATE_S`."""
    rates = [FIRST * GROWTH**i for i in range(steps)]
    warm = f"{FIRST:.0f}x{WARM_S}"
    ramp = Profile.parse("steps:" + ",".join([warm, *(f"{r:.0f}x{STEP_S}" for r in rates)]))
    rows: list[dict[str, Any]] = []
    for name in FED[side]:
        NOTE.print(f"sustained: {name}, up to {rates[-1]:.0f} lines/s", style="dim")
        fed = Feeding(ramp, WARM_S + STEP_S * steps)
        _FEEDS[name](spark, fed, nodes, 2 * LATE_S)
        at, late = fed.lateness()
        best = 0.0
        for i, rate in enumerate(rates):
            end = WARM_S + STEP_S * (i + 1)
            last = late[(at > end - STEP_S / 3) & (at <= end)]
            if not len(last):
                break
            NOTE.print(f"  {rate:.0f} lines/s: {np.median(last):.1f} s late", style="dim")
            if np.median(last) > LATE_S:
                break
            best = rate
        rows.append({"engine": name, "lines_per_s": best, "whole_ramp": best == rates[-1]})
    return rows


def compare_sustained(rows: list[dict[str, Any]]) -> None:
    """Add the rates over that of Spark's own."""
    native = next(r for r in rows if r["engine"] == "spark native")
    for row in rows:
        # Zero where not even the first rate was sustained.
        row["over_native"] = row["lines_per_s"] / max(native["lines_per_s"], 1.0)


def latency(
    spark: SparkSession, side: str, lines_per_s: float, seconds: float, nodes: int
) -> list[dict[str, Any]]:
    """Percentiles from a line's arrival to the end of the batch that counted it."""
    rows: list[dict[str, Any]] = []
    for name in FED[side]:
        NOTE.print(f"latency: {name}, {lines_per_s:.0f} lines/s", style="dim")
        fed = Feeding(Profile.of(lines_per_s), WARM_S + seconds)
        _FEEDS[name](spark, fed, nodes, float("inf"))
        at, late = fed.lateness()
        late = late[at > WARM_S] * 1000.0
        p50, p95, p99 = (float(p) for p in np.percentile(late, [50, 95, 99]))
        NOTE.print(f"  p50 {p50:.0f} ms, p99 {p99:.0f} ms", style="dim")
        rows.append(
            {
                "engine": name,
                "lines_per_s": lines_per_s,
                "p50_ms": p50,
                "p95_ms": p95,
                "p99_ms": p99,
                "batches": len(fed.done),
            }
        )
    return rows


def compare_latency(rows: list[dict[str, Any]]) -> None:
    """Add the percentiles over those of Spark's own."""
    native = next(r for r in rows if r["engine"] == "spark native")
    for row in rows:
        row["p50_over_native"] = row["p50_ms"] / native["p50_ms"]
        row["p99_over_native"] = row["p99_ms"] / native["p99_ms"]


def _feed_source(spark: SparkSession, fed: Feeding, nodes: int, patience_s: float) -> None:
    """Let lines come one by one from a source of Penstock's."""
    app = apps.make("wordcount")
    # As many batches as the others get in files.
    warm = app.source(1e9, zipf=0.0, seed=4, rows=WARMING * int(FIRST))
    first = engine.QueueOptions(size=int(FIRST))
    with engine.start(
        app.pipeline(warm, parallelism=nodes), spark, "even", interval_s=0.0, queue=first
    ) as run:
        run.await_termination(600)
    total = fed.profile.position(fed.seconds)
    source = app.source(fed.profile, zipf=0.0, seed=4, rows=total)
    # Lines come one by one; a hundredth of a second of them is looked at together.
    ticks = np.arange(0.0, fed.seconds, TICK_S)
    reached = np.array([fed.profile.position(at) for at in (*ticks, fed.seconds)])
    sizes = np.diff(reached)
    fed.arrived.extend(zip((ticks + TICK_S / 2).tolist(), sizes.tolist(), strict=True))
    runs: list[engine.Query] = []
    hopeless = threading.Event()

    def listen(observed: Observed) -> None:
        now = runs[0].status.elapsed_s if runs else 0.0
        fed.done.append((now, observed.batch.rows_in))
        counted = sum(rows for _, rows in fed.done)
        oldest = ticks[min(int(np.searchsorted(reached, counted)), len(ticks) - 1)]
        if counted < total and now - oldest > patience_s:
            hopeless.set()

    with engine.start(
        app.pipeline(source, parallelism=nodes), spark, "even", interval_s=0.0, listener=listen
    ) as run:
        runs.append(run)
        deadline = time.monotonic() + fed.seconds * 3 + 60
        while (
            time.monotonic() < deadline and not hopeless.is_set() and not run.await_termination(0.2)
        ):
            pass


def _feed_frame(spark: SparkSession, fed: Feeding, nodes: int, patience_s: float) -> None:
    """Let lines come in files, which Penstock reads as a streaming DataFrame."""
    app = apps.make("wordcount")
    seen: list[int] = []

    def listen(observed: Observed) -> None:
        seen.append(observed.batch.batch)
        if time.monotonic() > fed.start and observed.batch.rows_in:
            fed.done.append((time.monotonic() - fed.start, observed.batch.rows_in))

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        stream = spark.readStream.format("text").load(folder).withColumnRenamed("value", "line")
        pipeline = app.pipeline(stream, parallelism=nodes)
        with engine.start(pipeline, spark, "even", interval_s=0.0, listener=listen) as run:
            _warm(Path(folder), nodes, lambda: len(seen))

            def look() -> None:
                run.await_termination(0.0)

            # A run that failed must not pass for one that is late.
            _drop(Path(folder), fed, patience_s, look)
            _settle(fed, patience_s, look)
            run.stop()
            run.await_termination()


def _feed_native(spark: SparkSession, fed: Feeding, nodes: int, patience_s: float) -> None:
    """Let lines come in files, which a plain query reads."""
    spark.conf.set("spark.sql.shuffle.partitions", str(nodes))
    # Batches are matched with lines by counting: no batch may be forgotten.
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
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

        def look() -> None:
            fed.done[:] = [
                (ends[p["batchId"]] - fed.start, int(p["numInputRows"]))
                for p in query.recentProgress
                if p["numInputRows"] and ends[p["batchId"]] > fed.start
            ]

        _warm(Path(folder), nodes, lambda: len(ends))
        _drop(Path(folder), fed, patience_s, look)
        _settle(fed, patience_s, look)
        query.stop()


_FEEDS: dict[str, Callable[[SparkSession, Feeding, int, float], None]] = {
    "penstock": _feed_source,
    "penstock, DataFrame": _feed_frame,
    "spark native": _feed_native,
}


def _lines() -> list[str]:
    source = apps.make("wordcount").source(1000.0, zipf=0.0, seed=4, rows=50_000)
    lines: list[str] = source.read(0, 50_000).column("line").to_pylist()
    return lines


def _put(folder: Path, name: str, lines: Iterable[str]) -> None:
    """Drop a file, whole or not at all."""
    hidden = folder / f".{name}"
    hidden.write_text("\n".join(lines) + "\n", encoding="utf-8")
    hidden.rename(folder / f"{name}.txt")


def _warm(folder: Path, nodes: int, batches: Callable[[], int]) -> None:
    """Drop a file for every node, so that all of them read, and wait for the batch; then again."""
    lines = _lines()[: int(FIRST) // nodes]
    for number in range(WARMING):
        before = batches()
        for node in range(nodes):
            _put(folder, f"a{number:06d}-{node}", lines)
        deadline = time.monotonic() + 120
        while batches() == before:
            if time.monotonic() > deadline:
                raise TimeoutError("a batch took more than two minutes")
            time.sleep(0.05)


def _drop(
    folder: Path, fed: Feeding, patience_s: float, look: Callable[[], None] = lambda: None
) -> None:
    """Drop a file five times a second, until the engine is hopelessly late."""
    lines = _lines()
    position = number = 0
    start = fed.start = time.monotonic()
    while (now := time.monotonic() - start) < fed.seconds:
        due = fed.profile.position(now)
        if due > position:
            _put(folder, f"b{number:06d}", (lines[i % len(lines)] for i in range(position, due)))
            fed.arrived.append((time.monotonic() - start, due - position))
            position = due
        number += 1
        if number % 10 == 0:
            look()
            if now > WARM_S and fed.waiting_s > patience_s:
                return
        time.sleep(max(0.0, start + number * PAUSE_S - time.monotonic()))


def _settle(fed: Feeding, patience_s: float, look: Callable[[], None] = lambda: None) -> None:
    """Wait until all lines are counted, for as long as a sustained rate would need."""
    total = sum(size for _, size in fed.arrived)
    deadline = time.monotonic() + min(2 * patience_s, 120.0)
    while time.monotonic() < deadline and sum(rows for _, rows in fed.done) < total:
        time.sleep(0.5)
        look()


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
            run.await_termination(seconds * 4 + 120)
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
    kinds = ("rate", "skew", "sustained", "latency", "placement")
    parser.add_argument("kinds", nargs="*", default=kinds, metavar="KIND", help=", ".join(kinds))
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--master", help="instead of an embedded cluster")
    parser.add_argument("--batches", type=int, default=14)
    parser.add_argument("--sizes", default="10000,40000", help="lines a batch, for rate")
    parser.add_argument("--zipf", type=float, default=1.0)
    parser.add_argument("--wait-us", type=float, default=300.0, help="for skew")
    parser.add_argument("--seconds", type=float, default=60.0, help="for latency and placement")
    parser.add_argument("--steps", type=int, default=9, help="of the ramp, for sustained")
    parser.add_argument("--lines-per-s", type=float, help="for latency, without sustained")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    check_kinds(parser, asked.kinds, kinds)
    todo: dict[str, Callable[[SparkSession, str], list[dict[str, Any]]]] = {
        "rate": lambda s, side: rate(
            s, side, [int(v) for v in asked.sizes.split(",")], asked.batches, asked.nodes
        ),
        "skew": lambda s, side: skew(
            s, side, 20_000, asked.batches, asked.nodes, asked.wait_us, asked.zipf
        ),
        "sustained": lambda s, side: sustained(s, side, asked.steps, asked.nodes),
        "latency": lambda s, side: latency(s, side, half(), asked.seconds, asked.nodes),
        "placement": lambda s, side: placement(s, side, asked.seconds, ["even", "ra", "penstock"]),
    }
    if "latency" in asked.kinds and "sustained" not in asked.kinds and not asked.lines_per_s:
        parser.error("latency needs --lines-per-s, or sustained to find it")
    results: dict[str, list[dict[str, Any]]] = {kind: [] for kind in asked.kinds}

    def half() -> float:
        if asked.lines_per_s:
            return float(asked.lines_per_s)
        worst = min(results["sustained"], key=lambda row: float(row["lines_per_s"]))
        if not worst["lines_per_s"]:
            sys.exit(f"{worst['engine']} did not sustain {FIRST:.0f} lines/s; give --lines-per-s")
        return float(worst["lines_per_s"]) / 2

    master = asked.master or engine.embedded(asked.nodes)
    # Latency needs what both sides sustain, so it comes when both are known.
    for now in (
        [k for k in asked.kinds if k != "latency"],
        [k for k in asked.kinds if k == "latency"],
    ):
        for side, conf in (("penstock", {}), ("spark", {"spark.locality.wait": "3s"})):
            if set(now) <= ({"placement"} if side == "spark" else set()):
                continue
            with engine.cluster(master, conf=conf) as spark:
                for kind in now:
                    results[kind] += todo[kind](spark, side)
    for kind, compare in (
        ("rate", compare_rate),
        ("skew", compare_skew),
        ("sustained", compare_sustained),
        ("latency", compare_latency),
    ):
        if kind in results:
            compare(results[kind])
    if not asked.json:
        for kind, rows in results.items():
            show(kind, rows)
    if asked.json:
        json.dump(results, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
