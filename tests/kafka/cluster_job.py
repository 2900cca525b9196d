"""The pipeline of the kill tests for ``penstock run``."""

from __future__ import annotations

from tests.kafka.counting import counting

from penstock.pipeline import Kafka, Pipeline


def pipeline(
    servers: str = "", into: str = "", rows: str = "", counts: str = "", exactly: str = "once"
) -> Pipeline:
    """Make the pipeline."""
    kafka = Kafka(servers)
    return counting(kafka, into, rows, counts, "latest", exactly_once=exactly == "once")
