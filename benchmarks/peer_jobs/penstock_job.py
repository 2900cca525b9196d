"""The queries as pipelines of Penstock.

Usage: penstock_job.py SERVERS INTO OUT WORKLOAD FOLDER GUARANTEE, which is once or at-least-once
"""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.compute as pc

from penstock import functions as F
from penstock import spark as engine
from penstock.pipeline import Kafka, Pipeline, sliding


def words(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the words of lines."""
    split = pc.split_pattern(batch.column("value"), " ")
    return pa.record_batch({"key": pc.list_flatten(split)})


def first(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the first word of each value."""
    split = pc.split_pattern(batch.column("value"), " ", max_splits=1)
    return pa.record_batch({"key": pc.list_element(split, 0)})


def bids(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return auction and time of each value."""
    split = pc.split_pattern(batch.column("value"), " ")
    times = pc.cast(pc.cast(pc.list_element(split, 1), pa.int64()), pa.timestamp("ms", "UTC"))
    return pa.record_batch({"auction": pc.list_element(split, 0), "time": times})


def hot(batch: pa.RecordBatch) -> pa.Table:
    """Keep the auctions with most bids, as messages; all windows with one end close at once."""
    counts = pa.Table.from_batches([batch])
    most = counts.group_by("window_end", use_threads=False).aggregate([("n", "max")])
    joined = counts.join(most, "window_end", use_threads=False)
    kept = joined.filter(pc.equal(joined["n"], joined["n_max"]))
    ends = pc.cast(kept["window_end"], pa.timestamp("s", "UTC"))
    text = pc.cast(pc.cast(ends, pa.int64()), pa.string())
    key = pc.binary_join_element_wise(text, kept["auction"], "-")
    return pa.table({"key": key, "value": pc.cast(kept["n"], pa.string())})


def told(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Make messages of counts."""
    value = pc.cast(batch.column("n"), pa.string())
    return pa.record_batch({"key": batch.column("key"), "value": value})


def main() -> None:
    """Run until the process is ended."""
    servers, into, out, workload, folder, guarantee = sys.argv[1:]
    kafka = Kafka(servers)
    lines = Pipeline("peer").source("lines", kafka.source(into, value="text"), parallelism=2)
    if workload == "q5":
        windows = sliding("time", "10 s", "2 s", lateness="60 s")
        counts = lines.map("bids", bids, parallelism=2).aggregate(
            "count", by="auction", n=F.count(), window=windows, parallelism=2
        )
        found = counts.map("told", hot, grouping="fields", by="window_end", parallelism=1)
    else:
        counts = lines.map("words", words if workload == "words" else first, parallelism=2)
        counts = counts.aggregate("count", by="key", n=F.count(), parallelism=2)
        found = counts.map("told", told, parallelism=1)
    pipeline = found.sink("out", kafka.sink(out, exactly_once=guarantee == "once"))
    with (
        engine.cluster("local[2]") as spark,
        engine.start(pipeline, spark, checkpoint=folder, interval_s=0.0, control=None) as run,
    ):
        run.await_termination()


if __name__ == "__main__":
    main()
