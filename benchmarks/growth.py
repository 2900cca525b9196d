"""How the cost of a batch grows: ``python benchmarks/growth.py keys instances layers pipelines``.

A count by key with `ROWS` rows a batch on two cores, and one thing that grows: keys in the state,
instances of each step, layers with state, pipelines at once. CPU is that of all processes for a
batch of every pipeline; the exponent is the slope of its logarithm over that of what grows, between
the first and the last size and over the last doubling. Up to 1, cost grows no faster than the work.
A run that is not counted comes first, so that the first size does not pay for a cold JVM.
"""

from __future__ import annotations

import argparse
import math
from contextlib import ExitStack
from typing import Any

from batch_cost import Meter
from pyspark.sql import SparkSession
from rich.console import Console
from tables import check_kinds, tell

from penstock import functions as F
from penstock import spark as engine
from penstock.pipeline import Discard, Pipeline
from penstock.pipeline.sources.generator import Generator, Keys

#: Rows of a batch, and batches that count.
ROWS, BATCHES = 20_000, 25
SIZES = {
    "keys": (10_000, 100_000, 1_000_000, 5_000_000),
    "instances": (2, 8, 32, 64),
    "layers": (1, 2, 5, 10),
    "pipelines": (1, 2, 4, 8),
}
NOTE = Console(stderr=True)


def one(
    spark: SparkSession,
    *,
    keys: int = 1000,
    instances: int = 2,
    layers: int = 1,
    pipelines: int = 1,
) -> dict[str, float]:
    """Run a count, and say what a batch costs."""
    # As many rows as fill two thirds of the keys, whose batches are not counted.
    filling = max(10, math.ceil(keys / ROWS))
    meters = [Meter() for _ in range(pipelines)]
    with ExitStack() as together:
        runs = []
        for number, meter in enumerate(meters):
            rows = ROWS * (filling + BATCHES)
            source = Generator(1e9, Keys(keys=keys), seed=number, rows=rows)
            made = Pipeline(f"growth-{number}").source("keys", source, parallelism=instances)
            for layer in range(layers):
                counted = {"n": F.count()} if layer == 0 else {"n": F.max("n")}
                made = made.aggregate(
                    f"count-{layer}", by="key", reduce=counted, parallelism=instances
                )
            runs.append(
                together.enter_context(
                    engine.start(
                        made.sink("out", Discard()),
                        spark,
                        "even",
                        interval_s=0.0,
                        control=None,
                        queue=engine.QueueOptions(size=ROWS),
                        listener=meter.read,
                    )
                )
            )
        for run in runs:
            run.await_termination(400)
    reads = [meter.reads[filling:] for meter in meters]
    first, last = min(r[0] for r in reads), max(r[-1] for r in reads)
    batches = min(len(r) for r in reads) - 1
    return {
        "batch_ms": (last[0] - first[0]) / batches * 1e3,
        "cpu_ms": sum(last[i] - first[i] for i in (1, 2, 3)) / batches * 1e3,
    }


def grown(spark: SparkSession, what: str) -> list[dict[str, Any]]:
    """Measure one thing at all its sizes."""
    rows: list[dict[str, Any]] = []
    for size in SIZES[what]:
        found = {"what": what, "size": size, **one(spark, **{what: size})}
        NOTE.print(
            f"{what} {size}: {found['batch_ms']:.0f} ms a batch, {found['cpu_ms']:.0f} ms of CPU",
            style="dim",
        )
        rows.append(found)
    for row, before in zip(rows[1:], rows, strict=False):
        row["exponent"] = _slope(before, row)
        row["exponent_from_first"] = _slope(rows[0], row)
    rows[0] |= {"exponent": None, "exponent_from_first": None}
    return rows


def _slope(a: dict[str, Any], b: dict[str, Any]) -> float:
    return math.log(b["cpu_ms"] / a["cpu_ms"]) / math.log(b["size"] / a["size"])


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", default=list(SIZES), metavar="KIND")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    check_kinds(parser, asked.kinds, SIZES)
    spark = engine.session("local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    try:
        one(spark, keys=ROWS * 40)
        rows = [row for kind in asked.kinds for row in grown(spark, kind)]
    finally:
        spark.stop()
    tell("how the cost of a batch grows", rows, as_json=asked.json)


if __name__ == "__main__":
    main()
