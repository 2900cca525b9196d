"""Both sides of every pair on the page for users of Structured Streaming give the same rows."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock import functions as F
from penstock.pipeline import Memory, Pipeline, Rows, between, session, sliding, tumbling
from penstock.runtimes.local import run_locally

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")
PAIR = re.compile(
    r"^## ([^\n]+)\n(?:(?!^## ).)*?^```py\n# Structured Streaming, (\w+)\n(.*?)^```\n\n"
    r"^```py\n# Penstock\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PAIRS = {found[0]: found[1:] for found in PAIR.findall(PAGE)}
ROWS, FILES = 240, 3


def test_the_page_has_pairs() -> None:
    assert len(PAIRS) == PAGE.count("# Structured Streaming,") == 8


@pytest.fixture(scope="module")
def table() -> pa.Table:
    draw = np.random.default_rng(5)
    late = draw.integers(0, 900_000, ROWS)
    times = 1_700_000_000_000_000 + np.arange(ROWS) * 200_000 - late
    return pa.table(
        {
            "user": draw.choice([f"u{n}" for n in range(12)], ROWS).tolist(),
            "price": draw.integers(0, 50, ROWS),
            "t": pa.array(times).cast(pa.timestamp("us", "UTC")),
        }
    )


@pytest.mark.parametrize("title", PAIRS)
def test_both_sides_give_the_same(spark: Any, table: pa.Table, tmp_path: Path, title: str) -> None:
    mode, left, right = PAIRS[title]
    size = ROWS // FILES
    for number in range(FILES):
        pq.write_table(table.slice(number * size, size), tmp_path / f"{number}.parquet")
        # Spark reads files in the order of their times.
        os.utime(tmp_path / f"{number}.parquet", (1_700_000_000 + number,) * 2)
    theirs = _by_spark(spark, tmp_path, mode, left)
    cuts = [size * n for n in range(1, FILES)]
    begun = Pipeline("page").source("events", Rows(table), parallelism=1)
    names = {"events": begun, "F": F, "pa": pa, "pc": pc, "between": between}
    names |= {"tumbling": tumbling, "sliding": sliding, "session": session}
    exec(right, names)
    made: Any = names["result"]
    pipeline = made.sink("out", Memory())
    run_locally(pipeline, cuts)
    ours = pipeline["out"].sink.table()
    assert ours.num_rows > 0
    assert _rows(ours) == _rows(theirs.select(ours.column_names))


def _by_spark(spark: Any, folder: Path, mode: str, code: str) -> pa.Table:
    import pandas as pd
    from pyspark.sql import functions as sf

    schema = spark.read.parquet(str(folder / "0.parquet")).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    names: dict[str, Any] = {"events": reader.parquet(str(folder)), "sf": sf, "pd": pd}
    exec(code, names)
    parts: list[pa.Table] = []
    query = (
        names["result"]
        .writeStream.outputMode(mode)
        .foreachBatch(lambda rows, _: parts.append(rows.toArrow()))
        .option("checkpointLocation", str(folder / "_checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return pa.concat_tables(parts)


def _rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, (tuple(row.values()) for row in table.to_pylist())))
