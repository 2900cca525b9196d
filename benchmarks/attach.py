"""What attaching to an unchanged query costs and gains, measured: ``make bench-attach``.

``level``
    A query for which there is nothing to do, attached and detached in turn ``--turns`` times: the
    ratio of the batch times and of the CPU time of all processes, and their spread. 5 minutes.
``placed``
    All state partitions of an aggregation, then of a stream-stream join, are given new places at
    random: the part of the tasks that ran there two batches later. 2 minutes.
``skew``
    Keys with a Zipf coefficient and rows that wait, in state partitions of very different weight:
    time of the stage with state over its lower bound, max(heaviest partition, total / slots),
    measured only and then steered, ``--repeats`` times. 4 minutes a coefficient.
``slow-node``
    Rows that wait, as many as four nodes can take. Then they wait twice as long on one node. The
    rate before and after, and when that node had no more state than its speed is worth, measured
    only and steered in turn. 3 minutes a repetition.
``fluctuating``
    The rates of ``benchmarks/loop.py``, and rows that wait. Steered, with up to six nodes, beside
    six nodes for the whole time. 9 minutes a repetition.
``move``
    All state of a query changes executors: at once, in portions, after a warm-up, and by a restart
    of the query, in turn. The longest time without a commit. 5 minutes.

Each runs on a fresh embedded cluster, whose nodes are processes of one machine. Rows that wait
sleep where they are counted, so that every node has a capacity of its own. "Measured only" is
attached with ``adapt=False``: every partition stays where Spark put it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console
from tables import show

from penstock.control import Event, Settings
from penstock.control.events import DecisionStatus
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.attached import runtime as attached_runtime
from penstock.runtimes.attached import warmup
from penstock.runtimes.attached.query import AttachedQuery
from penstock.runtimes.spark.injector import processes_below
from penstock.runtimes.spark.monitor import Observed
from penstock.runtimes.spark.session import session
from penstock.spark import attach, embedded
from penstock.store.histogram import Histogram
from penstock.strategies.penstock import Penstock

NOTE = Console(stderr=True, highlight=False)
Row = dict[str, Any]

NODES, PARTITIONS = 3, 12

#: Nodes and state partitions of slow-node, and of fluctuating.
SLOW_NODES, SLOW_PARTITIONS, MANY_NODES, MANY_PARTITIONS = 4, 12, 6, 12

#: The executor that becomes slow, from which batch on, and for how many.
VICTIM, SLOW_FROM, SLOW_FOR = "1", 14, 14

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

#: Rates of the fluctuating stream, the nodes that its peak is to fill up to the limit, the load
#: that a node may reach, and seconds between two triggers, all as in ``benchmarks/loop.py``.
LEVELS, PEAK_NODES, LIMIT, INTERVAL_S = (180, 300, 450, 270, 200), 4, 0.25, 2.0

#: Milliseconds that a row waits in skew and slow-node.
COST_MS = 3

#: Seconds between two files of a stream.
FILE_S = 0.25


# ---- queries and what is seen of them


class Watched:
    """A query that runs, and what was seen of it, with seconds since its start."""

    def __init__(
        self, frame: DataFrame, mode: str, checkpoint: str, interval_s: float = 0.0
    ) -> None:
        self.frame, self.mode, self.checkpoint = frame, mode, checkpoint
        self.interval_s = interval_s
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
        if batch.batch % 4 == 0:
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
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
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


def spread_of(values: list[float]) -> str:
    """Tell the median, and the smallest and the largest."""
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def quartiles(values: list[float]) -> str:
    """Tell the median and the quartiles."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


# ---- level


def level(asked: argparse.Namespace) -> list[Row]:
    """Attach and detach in turn where there is nothing to do."""
    times: dict[str, list[float]] = {"unattached": [], "attached": []}
    cpu: dict[str, list[float]] = {"unattached": [], "attached": []}
    decisions = 0
    with cluster(NODES, 2 * NODES) as spark:
        frame = rows(spark, 20_000).groupBy((sf.col("value") % 1000).alias("k")).count()
        with running(frame, warm=50) as watched:
            for turn in range(asked.turns):
                # The order changes, so that a trend of the machine favours neither.
                for attached in (turn % 2 == 0, turn % 2 == 1):
                    handle = watched.attach(min_nodes=NODES) if attached else None
                    watched.wait(3)
                    before, first = _cpu_s(), watched.batch()
                    watched.wait(8)
                    name = "attached" if attached else "unattached"
                    cpu[name].append((_cpu_s() - before) / (watched.batch() - first))
                    times[name].append(statistics.median(watched.durations(8)))
                    if handle is not None:
                        handle.detach()
                NOTE.print(f"  {turn}: { ({n: f'{v[-1]:.0f} ms' for n, v in times.items()}) }")
            decisions = watched.changes()
    pairs = list(zip(times["attached"], times["unattached"], strict=True))
    costs = list(zip(cpu["attached"], cpu["unattached"], strict=True))
    return [
        {
            "turns": asked.turns,
            "unattached_ms": statistics.median(times["unattached"]),
            "attached_ms": statistics.median(times["attached"]),
            "ratio_of_turns": quartiles([a / b for a, b in pairs]),
            "cpu_us_a_row": 1e6 * statistics.median(cpu["unattached"]) / 20_000,
            "ratio_of_cpu": quartiles([a / b for a, b in costs]),
            "changes": decisions,
        }
    ]


def _cpu_s() -> float:
    """CPU time of this process and all below it."""
    ticks = 0
    for pid in processes_below(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


# ---- placed


def placed(asked: argparse.Namespace) -> list[Row]:
    """Give partitions new places, and count the tasks that ran there two batches later."""
    table = []
    with cluster() as spark:
        for name, frame in (
            ("aggregation", _counted(spark)),
            ("join, aggregation", _joined(spark)),
        ):
            mode = "append" if name.startswith("join") else "update"
            draw = np.random.default_rng(1)
            tasks = honoured = first = 0
            with running(frame, mode, warm=6) as watched:
                handle = watched.attach(adapt=False)
                watched.wait(4)
                for _ in range(asked.plans):
                    runtime: Any = handle.runtime
                    plan = runtime.plan
                    node_of = draw.integers(0, len(plan.nodes), len(plan.node_of))
                    target = replace(plan, node_of=node_of, active=())
                    while runtime.apply(target).left:
                        watched.wait(1)
                    applied = watched.seen[-1][1].batch.batch
                    watched.wait(6)
                    after = [o.batch for _, o in watched.seen if o.batch.batch > applied]
                    first += sum(b.tasks_honoured for b in after[:1])
                    tasks += sum(b.tasks for b in after[2:])
                    honoured += sum(b.tasks_honoured for b in after[2:])
                handle.detach()
            part = first / (asked.plans * after[0].tasks)
            row = {"query": name, "plans": asked.plans, "in_the_next_batch": part}
            table.append({**row, "tasks_from_then_on": tasks, "honoured": honoured / tasks})
    return table


def _counted(spark: SparkSession) -> DataFrame:
    return rows(spark, 5_000).groupBy((sf.col("value") % 500).alias("k")).count()


def _joined(spark: SparkSession) -> DataFrame:
    def side(name: str) -> DataFrame:
        made = rows(spark, 2_000).withWatermark("timestamp", "2 seconds")
        return made.select(sf.col("value").alias(name), sf.col("timestamp").alias(f"t_{name}"))

    near = sf.expr("a = b AND t_b BETWEEN t_a AND t_a + INTERVAL 2 SECONDS")
    return side("a").join(side("b"), near).groupBy(sf.window("t_a", "5 seconds")).count()


# ---- skew


def skew(asked: argparse.Namespace) -> list[Row]:
    """Compare measured only with steered, for heavy keys."""
    table = []
    for zipf in asked.zipf:
        found: dict[str, list[float]] = {}
        with cluster() as spark, tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
            for number in range(200):
                put(Path(folder), number, zipf_keys(200, 1500, zipf, number))
            for _ in range(asked.repeats):
                # Every query is new, and begins where Spark puts it.
                frame = waiting(files(spark, Path(folder), 1), COST_MS)
                for name, value in _skewed(frame).items():
                    found.setdefault(name, []).append(value)
        table.append({"Zipf": zipf, **{name: spread_of(v) for name, v in found.items()}})
    return table


def _skewed(frame: DataFrame) -> Row:
    with running(frame, warm=5) as watched:
        handle = watched.attach(adapt=False)
        watched.wait(8)
        handle.detach()
        before = [o for _, o in watched.seen[-6:]]
        handle = watched.attach(control=Settings(every=2, cooldown=4, min_nodes=NODES))
        watched.wait(22)
        after = [o for _, o in watched.seen[-6:]]
        moved = sum(event.moved for event in handle.decisions)
        handle.detach()
    times = [statistics.median(o.batch.duration_ms for o in own) for own in (before, after)]
    return {
        "measured_only": statistics.median(map(over_bound, before)),
        "steered": statistics.median(map(over_bound, after)),
        "batch_s_measured_only": times[0] / 1000.0,
        "batch_s_steered": times[1] / 1000.0,
        "faster": times[0] / times[1],
        "moved": float(moved),
    }


def over_bound(observed: Observed) -> float:
    """Time of the stage with state, from its first task to the end of its last, over its bound."""
    own = [one for one in observed.instances if not one.operator.startswith("source")]
    times = [one.run_ms or 0.0 for one in own]
    stage = observed.batch.figures[f"stage_{own[0].operator}_ms"]
    return stage / max(*times, sum(times) / NODES)


# ---- slow-node


def slow_node(asked: argparse.Namespace) -> list[Row]:
    """Make one node half as fast, with nobody to help and with Penstock."""
    found: dict[str, list[Row]] = {"measured only": [], "steered": []}
    with ExitStack() as stack:
        spark = stack.enter_context(cluster(SLOW_NODES, SLOW_PARTITIONS))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-"))
        for number in range(SLOW_FROM + SLOW_FOR + 10):
            slow = VICTIM if number >= SLOW_FROM else "none"
            put(Path(folder), number, zipf_keys(160, 2000, 0.0, number, slow))
        for turn in range(asked.repeats):
            names = list(found) if turn % 2 == 0 else list(found)[::-1]
            for name in names:
                NOTE.print(f"slow-node: {name}")
                found[name].append(_slowed(spark, Path(folder), name == "steered"))
                NOTE.print(found[name][-1])
    alone = [row["after"] for row in found["measured only"]]
    return [
        {
            "run": name,
            "rows_per_s_before": spread_of([row["before"] for row in own]),
            "rows_per_s_after": spread_of([row["after"] for row in own]),
            "over_measured_only": spread_of(
                [row["after"] / other for row, other in zip(own, alone, strict=True)]
            ),
            "after_over_before": spread_of([row["after"] / row["before"] for row in own]),
            "left_after_s": ", ".join(str(row["left"]) for row in own),
            "batches_until_then": ", ".join(str(row["batches"]) for row in own),
        }
        for name, own in found.items()
    ]


def _slowed(spark: SparkSession, folder: Path, steered: bool) -> Row:
    control = Settings(every=2, cooldown=4, min_nodes=SLOW_NODES, max_nodes=SLOW_NODES)
    with running(waiting(files(spark, folder, 1), COST_MS), warm=5) as watched:
        handle = watched.attach(**({"control": control} if steered else {"adapt": False}))
        watched.wait(SLOW_FROM + SLOW_FOR - watched.batch())
        handle.detach()
    before = [o for _, o in watched.seen if o.batch.batch < SLOW_FROM][-6:]
    after = [(at, o) for at, o in watched.seen if o.batch.batch >= SLOW_FROM]
    left = _left(after)
    return {
        "before": _rate(before),
        "after": _rate([o for _, o in after[-6:]]),
        "left": f"{after[left - 1][0] - after[0][0]:.1f}" if left else "never",
        "batches": left or "-",
    }


def _rate(seen: list[Observed]) -> float:
    """Rows a second of batches that follow each other."""
    took_ms = sum(observed.batch.duration_ms for observed in seen)
    return 1000.0 * sum(observed.batch.rows_in for observed in seen) / took_ms


def _left(after: list[tuple[float, Observed]]) -> int:
    """Count the batches until a node had no more state than its speed is worth; 0 if it never was.

    Half of the even share of the state partitions, that is.
    """
    share = SLOW_PARTITIONS / SLOW_NODES / 2
    there = [
        sum(i.executor == VICTIM and not i.operator.startswith("source") for i in o.instances)
        for _, o in after
    ]
    if there[-1] > share:
        return 0
    return 1 + max(number for number, count in enumerate(there) if count > share)


# ---- fluctuating


def fluctuating(asked: argparse.Namespace) -> list[Row]:
    """Nodes that follow the rate, beside all nodes all the time."""
    text = "steps:" + ",".join(f"{rate}x{asked.level_s:g}" for rate in LEVELS)
    found: dict[str, list[Row]] = {"static": [], "steered": []}
    for turn in range(asked.repeats):
        for name in list(found) if turn % 2 == 0 else list(found)[::-1]:
            NOTE.print(f"fluctuating: {name}, {text}")
            with cluster(MANY_NODES, MANY_PARTITIONS) as spark:
                found[name].append(_followed(spark, name == "steered", text, asked))
            NOTE.print(found[name][-1])
    base = found["static"]
    return [
        {
            "run": name,
            "nodes_at_each_level": own[-1]["levels"],
            "node_seconds": spread_of([row["node_seconds"] for row in own]),
            "over_static": spread_of(
                [r["node_seconds"] / b["node_seconds"] for r, b in zip(own, base, strict=True)]
            ),
            "p50_ms": spread_of([row["p50"] for row in own]),
            "p95_ms": spread_of([row["p95"] for row in own]),
            "p95_over_static": spread_of(
                [r["p95"] / b["p95"] for r, b in zip(own, base, strict=True)]
            ),
            "changes": ", ".join(str(row["changes"]) for row in own),
        }
        for name, own in found.items()
    ]


def _followed(spark: SparkSession, steered: bool, text: str, asked: argparse.Namespace) -> Row:
    cost_ms = round(1000 * 0.85 * LIMIT * PEAK_NODES / max(LEVELS))
    strategy = Penstock(most=LIMIT, overload=1.05 * LIMIT)
    control = Settings(every=2, cooldown=5, max_nodes=MANY_NODES)
    options: Row = {"strategy": strategy, "control": control} if steered else {"adapt": False}
    held: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as root:
        folder = Path(root)
        put(folder, 90_000, zipf_keys(200, 400, 0.2, 0))
        with ExitStack() as stack:
            frame = waiting(files(spark, folder), cost_ms)
            watched = stack.enter_context(running(frame, warm=1, interval_s=INTERVAL_S))
            # Executors and workers come up before the first level begins.
            for number in range(90_001, 90_009):
                put(folder, number, zipf_keys(200, 400, 0.2, number))
                watched.wait(1)
            stack.enter_context(stream(folder, Profile.parse(text), keys=200, coefficient=0.2))
            watched.start = time.monotonic()
            handle = watched.attach(**options)
            while watched.now < asked.level_s * len(LEVELS):
                watched.check()
                # One executor is a node; the driver is listed, too.
                context: Any = spark.sparkContext._jsc
                held.append((watched.now, context.sc().getExecutorMemoryStatus().size() - 1))
                time.sleep(0.25)
            handle.detach()
    late = [o.batch.latency for at, o in watched.seen if at > asked.level_s / 2]
    levels = [
        statistics.mean(n for at, n in held if i <= at / asked.level_s < i + 1)
        for i in range(len(LEVELS))
    ]
    return {
        "levels": " ".join(f"{n:.1f}" for n in levels),
        "node_seconds": sum((b[0] - a[0]) * a[1] for a, b in itertools.pairwise(held)),
        "p50": Histogram.merged(late).percentile(50.0),
        "p95": Histogram.merged(late).percentile(95.0),
        "changes": watched.changes(),
    }


# ---- move

#: Ways in which all state changes executors.
AT_ONCE, PORTIONS, WARM, RESTART = "at once", "in portions", "after a warm-up", "by a restart"


def move(asked: argparse.Namespace) -> list[Row]:
    """Move a large state in four ways, in turn."""
    found: dict[str, list[Row]] = {name: [] for name in (AT_ONCE, PORTIONS, WARM, RESTART)}
    with cluster(NODES, 2 * NODES) as spark:
        salts = [sf.unhex(sf.sha2(sf.concat(sf.lit(i), "k"), 512)) for i in range(8)]
        key = (sf.col("value") % asked.keys).cast("string").alias("k")
        keyed = rows(spark, asked.keys // 8).select(key)
        frame = keyed.select("k", sf.concat(*salts).alias("pad")).groupBy("k", "pad").count()
        with running(frame, warm=12) as watched:
            for _ in range(asked.repeats):
                for way in found:
                    found[way].append(_moved(watched, way))
                    NOTE.print(f"  {way}: {found[way][-1]}")
    return [
        {
            "how": way,
            "state_mb": statistics.median(row["mb"] for row in own),
            "usual_s": spread_of([row["usual"] for row in own]),
            "longest_without_a_commit_s": spread_of([row["gap"] for row in own]),
            "added_s": spread_of([row["gap"] - row["usual"] for row in own]),
            "batches": ", ".join(str(row["batches"]) for row in own),
        }
        for way, own in found.items()
    ]


def _moved(watched: Watched, way: str) -> Row:
    handle = watched.attach(adapt=False)
    watched.wait(6)
    runtime: Any = handle.runtime
    usual = statistics.median(np.diff(watched.commits())[-5:])
    mb = sum(operator.state_mb for operator in runtime.topology.operators)
    began, count = watched.commits()[-1], 1
    if way == RESTART:
        handle.detach()
        watched.restart()
        watched.wait(3)
        ends = [began, *watched.commits()]
        return {"mb": mb, "usual": usual, "gap": max(np.diff(ends)), "batches": 1}
    plan = runtime.plan
    target = replace(plan, node_of=(plan.node_of + 1) % len(plan.nodes), active=())
    if way == WARM:
        worth, warmup.WORTH_MS = warmup.WORTH_MS, 0.0
        while not runtime.prepare(target):
            time.sleep(0.02)
        warmup.WORTH_MS = worth
    budget = attached_runtime.LOAD_BUDGET_MS
    if way == AT_ONCE:
        attached_runtime.LOAD_BUDGET_MS = float("inf")
    while runtime.apply(target).left:
        watched.wait(1)
        count += 1
    attached_runtime.LOAD_BUDGET_MS = budget
    watched.wait(4)
    ends = [end for end in watched.commits() if end >= began]
    handle.detach()
    return {"mb": mb, "usual": usual, "gap": max(np.diff(ends)), "batches": count}


KINDS: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    "level": level,
    "placed": placed,
    "skew": skew,
    "slow-node": slow_node,
    "fluctuating": fluctuating,
    "move": move,
}


def main() -> None:
    """Run what is asked for, each kind on a cluster of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("kinds", nargs="*", default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    add("--repeats", type=int, default=3, help="of everything but level and placed")
    add("--turns", type=int, default=20, help="for level")
    add("--plans", type=int, default=6, help="for placed")
    add("--zipf", type=float, nargs="*", default=[1.0, 1.2], help="coefficients, for skew")
    add("--level-s", type=float, default=48.0, help="seconds of a level, for fluctuating")
    add("--keys", type=int, default=400_000, help="of half a kilobyte each, for move")
    add("--json", action="store_true")
    asked = parser.parse_args()
    unknown = set(asked.kinds) - set(KINDS)
    if unknown:
        parser.error(f"unknown {sorted(unknown)}; there are {', '.join(KINDS)}")
    results: dict[str, list[Row]] = {}
    for kind in asked.kinds:
        results[kind] = KINDS[kind](asked)
        if not asked.json:
            show(kind, results[kind])
    if asked.json:
        json.dump(results, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
