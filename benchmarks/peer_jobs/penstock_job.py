"""The two counts as pipelines of Penstock.

Usage: penstock_job.py SERVERS INTO OUT WORKLOAD FOLDER GUARANTEE, which is once or at-least-once
"""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.compute as pc

from penstock import functions as F
from penstock import spark as engine
from penstock.pipeline import Kafka, Pipeline


def words(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the words of lines."""
    split = pc.split_pattern(batch.column("value"), " ")
    return pa.record_batch({"key": pc.list_flatten(split)})


def first(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the first word of each value."""
    split = pc.split_pattern(batch.column("value"), " ", max_splits=1)
    return pa.record_batch({"key": pc.list_element(split, 0)})


def told(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Make messages of counts."""
    value = pc.cast(batch.column("n"), pa.string())
    return pa.record_batch({"key": batch.column("key"), "value": value})


def main() -> None:
    """Run until the process is ended."""
    servers, into, out, workload, folder, guarantee = sys.argv[1:]
    kafka = Kafka(servers)
    pipeline = (
        Pipeline("peer")
        .source("lines", kafka.source(into, value="text"), parallelism=2)
        .map("words", words if workload == "words" else first, parallelism=2)
        .aggregate("count", by="key", n=F.count(), parallelism=2)
        .map("told", told, parallelism=1)
        .sink("out", kafka.sink(out, exactly_once=guarantee == "once"))
    )
    with (
        engine.cluster("local[2]") as spark,
        engine.start(pipeline, spark, checkpoint=folder, interval_s=0.0, control=None) as run,
    ):
        run.await_termination()


if __name__ == "__main__":
    main()
