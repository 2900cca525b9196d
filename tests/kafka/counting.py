"""The pipeline of the kill tests: every row goes to one topic, what was counted to another."""

from __future__ import annotations

import pyarrow as pa

from penstock import functions as F
from penstock.pipeline import Kafka, Pipeline

#: What is sent.
WORDS = [f"w{number % 37}" for number in range(6000)]


def values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave only what was sent."""
    return batch.select(["value"])


def counting(kafka: Kafka, into: str, rows: str, counts: str, until: str | None) -> Pipeline:
    """Make the pipeline."""
    return (
        Pipeline("counting")
        .source("words", kafka.source(into, value="text", until=until), parallelism=2)
        .map("values", values)
        .sink("rows", kafka.sink(rows))
        .aggregate("count", after="values", by="value", n=F.count(), parallelism=2)
        .sink("counts", kafka.sink(counts, key="value"))
    )
