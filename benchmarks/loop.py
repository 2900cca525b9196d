"""What the control loop does on Spark, measured: ``make bench-loop``.

``fluctuating``
    A rate that goes 1800, 3000, 4500, 2700, 2000 tuples a second, times ``--scale``; each view
    waits where it is counted, so that every node has a capacity of its own. Penstock, which may
    have up to ``--nodes`` nodes, beside the same on all of them for the whole time. 10 minutes.
``zipf``
    Views of items with a Zipf coefficient, taken as fast as they can be counted: the rate once
    warm, and LIT, for five ways to deal keys, which take turns batch by batch, so that whatever
    slows the machine slows all of them. 4 minutes a coefficient.
``slow-node``
    One node has a core to itself, the others share another, and rows use CPU. Then other processes
    take nine tenths of the one node's core. How long until nothing runs there any more, and the
    rate and the longest batch before, during and after. 4 minutes, and two cores.
``pause``
    All instances of a large state move, or all of their router partitions: between two batches, or
    with a batch. The longest time between two commits beside the longest batch and the transfer. 4
    minutes.
``level``, ``square``
    A noisy level for ``--minutes``, and a square wave with an edge a minute: decisions after the
    first minute.

Each kind runs by itself on a fresh embedded cluster, whose nodes are processes of one machine. All
of them say what the loop itself cost, relative to the time of the batches.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from cores import bind, taken
from pyspark.sql import SparkSession
from rich.console import Console
from tables import check_kinds, show

from penstock import functions as F
from penstock import spark as engine
from penstock.apps.commcount import CommCount
from penstock.control import Event, Settings
from penstock.control.events import DecisionStatus
from penstock.control.runtime import Applied
from penstock.model import Plan
from penstock.pipeline import Discard, Hints, Pipeline
from penstock.pipeline.sources.generator import Generator, Keys
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.spark.batch_loop import BatchLoop
from penstock.runtimes.spark.injector import executor_pid
from penstock.runtimes.spark.monitor import Observed
from penstock.runtimes.spark.options import Options
from penstock.runtimes.spark.query import launch
from penstock.runtimes.spark.runtime import SparkRuntime
from penstock.store.histogram import Histogram
from penstock.strategies.penstock import Penstock

NOTE = Console(stderr=True, highlight=False)
Row = dict[str, Any]

#: Seconds of a stream that are not counted: workers warm up and the first plan settles.
WARM_S = 60.0

#: Load that a node may reach: a batch that fills its interval doubles the latency.
LIMIT = 0.25

#: Part of the behaviours that are views, and so wait.
VIEWS = 0.896

#: Rates of the fluctuating stream, and the nodes that its peak is to fill up to the limit.
LEVELS, PEAK_NODES = (1800, 3000, 4500, 2700, 2000), 4

#: Cores that the rows of slow-node use in all, and CPU time of each of them.
BURNT, BURN_US = 0.4, 1000.0

#: Batches in which nodes are bound to cores, and processes that then take the one of the slow node.
BOUND, HOGS = 5, 9


@dataclass
class Trace:
    """What was seen of one run, with the seconds since its start."""

    start: float = field(default_factory=time.monotonic)
    batches: list[tuple[float, Observed]] = field(default_factory=list)
    nodes: list[tuple[float, int]] = field(default_factory=list)
    events: dict[int, Event] = field(default_factory=dict)
    loop_s: float = 0.0
    lost: int = 0
    duplicated: int = 0

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def decided(self, event: Event) -> None:
        """Take note of a decision, or of more of it."""
        if event.number not in self.events or event.status is DecisionStatus.DONE:
            gained = f"; {event.gained.text}" if event.gained else ""
            NOTE.print(f"  {self.now:5.0f} s {event.status.value}: {event.text}{gained}")
        for step in event.steps[len(self.events.get(event.number, event).steps) :]:
            failed = f": {step.failed}" if step.failed else ""
            NOTE.print(f"  {self.now:5.0f} s   {step.what}, {step.seconds:.2f} s{failed}")
        self.events[event.number] = event

    @property
    def made(self) -> list[Event]:
        """Decisions that changed something, or were to."""
        passive = (DecisionStatus.NOTED, DecisionStatus.REFUSED, DecisionStatus.RECOMMENDED)
        return [event for event in self.events.values() if event.status not in passive]

    def node_seconds(self) -> float:
        """Nodes that were held, over time."""
        pairs = itertools.pairwise(self.nodes)
        return sum((b[0] - a[0]) * a[1] for a, b in pairs)

    def latency_ms(self, percentile: float) -> float:
        """Percentile of all tuples after the warm-up."""
        late = [o.batch.latency for at, o in self.batches if at > WARM_S]
        return Histogram.merged(late).percentile(percentile) or 0.0

    def overhead(self) -> float:
        """Time of the loop relative to that of the batches."""
        return self.loop_s / (sum(o.batch.duration_ms for _, o in self.batches) / 1000.0)

    def rate(self, since: float, until: float) -> float:
        """Source tuples a second that were committed between two moments."""
        inside = [(at, o) for at, o in self.batches if since <= at <= until]
        if len(inside) < 2:
            return 0.0
        rows = sum(o.batch.rows_in for _, o in inside[1:])
        return rows / (inside[-1][0] - inside[0][0])

    def longest_s(self, since: float, until: float) -> float:
        """Seconds of the longest batch that was committed between two moments."""
        inside = (o.batch.duration_ms for at, o in self.batches if since <= at <= until)
        return max(inside, default=0.0) / 1000.0


@contextmanager
def watched(
    spark: SparkSession,
    pipeline: Pipeline,
    strategy: Any,
    each: Callable[[BatchLoop, Trace], None] = lambda run, trace: None,
    **options: Any,
) -> Iterator[tuple[BatchLoop, Trace]]:
    """Run a pipeline, which is stopped in the end, and see what it does."""
    trace = Trace()
    made: list[BatchLoop] = []

    def listen(observed: Observed) -> None:
        trace.batches.append((trace.now, observed))
        batch = observed.batch
        if made and batch.batch % 5 == 0:
            NOTE.print(
                f"  {trace.now:5.0f} s batch {batch.batch}: {batch.rows_in} rows in "
                f"{batch.duration_ms / 1000:.2f} s, {batch.nodes_used} nodes of "
                f"{len(made[0].execution.executors.executors())}",
                style="dim",
            )
        if made:
            each(made[0], trace)

    run = launch(pipeline, spark, strategy, Options(**options), listen, trace.decided)
    try:
        made.append(run)
        trace.start = time.monotonic()
        yield run, trace
        run.stop()
        trace.loop_s = run.control.spent_s
        recorder = run.execution.recorder
        trace.lost, trace.duplicated = recorder.lost, recorder.duplicated
    finally:
        run.close()


def ended(run: BatchLoop, timeout_s: float) -> bool:
    """Whether a run is over; raises what it failed with."""
    return engine.Query(run).await_termination(timeout_s)


def follow(
    spark: SparkSession,
    pipeline: Pipeline,
    strategy: Any,
    seconds: float,
    each: Callable[[BatchLoop, Trace], None] = lambda run, trace: None,
    **options: Any,
) -> Trace:
    """Run a pipeline to its end, or for so many seconds, and return what was seen."""
    with watched(spark, pipeline, strategy, each, **options) as (run, trace):
        executors = run.execution.executors
        while not ended(run, 0.5) and trace.now < seconds:
            trace.nodes.append((trace.now, len(executors.executors())))
        trace.nodes.append((trace.now, len(executors.executors())))
    return trace


# ---- fluctuating, level, square


def waiting(scale: float) -> CommCount:
    """Make views wait so long that the peak fills `PEAK_NODES` nodes up to the limit."""
    each = max(LEVELS) * scale * VIEWS / PEAK_NODES
    return CommCount(items=20_000, cost_us=0.85 * LIMIT / each * 1e6, split=True)


def counting(
    spark: SparkSession,
    asked: argparse.Namespace,
    profile: Profile,
    seconds: float,
    elastic: bool,
    overload: float = 1.2,
    every: int = 3,
) -> Trace:
    """Count views at a rate that changes, with as few nodes as it takes or with all of them.

    Nodes are added from `overload` times the limit on; 1.2 is what the strategy has by itself.
    """
    app = waiting(asked.scale)
    source = app.source(profile, zipf=0.2, seed=1, rows=profile.position(seconds))
    counts = {"behaviors": 2, "count-parts": 2 * asked.nodes, "count": 2}
    pipeline = app.pipeline(source, {"counts": Discard()}, parallelism=counts)
    strategy = Penstock(most=LIMIT, overload=overload * LIMIT) if elastic else "even"
    control = Settings(every=every, cooldown=5, max_nodes=asked.nodes) if elastic else None
    longest = seconds + 120
    return follow(spark, pipeline, strategy, longest, control=control, interval_s=asked.interval)


def fluctuating(spark: SparkSession, asked: argparse.Namespace) -> list[Row]:
    """Nodes that follow the rate, beside all nodes all the time."""
    rates = [rate * asked.scale for rate in LEVELS]
    text = "steps:" + ",".join(f"{rate:g}x{asked.level_s:g}" for rate in rates)
    seconds = asked.level_s * len(rates)
    rows: list[Row] = []
    for name, elastic in (("static", False), ("penstock", True)):
        NOTE.print(f"fluctuating: {name}, {text}")
        # Soon, because p95 is to stay what it was.
        trace = counting(
            spark, asked, Profile.parse(text), seconds, elastic, overload=1.05, every=2
        )
        levels = [
            statistics.mean(n for at, n in trace.nodes if i <= at / asked.level_s < i + 1)
            for i in range(len(rates))
        ]
        rows.append(
            {
                "run": name,
                "nodes_at_each_level": " ".join(f"{n:.1f}" for n in levels),
                "node_seconds": trace.node_seconds(),
                "p50_ms": trace.latency_ms(50),
                "p95_ms": trace.latency_ms(95),
                "decisions": len(trace.made),
                "lost": trace.lost,
                "duplicated": trace.duplicated,
                "batches": len(trace.batches),
                "batch_s": statistics.median(o.batch.duration_ms for _, o in trace.batches) / 1e3,
                "loop_share": trace.overhead(),
            }
        )
        NOTE.print(rows[-1])
    for row in rows:
        row["node_seconds_over_static"] = row["node_seconds"] / rows[0]["node_seconds"]
        row["p95_over_static"] = row["p95_ms"] / rows[0]["p95_ms"]
    return rows


def level(spark: SparkSession, asked: argparse.Namespace) -> list[Row]:
    """Decisions on a level with noise of a tenth."""
    seconds = asked.minutes * 60 + WARM_S
    noise = np.random.default_rng(7).normal(1.0, 0.1, int(seconds / 3) + 1).clip(0.7, 1.3)
    rate = 2700 * asked.scale
    text = "steps:" + ",".join(f"{rate * factor:.4g}x3" for factor in noise)
    NOTE.print(f"level: {rate:g}/s with noise for {seconds:g} s")
    trace = counting(spark, asked, Profile.parse(text), seconds, True)
    return [_steadiness(trace, 0)]


def square(spark: SparkSession, asked: argparse.Namespace) -> list[Row]:
    """Decisions on a rate that jumps up and down, an edge a minute."""
    edges = max(2, round(asked.minutes) - 1)
    low, high = 1800 * asked.scale, 4000 * asked.scale
    seconds = WARM_S * (edges + 1)
    NOTE.print(f"square: {low:g}/s and {high:g}/s, {edges} edges")
    profile = Profile.parse(f"square:{low:g},{high:g}/{2 * WARM_S:g}")
    return [_steadiness(counting(spark, asked, profile, seconds, True), edges)]


def _steadiness(trace: Trace, edges: int) -> Row:
    late = [event for event in trace.made if event.now_s > WARM_S]
    return {
        "seconds": trace.now,
        "edges": edges,
        "decisions_after_warm_up": len(late),
        "decisions_before": len(trace.made) - len(late),
        "lost": trace.lost,
        "duplicated": trace.duplicated,
        "batches": len(trace.batches),
        "loop_share": trace.overhead(),
    }


# ---- zipf


class Backlog:
    """A source whose rows are all there from the start; `rate_per_s` is only for the first plan."""

    stamp = None

    def __init__(self, inner: Generator, rate_per_s: float) -> None:
        self.inner, self.rate_per_s = inner, rate_per_s
        self.schema, self.end = inner.schema, inner.end

    def available(self, elapsed_s: float) -> int:
        """Give all rows."""
        return int(self.end or 0)

    def read(self, start: int, stop: int) -> pa.Table:
        """Make some of them."""
        return self.inner.read(start, stop)


class InTurn(Backlog):
    """A backlog that gives a batch when it is told to, and says when the next is asked for."""

    def __init__(self, inner: Generator, rate_per_s: float, size: int) -> None:
        super().__init__(inner, rate_per_s)
        self._size, self._given, self._asked_at, self._over = size, 0, 0.0, False
        self._asked, self._go = threading.Event(), threading.Event()

    def __reduce__(self) -> tuple[Any, ...]:
        """Tasks only read."""
        return Backlog, (self.inner, self.rate_per_s)

    def available(self, elapsed_s: float) -> int:
        """Wait for the turn."""
        self._asked_at = time.perf_counter()
        self._asked.set()
        self._go.wait()
        if not self._over:
            self._go.clear()
            self._given += self._size
        return self._given

    def batch(self, run: BatchLoop) -> float:
        """Have a batch run, and return the seconds until the next was asked for."""
        self._await(run)
        self._asked.clear()
        began = time.perf_counter()
        self._go.set()
        self._await(run)
        return self._asked_at - began

    def close(self) -> None:
        """Wait no more, and give nothing more."""
        self._over = True
        self._go.set()

    def _await(self, run: BatchLoop) -> None:
        while not self._asked.wait(1.0):
            if ended(run, 0.0):
                raise RuntimeError("the run ended before its rows did")


#: Ways to deal keys: options of the application, and whether the loop is on.
ROUTERS: dict[str, tuple[dict[str, Any], bool]] = {
    "hash": ({}, False),
    "penstock": ({"split": True}, True),
    "two-tier": ({}, True),
    "partial-key": ({"split": True, "grouping": "partial-key"}, False),
    "hot-key": ({"split": True, "grouping": "hot-key"}, False),
}


def zipf(spark: SparkSession, asked: argparse.Namespace) -> list[Row]:
    """Sustained rate and imbalance of five ways to deal keys."""
    names: list[str] = asked.routers.split(",")
    rows: list[Row] = []
    for coefficient in [float(value) for value in asked.zipf.split(",")]:
        NOTE.print(f"zipf {coefficient:g}")
        took, seen = _dealt(spark, asked, coefficient, names)
        for name in names:
            row = {"zipf": coefficient, "router": name}
            row["rows_per_s"] = asked.rows / statistics.median(took[name])
            for other in ("hash", "partial-key"):
                if other in names:
                    row |= _over(took[name], took[other], other)
            rows.append(row | seen[name])
            NOTE.print(rows[-1])
    return rows


def _over(own: list[float], other: list[float], name: str) -> Row:
    """Compare two ways by the batches that they ran next to each other."""
    ratios = [b / a for a, b in zip(own, other, strict=True)]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    return {f"over_{name}": statistics.median(ratios), f"over_{name}_error": error}


def _dealt(
    spark: SparkSession, asked: argparse.Namespace, coefficient: float, names: list[str]
) -> tuple[dict[str, list[float]], dict[str, Row]]:
    """Run all ways in turn, in another order every round."""
    size, nodes = asked.rows, asked.nodes
    took: dict[str, list[float]] = {name: [] for name in names}
    lanes: dict[str, tuple[InTurn, BatchLoop, Trace, str]] = {}
    order = random.Random(0)
    # An instance a node, whatever the load, which looks small while others have their turns: only
    # the keys are to move.
    strategy = Penstock(most=0.05, overload=10.0, slack=0.0, gain=1.0, chi=0.05)
    loop = Settings(cooldown=2, stable_rounds=1, verify=1, min_nodes=nodes, max_nodes=nodes)
    full = nodes / (VIEWS * asked.cost_us * 1e-6)
    with ExitStack() as stack:
        for name in names:
            options, control = ROUTERS[name]
            app = CommCount(items=1000, cost_us=asked.cost_us, **options)
            inner = app.source(1e6, zipf=coefficient, seed=3)
            source = InTurn(inner, 0.7 * full, size)
            counts = {"behaviors": 2, "count": 2} if app.split else {"behaviors": 2}
            counts["count-parts" if app.split else "count"] = nodes
            pipeline = app.pipeline(source, {"counts": Discard()}, parallelism=counts)
            settings = loop if control else None
            queue = engine.QueueOptions(size=size)
            made = watched(spark, pipeline, strategy, control=settings, queue=queue, interval_s=0.0)
            run, trace = stack.enter_context(made)
            stack.callback(source.close)
            # Where nothing follows but a sink, keys are split without a layer that merges.
            operators = run.execution.plan.parallelism
            counter = next(n for n in ("count-parts", "count") if n in operators)
            lanes[name] = (source, run, trace, counter)
        for number in range(asked.warm + asked.batches):
            for name in order.sample(names, len(names)):
                source, run, _, _ = lanes[name]
                seconds = source.batch(run)
                if number >= asked.warm:
                    took[name].append(seconds)
    seen = {}
    for name, (_, _, trace, counter) in lanes.items():
        late = [o.batch for _, o in trace.batches[asked.warm :]]
        seen[name] = {
            "lit": statistics.median(batch.lit.get(counter, 0.0) for batch in late),
            "decisions": len(trace.made),
            "nodes": late[-1].nodes_used,
            "lost": trace.lost,
            "duplicated": trace.duplicated,
            "loop_share": trace.overhead(),
        }
    return took, seen


# ---- slow-node


def burning(batch: pa.RecordBatch, *, cost_us: float) -> pa.RecordBatch:
    """Use CPU for every row: a thread that gets less of it takes longer."""
    until = time.thread_time() + batch.num_rows * cost_us * 1e-6
    while time.thread_time() < until:
        pass
    return batch


def slow_node(spark: SparkSession, asked: argparse.Namespace) -> list[Row]:
    """Take the CPU of one node, and see how long its instances stay there."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        NOTE.print("slow-node: there is one core only, and the slow node needs one of its own")
        raise SystemExit(2)
    nodes, interval = asked.nodes, asked.interval
    # The others share one core, and have to do with it when they are alone.
    rate = BURNT / (BURN_US * 1e-6)
    source = Generator(rate, Keys(keys=5000, zipf=0.0), seed=5, rows=1_000_000)
    pipeline = (
        Pipeline("burning")
        .source("keys", source, parallelism=2, hints=Hints(rate_per_s=rate))
        .aggregate(
            "burn",
            by="key",
            n=F.count(),
            work=partial(burning, cost_us=BURN_US),
            parallelism=3 * nodes,
            # For the first plan only, which is to use all nodes.
            hints=Hints(cpu_us_per_tuple=0.7 * nodes / rate * 1e6),
        )
        .sink("out", Discard())
    )
    app = str(spark.sparkContext.applicationId)
    seen: dict[str, float] = {}
    victim: list[str] = []

    def each(run: BatchLoop, trace: Trace) -> None:
        on = Counter(spot.node for spots in run.execution.plan.placement.values() for spot in spots)
        if len(trace.batches) <= BOUND:
            victim[:] = victim or [max(on)]
            for node in run.execution.plan.nodes:
                pid = executor_pid(app, node.removeprefix("executor-"))
                bind(pid, cores[0] if node == victim[0] else cores[1])
        elif "slow" not in seen and trace.now > asked.before_s:
            hogs.enter_context(taken(cores[0], HOGS))
            seen["slow"], seen["instances"] = trace.now, on[victim[0]]
            NOTE.print(f"  {trace.now:5.0f} s {victim[0]} is slow from here on")
        elif "slow" in seen and "left" not in seen and victim[0] not in on:
            seen["left"] = trace.now
            NOTE.print(f"  {trace.now:5.0f} s nothing is left on {victim[0]}")

    with ExitStack() as hogs:
        trace = follow(
            spark,
            pipeline,
            # No node is released while all is well, and nothing moves for less traffic.
            Penstock(slack=0.0, gain=1.0),
            asked.before_s + asked.after_s,
            each,
            control=Settings(every=3, cooldown=5, min_nodes=nodes, max_nodes=nodes),
            interval_s=interval,
            queue=engine.QueueOptions(size=int(rate * 2 * interval)),
        )
    slow, left = seen["slow"], seen.get("left", trace.now)
    late = left + (trace.now - left) / 3
    spans = {"before": (2 / 3 * slow, slow), "during": (slow, left), "after": (late, trace.now)}
    rates = {name: trace.rate(*span) for name, span in spans.items()}
    return [
        {
            "slow_after_s": slow,
            "instances_there": seen["instances"],
            "left_after_s": left - slow if "left" in seen else None,
            "batches_meanwhile": sum(slow < at <= left for at, _ in trace.batches),
            "offered_rows_per_s": rate,
            **{f"rows_per_s_{name}": value for name, value in rates.items()},
            **{f"longest_batch_s_{n}": trace.longest_s(*span) for n, span in spans.items()},
            "after_over_before": rates["after"] / rates["before"],
            "decisions": len(trace.made),
            "lost": trace.lost,
            "duplicated": trace.duplicated,
            "loop_share": trace.overhead(),
        }
    ]


# ---- pause


def pause(spark: SparkSession, asked: argparse.Namespace) -> list[Row]:
    """Move all state in five ways, and look for the longest time without a commit.

    In turn, so that all ways meet the same machine and states of the same size.
    """
    size, batches, every, first, moves = 60_000, 120, 3, 16, 3 * len(WAYS)
    app = CommCount(items=2_000_000)
    inner = app.source(1e6, zipf=0.2, seed=3, rows=size * batches)
    pipeline = app.pipeline(Backlog(inner, 1000.0), {"counts": Discard()}, parallelism=asked.nodes)
    ways = itertools.cycle(WAYS)
    made: list[tuple[str, int, Applied]] = []
    pending: list[tuple[str, Plan]] = []
    last = [first - every, 0]

    def each(run: BatchLoop, trace: Trace) -> None:
        number = len(trace.batches)
        if not pending and number - last[0] >= every and last[1] < moves:
            way = next(ways)
            pending.append((way, WAYS[way](run.execution.plan)))
            last[1] += 1
        if not pending:
            return
        way, plan = pending[0]
        runtime = SparkRuntime(run.execution)
        if way == AHEAD and not runtime.prepare(plan):
            return
        if way in AT_ONCE:
            moved = run.execution.driver.adopt(plan)
            took = Applied(moved.seconds, moved.state_bytes)
        else:
            took = runtime.apply(plan)
        made.append((way, number, took))
        last[0] = number
        if not took.left:
            pending.clear()
        NOTE.print(
            f"  {trace.now:5.0f} s {way}: {took.precopied_bytes / 1e6:.1f} MB ahead, "
            f"{took.inband_bytes / 1e6:.1f} MB with a batch, {took.state_bytes / 1e6:.1f} MB in "
            f"{took.seconds:.2f} s"
        )

    queue = engine.QueueOptions(size=size)
    trace = follow(spark, pipeline, "even", 900, each, control=None, queue=queue, interval_s=0.0)
    ends = [at for at, _ in trace.batches]
    gaps = [b - a for a, b in itertools.pairwise(ends)]
    # Those that state came with, or that came right after it, are what is looked at.
    moving = {number for _, number, _ in made}
    usual = [o for i, (_, o) in enumerate(trace.batches) if i >= 4 and i not in moving]
    longest = max(o.batch.duration_ms for o in usual) / 1000.0
    rows: list[Row] = []
    for name in WAYS:
        mine = [(number, took) for way, number, took in made if way == name]
        around = [gaps[number - 1] for number, _ in mine]
        # What it takes to move all of it is the transfer, whichever way it goes.
        whole = next(way for way in AT_ONCE if WAYS[way] is WAYS[name])
        transfer = max(took.seconds for way, _, took in made if way == whole)
        rows.append(
            {
                "way": name,
                "pauses": len(mine),
                "carried_mb": max(took.state_bytes for _, took in mine) / 1e6,
                "with_batch_mb": max(took.inband_bytes for _, took in mine) / 1e6,
                "ahead_mb": max(took.precopied_bytes for _, took in mine) / 1e6,
                "stood_still_s": max(took.seconds for _, took in mine),
                "median_without_output_s": statistics.median(around),
                "longest_without_output_s": max(around),
                "median_of_all_s": statistics.median(gaps[first:]),
                "longest_batch_s": longest,
                "bound_s": longest + transfer,
                "within": max(around) <= longest + transfer,
                "lost": trace.lost,
                "duplicated": trace.duplicated,
            }
        )
    return rows


def _turned(plan: Plan) -> Plan:
    """Move every instance to the next node."""
    return replace(plan, node_of=(plan.node_of + 1) % len(plan.nodes), active=())


def _rolled(plan: Plan) -> Plan:
    """Give every router partition to the next instance."""
    routing = {}
    for name, table in plan.routing.items():
        homes = tuple((home + 1) % plan.parallelism[name] for home in table.partitions)
        routing[name] = replace(table, partitions=homes)
    return replace(plan, routing=routing)


#: Ways to move all state: instances as they are, or their router partitions.
WAYS: dict[str, Callable[[Plan], Plan]] = {
    "at once": _turned,
    "with a batch": _turned,
    "copied ahead": _turned,
    "dealt at once": _rolled,
    "dealt with batches": _rolled,
}

#: Ways in which the stream stands still, and the one that waits for copies.
AT_ONCE, AHEAD = ("at once", "dealt at once"), "copied ahead"


KINDS: dict[str, Callable[[SparkSession, argparse.Namespace], list[Row]]] = {
    "fluctuating": fluctuating,
    "zipf": zipf,
    "slow-node": slow_node,
    "pause": pause,
    "level": level,
    "square": square,
}

#: Nodes of kinds that do not have six. The more share a core, the less a slow one stands out.
NODES = {"slow-node": 3}


def main() -> None:
    """Run what is asked for, each kind on a cluster of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("kinds", nargs="*", default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    add("--nodes", type=int, help="6 by default, 3 for slow-node")
    add("--memory-mb", type=int, default=700, help="of each node")
    add("--scale", type=float, default=0.1, help="of the rates of the streams")
    add("--interval", type=float, default=2.0, help="seconds from one batch to the next")
    add("--level-s", type=float, default=60.0, help="seconds of a level, for fluctuating")
    add("--minutes", type=float, default=10.0, help="for level and square")
    add("--zipf", default="0.2,0.4,0.6,0.8,1.0,1.2", help="coefficients")
    add("--routers", default=",".join(ROUTERS), help="for zipf")
    add("--rows", type=int, default=2000, help="of a batch, for zipf")
    add("--cost-us", type=float, default=5000.0, help="of a row, for zipf")
    add("--warm", type=int, default=8, help="batches before it counts, for zipf")
    add("--batches", type=int, default=16, help="that count, for zipf")
    add("--before-s", type=float, default=90.0, help="until the node is slow, for slow-node")
    add("--after-s", type=float, default=150.0, help="from then on, for slow-node")
    add("--json", action="store_true")
    asked = parser.parse_args()
    check_kinds(parser, asked.kinds, KINDS)
    results: dict[str, list[Row]] = {}
    given = asked.nodes
    for kind in asked.kinds:
        asked.nodes = given or NODES.get(kind, 6)
        with engine.cluster(engine.embedded(asked.nodes, 1, asked.memory_mb)) as spark:
            results[kind] = KINDS[kind](spark, asked)
        if not asked.json:
            show(kind, results[kind])
    if asked.json:
        json.dump(results, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
