"""Queries on an embedded cluster and what is seen of them, for ``benchmarks/attach.py``."""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console

from penstock.control import Event
from penstock.control.events import DecisionStatus
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.attached.query import AttachedQuery
from penstock.runtimes.spark.monitor import Observed
from penstock.runtimes.spark.session import session
from penstock.spark import attach, embedded

NOTE = Console(stderr=True, highlight=False)

#: Nodes and state partitions of most queries.
NODES, PARTITIONS = 3, 12

#: State in RocksDB, with its changelog, as people run it. Java compiles quickly rather than well:
#: many young processes share few cores, and what is compared is where things run.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONF = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.locality.wait": "3s",
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming."
    "state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

#: Seconds between two files of a stream.
FILE_S = 0.25


class Watched:
    """A query that runs, and what was seen of it, with seconds since its start."""

    def __init__(
        self, frame: DataFrame, mode: str, checkpoint: str, interval_s: float = 0.0
    ) -> None:
        self.frame, self.mode, self.checkpoint = frame, mode, checkpoint
        self.interval_s = interval_s
        #: Whether batches are told of as they pass, which costs a little.
        self.tells = True
        self.start = time.monotonic()
        self.seen: list[tuple[float, Observed]] = []
        self.events: dict[int, Event] = {}
        self.query = self._start()

    def _start(self) -> Any:
        writer = self.frame.writeStream.format("noop").outputMode(self.mode)
        if self.interval_s:
            writer = writer.trigger(processingTime=f"{self.interval_s} seconds")
        return writer.option("checkpointLocation", self.checkpoint).start()

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def attach(self, **options: Any) -> AttachedQuery:
        """Attach to it."""
        handle = attach(self.query, on_batch=self._batch, on_decision=self._decided, **options)
        assert isinstance(handle, AttachedQuery), handle.explain()
        return handle

    def _batch(self, observed: Observed) -> None:
        self.seen.append((self.now, observed))
        batch = observed.batch
        if self.tells and batch.batch % 4 == 0:
            NOTE.print(
                f"  {self.now:5.0f} s batch {batch.batch}: {batch.rows_in} rows in "
                f"{batch.duration_ms / 1000:.2f} s, {batch.nodes_used} nodes, "
                f"{batch.tasks_honoured}/{batch.tasks} in place",
                style="dim",
            )

    def _decided(self, event: Event) -> None:
        if event.number not in self.events or event.status is DecisionStatus.DONE:
            gained = f"; {event.gained.text}" if event.gained else ""
            NOTE.print(f"  {self.now:5.0f} s {event.status.value}: {event.text}{gained}")
        self.events[event.number] = event

    def changes(self) -> int:
        """Count the decisions that changed something, or were to."""
        passive = (DecisionStatus.NOTED, DecisionStatus.REFUSED, DecisionStatus.RECOMMENDED)
        return sum(event.status not in passive for event in self.events.values())

    def restart(self) -> None:
        """Stop it and start it again from its checkpoint."""
        self.query.stop()
        self.query = self._start()

    def batch(self) -> int:
        """Return the last batch that was committed."""
        last = self.query.lastProgress
        return int(last["batchId"]) if last else -1

    def wait(self, batches: int, limit_s: float = 300.0) -> None:
        """Let so many batches pass."""
        until, deadline = self.batch() + batches, time.monotonic() + limit_s
        while self.batch() < until:
            self.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{batches} batches did not pass in {limit_s:g} s")
            time.sleep(0.02)

    def check(self) -> None:
        """Raise what the query failed with."""
        if self.query.exception() is not None:
            raise self.query.exception()

    def durations(self, batches: int) -> list[float]:
        """Return the times of the last batches, in ms, by Spark's own report."""
        reports = self.query.recentProgress[-batches:]
        return [float(report["durationMs"]["triggerExecution"]) for report in reports]

    def commits(self) -> list[float]:
        """Return when the batches that Spark still tells of were committed, in seconds."""
        return [
            datetime.fromisoformat(report["timestamp"]).timestamp()
            + report["durationMs"]["triggerExecution"] / 1000.0
            for report in self.query.recentProgress
        ]


@contextmanager
def cluster(nodes: int = NODES, partitions: int = PARTITIONS) -> Iterator[SparkSession]:
    """Start a fresh cluster."""
    conf = {**CONF, "spark.sql.shuffle.partitions": str(partitions)}
    spark = session(embedded(nodes, 1, 700), conf=conf)
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def running(
    frame: DataFrame, mode: str = "update", warm: int = 10, interval_s: float = 0.0
) -> Iterator[Watched]:
    """Run a query past its first batches."""
    with tempfile.TemporaryDirectory(
        prefix="penstock-bench-", ignore_cleanup_errors=True
    ) as folder:
        watched = Watched(frame, mode, folder, interval_s)
        try:
            watched.wait(warm)
            yield watched
        finally:
            watched.query.stop()


def rows(spark: SparkSession, a_batch: int) -> DataFrame:
    """Make batches of equal size."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", a_batch)
    return source.option("numPartitions", NODES).load()


def zipf_keys(count: int, rows: int, coefficient: float, seed: int, slow: str = "none") -> pa.Table:
    """Draw keys; the id of the executor that is slow for them stands beside each."""
    weights = 1.0 / np.arange(1, count + 1) ** coefficient
    draw = np.random.default_rng(seed)
    keys = draw.choice(count, size=rows, p=weights / weights.sum())
    return pa.table({"k": pa.array(keys, pa.int32()), "slow": [slow] * rows})


def put(folder: Path, number: int, table: pa.Table) -> None:
    """Write a file that a stream finds only when it is whole."""
    hidden = folder / f".{number:05d}"
    pq.write_table(table, hidden)
    hidden.rename(folder / f"{number:05d}.parquet")


@contextmanager
def stream(folder: Path, profile: Profile, keys: int, coefficient: float = 0.0) -> Iterator[None]:
    """Write files at the rates of a profile for a ``with`` block."""
    over = threading.Event()

    def write() -> None:
        began, done = time.monotonic(), 0
        for number in itertools.count():
            if over.wait(max(0.0, began + (number + 1) * FILE_S - time.monotonic())):
                return
            due = int(profile.position((number + 1) * FILE_S))
            if due > done:
                put(folder, number, zipf_keys(keys, due - done, coefficient, number))
            done = due

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


#: Waits some milliseconds for a row, twice as long on the node that the row calls slow: executors
#: of an embedded cluster work in folders that have their ids as names.
WAIT = (
    "java_method('java.lang.Thread', 'sleep', {cost_ms}L * CASE WHEN java_method("
    "'java.lang.System', 'getProperty', 'user.dir') LIKE concat('%/', slow) THEN 2L ELSE 1L END)"
)


def waiting(source: DataFrame, cost_ms: int) -> DataFrame:
    """Count rows by key; each waits in the stage that keeps the counts."""
    waited = source.repartition("k").select("k", sf.expr(WAIT.format(cost_ms=cost_ms)).alias("w"))
    return waited.groupBy("k").agg(sf.count("w"))


def files(spark: SparkSession, folder: Path, a_batch: int = 0) -> DataFrame:
    """Read files as they come, or so many a batch."""
    reader = spark.readStream.schema("k INT, slow STRING")
    if a_batch:
        reader = reader.option("maxFilesPerTrigger", a_batch)
    return reader.parquet(str(folder))
