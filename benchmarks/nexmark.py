"""NEXMark by Penstock and by Structured Streaming, side by side: ``python benchmarks/nexmark.py``.

Sides
-----
``frame``, ``source``
    Penstock, through a streaming DataFrame and with a source of its own.
``memory``, ``rocksdb``
    Structured Streaming with either state store, as many partitions as cores, adaptive execution
    off, RocksDB with changelog checkpointing, and its own settings otherwise.

All sides read the same Parquet files, as many in a batch as there are cores, and write the same
kind of result with a checkpoint on the same disk. In every repetition each side gets a session of
its own, and the order of sides is turned round from one repetition to the next. Results are
compared with a query over all events. Rates are of the median batch; CPU is that of all processes.
The last columns are over the better one of Spark's two stores; a ratio is of medians.

``--keep FILE`` writes a line for each query, side and repetition as soon as it is measured, and
takes those that the file already has from there: what was cut short goes on with the same command.
``--limit-s`` begins nothing new after so many seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from tables import show

from penstock import spark as engine
from penstock.apps.nexmark.query import NexmarkQuery, queries, query
from penstock.experiments.nexmark import trial

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SPARK: dict[str, dict[str, str]] = {
    "memory": {},
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
}
PENSTOCK = ("frame", "source")
NOTE = Console(stderr=True)

Figures = dict[tuple[str, str], list[dict[str, Any]]]


@dataclass(eq=False)
class Bench:
    """What is measured: the events, the answers to compare with, and the figures so far."""

    feed: trial.Feed
    cores: int
    keep: Path | None
    until: float
    figures: Figures = field(default_factory=dict)
    answers: dict[str, pa.Table] = field(default_factory=dict)

    def load(self, asked: dict[str, Any]) -> None:
        """Take figures of an earlier run from the file; its events must be the same."""
        if self.keep is None or not self.keep.exists():
            return
        for line in self.keep.read_text().splitlines():
            told = json.loads(line)
            if told.pop("asked") != asked:
                raise SystemExit(
                    f"{self.keep} is of other events: give the same options, or remove it"
                )
            self.figures.setdefault((told.pop("query"), told.pop("side")), []).append(told)

    def side(
        self, name: str, wanted: Iterable[NexmarkQuery], repetition: int, asked: dict[str, Any]
    ) -> None:
        """Run queries by one side that have fewer repetitions than asked for, in a session."""
        missing = [
            each
            for each in wanted
            if len(self.figures.get((each.name, name), ())) <= repetition
            and not (name in SPARK and each.streaming is None)
        ]
        if not missing or time.monotonic() > self.until:
            return
        conf = {
            "spark.sql.shuffle.partitions": str(self.cores),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.adaptive.enabled": "false",
            **SPARK.get(name, {}),
        }
        with engine.cluster(f"local[{self.cores}]", conf=conf) as spark:
            for each in missing:
                if time.monotonic() > self.until:
                    return
                found = self._one(spark, name, each)
                self.figures.setdefault((each.name, name), []).append(found)
                NOTE.print(
                    f"{each.name} by {name}, repetition {repetition + 1}: "
                    f"{found['rows_per_s']:,.0f} rows/s, {found['batch_ms']:.0f} ms a batch, "
                    f"{found['cpu_us_per_row']:.1f} us of CPU a row, equal: {found['equal']}",
                    style="dim",
                )
                if self.keep is not None:
                    line = {"asked": asked, "query": each.name, "side": name, **found}
                    with self.keep.open("a") as file:
                        file.write(json.dumps(line) + "\n")

    def _one(self, spark: Any, name: str, each: NexmarkQuery) -> dict[str, Any]:
        if each.name not in self.answers:
            self.answers[each.name] = trial.expected(spark, each, self.feed)
        if name in PENSTOCK:
            timed = trial.by_engine(spark, each, self.feed, name, instances=self.cores)
        else:
            timed = trial.by_spark(spark, each, self.feed)
        found: dict[str, Any] = dict(timed.figures(self.feed, each))
        found["equal"] = trial.equal(timed.result, self.answers[each.name])
        return found


def rows(figures: Figures) -> list[dict[str, Any]]:
    """Put a table together: a row for each query and side of Penstock."""
    made = []
    for (name, how), ours in figures.items():
        if how not in PENSTOCK:
            continue
        theirs = {store: figures[name, store] for store in SPARK if (name, store) in figures}
        best = max(theirs, key=lambda store: _median(theirs[store], "rows_per_s"), default=None)
        row: dict[str, Any] = {
            "query": name,
            "by": how,
            "rows_per_s": _median(ours, "rows_per_s"),
            "spread": _spread(ours),
            "cpu_us_a_row": _median(ours, "cpu_us_per_row"),
            "equal": all(one["equal"] for one in ours),
            "store": best,
            "spark_rows_per_s": None,
            "spark_spread": None,
            "spark_equal": None,
            "rate_ratio": None,
            "cpu_ratio": None,
        }
        if best is not None:
            spark = theirs[best]
            row |= {
                "spark_rows_per_s": _median(spark, "rows_per_s"),
                "spark_spread": _spread(spark),
                "spark_equal": all(one["equal"] for one in spark),
                "rate_ratio": row["rows_per_s"] / _median(spark, "rows_per_s"),
                "cpu_ratio": row["cpu_us_a_row"] / _median(spark, "cpu_us_per_row"),
            }
        made.append(row)
    return made


def means(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Geometric means of the ratios, by side of Penstock."""
    made = []
    for how in PENSTOCK:
        compared = [row for row in table if row["by"] == how and row["rate_ratio"]]
        if compared:
            made.append(
                {
                    "by": how,
                    "queries": len(compared),
                    "rate_ratio": _mean([row["rate_ratio"] for row in compared]),
                    "least": min(row["rate_ratio"] for row in compared),
                    "cpu_ratio": _mean([row["cpu_ratio"] for row in compared]),
                    "most_cpu": max(row["cpu_ratio"] for row in compared),
                }
            )
    return made


def _median(found: list[dict[str, Any]], name: str) -> float:
    return statistics.median(float(one[name]) for one in found)


def _spread(found: list[dict[str, Any]]) -> float:
    """Largest over smallest rate."""
    rates = [float(one["rows_per_s"]) for one in found]
    return max(rates) / min(rates)


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("queries", nargs="*", default=list(queries()), metavar="QUERY")
    parser.add_argument("--sides", default="frame,memory,source,rocksdb")
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="FILE")
    parser.add_argument("--limit-s", type=float, default=math.inf)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    sides = asked.sides.split(",")
    unknown = set(sides) - {*PENSTOCK, *SPARK}
    if unknown:
        parser.error(f"unknown {sorted(unknown)}; there are {', '.join((*PENSTOCK, *SPARK))}")
    wanted = [query(name) for name in asked.queries]
    events = {name: getattr(asked, name) for name in ("events", "batches", "cores", "seed")}
    until = time.monotonic() + asked.limit_s
    with tempfile.TemporaryDirectory(prefix="penstock-nexmark-") as folder:
        feed = trial.write_events(
            Path(folder) / "events", asked.events, asked.batches, asked.cores, asked.seed
        )
        bench = Bench(feed, asked.cores, asked.keep, until)
        bench.load(events)
        for repetition in range(asked.repeats):
            for name in sides if repetition % 2 == 0 else reversed(sides):
                bench.side(name, wanted, repetition, events)
    table = rows(bench.figures)
    if asked.json:
        json.dump({"queries": table, "means": means(table)}, sys.stdout, indent=1)
        return
    show("NEXMark", table)
    if means(table):
        show("geometric means", means(table))


if __name__ == "__main__":
    main()
