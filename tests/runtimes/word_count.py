"""A pipeline that counts words, for tests on one node."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock import functions as F
from penstock import spark as engine
from penstock.pipeline import Memory, Pipeline

LINES = [f"a b c{i % 5} d{i % 3}" for i in range(300)]

WORDS = Counter(word for line in LINES for word in line.split())


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"word": pc.list_flatten(pc.split_pattern(batch.column("line"), " "))})


def words(source: Any, sink: Any) -> Pipeline:
    return (
        Pipeline("words")
        .source("lines", source, parallelism=2)
        .map("split", split)
        .aggregate("count", by="word", n=F.count(), parallelism=3)
        .sink("out", sink)
    )


def counted(sink: Memory) -> dict[str, int]:
    return {row["word"]: row["n"] for row in sink.latest("word").to_pylist()}


def rows(size: int) -> engine.QueueOptions:
    """Let a batch take no more than so many rows."""
    return engine.QueueOptions(size=size)
