"""Counts of pages, from Kafka topic to Kafka topic, as a pipeline of Penstock.

Usage: penstock run examples/kafka_pipeline.py --set servers=HOST:PORT --set into=A --set out=B
"""

import pyarrow as pa

from penstock import functions as F
from penstock.pipeline import Kafka, Pipeline


def pipeline(
    servers: str = "127.0.0.1:9092", into: str = "clicks", out: str = "counts"
) -> Pipeline:
    """Make the pipeline."""
    kafka = Kafka(servers)
    clicks = pa.schema([("user", pa.string()), ("page", pa.string())])
    return (
        Pipeline("pages")
        .source("clicks", kafka.source(into, value=clicks), parallelism=2)
        .aggregate("count", by="page", n=F.count(), parallelism=2)
        .sink("counts", kafka.sink(out, key="page"))
    )
