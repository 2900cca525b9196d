"""Pipelines as users write them, and the bodies of their tasks. Nothing here imports Spark."""

from penstock.pipeline.builder import Pipeline
from penstock.pipeline.file_sinks import Files, json_lines, parquet, read_json_lines
from penstock.pipeline.kafka.cluster import Kafka
from penstock.pipeline.keyed.aggregates import Aggregate
from penstock.pipeline.keyed.protocols import Keyed
from penstock.pipeline.keyed.step import Split
from penstock.pipeline.keyed.time_bound import TimeBound, between
from penstock.pipeline.keyed.timers import BatchTime
from penstock.pipeline.keyed.windows import Session, Window, session, sliding, tumbling
from penstock.pipeline.secret import Secret
from penstock.pipeline.sinks import Call, Console, Discard, Memory
from penstock.pipeline.sources.files import Replay
from penstock.pipeline.sources.generator import Generator, Keys
from penstock.pipeline.sources.memory import Lines, Rows
from penstock.pipeline.sources.rates import Profile
from penstock.pipeline.sources.readers import Csv, JsonLines, Parquet, TextLines
from penstock.pipeline.sources.text import Text
from penstock.pipeline.static_join import Static, static
from penstock.pipeline.steps import Attempt, Hints, Link, Sink, Source, StagedFile

__all__ = [
    "Aggregate",
    "Attempt",
    "BatchTime",
    "Call",
    "Console",
    "Csv",
    "Discard",
    "Files",
    "Generator",
    "Hints",
    "JsonLines",
    "Kafka",
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
    "Secret",
    "Session",
    "Sink",
    "Source",
    "Split",
    "StagedFile",
    "Static",
    "Text",
    "TextLines",
    "TimeBound",
    "Window",
    "between",
    "json_lines",
    "parquet",
    "read_json_lines",
    "session",
    "sliding",
    "static",
    "tumbling",
]
