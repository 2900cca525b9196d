"""Record the event logs that the tests of ``penstock advise`` read, each with a planted cause.

``make event-logs`` runs the queries for real, one after the other, on embedded clusters, and writes
what Spark logged into ``tests/data/event_logs``. Lines are made smaller first: properties, paths,
hosts and call sites that the advice does not read are taken out. They are packed by Spark's own
codecs.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.runtimes.spark.session import cluster, embedded

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "event_logs"

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STORE = "spark.sql.streaming.stateStore."

#: Properties that a log keeps.
KEPT = ("spark.app.name", "spark.executor.", "spark.sql.", "spark.master", "spark.locality.wait")
DROPPED = ("extraJavaOptions", "warehouse", ".dir", "PYTHONPATH", "executorEnv")

#: Properties of a stage that the advice reads.
STAGE = ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")

#: Fields that are long, or that tell of the machine.
BULKY = frozenset(
    {"details", "Details", "Callsite", "callSite.long", "Log Urls", "physicalPlanDescription"}
    | {"sparkPlanInfo", "modifiedConfigs", "Hadoop Properties", "System Properties"}
    | {"Metrics Properties", "Classpath Entries", "JVM Information", "User", "jobTags"}
    | {"Task Executor Metrics", "Storage Level", "Push Based Shuffle", "Updated Blocks"}
)

#: A path, as in the names of stages: "collect at /somewhere/job.py:12".
PATH = re.compile(r"(?<![\w.])(?:file:)?/[\w./-]{3,}")


def rows(spark: SparkSession, count: int) -> DataFrame:
    """Read so many rows in every batch."""
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", count)
    return reader.option("numPartitions", 2).load()


def skew(hot: int, of: int, count: int, cost_s: float) -> Callable[[SparkSession], DataFrame]:
    """Count by key, where one key has so many rows of so many, and a row takes a while."""

    def tally(key: Any, frames: Any, state: Any) -> Any:
        import pandas as pd

        seen = state.get[0] if state.exists else 0
        for frame in frames:
            time.sleep(cost_s * len(frame))
            seen += len(frame)
        state.update((seen,))
        yield pd.DataFrame({"key": [key[0]], "seen": [seen]})

    def make(spark: SparkSession) -> DataFrame:
        key = F.when(F.col("value") % of < hot, F.lit(0)).otherwise(F.col("value") % 61)
        keyed = rows(spark, count).withColumn("key", key).groupBy("key")
        return keyed.applyInPandasWithState(
            tally, "key long, seen long", "seen long", "update", "NoTimeout"
        )

    return make


def counted(count: int) -> Callable[[SparkSession], DataFrame]:
    """Count so many rows a batch by one of a hundred keys."""
    return lambda spark: rows(spark, count).groupBy((F.col("value") % 100).alias("key")).count()


def commit(count: int, width: int) -> Callable[[SparkSession], DataFrame]:
    """Keep so many times 32 characters for every row, in a store that always compacts it."""

    def make(spark: SparkSession) -> DataFrame:
        text = F.concat(*(F.md5((F.col("value") + i).cast("string")) for i in range(width)))
        return rows(spark, count).groupBy("value").agg(F.max(text))

    return make


@dataclass
class Part(InputPartition):
    """Rows from one number to another."""

    low: int
    high: int

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high


class SlowReader(DataSourceStreamReader):
    """Hands out rows in one partition, each of which takes a while."""

    def __init__(self, rows: int, cost_s: float) -> None:
        self.offset, self.rows, self.cost_s = 0, rows, cost_s

    def initialOffset(self) -> dict[str, int]:  # noqa: N802, D102
        return {"offset": 0}

    def latestOffset(self, start: Any, limit: Any) -> dict[str, int]:  # noqa: N802, D102
        self.offset += self.rows
        return {"offset": self.offset}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Part]:  # noqa: D102
        return [Part(start["offset"], end["offset"])]

    def read(self, partition: Any) -> Iterator[tuple[int]]:  # noqa: D102
        for value in range(partition.low, partition.high):
            time.sleep(self.cost_s)
            yield (value,)

    def commit(self, end: dict[str, int]) -> None:  # noqa: D102
        return None


class SlowSource(DataSource):
    """A source that is slow and has one partition."""

    @classmethod
    def name(cls) -> str:  # noqa: D102
        return "slow"

    def schema(self) -> str:  # noqa: D102
        return "value long"

    def streamReader(self, schema: Any) -> SlowReader:  # noqa: N802, D102
        return SlowReader(int(self.options["rows"]), float(self.options["cost_s"]))


def slow_source(count: int, cost_s: float) -> Callable[[SparkSession], DataFrame]:
    """Count what a slow source hands out."""

    def make(spark: SparkSession) -> DataFrame:
        spark.dataSource.register(SlowSource)
        read = spark.readStream.format("slow").options(rows=count, cost_s=cost_s).load()
        return read.groupBy((F.col("value") % 100).alias("key")).count()

    return make


@dataclass(frozen=True)
class Planted:
    """A query with a cause in it.

    Parameters
    ----------
    make : callable
        Makes the streaming frame.
    nodes, cores : int
        Of the embedded cluster.
    partitions : int
        Shuffle partitions.
    batches : int
        How many are recorded.
    codec : str
        What the log is packed with.
    trigger_s : int
        0: one batch after the other.
    parts : int
        Files that the log is cut into; more than one is a rolling log.
    """

    make: Callable[[SparkSession], DataFrame]
    nodes: int
    partitions: int
    batches: int
    codec: str
    cores: int = 1
    trigger_s: int = 0
    parts: int = 1
    conf: Mapping[str, str] = field(default_factory=dict)


#: State is compacted with every commit.
COMPACTS = {f"{STORE}providerClass": ROCKSDB, f"{STORE}rocksdb.compactOnCommit": "true"}

PLANTED = {
    "skew": Planted(skew(4, 5, 1500, 0.003), 2, 8, 12, "zstd", cores=2),
    "partitions": Planted(counted(5000), 2, 64, 9, "lz4"),
    "idle": Planted(counted(1000), 4, 4, 20, "snappy", trigger_s=5),
    "commit": Planted(
        commit(25_000, 8),
        2,
        2,
        16,
        "lzf",
        conf=COMPACTS,
    ),
    "source": Planted(slow_source(1500, 0.001), 2, 2, 12, "zstd", parts=2),
}

#: The same causes in other queries, on other clusters: no rule was tuned on these.
OTHERS = {
    "skew": Planted(skew(3, 4, 1200, 0.004), 3, 6, 12, "zstd"),
    "partitions": Planted(counted(20_000), 3, 96, 9, "zstd"),
    "idle": Planted(counted(400), 3, 3, 12, "zstd", cores=2, trigger_s=8),
    "commit": Planted(commit(8_000, 24), 3, 6, 16, "zstd", conf=COMPACTS),
    "source": Planted(slow_source(500, 0.004), 3, 6, 12, "zstd"),
}


def record(name: str, planted: Planted, folder: Path) -> None:
    """Run a query, and write its log."""
    with tempfile.TemporaryDirectory() as scratch:
        conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file:{scratch}",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.sql.shuffle.partitions": str(planted.partitions),
            "spark.locality.wait": "3s",
            **planted.conf,
        }
        master = embedded(planted.nodes, planted.cores)
        with cluster(master, name=name, conf=conf) as spark:
            _drain(spark, planted, f"{scratch}/checkpoint")
        log = next(p for p in Path(scratch).iterdir() if p.is_file() and p.name[0] != ".")
        lines = [slim(line) for line in log.read_text(encoding="utf-8").splitlines()]
        _write(spark, planted, name, [line for line in lines if line], folder)


def record_batch(folder: Path) -> None:
    """Record an application without a stream."""
    with tempfile.TemporaryDirectory() as scratch:
        conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file:{scratch}",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.sql.shuffle.partitions": "4",
        }
        with cluster("local[2]", name="batch", conf=conf) as spark:
            spark.range(0, 100_000, 1, 4).groupBy((F.col("id") % 7).alias("key")).count().collect()
        log = next(p for p in Path(scratch).iterdir() if p.is_file() and p.name[0] != ".")
        lines = [slim(line) for line in log.read_text(encoding="utf-8").splitlines()]
        text = "\n".join(line for line in lines if line) + "\n"
        (folder / "batch").write_text(text, encoding="utf-8")


def _drain(spark: SparkSession, planted: Planted, checkpoint: str) -> None:
    writer = planted.make(spark).writeStream.format("noop").outputMode("update")
    writer = writer.option("checkpointLocation", checkpoint)
    if planted.trigger_s:
        writer = writer.trigger(processingTime=f"{planted.trigger_s} seconds")
    query = writer.start()
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] >= planted.batches:
            break
        time.sleep(0.05)
    failure = query.exception()
    query.stop()
    if failure is not None:
        raise failure


def slim(line: str) -> str:
    """Take out of an event what the advice does not read; empty when nothing is left."""
    event = json.loads(line)
    if event["Event"].endswith(("DriverAccumUpdates", "SparkListenerTaskStart")):
        return ""
    if "Properties" in event:
        event["Properties"] = {k: event["Properties"][k] for k in STAGE if k in event["Properties"]}
    if "Spark Properties" in event:
        event["Spark Properties"] = {
            key: value
            for key, value in event["Spark Properties"].items()
            if key.startswith(KEPT) and not any(word in key for word in DROPPED)
        }
    if "Stage Infos" in event:
        event["Stage Infos"] = []
    if event["Event"] == "SparkListenerTaskEnd":
        info = event["Task Info"]
        info["Accumulables"] = [a for a in info["Accumulables"] if a["Name"].startswith("time to")]
    if event["Event"] == "SparkListenerStageCompleted":
        event["Stage Info"] |= {"Accumulables": [], "RDD Info": []}
    for operator in event.get("progress", {}).get("stateOperators", []):
        operator["snapshotCustomMetricNames"] = []
    return json.dumps(_plain(event), separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "host" if key == "Host" else _plain(inner)
            for key, inner in value.items()
            if key not in BULKY
        }
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return PATH.sub("PATH", value) if isinstance(value, str) else value


def _write(
    spark: SparkSession, planted: Planted, name: str, lines: list[str], folder: Path
) -> None:
    if planted.parts == 1:
        _pack(spark, planted.codec, folder / f"{name}.{planted.codec}", lines)
        return
    rolling = folder / f"eventlog_v2_{name}"
    shutil.rmtree(rolling, ignore_errors=True)
    rolling.mkdir()
    (rolling / f"appstatus_{name}").touch()
    size = -(-len(lines) // planted.parts)
    for part in range(planted.parts):
        place = rolling / f"events_{part + 1}_{name}.{planted.codec}"
        _pack(spark, planted.codec, place, lines[part * size : (part + 1) * size])


def _pack(spark: SparkSession, codec: str, place: Path, lines: list[str]) -> None:
    """Write lines through the codec of Spark; its Java process outlives the session."""
    jvm: Any = spark._jvm
    made = jvm.org.apache.spark.io.CompressionCodec.createCodec(
        jvm.org.apache.spark.SparkConf(), codec
    )
    stream = made.compressedOutputStream(jvm.java.io.FileOutputStream(str(place)))
    for line in lines:
        stream.write(bytearray(f"{line}\n", "utf-8"))
    stream.close()
    print(f"{place.name}: {len(lines)} events, {place.stat().st_size / 1e3:.0f} kB", flush=True)


def main() -> None:
    """Record the logs that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*PLANTED, "batch"])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--others", action="store_true", help="the same causes in other queries")
    asked = parser.parse_args()
    table = OTHERS if asked.others else PLANTED
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name in asked.names:
        if name == "batch":
            record_batch(asked.folder)
        elif name in table:
            record(name, table[name], asked.folder)
        else:
            sys.exit(f"there is no log {name!r}; there are {', '.join(PLANTED)} and batch")


if __name__ == "__main__":
    main()
