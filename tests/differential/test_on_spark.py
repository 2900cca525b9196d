"""Steps with event time on the Spark session itself: batches without data, restarts, joins."""

from __future__ import annotations

import datetime
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.engine.streams import STEPS, all_steps

from penstock import functions as F
from penstock import spark as engine
from penstock.pipeline import Memory, Pipeline, Rows, tumbling
from penstock.runtimes.local import run_locally
from penstock.testing.differential import Sides, require_equal, table_counts

NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.timezone.utc)
SQL = """
    select k, window.start as window_start, window.end as window_end, count(*) as n
    from rows group by k, window(t, '10 seconds')
"""


def table(*rows: tuple[str, int]) -> pa.Table:
    times = [NOON + datetime.timedelta(seconds=s) for _, s in rows]
    kind = pa.timestamp("us", "UTC")
    return pa.table({"k": [k for k, _ in rows], "t": pa.array(times, kind)})


TABLES = [
    table(("a", 5), ("a", 100)),
    table(("a", 6), ("b", 101)),
    table(("a", 7)),
    table(("a", 8), ("b", 300)),
]


def counting(source: Any, sink: Memory) -> Pipeline:
    return (
        Pipeline("windows")
        .source("rows", source)
        .aggregate("w", by="k", n=F.count(), window=tumbling("t", "10 s"))
        .sink("out", sink)
    )


def test_a_streaming_dataframe_that_is_restarted(spark: Any, tmp_path: Path) -> None:
    """After the batch without data Spark goes on with its own numbers, and no file is left out."""
    sides = Sides(spark, tmp_path, TABLES)
    sink, files = Memory(), tmp_path / "some"
    files.mkdir()
    schema = spark.read.parquet(str(sides.files("rows"))).schema
    for part in (slice(0, 2), slice(2, 4), slice(4, 4)):
        for number, file in enumerate(sorted(sides.files("rows").iterdir())[part], part.start):
            shutil.copy(file, files)
            os.utime(files / file.name, (10**9 + number, 10**9 + number))
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        stream = reader.parquet(str(files))
        pipeline = counting(stream, sink)
        with engine.start(pipeline, spark, available_now=True, checkpoint=tmp_path / "c") as run:
            assert run.await_termination(120)
    # Both runs end with a batch without data; Spark's query ran to its end in one go, but nothing
    # of these rows is late by one batch and not by the other.
    wanted = sides.stream(SQL, time="t", lateness="0 seconds", mode="append")
    require_equal(table_counts(sink.table()), wanted)
    assert wanted.total() == 3


def test_a_source_that_ends(spark: Any, tmp_path: Path) -> None:
    sides = Sides(spark, tmp_path, TABLES[:1])
    sink = Memory()
    with engine.start(counting(Rows(TABLES[0]), sink), spark) as run:
        assert run.await_termination(120)
    wanted = sides.stream(SQL, time="t", lateness="0 seconds", mode="append")
    require_equal(table_counts(sink.table()), wanted)
    assert wanted.total() == 1


def test_joins_sessions_and_timers(spark: Any) -> None:
    """All steps that follow event time, behind the same two sources."""
    here, there = ({name: Memory() for name in STEPS} for _ in range(2))
    run_locally(all_steps(here))
    with engine.start(all_steps(there), spark) as run:
        assert run.await_termination(120)
    for name, sink in here.items():
        wanted = table_counts(sink.table())
        assert wanted.total() > 10, name
        require_equal(table_counts(there[name].table()), wanted, name)
