"""What attaching to an unchanged query costs and gains, measured: ``make bench-attach``.

``level``
    A query for which there is nothing to do, attached and detached in turn ``--turns`` times: the
    ratio of the batch times, and its spread. 4 minutes.
``skew``
    Keys with a Zipf coefficient and rows that wait, in state partitions of very different weight:
    time of the stage with state over its lower bound, max(heaviest partition, total / slots),
    measured only and steered. 4 minutes a coefficient.
``move``
    All state of a query changes executors, with and without a warm-up, and by a restart of the
    query: longest batch, and time without a commit. 4 minutes.

Each runs on a fresh embedded cluster of three executors, whose nodes are processes of one machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from tables import show

from penstock.control import Settings
from penstock.runtimes.attached import warmup
from penstock.runtimes.attached.query import AttachedQuery
from penstock.runtimes.spark.session import session
from penstock.spark import attach, embedded

NODES, PARTITIONS = 3, 12

CONF = {
    "spark.locality.wait": "3s",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming."
    "state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class Watched:
    """A query that runs, and the batches that were seen of it."""

    def __init__(self, frame: DataFrame, mode: str, checkpoint: str) -> None:
        self.frame, self.mode, self.checkpoint = frame, mode, checkpoint
        self.seen: list[Any] = []
        self.query = self._start()

    def _start(self) -> Any:
        writer = self.frame.writeStream.format("noop").outputMode(self.mode)
        return writer.option("checkpointLocation", self.checkpoint).start()

    def attach(self, **options: Any) -> AttachedQuery:
        """Attach to it."""
        handle = attach(self.query, on_batch=self.seen.append, **options)
        assert isinstance(handle, AttachedQuery), handle.explain()
        return handle

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
            if self.query.exception() is not None:
                raise self.query.exception()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{batches} batches did not pass in {limit_s:g} s")
            time.sleep(0.05)

    def durations(self, batches: int) -> list[float]:
        """Return the times of the last batches, in ms, by Spark's own report."""
        return [float(p["durationMs"]["triggerExecution"]) for p in self.query.recentProgress][
            -batches:
        ]


@contextmanager
def running(make: Callable[[SparkSession], DataFrame], mode: str, **conf: str) -> Iterator[Watched]:
    """Run a query on a fresh cluster, past its first batches."""
    spark = session(embedded(NODES), conf={**CONF, **conf})
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        try:
            watched = Watched(make(spark), mode, folder)
            watched.wait(10)
            yield watched
            watched.query.stop()
        finally:
            spark.stop()


def rows(spark: SparkSession, a_batch: int) -> DataFrame:
    """Make batches of equal size."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", a_batch)
    return source.option("numPartitions", NODES).load()


# ---- level


def level(asked: argparse.Namespace) -> None:
    """Attach and detach in turn where there is nothing to do."""

    def make(spark: SparkSession) -> DataFrame:
        return rows(spark, 20_000).groupBy((sf.col("value") % 1000).alias("k")).count()

    ratios = []
    with running(make, "update") as watched:
        watched.wait(20)
        for _ in range(asked.turns):
            watched.wait(6)
            alone = statistics.median(watched.durations(5))
            handle = watched.attach(min_nodes=NODES)
            watched.wait(6)
            ratios.append(statistics.median(watched.durations(5)) / alone)
            handle.detach()
    low, middle, high = statistics.quantiles(ratios, n=4)
    show(
        "batch time, attached over unattached",
        [{"turns": len(ratios), "lower_quartile": low, "median": middle, "upper_quartile": high}],
    )


# ---- skew


def _slow_count(key: Any, frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    total = state.get[0] if state.exists else 0
    for frame in frames:
        time.sleep(0.003 * len(frame))
        total += len(frame)
    state.update((total,))
    yield pd.DataFrame({"k": [key[0]], "n": [total]})


def skew(asked: argparse.Namespace) -> None:
    """Compare measured only with steered, for heavy keys."""
    table = []
    for zipf in asked.zipf:
        weights = 1.0 / np.arange(1, 201) ** zipf
        edges = [float(edge) for edge in np.cumsum(weights / weights.sum())]

        def make(spark: SparkSession, edges: list[float] = edges) -> DataFrame:
            draw = sf.abs(sf.xxhash64("value") % 1_000_000) / 1_000_000.0
            key = sum((draw > edge).cast("int") for edge in edges[:-1])
            keyed = rows(spark, 2_000).select(key.alias("k"))  # type: ignore[union-attr]
            return keyed.groupBy("k").applyInPandasWithState(
                _slow_count, "k INT, n LONG", "n LONG", "update", "NoTimeout"
            )

        with running(make, "update") as watched:
            handle = watched.attach(adapt=False)
            watched.wait(8)
            handle.detach()
            before = _over_bound(watched.seen[-5:])
            control = Settings(every=2, cooldown=4, min_nodes=NODES)
            handle = watched.attach(control=control)
            watched.wait(25)
            after = _over_bound(watched.seen[-5:])
            moved = sum(event.moved for event in handle.decisions)
            handle.detach()
            row = {"Zipf": zipf, "measured_only": before, "steered": after, "moved": moved}
            table.append(row)
    show("time of the stage with state over its lower bound", table)


def _over_bound(seen: list[Any]) -> float:
    ratios = []
    for observed in seen:
        own = [one for one in observed.instances if not one.operator.startswith("source")]
        spent: dict[str, float] = {}
        for one in own:
            spent[one.executor] = spent.get(one.executor, 0.0) + (one.run_ms or 0.0)
        total, heaviest = sum(spent.values()), max(one.run_ms or 0.0 for one in own)
        ratios.append(max(spent.values()) / max(heaviest, total / NODES))
    return statistics.median(ratios)


# ---- move


def move(asked: argparse.Namespace) -> None:
    """Move a large state with and without a warm-up, and restart the query."""

    def make(spark: SparkSession) -> DataFrame:
        pad = sf.repeat(sf.sha2(sf.col("value").cast("string"), 256), 8)
        keyed = rows(spark, asked.keys).select(sf.col("value").alias("k"), pad.alias("pad"))
        return keyed.groupBy("k", "pad").count()

    table = []
    with running(make, "update", **{"spark.sql.shuffle.partitions": str(NODES)}) as watched:
        handle = watched.attach(adapt=False)
        watched.wait(5)
        for way in ("moved", "moved after a warm-up") * asked.repeats:
            watched.wait(3)
            alone = statistics.median(watched.durations(3))
            runtime: Any = handle.runtime
            plan = runtime.plan
            target = replace(plan, node_of=(plan.node_of + 1) % len(plan.nodes), active=())
            if way != "moved":
                warmup.WORTH_MS = 0.0
                while not runtime.prepare(target):
                    time.sleep(0.05)
            while runtime.apply(target).left:
                watched.wait(1)
            watched.wait(3)
            state = watched.seen[-1].batch.figures["state_rows"]
            longest = max(watched.durations(3))
            row = {"how": way, "rows": int(state), "before_ms": alone, "longest_ms": longest}
            table.append(row)
        handle.detach()
        alone = statistics.median(watched.durations(3))
        began = time.monotonic()
        watched.restart()
        watched.wait(1)
        longest = (time.monotonic() - began) * 1000
        again = "the query is restarted"
        row = {"how": again, "rows": int(state), "before_ms": alone, "longest_ms": longest}
        table.append(row)
    show("all state changes executors", table)


KINDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "level": level,
    "skew": skew,
    "move": move,
}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=list(KINDS), choices=[*KINDS, []])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--zipf", type=float, nargs="*", default=[1.0, 1.2])
    parser.add_argument("--keys", type=int, default=100_000, help="new keys a batch")
    parser.add_argument("--repeats", type=int, default=2)
    asked = parser.parse_args()
    for kind in asked.kinds:
        KINDS[kind](asked)


if __name__ == "__main__":
    main()
