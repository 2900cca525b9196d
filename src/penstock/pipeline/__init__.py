"""Pipelines as users write them, and the bodies of their tasks. Nothing here imports Spark."""

from penstock.pipeline.build import Pipeline
from penstock.pipeline.reduce import Aggregate, count, largest, smallest, total
from penstock.pipeline.sinks import Call, Console, Files, Memory, json_lines, parquet
from penstock.pipeline.sources import Lines, Rows
from penstock.pipeline.steps import Hints, Keyed, Link, Sink, Source

__all__ = [
    "Aggregate",
    "Call",
    "Console",
    "Files",
    "Hints",
    "Keyed",
    "Lines",
    "Link",
    "Memory",
    "Pipeline",
    "Rows",
    "Sink",
    "Source",
    "count",
    "json_lines",
    "largest",
    "parquet",
    "smallest",
    "total",
]
