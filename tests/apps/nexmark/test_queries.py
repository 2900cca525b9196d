"""Every query of NEXMark gives, to the row, what Spark's SQL gives over the same events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.apps.nexmark.events import SCHEMAS, source
from penstock.apps.nexmark.query import LATENESS_S, OUT, queries
from penstock.pipeline import Memory
from penstock.runtimes.local import run_locally

EVENTS, EVENTS_PER_S, DISORDER_S = 12_000, 400.0, 1.5


@pytest.fixture(scope="module")
def streams() -> dict[str, Any]:
    """Half a minute of events, out of order within the bound; arrivals take as long."""
    return {
        kind: source(
            kind,
            EVENTS,
            profile=300.0,
            seed=7,
            events_per_s=EVENTS_PER_S,
            disorder_s=DISORDER_S,
        )
        for kind in SCHEMAS
    }


@pytest.fixture(scope="module")
def tables(spark: Any, streams: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("nexmark")
    for kind, stream in streams.items():
        pq.write_table(stream.read(0, stream.end), folder / f"{kind}.parquet")
        spark.read.parquet(str(folder / f"{kind}.parquet")).createOrReplaceTempView(kind)
    return spark


@pytest.mark.parametrize("name", queries())
def test_like_spark(tables: Any, streams: dict[str, Any], name: str) -> None:
    query = queries()[name]
    pipeline = query.pipeline(streams, parallelism=2)
    run_locally(pipeline, cuts=[1500, 1501, 6000])
    sink = pipeline[OUT].sink
    assert isinstance(sink, Memory)
    got = query.result(sink.table())
    wanted = tables.sql(query.sql).toArrow()
    if query.open_until is not None:
        wanted = wanted.filter(_closed(wanted, query.open_until, streams))
    assert wanted.num_rows > 0
    assert set(got.column_names) == set(wanted.column_names)
    wanted = wanted.select(got.column_names).cast(got.schema)
    wanted = wanted.sort_by([(column, "ascending") for column in got.column_names])
    assert got.combine_chunks().equals(wanted.combine_chunks())


def _closed(rows: pa.Table, column: str, streams: dict[str, Any]) -> Any:
    """Windows that the last watermark has reached."""
    bids = streams["bid"].read(0, streams["bid"].end)
    if pa.types.is_integer(rows.schema.field(column).type):
        return pc.less_equal(rows.column(column), pc.max(bids.column("stamp_us")))
    latest = pc.max(bids.column("date_time")).cast(pa.int64()).as_py()
    ends = rows.column(column).cast(pa.int64())
    return pc.less_equal(ends, latest - int(LATENESS_S * 1e6))
