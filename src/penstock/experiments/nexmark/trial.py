"""One query of NEXMark over files of events: by the engine, or by Structured Streaming.

Both read the same Parquet files, as many in a batch as there are cores, and both keep a checkpoint.
Rows that stand for themselves go to Parquet files, rows that replace earlier ones to the driver.
Batches are timed from the end of one to the end of the next, and CPU is that of all processes
between the same two moments.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from penstock.apps.nexmark.events import BEGIN_US, SCHEMAS, count_of, source
from penstock.apps.nexmark.query import LATENESS_S, OUT, NexmarkQuery
from penstock.model import PenstockError
from penstock.pipeline.file_sinks import parquet
from penstock.pipeline.sinks import Memory
from penstock.pipeline.sources.files import Replay
from penstock.pipeline.sources.generator import STAMP
from penstock.pipeline.sources.readers import Parquet
from penstock.runtimes.spark.options import QueueOptions
from penstock.runtimes.spark.query import start

#: Batches that are run and not counted.
WARM = 3

#: Rows a second by which events are stamped.
SPEED = 1e5

#: Event time that all events take.
EVENT_TIME_S = 60.0

#: Longest that one query may take.
LIMIT_S = 540.0

#: How the engine gets the events: as a source of its own, or as a streaming DataFrame.
SOURCES = ("source", "frame")


@dataclass(frozen=True)
class Feed:
    """Files of events.

    Parameters
    ----------
    folder : Path
        One folder for each kind.
    events : int
        Of all kinds.
    batches : int
    files : int
        Of each kind in each batch.
    """

    folder: Path
    events: int
    batches: int
    files: int

    def rows(self, query: NexmarkQuery) -> int:
        """Count the rows that a query reads."""
        return sum(count_of(kind, self.events) for kind in query.reads)


@dataclass
class Timed:
    """What a run of a query took, and what it gave."""

    ends: list[tuple[float, float]] = field(default_factory=list)
    result: pa.Table | None = None

    def mark(self, _: object = None) -> None:
        """Note the end of a batch: wall clock, and CPU seconds of this process and all below."""
        self.ends.append((time.monotonic(), cpu_s()))

    def figures(self, feed: Feed, query: NexmarkQuery) -> dict[str, float]:
        """Return rows a second and CPU microseconds a row, once warm."""
        ends = self.ends[: feed.batches]
        if len(ends) < WARM + 2:
            raise PenstockError(f"{len(ends)} batches are too few to time; ask for more events")
        a_batch = feed.rows(query) / feed.batches
        counted = ends[WARM:]
        gaps = [b[0] - a[0] for a, b in itertools.pairwise(counted)]
        cpu = (counted[-1][1] - counted[0][1]) / len(gaps)
        return {
            "rows_per_s": a_batch / statistics.median(gaps),
            "cpu_us_per_row": cpu / a_batch * 1e6,
            "batch_ms": statistics.median(gaps) * 1e3,
        }


def write_events(
    folder: Path, events: int, batches: int, files: int, seed: int, disorder_s: float = 1.0
) -> Feed:
    """Write the events of all kinds as Parquet files, in the order of the stream."""
    feed = Feed(folder, events, batches, files)
    per_s = events / EVENT_TIME_S
    for kind in SCHEMAS:
        (folder / kind).mkdir(parents=True)
        made = source(
            kind, events, profile=SPEED, seed=seed, events_per_s=per_s, disorder_s=disorder_s
        )
        count, parts = made.end or 0, batches * files
        for part in range(parts):
            rows = made.read(count * part // parts, count * (part + 1) // parts)
            file = folder / kind / f"part-{part:06d}.parquet"
            pq.write_table(rows, file)
            # Spark reads files in the order of their times.
            os.utime(file, (BEGIN_US // 10**6 + part,) * 2)
    return feed


def by_engine(
    spark: Any, query: NexmarkQuery, feed: Feed, how: str = "source", *, instances: int = 2
) -> Timed:
    """Run a query by Penstock, from a source of its own or a streaming DataFrame."""
    timed = Timed()
    with tempfile.TemporaryDirectory(prefix="penstock-nexmark-") as scratch:
        out = Path(scratch) / "out"
        sink = None if query.key else parquet(str(out))
        pipeline = query.pipeline(_sources(spark, query, feed, how), sink, instances)
        # A query of one stream only cuts it where the files end.
        size = -(-max(count_of(kind, feed.events) for kind in query.reads) // feed.batches)
        with start(
            pipeline,
            spark,
            "even",
            checkpoint=Path(scratch) / "checkpoint",
            interval_s=0.0,
            control=None,
            available_now=True,
            queue=QueueOptions(size=size),
            listener=timed.mark,
        ) as run:
            if not run.await_termination(LIMIT_S):
                raise PenstockError(f"{query.name} was not done within {LIMIT_S:g} s")
        kept = pipeline[OUT].sink
        timed.result = query.result(kept.table() if isinstance(kept, Memory) else _files(out))
    return timed


def by_spark(spark: Any, query: NexmarkQuery, feed: Feed) -> Timed:
    """Run a query by Structured Streaming."""
    asked = query.streaming
    if asked is None:
        raise PenstockError(f"Structured Streaming has no operators for {query.name}")
    timed = Timed()
    for kind in query.reads:
        stream = _stream(spark, feed, kind)
        stream.withWatermark("date_time", f"{LATENESS_S:g} seconds").createOrReplaceTempView(kind)
    parts: list[pa.Table] = []
    with tempfile.TemporaryDirectory(prefix="penstock-nexmark-") as scratch:
        out = Path(scratch) / "out"

        def on_batch(rows: Any, number: int) -> None:
            if asked.after:
                rows.createOrReplaceTempView("batch")
                rows = rows.sparkSession.sql(asked.after)
            if query.key or asked.after:
                parts.append(rows.toArrow())
            else:
                rows.write.mode("overwrite").parquet(str(out / f"batch={number}"))
            timed.mark()

        running = (
            spark.sql(asked.sql)
            .writeStream.outputMode(asked.mode)
            .foreachBatch(on_batch)
            .option("checkpointLocation", str(Path(scratch) / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            if not running.awaitTermination(int(LIMIT_S)):
                raise PenstockError(f"{query.name} was not done within {LIMIT_S:g} s")
        finally:
            running.stop()
        filled = [part for part in parts if part.num_rows]
        emitted = pa.concat_tables(filled) if filled else pa.table({}) if parts else _files(out)
        timed.result = query.result(emitted)
    return timed


def expected(spark: Any, query: NexmarkQuery, feed: Feed) -> pa.Table:
    """Ask Spark the same of all events at once."""
    for kind in query.reads:
        spark.read.parquet(str(feed.folder / kind)).createOrReplaceTempView(kind)
    wanted: pa.Table = spark.sql(query.sql).toArrow()
    if query.open_until is not None:
        wanted = wanted.filter(closed(wanted, query.open_until, _files(feed.folder / "bid")))
    return wanted


def closed(rows: pa.Table, column: str, bids: pa.Table) -> Any:
    """Say which rows are of windows that the last watermark has reached."""
    if pa.types.is_integer(rows.schema.field(column).type):
        return pc.less_equal(rows.column(column), pc.max(bids.column("stamp_us")))
    latest = pc.max(bids.column("date_time")).cast(pa.int64()).as_py()
    ends = rows.column(column).cast(pa.int64())
    return pc.less_equal(ends, latest - int(LATENESS_S * 1e6))


def equal(got: pa.Table | None, wanted: pa.Table) -> bool:
    """Whether a result has the same rows as what was expected, in whatever order."""
    if got is not None and not got.num_rows and not wanted.num_rows:
        return True
    if got is None or set(got.column_names) != set(wanted.column_names):
        return False
    named = wanted.select(got.column_names).cast(got.schema)
    ordered = named.sort_by([(name, "ascending") for name in got.column_names])
    return bool(got.combine_chunks().equals(ordered.combine_chunks()))


def cpu_s() -> float:
    """CPU seconds of this process and of all that it started and that still run."""
    total = 0.0
    here = psutil.Process()
    for process in (here, *here.children(recursive=True)):
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += used.user + used.system
    return total


def _sources(spark: Any, query: NexmarkQuery, feed: Feed, how: str) -> Mapping[str, Any]:
    if how == "frame":
        return {kind: _stream(spark, feed, kind) for kind in query.reads}
    return {kind: EventFiles.of(feed.folder / kind, kind) for kind in query.reads}


@dataclass(frozen=True, eq=False)
class EventFiles:
    """Files of events as a source whose rows are all there; stamps are those in the files."""

    replay: Replay
    schema: pa.Schema
    stamp: str = STAMP

    @classmethod
    def of(cls, folder: Path, kind: str) -> EventFiles:
        """Look the files through."""
        schema = SCHEMAS[kind].append(pa.field(STAMP, pa.int64()))
        return cls(Replay(folder, Parquet(schema), 1e12).checked(), schema)

    @property
    def end(self) -> int:
        """Number of rows."""
        return self.replay.end

    def available(self, elapsed_s: float) -> int:
        """All rows, at any time."""
        return self.end

    def read(self, start: int, stop: int) -> pa.Table:
        """Read rows; the stamp that a replay adds is left out."""
        table = self.replay.read(start, stop)
        return table.remove_column(table.num_columns - 1)


def _stream(spark: Any, feed: Feed, kind: str) -> Any:
    folder = str(feed.folder / kind)
    schema = spark.read.parquet(folder).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", feed.files)
    return reader.parquet(folder)


def _files(folder: Path) -> pa.Table:
    """Read all Parquet files below a folder."""
    found = sorted(folder.rglob("*.parquet"))
    if not found:
        return pa.table({})
    return ds.dataset([str(path) for path in found], format="parquet").to_table()
