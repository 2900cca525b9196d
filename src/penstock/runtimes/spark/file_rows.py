"""Rows of a batch that a task reads from Parquet files itself; see `file_scan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True)
class Part:
    """Row groups of one file that one instance reads.

    Parameters
    ----------
    path : str
    groups : tuple of int
    columns : tuple of str
        As the file has them.
    """

    path: str
    groups: tuple[int, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class FileRows:
    """The rows of a batch, as files.

    Parameters
    ----------
    parts : mapping of str to tuple of tuple of Part
        By source step and instance.
    schemas : mapping of str to Schema
        By source step: the rows as Spark would hand them over.
    """

    parts: Mapping[str, tuple[tuple[Part, ...], ...]]
    schemas: Mapping[str, pa.Schema]

    def of(self, step: str, instance: int) -> list[tuple[str, pa.Table]]:
        """Read the rows of an instance of a source step."""
        mine = self.parts.get(step, ())[instance : instance + 1]
        tables = [self._read(part, self.schemas[step]) for parts in mine for part in parts]
        return [(step, pa.concat_tables(tables))] if tables else []

    def _read(self, part: Part, schema: pa.Schema) -> pa.Table:
        with pq.ParquetFile(part.path) as file:
            wanted = list(dict.fromkeys(part.columns))
            table = file.read_row_groups(list(part.groups), wanted, use_threads=False)
        return table.select(list(part.columns)).rename_columns(schema.names).cast(schema)
