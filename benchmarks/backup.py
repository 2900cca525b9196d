"""What keeping state safe costs a batch: WordCount at a steady rate, four ways in one run.

``none``
    State in the memory and in a file of its own node only.
``checkpoint``
    Every batch's changes in a shared folder.
``at once``
    Every batch's changes in a file of the node, and in coded fragments on others before it ends.
``held``
    Every batch's changes in a file of the node and with the driver, which gives them to others in
    coded fragments every eight batches: the default.

All run the same batches on the same executors, one after the other in an order that changes
with every batch, so that what disturbs one disturbs the others. A first batch with many lines, not
counted, brings the state to its size. What is compared is the time from the call of the driver to
the commit, and on until peers have what they are given then: in a run, batches go on meanwhile. So
the mean is what counts, and the median is what most batches take.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from penstock import spark as engine
from penstock.apps.wordcount import WordCount
from penstock.engine.driver.driver import BatchResult, Driver
from penstock.engine.job_graph import JobGraph
from penstock.model import Plan
from penstock.pipeline import Discard
from penstock.runtimes.spark.backend import SparkBackend
from penstock.runtimes.spark.jvm import jvm_of
from penstock.runtimes.spark.nodes import cluster_of, executor_ids, executors_a_node
from penstock.state.config import StateConfig
from penstock.strategies import Request, strategies

NOTE = Console(stderr=True)


class Alone(SparkBackend):
    """Knows of no node that could keep anything."""

    def backup_nodes(self) -> Mapping[str, str]:
        """Return none."""
        return {}


class Way:
    """One driver with its own state, on executors that it shares with the others."""

    def __init__(
        self, spark: SparkSession, name: str, state_config: StateConfig, root: Path, asked: Any
    ) -> None:
        self.name = name
        self.times: list[float] = []
        self.saved: list[int] = []
        self.last_stage: list[int] = []
        app = WordCount(vocabulary=asked.keys)
        source = app.source(1e9, zipf=asked.zipf, seed=1)
        sinks: Any = {"counts": Discard()}
        pipeline = app.pipeline(source, sinks, parallelism=asked.nodes)
        self.job_graph = JobGraph.of(pipeline)
        executors = jvm_of(spark.sparkContext).executors()
        per_node = executors_a_node(executors, 1)
        homes = executor_ids(executors, per_node)
        topology, cluster = self.job_graph.topology(asked.nodes), cluster_of(executors, per_node)
        plan = strategies.make("even").plan(Request(topology, cluster))
        assert isinstance(plan, Plan)
        kind = Alone if name == "none" else SparkBackend
        self.backend = kind(
            spark,
            lambda home: homes.get(home, home),
            f"backup-{name.replace(' ', '-')}",
            per_node=per_node,
        )
        folder = root / name.replace(" ", "-")
        self.driver = Driver(self.job_graph, self.backend, folder, plan, state_config=state_config)
        self.source = pipeline.steps[0].name

    def batch(self, start: int, stop: int) -> BatchResult:
        """Run and time a batch, and what it leaves to be done beside the next."""
        started = time.perf_counter()
        done = self.driver.run_batch({self.source: ((start, stop),)})
        self.driver.close()
        self.times.append(time.perf_counter() - started)
        self.saved.append(sum(s.saved.size_bytes for s in done.stats if s.saved))
        facts = self.backend.facts()
        last = max(fact.stage for fact in facts)
        self.last_stage.append(max(fact.run_ms for fact in facts if fact.stage == last))
        return done

    def forget_times(self) -> None:
        """Begin to count anew."""
        self.times.clear()
        self.saved.clear()
        self.last_stage.clear()


def measure(spark: SparkSession, root: Path, asked: Any) -> list[dict[str, Any]]:
    """Run all ways in turn."""
    code: dict[str, Any] = {"data": asked.data_fragments, "parity": asked.parity_fragments}
    ways = [
        Way(spark, name, state_config, root, asked)
        for name, state_config in (
            ("none", StateConfig("peers", **code)),
            ("checkpoint", StateConfig("checkpoint")),
            ("at once", StateConfig("peers", every=1, **code)),
            ("held", StateConfig("peers", **code)),
        )
    ]
    ways[0].backend.warm_up()
    order, rows, reached = random.Random(0), list[dict[str, Any]](), asked.fill
    for way in ways:
        way.batch(0, reached)
    for lines in asked.lines:
        for number in range(asked.warm + asked.batches):
            if number == asked.warm:
                for way in ways:
                    way.forget_times()
            for way in order.sample(ways, len(ways)):
                way.batch(reached, reached + lines)
            reached += lines
            if number % 10 == 0:
                last = ", ".join(f"{way.name} {way.times[-1]:.2f} s" for way in ways)
                NOTE.print(f"{lines} lines, batch {number}: {last}", style="dim")
        rows += [_row(way, ways[0], lines) for way in ways]
    return rows


def _row(way: Way, none: Way, lines: int) -> dict[str, Any]:
    # Pairs of the same batch: what slows the machine for a while slows both.
    pairs = zip(way.times, none.times, strict=True)
    over = statistics.mean(way.times) / statistics.mean(none.times) - 1
    return {
        "lines": lines,
        "way": way.name,
        "mean_ms": 1000 * statistics.mean(way.times),
        "median_ms": 1000 * statistics.median(way.times),
        "p90_ms": 1000 * statistics.quantiles(way.times, n=10)[-1],
        "over_none_pct": 100 * over,
        "of_batch_pct": 100 * over / (1 + over),
        "paired_pct": 100 * (statistics.median(a / b for a, b in pairs) - 1),
        "last_stage_ms": float(statistics.median(way.last_stage)),
        "saved_kb": statistics.median(way.saved) / 1000,
    }


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--zipf", type=float, default=1.0)
    parser.add_argument("--fill", type=int, default=400_000, help="lines of the first batch")
    parser.add_argument("--lines", type=int, nargs="+", default=[5000, 20_000], help="of a batch")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--warm", type=int, default=10, help="batches that are not counted")
    parser.add_argument("--data-fragments", type=int, default=7)
    parser.add_argument("--parity-fragments", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="penstock-backup-") as root,
        engine.cluster(engine.embedded(asked.nodes, memory_mb=900)) as spark,
    ):
        rows = measure(spark, Path(root), asked)
    if asked.json:
        json.dump(rows, sys.stdout)
        return
    table = Table(title=f"WordCount with {asked.keys:,} keys on {asked.nodes} nodes")
    for column in rows[0]:
        table.add_column(column.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{v:,.1f}" if isinstance(v, float) else str(v) for v in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
