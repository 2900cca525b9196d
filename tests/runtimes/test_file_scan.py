"""Parquet files of a streaming DataFrame that tasks read themselves: the same rows as Spark's."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from penstock import spark as engine
from penstock.pipeline import Memory, Pipeline
from penstock.runtimes.spark import backend, file_scan
from penstock.runtimes.spark.file_rows import FileRows, Part
from penstock.runtimes.spark.file_scan import Scanned, ScannedFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)


def _scanned(*files: tuple[int, ...]) -> Scanned:
    made = tuple(ScannedFile(f"/{n}", rows) for n, rows in enumerate(files))
    return Scanned(("a",), pa.schema([("a", pa.int64())]), made)


@pytest.mark.parametrize("instances", [1, 2, 3, 7])
def test_each_row_group_is_read_by_one_instance(instances: int) -> None:
    files = ((5, 0, 7), (), (0,), (3,), (1, 1, 1, 40))
    parts = _scanned(*files).parts(instances)
    assert len(parts) == instances
    got = [(part.path, group) for mine in parts for part in mine for group in part.groups]
    filled = [(f"/{n}", g) for n, rows in enumerate(files) for g, r in enumerate(rows) if r]
    assert got == filled


def test_row_groups_are_shared_evenly() -> None:
    parts = _scanned(*[(10,)] * 8).parts(4)
    assert [sum(len(part.groups) for part in mine) for mine in parts] == [2, 2, 2, 2]
    assert _scanned().parts(3) == ((), (), ())


def test_rows_are_as_spark_hands_them_over(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array([NOON], pa.timestamp("us", "UTC")), "n": [1], "m": [2]})
    pq.write_table(table, tmp_path / "f")
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "Asia/Tokyo"))])
    parts = {"s": ((), (Part(str(tmp_path / "f"), (0,), ("n", "t")),))}
    rows = FileRows(parts, {"s": schema})
    assert rows.of("s", 0) == rows.of("s", 2) == rows.of("other", 0) == []
    [(name, read)] = rows.of("s", 1)
    assert (name, read.schema) == ("s", schema)
    assert read.to_pylist() == [{"k": 1, "at": NOON}]


@pytest.mark.parametrize(
    "told",
    [
        pa.table({"a": pa.array([1], pa.int32())}),
        pa.table({"b": [1]}),
        pa.table({"A": [1]}),
        pa.table({"a": [1], "A": [2]}),
        pa.table({"a": pa.array([NOON], pa.timestamp("us", "UTC"))}),
    ],
)
def test_a_file_that_spark_reads_in_another_way_is_left_to_it(
    tmp_path: Path, told: pa.Table
) -> None:
    wanted = pa.schema([("a", pa.int64())])
    pq.write_table(told, tmp_path / "f")
    assert file_scan.footer(str(tmp_path / "f"), ["a"], wanted) is None
    (tmp_path / "no").write_text("nothing of the kind")
    assert file_scan.footer(str(tmp_path / "no"), ["a"], wanted) is None
    assert file_scan.footer(str(tmp_path / "gone"), ["a"], wanted) is None


@pytest.mark.parametrize(
    ("stored", "wanted", "alike"),
    [
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), True),
        (pa.timestamp("us"), pa.timestamp("us"), True),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), False),
        (pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC"), False),
        (pa.large_string(), pa.string(), True),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), True),
        (pa.decimal128(9, 2), pa.decimal128(9, 2), True),
        (pa.decimal128(9, 2), pa.decimal128(10, 2), False),
    ],
)
def test_types(tmp_path: Path, stored: pa.DataType, wanted: pa.DataType, alike: bool) -> None:
    pq.write_table(pa.table({"a": pa.array([None], stored)}), tmp_path / "f")
    found = file_scan.footer(str(tmp_path / "f"), ["a"], pa.schema([("a", wanted)]))
    assert (found is not None) == alike


def test_dates_of_the_old_calendar_are_left_to_spark(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([NOON.date()])})
    for number, notes in enumerate(
        (
            {"org.apache.spark.version": "2.4.8"},
            {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""},
        )
    ):
        file = tmp_path / str(number)
        pq.write_table(table.replace_schema_metadata(notes), file)
        assert file_scan.footer(str(file), ["a"], table.schema) is None
    pq.write_table(table.replace_schema_metadata({"org.apache.spark.version": "4.0"}), file)
    assert file_scan.footer(str(file), ["a"], table.schema) == ScannedFile(str(file), (1,))


def _stream(spark: SparkSession, folder: Path, **options: Any) -> DataFrame:
    reader = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    return reader.options(maxFilesPerTrigger=1, **options).parquet(str(folder))


def _kept(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, *streams: DataFrame
) -> tuple[list[bool], list[dict[str, Any]]]:
    """Run a pipeline that keeps all rows; say of each batch whether tasks read the files."""
    read: list[bool] = []
    run = backend.SparkBackend.run

    def noted(self: backend.SparkBackend, *arguments: Any) -> Any:
        read.append(self.files is not None)
        return run(self, *arguments)

    monkeypatch.setattr(backend.SparkBackend, "run", noted)
    sink, pipeline = Memory(), Pipeline("kept")
    for number, stream in enumerate(streams):
        pipeline = pipeline.source(f"s{number}", stream, parallelism=2)
    after = [f"s{number}" for number in range(len(streams))]
    pipeline = pipeline.map("same", lambda batch: batch, after=after).sink("out", sink)
    with engine.start(pipeline, spark, available_now=True, interval_s=0.0, control=None) as going:
        assert going.await_termination(120)
    return read, sink.table().to_pylist()


def _files(folder: Path, *tables: pa.Table) -> Path:
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=3)
    return folder


def test_tasks_read_plain_scans(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [
        pa.table(
            {
                "n": pa.array([*range(8), None], pa.int32()),
                "s": ["ä", "", None, *"abcdef"],
                "t": pa.array([NOON] * 9, pa.timestamp("us", "UTC")),
            }
        )
        for _ in range(2)
    ]
    stream = _stream(spark, _files(tmp_path / "a b%c", *tables))
    named = stream.select("s", stream.n.alias("m"), "t").withWatermark("t", "1 second")
    read, rows = _kept(spark, monkeypatch, named)
    assert read == [True, True]
    wanted = [row for table in tables for row in table.to_pylist()]
    wanted = [{"s": row["s"], "m": row["n"], "t": row["t"]} for row in wanted]
    assert sorted(rows, key=str) == sorted(wanted, key=str)


def test_what_spark_has_to_do_is_left_to_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _files(tmp_path / "in", pa.table({"n": [1, 2, 3]}))
    read, rows = _kept(
        spark, monkeypatch, _stream(spark, folder).where("n > 1").selectExpr("n + 1 m")
    )
    assert (read, rows) == ([False], [{"m": 3}, {"m": 4}])
    # A file of the same stream that needs Spark's conversions, and one that does not.
    pq.write_table(pa.table({"n": pa.array([7], pa.int32())}), folder / "1.parquet")
    stream = spark.readStream.schema("n long").parquet(str(folder))
    read, rows = _kept(spark, monkeypatch, stream)
    assert read == [False]
    assert sorted(row["n"] for row in rows) == [1, 2, 3, 7]


def test_several_plain_scans_are_told_apart(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = _stream(spark, _files(tmp_path / "a", *[pa.table({"n": [1, 2]})] * 2))
    b = _stream(spark, _files(tmp_path / "b", pa.table({"n": [30]})))
    read, rows = _kept(spark, monkeypatch, a, b)
    # In the second batch there is nothing of the second stream.
    assert read == [True, True]
    assert sorted(row["n"] for row in rows) == [1, 1, 2, 2, 30]
