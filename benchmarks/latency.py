"""Latency of a count by key, beside Spark's micro-batches: ``python benchmarks/latency.py``.

Rows come at a steady rate, each with the moment at which it is due, and a batch begins when the one
before it is over. The latency of a row is the time from when it is due to the end of the batch that
counted it: for Penstock until it is committed, for Spark until `foreachBatch` has the counts.
Penstock reads a generator of its own, Spark a socket on which lines come when they are due, the
quickest source that it has. Sides take turns, each repetition in a session of its own and in the
other order; figures are medians of the repetitions, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import tempfile
import threading
import time
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from tables import tell

from penstock import functions as F
from penstock import spark as engine
from penstock.pipeline import Memory, Pipeline
from penstock.pipeline.sources.generator import Generator, Keys
from penstock.runtimes.spark.monitor import Observed
from penstock.store.histogram import Histogram

#: Seconds that are run and not counted.
WARM_S = 5.0
KEYS = 1000
#: Seconds between two looks at what is due.
PAUSE_S = 0.002
NOTE = Console(stderr=True)


def penstock(spark: SparkSession, rate: float, seconds: float) -> dict[str, Any]:
    """Count by key with a source of our own."""
    rows = int(rate * (WARM_S + seconds))
    found: list[Histogram] = []
    begun = time.monotonic()

    def listen(observed: Observed) -> None:
        if time.monotonic() - begun > WARM_S:
            found.append(observed.batch.latency)

    pipeline = (
        Pipeline("latency")
        .source("keys", Generator(rate, Keys(keys=KEYS), seed=1, rows=rows), parallelism=1)
        .aggregate("count", by="key", n=F.count(), parallelism=2)
        .sink("out", Memory())
    )
    with engine.start(
        pipeline, spark, "even", interval_s=0.0, control=None, listener=listen
    ) as run:
        run.await_termination(WARM_S + seconds + 120)
    whole = Histogram.merged(found)
    return {
        "by": "penstock",
        "rows_per_s": rate,
        "p50_ms": whole.percentile(50),
        "p99_ms": whole.percentile(99),
        "batches": len(found),
    }


class Lines:
    """Writes keys to whoever connects, each at the moment when it is due."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.began = float("inf")
        self._over = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.close()
        self._thread.join()

    def _serve(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:
            return
        sent = 0
        with connection:
            self.began = time.monotonic()
            while not self._over.wait(PAUSE_S):
                due = int((time.monotonic() - self.began) * self.rate)
                text = "".join(f"{n * 7919 % KEYS}\n" for n in range(sent, due))
                try:
                    connection.sendall(text.encode())
                except OSError:
                    return
                sent = due


def micro_batch(spark: SparkSession, rate: float, seconds: float) -> dict[str, Any]:
    """Count by key with Spark's own operators, from a socket."""
    ends: dict[int, float] = {}

    def on_batch(rows: DataFrame, number: int) -> None:
        rows.toArrow()
        ends[number] = time.monotonic()

    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    with Lines(rate) as lines, tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        stream = spark.readStream.format("socket").option("host", "127.0.0.1")
        query = (
            stream.option("port", lines.port)
            .load()
            .groupBy("value")
            .count()
            .writeStream.outputMode("update")
            .foreachBatch(on_batch)
            .option("checkpointLocation", folder)
            .start()
        )
        while time.monotonic() - lines.began < WARM_S + seconds or lines.began == float("inf"):
            time.sleep(0.2)
        progress = [(p["batchId"], int(p["numInputRows"])) for p in query.recentProgress]
        query.stop()
    at, late, batches = 0, [], 0
    for number, rows in sorted(progress):
        if rows and number in ends:
            # Row number n is due n / rate after the first.
            due = lines.began + np.arange(at, at + rows) / rate
            if due[0] - lines.began > WARM_S:
                late.append((ends[number] - due) * 1e3)
                batches += 1
        at += rows
    waited = np.concatenate(late)
    return {
        "by": "spark micro-batch",
        "rows_per_s": rate,
        "p50_ms": float(np.quantile(waited, 0.5)),
        "p99_ms": float(np.quantile(waited, 0.99)),
        "batches": batches,
    }


def summary(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put repetitions together: a row for each rate and side."""
    rows: list[dict[str, Any]] = []
    for rate, by in dict.fromkeys((one["rows_per_s"], one["by"]) for one in found):
        mine = [one for one in found if (one["rows_per_s"], one["by"]) == (rate, by)]
        row: dict[str, Any] = {"rows_per_s": rate, "by": by}
        for name in ("p50_ms", "p99_ms"):
            values = [one[name] for one in mine]
            row[name] = statistics.median(values)
            row[f"{name[:3]}_spread"] = f"{min(values):.1f} to {max(values):.1f}"
        rows.append(row | {"batches": sum(one["batches"] for one in mine)})
    return sorted(rows, key=lambda row: (row["rows_per_s"], row["by"]))


def main() -> None:
    """Measure each rate by both sides."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", default="100,1000,10000")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rates = [float(text) for text in asked.rates.split(",")]
    found: list[dict[str, Any]] = []
    for repetition in range(asked.repeats):
        sides = (penstock, micro_batch) if repetition % 2 == 0 else (micro_batch, penstock)
        with engine.cluster("local[2]", conf={"spark.sql.shuffle.partitions": "2"}) as spark:
            for rate in rates:
                for side in sides:
                    one = side(spark, rate, asked.seconds)
                    found.append(one)
                    NOTE.print(
                        f"{rate:g} rows/s by {one['by']}, repetition {repetition + 1}: "
                        f"p50 {one['p50_ms']:.1f} ms, p99 {one['p99_ms']:.1f} ms",
                        style="dim",
                    )
    rows = summary(found)
    tell("latency of a count by key", rows, as_json=asked.json)


if __name__ == "__main__":
    main()
