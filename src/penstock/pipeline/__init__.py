"""Pipelines as users write them, and the bodies of their tasks. Nothing here imports Spark."""

from penstock.pipeline.builder import Pipeline
from penstock.pipeline.file_sinks import Files, json_lines, parquet, read_json_lines
from penstock.pipeline.keyed.aggregates import Aggregate
from penstock.pipeline.keyed.step import Split
from penstock.pipeline.keyed.windows import Window, sliding, tumbling
from penstock.pipeline.sinks import Call, Console, Discard, Memory
from penstock.pipeline.sources.files import Replay
from penstock.pipeline.sources.generator import Generator, Keys
from penstock.pipeline.sources.memory import Lines, Rows
from penstock.pipeline.sources.rates import Profile
from penstock.pipeline.sources.readers import Csv, Parquet, TextLines
from penstock.pipeline.sources.text import Text
from penstock.pipeline.steps import Attempt, Hints, Keyed, Link, Sink, Source, StagedFile

__all__ = [
    "Aggregate",
    "Attempt",
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
    "Split",
    "StagedFile",
    "Text",
    "TextLines",
    "Window",
    "json_lines",
    "parquet",
    "read_json_lines",
    "sliding",
    "tumbling",
]
