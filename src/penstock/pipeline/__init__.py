"""Pipelines as users write them, and the bodies of their tasks. Nothing here imports Spark."""

from penstock.pipeline.builder import Pipeline
from penstock.pipeline.keyed.custom import merging
from penstock.pipeline.keyed.reduce import (
    Aggregate,
    count,
    first,
    largest,
    last,
    mean,
    smallest,
    top,
    total,
)
from penstock.pipeline.keyed.windows import Window, sliding, tumbling
from penstock.pipeline.sinks import Call, Console, Discard, Files, Memory, json_lines, parquet
from penstock.pipeline.sources.files import Csv, Parquet, Replay, TextLines
from penstock.pipeline.sources.generator import Generator, Keys
from penstock.pipeline.sources.memory import Lines, Rows
from penstock.pipeline.sources.rates import Profile
from penstock.pipeline.sources.text import Text
from penstock.pipeline.steps import Hints, Keyed, Link, Sink, Source

__all__ = [
    "Aggregate",
    "Call",
    "Console",
    "Csv",
    "Discard",
    "Files",
    "Generator",
    "Hints",
    "Keyed",
    "Keys",
    "Lines",
    "Link",
    "Memory",
    "Parquet",
    "Pipeline",
    "Profile",
    "Replay",
    "Rows",
    "Sink",
    "Source",
    "Text",
    "TextLines",
    "Window",
    "count",
    "first",
    "json_lines",
    "largest",
    "last",
    "mean",
    "merging",
    "parquet",
    "sliding",
    "smallest",
    "top",
    "total",
    "tumbling",
]
