"""Parquet files of a streaming DataFrame, read by Arrow in the tasks that work on their rows.

Handing rows from Spark to Python costs more than many a query does with them. Where a stream only
reads Parquet files, and picks and renames their columns, Spark's query still lists the files, cuts
them into batches and keeps the offsets; the rows of a batch are read where they are used.

This is done only where Arrow reads the very values that Spark would; `FileScan` looks at the plan
of each batch, and at the footer of each file. Everything else is left to Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    AtomicType,
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.engine.batch import BatchSpec
from penstock.engine.job_graph import JobGraph
from penstock.pipeline.steps import Step
from penstock.runtimes.spark.file_rows import FileRows, Part
from penstock.runtimes.spark.jvm import jvm_of

#: Files of a batch whose footers the driver reads; more are left to Spark's tasks.
MOST_FILES = 256

#: Options of a stream of files that do not change what is read of a file.
HARMLESS = frozenset(
    {
        *("path", "basepath", "maxfilespertrigger", "maxbytespertrigger", "latestfirst"),
        *("maxfileage", "filenameonly", "recursivefilelookup", "pathglobfilter", "cleansource"),
        *("sourcearchivedir", "maxcachedfiles", "discardcachedinputratio", "__globpaths__"),
    }
)

#: Settings of a session, and the values with which Spark reads a file as Arrow does.
PLAIN_SETTINGS = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}

#: Keys of a footer's metadata: who wrote dates by the Julian calendar.
_VERSION, _LEGACY = b"org.apache.spark.version", b"org.apache.spark.legacyDateTime"


@dataclass(frozen=True)
class ScannedFile:
    """A file of a batch.

    Parameters
    ----------
    path : str
    rows : tuple of int
        Of each row group.
    """

    path: str
    rows: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Scanned:
    """What a batch reads of one source.

    Parameters
    ----------
    columns : tuple of str
        Of the files, in the order of the schema.
    schema : Schema
    files : tuple of ScannedFile
    """

    columns: tuple[str, ...]
    schema: pa.Schema
    files: tuple[ScannedFile, ...]

    def parts(self, instances: int) -> tuple[tuple[Part, ...], ...]:
        """Give each instance row groups that follow each other, with about as many rows."""
        total = sum(sum(file.rows) for file in self.files)
        made: list[list[Part]] = [[] for _ in range(instances)]
        before = 0
        for file in self.files:
            groups: dict[int, list[int]] = {}
            for group, rows in enumerate(file.rows):
                if rows:
                    at = (before + rows // 2) * instances // total
                    groups.setdefault(at, []).append(group)
                before += rows
            for at, mine in groups.items():
                made[at].append(Part(file.path, tuple(mine), self.columns))
        return tuple(map(tuple, made))


def file_rows(found: Mapping[str, Scanned], spec: BatchSpec, job_graph: JobGraph) -> FileRows:
    """Give every instance of a source its part of the files."""
    instances = {v.head: spec.parallelism[v.name] for v in job_graph.vertices}
    parts = {step: one.parts(instances[step]) for step, one in found.items()}
    return FileRows(parts, {step: one.schema for step, one in found.items()})


@dataclass(eq=False)
class FileScan:
    """Looks at each batch of a streaming query, whether tasks may read its files themselves.

    Parameters
    ----------
    steps : sequence of Step
        Sources that are streaming DataFrames, in the order of the query's plan.
    """

    steps: Sequence[Step]

    def of(self, query: Any, rows: DataFrame) -> dict[str, Scanned] | None:
        """Return what a batch reads by source step, or None if Spark has to read it.

        Parameters
        ----------
        query : StreamingQuery
            The query whose batch it is.
        rows : DataFrame
            The batch, in the session of the query.
        """
        spark: Any = rows.sparkSession
        text = jvm_of(spark.sparkContext).scan(query._jsq.streamingQuery(), len(self.steps))
        schemas = self._schemas(spark) if text else None
        if schemas is None:
            return None
        found: dict[str, Scanned] = {}
        for step, told in zip(self.steps, text.split("\f"), strict=True):
            one = _scanned(told, schemas[step.name])
            if one is None:
                return None
            found[step.name] = one
        return found

    def _schemas(self, spark: Any) -> dict[str, pa.Schema] | None:
        """Return the rows of each source as Spark hands them over; None if that is special."""
        for name, plain in PLAIN_SETTINGS.items():
            if str(spark.conf.get(name)).lower() != plain.lower():
                return None
        zone = str(spark.conf.get("spark.sql.session.timeZone"))
        found = {step.name: _schema(step.source.schema, zone) for step in self.steps}
        plain_ones = {name: schema for name, schema in found.items() if schema is not None}
        return plain_ones if len(plain_ones) == len(found) else None


def _scanned(told: str, schema: pa.Schema) -> Scanned | None:
    """Read what `Scan.java` tells of a source, and look at its files."""
    lines = [line.partition("\t") for line in told.splitlines()]
    said = {kind: [value for k, _, value in lines if k == kind] for kind in "cof"}
    if len(said["f"]) > MOST_FILES or not {key.lower() for key in said["o"]} <= HARMLESS:
        return None
    files = []
    for uri in said["f"]:
        path = _local(uri)
        file = None if path is None else footer(path, said["c"], schema)
        if file is None:
            return None
        files.append(file)
    return Scanned(tuple(said["c"]), schema, tuple(files))


def _schema(schema: StructType, zone: str) -> pa.Schema | None:
    """Return the columns as Spark hands them over; None if one of them is not read alike."""
    plain = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)
    made = []
    for field in schema:
        kind = field.dataType
        simple = isinstance(kind, plain) or kind.typeName() in ("boolean", "binary")
        if not (isinstance(kind, AtomicType) and simple):
            return None
        made.append(pa.field(field.name, to_arrow_type(kind, timezone=zone)))
    names = [field.name for field in made]
    return pa.schema(made) if made and len(set(names)) == len(names) else None


def _local(uri: str) -> str | None:
    """Return the path of a file on this machine."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc or parts.query or parts.fragment:
        return None
    return unquote(parts.path)


def footer(path: str, columns: Sequence[str], schema: pa.Schema) -> ScannedFile | None:
    """Look at a file; None if Arrow would not read what Spark does."""
    try:
        with pq.ParquetFile(Path(path)) as file:
            there, metadata = file.schema_arrow, file.metadata
    except (OSError, pa.ArrowInvalid):
        # Spark tells of it as it always does.
        return None
    folded = [name.lower() for name in there.names]
    for column, wanted in zip(columns, schema, strict=True):
        # Spark does not look at the case of names, and refuses two that differ in nothing else.
        if folded.count(column.lower()) != 1 or column not in there.names:
            return None
        if not _alike(there.field(column).type, wanted.type):
            return None
    notes = metadata.metadata or {}
    if any(pa.types.is_temporal(field.type) for field in schema) and (
        _LEGACY in notes or notes.get(_VERSION, b"3").split(b".")[0] in (b"1", b"2")
    ):
        return None
    groups = range(metadata.num_row_groups)
    return ScannedFile(path, tuple(metadata.row_group(i).num_rows for i in groups))


def _alike(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column of a file has the values that Spark would read."""
    if pa.types.is_timestamp(there) and pa.types.is_timestamp(wanted):
        # A moment is the same in every zone; a time without a zone is another thing.
        return bool(there.unit == "us" and (there.tz is None) == (wanted.tz is None))
    if pa.types.is_dictionary(there):
        there = there.value_type
    if pa.types.is_large_string(there):
        there = pa.string()
    return bool(there == wanted)
