"""What attaching to an unchanged query costs and gains, measured: ``make bench-attach``.

``level``
    A query for which there is nothing to do, attached and detached in turn ``--turns`` times: the
    ratio of the batch times and of the CPU time of all processes, and their spread. 5 minutes.
``placed``
    All state partitions of an aggregation, then of a stream-stream join, are given new places at
    random: the part of the tasks that ran there two batches later. 2 minutes.
``skew``
    Keys with a Zipf coefficient and rows that wait, in state partitions of very different weight:
    time of the stage with state over its lower bound, max(heaviest partition, total / slots).
    Measured only, then steered, then measured only with every partition put back to where it was at
    first, so that a trend of the machine favours neither. 2 minutes a repetition and coefficient.
``slow-node``
    Rows that wait, as many as four nodes can take. Then they wait twice as long on one node. The
    rate before and after, and when that node had no more state than its speed is worth, measured
    only and steered in turn. 3 minutes a repetition.
``fluctuating``
    The rates of ``benchmarks/loop.py``, and rows that wait. Steered, with up to six nodes, beside
    six nodes for the whole time. 12 minutes a repetition.
``move``
    All state of a query changes executors: at once, in portions, after a warm-up, and by a restart
    of the query, in turn. The longest time without a commit. 5 minutes.

Each runs on a fresh embedded cluster, whose nodes are processes of one machine. Rows that wait
sleep where they are counted, so that every node has a capacity of its own. "Measured only" is
attached with ``adapt=False``: every partition stays where Spark put it.

``--keep FILE`` writes every measurement down as it is made, and goes on from there when the same is
asked for again; ``--limit-s`` begins none that would not end in time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from kept import Kept, Row
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from tables import show
from watched import (
    NODES,
    Watched,
    cluster,
    files,
    put,
    rows,
    running,
    stream,
    waiting,
    zipf_keys,
)

from penstock.control import Settings
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.attached import runtime as attached_runtime
from penstock.runtimes.attached import warmup
from penstock.runtimes.spark.injector import processes_below
from penstock.runtimes.spark.monitor import Observed
from penstock.store.histogram import Histogram
from penstock.strategies.penstock import Penstock

#: Nodes and state partitions of slow-node, and of fluctuating.
SLOW_NODES, SLOW_PARTITIONS, MANY_NODES, MANY_PARTITIONS = 4, 20, 6, 12

#: The executor that becomes slow, from which batch on, and for how many.
VICTIM, SLOW_FROM, SLOW_FOR = "1", 14, 16

#: Rates of the fluctuating stream, the nodes that its peak is to fill up to the limit, the load
#: that a node may reach, and seconds between two triggers, all as in ``benchmarks/loop.py``.
LEVELS, PEAK_NODES, LIMIT, INTERVAL_S = (180, 300, 450, 270, 200), 4, 0.25, 2.0

#: Milliseconds that a row waits in skew and slow-node.
COST_MS = 3

#: Seconds that a cluster takes to come up.
CLUSTER_S = 30.0

#: Batches that a median is taken of, in skew.
FEW = 8


def spread_of(values: Sequence[float]) -> str:
    """Tell the median, and the smallest and the largest."""
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def quartiles(values: Sequence[float]) -> str:
    """Tell the median and the quartiles."""
    if len(values) < 2:
        return spread_of(values)
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def ratios(rows: Sequence[Row], base: Sequence[Row], name: str) -> list[float]:
    """Divide a figure by that of the same turn."""
    return [row[name] / other[name] for row, other in zip(rows, base, strict=False)]


# ---- level


def level(asked: argparse.Namespace, kept: Kept) -> list[Row]:
    """Attach and detach in turn where there is nothing to do."""
    kind, part = "level", "a turn"
    if len(kept.rows(kind, part)) < asked.turns:
        with cluster(NODES, 2 * NODES) as spark:
            frame = rows(spark, 20_000).groupBy((sf.col("value") % 1000).alias("k")).count()
            with running(frame, warm=50) as watched:
                watched.tells = False
                for turn in range(asked.turns):
                    if kept.due(kind, part, asked.turns, turn, 15.0):
                        kept.add(kind, part, _turn(watched, turn))
    done = kept.rows(kind, part)
    if not done:
        return []
    return [
        {
            "turns": len(done),
            "unattached_ms": statistics.median(row["unattached"]["ms"] for row in done),
            "attached_ms": statistics.median(row["attached"]["ms"] for row in done),
            "ratio_of_turns": quartiles(
                [row["attached"]["ms"] / row["unattached"]["ms"] for row in done]
            ),
            "cpu_us_a_row": statistics.median(row["unattached"]["cpu_s"] for row in done) * 50.0,
            "ratio_of_cpu": quartiles(
                [row["attached"]["cpu_s"] / row["unattached"]["cpu_s"] for row in done]
            ),
            "changes": sum(row["changes"] for row in done),
        }
    ]


def _turn(watched: Watched, turn: int) -> Row:
    """Measure batches of a query that is attached, and as many of it unattached."""
    found: Row = {}
    before = watched.changes()
    # The order changes, so that a trend of the machine favours neither.
    for attached in (turn % 2 == 0, turn % 2 == 1):
        handle = watched.attach(min_nodes=NODES) if attached else None
        watched.wait(3)
        cpu, first = _cpu_s(), watched.batch()
        watched.wait(8)
        found["attached" if attached else "unattached"] = {
            "ms": statistics.median(watched.durations(8)),
            "cpu_s": (_cpu_s() - cpu) / (watched.batch() - first),
        }
        if handle is not None:
            handle.detach()
    return {**found, "changes": watched.changes() - before}


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


def placed(asked: argparse.Namespace, kept: Kept) -> list[Row]:
    """Give partitions new places, and count the tasks that ran there two batches later."""
    made = {"aggregation": (_counted, "update"), "join, aggregation": (_joined, "append")}
    due = [name for name in made if kept.due("placed", name, 1, 0, 60.0 + CLUSTER_S)]
    if due:
        with cluster() as spark:
            for name in due:
                frame, mode = made[name]
                kept.add("placed", name, _placed(frame(spark), mode, asked.plans))
    found = ((name, row) for name in made for row in kept.rows("placed", name))
    return [
        {
            "query": name,
            "plans": row["plans"],
            "in_the_next_batch": row["first"] / row["first_of"],
            "tasks_from_then_on": row["tasks"],
            "honoured": row["honoured"] / row["tasks"],
        }
        for name, row in found
    ]


def _placed(frame: DataFrame, mode: str, plans: int) -> Row:
    draw = np.random.default_rng(1)
    tasks = honoured = first = first_of = 0
    with running(frame, mode, warm=6) as watched:
        handle = watched.attach(adapt=False)
        watched.wait(4)
        for _ in range(plans):
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
            first_of += sum(b.tasks for b in after[:1])
            tasks += sum(b.tasks for b in after[2:])
            honoured += sum(b.tasks_honoured for b in after[2:])
        handle.detach()
    done = {"plans": plans, "tasks": tasks, "honoured": honoured}
    return {**done, "first": first, "first_of": first_of}


def _counted(spark: SparkSession) -> DataFrame:
    return rows(spark, 5_000).groupBy((sf.col("value") % 500).alias("k")).count()


def _joined(spark: SparkSession) -> DataFrame:
    def side(name: str) -> DataFrame:
        made = rows(spark, 2_000).withWatermark("timestamp", "2 seconds")
        return made.select(sf.col("value").alias(name), sf.col("timestamp").alias(f"t_{name}"))

    near = sf.expr("a = b AND t_b BETWEEN t_a AND t_a + INTERVAL 2 SECONDS")
    return side("a").join(side("b"), near).groupBy(sf.window("t_a", "5 seconds")).count()


# ---- skew


def skew(asked: argparse.Namespace, kept: Kept) -> list[Row]:
    """Compare measured only with steered, for heavy keys."""
    table = []
    for zipf in asked.zipf:
        part = f"Zipf {zipf:g}"
        if len(kept.rows("skew", part)) < asked.repeats:
            _skew(zipf, part, asked, kept)
        done = kept.rows("skew", part)
        if done:
            names = ("measured_only", "steered", "put_back", "faster", "stage_faster", "moved")
            told = {name: spread_of([row[name] for row in done]) for name in names}
            table.append({"Zipf": zipf, "repeats": len(done), **told})
    return table


def _skew(zipf: float, part: str, asked: argparse.Namespace, kept: Kept) -> None:
    with (
        cluster() as spark,
        tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as folder,
    ):
        for number in range(100):
            put(Path(folder), number, zipf_keys(200, 1500, zipf, number))
        for turn in range(asked.repeats):
            if kept.due("skew", part, asked.repeats, turn, 100.0):
                # Every query is new, and begins where Spark puts it.
                kept.add("skew", part, _skewed(waiting(files(spark, Path(folder), 1), COST_MS)))


def _skewed(frame: DataFrame) -> Row:
    with running(frame, warm=5) as watched:
        handle = watched.attach(adapt=False)
        watched.wait(FEW + 1)
        first: Any = handle.runtime
        spark_put = first.plan
        handle.detach()
        before = [o for _, o in watched.seen[-FEW:]]
        handle = watched.attach(control=Settings(every=2, cooldown=4, min_nodes=NODES))
        watched.wait(14 + FEW)
        steered = [o for _, o in watched.seen[-FEW:]]
        moved = sum(event.moved for event in handle.decisions)
        handle.detach()
        handle = watched.attach(adapt=False)
        watched.wait(2)
        again: Any = handle.runtime
        while again.apply(spark_put).left:
            watched.wait(1)
        watched.wait(3 + FEW)
        back = [o for _, o in watched.seen[-FEW:]]
        handle.detach()
    batch = [_median_ms(own) for own in (before, steered, back)]
    stage = [_median_ms(own, "stage") for own in (before, steered, back)]
    return {
        "measured_only": statistics.median(map(over_bound, before)),
        "steered": statistics.median(map(over_bound, steered)),
        "put_back": statistics.median(map(over_bound, back)),
        "batch_s": [ms / 1000.0 for ms in batch],
        "faster": (batch[0] + batch[2]) / 2.0 / batch[1],
        "stage_faster": (stage[0] + stage[2]) / 2.0 / stage[1],
        "moved": float(moved),
    }


def _median_ms(seen: Sequence[Observed], what: str = "batch") -> float:
    if what == "batch":
        return statistics.median(o.batch.duration_ms for o in seen)
    return statistics.median(_stage_ms(o) for o in seen)


def _stage_ms(observed: Observed) -> float:
    """Time of the stage with state, from its first task to the end of its last."""
    own = (one.operator for one in observed.instances if not one.operator.startswith("source"))
    return observed.batch.figures[f"stage_{next(own)}_ms"]


def over_bound(observed: Observed) -> float:
    """Time of the stage with state over its lower bound."""
    own = [one for one in observed.instances if not one.operator.startswith("source")]
    times = [one.run_ms or 0.0 for one in own]
    return _stage_ms(observed) / max(*times, sum(times) / NODES)


# ---- slow-node


#: What is compared with a query that Penstock steers.
ALONE, STEERED = "measured only", "steered"


def slow_node(asked: argparse.Namespace, kept: Kept) -> list[Row]:
    """Make one node half as fast, with nobody to help and with Penstock."""
    names = [ALONE, STEERED]
    if any(len(kept.rows("slow-node", name)) < asked.repeats for name in names):
        _slow_node(names, asked, kept)
    alone = kept.rows("slow-node", ALONE)
    return [
        {
            "run": name,
            "rows_per_s_before": spread_of([row["before"] for row in own]),
            "rows_per_s_after": spread_of([row["after"] for row in own]),
            "over_measured_only": spread_of(ratios(own, alone, "after")),
            "after_over_before": spread_of([row["after"] / row["before"] for row in own]),
            "left_after_s": ", ".join(str(row["left"]) for row in own),
            "batches_until_then": ", ".join(str(row["batches"]) for row in own),
        }
        for name in names
        if (own := kept.rows("slow-node", name)) and alone
    ]


def _slow_node(names: list[str], asked: argparse.Namespace, kept: Kept) -> None:
    with ExitStack() as stack:
        spark = stack.enter_context(cluster(SLOW_NODES, SLOW_PARTITIONS))
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True)
        )
        for number in range(SLOW_FROM + SLOW_FOR + 10):
            slow = VICTIM if number >= SLOW_FROM else "none"
            put(Path(folder), number, zipf_keys(240, 2400, 0.0, number, slow))
        for turn in range(asked.repeats):
            for name in names if turn % 2 == 0 else names[::-1]:
                if kept.due("slow-node", name, asked.repeats, turn, 110.0):
                    kept.add("slow-node", name, _slowed(spark, Path(folder), name == STEERED))


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
        "left": round(after[left - 1][0] - after[0][0], 1) if left else "never",
        "batches": left or "-",
    }


def _rate(seen: list[Observed]) -> float:
    """Rows a second of batches that follow each other."""
    took_ms = sum(observed.batch.duration_ms for observed in seen)
    return 1000.0 * sum(observed.batch.rows_in for observed in seen) / took_ms


def _left(after: list[tuple[float, Observed]]) -> int:
    """Count the batches until a node had no more state than its speed is worth; 0 if it never was.

    Half as fast as the others, it is worth half of what each of them is.
    """
    share = math.ceil(0.5 * SLOW_PARTITIONS / (SLOW_NODES - 0.5))
    there = [
        sum(i.executor == VICTIM and not i.operator.startswith("source") for i in o.instances)
        for _, o in after
    ]
    if there[-1] > share:
        return 0
    return 1 + max(number for number, count in enumerate(there) if count > share)


# ---- fluctuating


def fluctuating(asked: argparse.Namespace, kept: Kept) -> list[Row]:
    """Nodes that follow the rate, beside all nodes all the time."""
    kind, names = "fluctuating", [STEERED, "static"]
    text = "steps:" + ",".join(f"{rate}x{asked.level_s:g}" for rate in LEVELS)
    about_s = asked.level_s * len(LEVELS) + 30.0 + CLUSTER_S
    for turn in range(asked.repeats):
        for name in names if turn % 2 == 0 else names[::-1]:
            if kept.due(kind, name, asked.repeats, turn, about_s):
                with cluster(MANY_NODES, MANY_PARTITIONS) as spark:
                    row = _followed(spark, name == STEERED, text, asked)
                kept.add(kind, name, row)
    base = kept.rows(kind, "static")
    return [
        {
            "run": name,
            "nodes_at_each_level": "; ".join(row["levels"] for row in own),
            "node_seconds": spread_of([row["node_seconds"] for row in own]),
            "over_static": spread_of(ratios(own, base, "node_seconds")),
            "p50_ms": spread_of([row["p50"] for row in own]),
            "p95_ms": spread_of([row["p95"] for row in own]),
            "p95_over_static": spread_of(ratios(own, base, "p95")),
            "changes": ", ".join(str(row["changes"]) for row in own),
        }
        for name in names
        if (own := kept.rows(kind, name)) and base
    ]


def _followed(spark: SparkSession, steered: bool, text: str, asked: argparse.Namespace) -> Row:
    cost_ms = round(1000 * 0.85 * LIMIT * PEAK_NODES / max(LEVELS))
    strategy = Penstock(most=LIMIT, overload=1.05 * LIMIT)
    control = Settings(every=2, cooldown=5, max_nodes=MANY_NODES)
    options: Row = {"strategy": strategy, "control": control} if steered else {"adapt": False}
    held: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as root:
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
        "decided": [event.text for event in watched.events.values()],
    }


# ---- move

#: Ways in which all state changes executors.
AT_ONCE, PORTIONS, WARM, RESTART = "at once", "in portions", "after a warm-up", "by a restart"


def move(asked: argparse.Namespace, kept: Kept) -> list[Row]:
    """Move a large state in four ways, in turn."""
    ways = (AT_ONCE, PORTIONS, WARM, RESTART)
    if any(len(kept.rows("move", way)) < asked.repeats for way in ways):
        with cluster(NODES, 2 * NODES) as spark:
            salts = [sf.unhex(sf.sha2(sf.concat(sf.lit(i), "k"), 512)) for i in range(8)]
            key = (sf.col("value") % asked.keys).cast("string").alias("k")
            keyed = rows(spark, asked.keys // 8).select(key)
            frame = keyed.select("k", sf.concat(*salts).alias("pad")).groupBy("k", "pad").count()
            with running(frame, warm=12) as watched:
                for turn in range(asked.repeats):
                    for way in ways:
                        if kept.due("move", way, asked.repeats, turn, 40.0):
                            kept.add("move", way, _moved(watched, way))
    return [
        {
            "how": way,
            "state_mb": statistics.median(row["mb"] for row in own),
            "usual_s": spread_of([row["usual"] for row in own]),
            "longest_without_a_commit_s": spread_of([row["gap"] for row in own]),
            "added_s": spread_of([row["gap"] - row["usual"] for row in own]),
            "batches": ", ".join(str(row["batches"]) for row in own),
        }
        for way in ways
        if (own := kept.rows("move", way))
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


KINDS: dict[str, Callable[[argparse.Namespace, Kept], list[Row]]] = {
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
    add("--level-s", type=float, default=60.0, help="seconds of a level, for fluctuating")
    add("--keys", type=int, default=400_000, help="of half a kilobyte each, for move")
    add("--keep", type=Path, metavar="FILE", help="where measurements are kept, and taken from")
    add("--limit-s", type=float, default=float("inf"), help="begin nothing that ends later")
    add("--json", action="store_true")
    asked = parser.parse_args()
    unknown = set(asked.kinds) - set(KINDS)
    if unknown:
        parser.error(f"unknown {sorted(unknown)}; there are {', '.join(KINDS)}")
    options = {"plans": asked.plans, "level_s": asked.level_s, "keys": asked.keys}
    kept = Kept(asked.keep, options, asked.limit_s)
    results: dict[str, list[Row]] = {}
    for kind in asked.kinds:
        results[kind] = KINDS[kind](asked, kept)
        if results[kind] and not asked.json:
            show(kind, results[kind])
    if asked.json:
        json.dump({"left": kept.left, **results}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
