"""Readers of files: text, CSV, JSON, Parquet. Each finds where rows begin, and reads from there."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

from penstock.common.keywords import class_keywords
from penstock.model import InvalidValue

#: Lines between two entries of a file's index: what is read at least to get at one line.
LINES_PER_MARK = 4096

#: Bytes that are scanned for line ends at a time.
SCAN_BYTES = 1 << 22


class Reader(Hashable, Protocol):
    """A way to read one kind of file: a frozen value, small when pickled."""

    @property
    def schema(self) -> pa.Schema:
        """Columns that it gives."""
        ...

    def marks(self, path: str) -> tuple[list[tuple[int, int]], int]:
        """Return (row, offset) at the starts of the parts of a file, and its number of rows.

        Raises
        ------
        InvalidValue
            When the file is not of this kind.
        """
        ...

    def part(self, path: str, offset: int, until: int | None) -> pa.Table:
        """Read from one mark up to the next, or to the end of the file."""
        ...


@class_keywords
@dataclass(frozen=True)
class TextLines:
    """Lines of text in UTF-8, in one column; bytes that are not UTF-8 are replaced."""

    name: str = "line"

    @property
    def schema(self) -> pa.Schema:
        """One column."""
        return pa.schema([(self.name, pa.string())])

    def marks(self, path: str) -> tuple[list[tuple[int, int]], int]:
        """Find the lines."""
        return _line_marks(path, 0)

    def part(self, path: str, offset: int, until: int | None) -> pa.Table:
        """Read lines."""
        text = _bytes(path, offset, until).decode("utf-8", errors="replace")
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        return pa.table([pa.array([line.removesuffix("\r") for line in lines])], schema=self.schema)


@class_keywords
@dataclass(frozen=True)
class Csv:
    """Rows of CSV files; a quoted field must not hold a line break.

    Parameters
    ----------
    schema : pyarrow.Schema
        Columns that are given, with their types. An empty field is null, of text too.
    required : tuple of str
        Columns that a file must have; others are null where they are missing.
    header : bool
        Without a header the columns of the file are those of the schema, in its order.
    delimiter : str
    """

    schema: pa.Schema
    required: tuple[str, ...] = ()
    header: bool = True
    delimiter: str = ","

    def marks(self, path: str) -> tuple[list[tuple[int, int]], int]:
        """Find the rows, and check the header and the first of them."""
        names, begin = self._columns(path)
        missing = [name for name in self.required if name not in names]
        if missing:
            allowed = "a CSV file with the columns " + ", ".join(self.required)
            raise InvalidValue("path", "Csv", allowed, f"{path} without {', '.join(missing)}")
        marks, rows = _line_marks(path, begin)
        if rows:
            with Path(path).open("rb") as file:
                file.seek(begin)
                self._parse(file.readline(), path, names)
        return marks, rows

    def part(self, path: str, offset: int, until: int | None) -> pa.Table:
        """Read rows."""
        return self._parse(_bytes(path, offset, until), path, self._columns(path)[0])

    def _columns(self, path: str) -> tuple[list[str], int]:
        """Names of the file's columns, and the byte where its rows begin."""
        if not self.header:
            return list(self.schema.names), 0
        with Path(path).open("rb") as file:
            first = file.readline()
        if not first.strip():
            raise InvalidValue("path", "Csv", "a CSV file with a header", f"{path}, empty")
        names = first.decode("utf-8-sig", errors="replace").rstrip("\r\n").split(self.delimiter)
        return [name.strip().strip('"') for name in names], len(first)

    def _parse(self, content: bytes, path: str, names: list[str]) -> pa.Table:
        try:
            return pacsv.read_csv(
                pa.BufferReader(content),
                read_options=pacsv.ReadOptions(column_names=names, use_threads=False),
                parse_options=pacsv.ParseOptions(
                    delimiter=self.delimiter, ignore_empty_lines=False
                ),
                convert_options=pacsv.ConvertOptions(
                    column_types=self.schema,
                    include_columns=self.schema.names,
                    include_missing_columns=True,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    null_values=[""],
                ),
            )
        except pa.ArrowInvalid as error:
            columns = ", ".join(f"{item.name} {item.type}" for item in self.schema)
            raise InvalidValue(
                "path", "Csv", f"a CSV file with the columns {columns}", f"{path}: {error}"
            ) from None


@class_keywords
@dataclass(frozen=True)
class JsonLines:
    """Rows of files with one JSON object a line.

    Parameters
    ----------
    schema : pyarrow.Schema
        Columns that are given, with their types, nested ones too; other fields are left out.
        Timestamps are read from strings in ISO 8601.
    required : tuple of str
        Columns that the first row of a file must have; elsewhere what is missing is null.
    """

    schema: pa.Schema
    required: tuple[str, ...] = ()

    def marks(self, path: str) -> tuple[list[tuple[int, int]], int]:
        """Find the rows, and check the first of them."""
        marks, rows = _line_marks(path, 0)
        if rows:
            with Path(path).open("rb") as file:
                line = file.readline()
            self._parse(line, path)
            present = json.loads(line)
            missing = [name for name in self.required if name not in present]
            if missing:
                allowed = "a file of JSON objects with " + ", ".join(self.required)
                raise InvalidValue("path", "JsonLines", allowed, f"{path} without {missing[0]}")
        return marks, rows

    def part(self, path: str, offset: int, until: int | None) -> pa.Table:
        """Read rows."""
        return self._parse(_bytes(path, offset, until), path)

    def _parse(self, content: bytes, path: str) -> pa.Table:
        try:
            table = pajson.read_json(
                pa.BufferReader(content),
                read_options=pajson.ReadOptions(use_threads=False, block_size=len(content) + 1),
                parse_options=pajson.ParseOptions(
                    explicit_schema=self.schema, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowInvalid as error:
            columns = ", ".join(f"{item.name} {item.type}" for item in self.schema)
            allowed = f"a file with one JSON object a line, with {columns}"
            raise InvalidValue("path", "JsonLines", allowed, f"{path}: {error}") from None
        lines = content.count(b"\n") + (not content.endswith(b"\n"))
        if table.num_rows != lines:
            allowed = "a file with one JSON object a line, and no empty lines"
            got = f"{path}: {table.num_rows} objects in {lines} lines"
            raise InvalidValue("path", "JsonLines", allowed, got)
        return table.select(self.schema.names)


@class_keywords
@dataclass(frozen=True)
class Parquet:
    """Rows of Parquet files.

    Parameters
    ----------
    schema : pyarrow.Schema
        Columns that are given; other types are converted.
    required : tuple of str
        Columns that a file must have; others are null where they are missing.
    """

    schema: pa.Schema
    required: tuple[str, ...] = ()

    def marks(self, path: str) -> tuple[list[tuple[int, int]], int]:
        """Find the row groups, and check the columns."""
        try:
            file = pq.ParquetFile(path)
        except pa.ArrowInvalid as error:
            raise InvalidValue("path", "Parquet", "a Parquet file", f"{path}: {error}") from None
        with file:
            missing = [name for name in self.required if name not in file.schema_arrow.names]
            if missing:
                allowed = "a Parquet file with the columns " + ", ".join(self.required)
                raise InvalidValue("path", "Parquet", allowed, f"{path} without {missing}")
            counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        rows = np.cumsum([0, *counts]).tolist()
        return [(row, group) for group, row in enumerate(rows[:-1])], rows[-1]

    def part(self, path: str, offset: int, until: int | None) -> pa.Table:
        """Read row groups."""
        with pq.ParquetFile(path) as file:
            present = [name for name in self.schema.names if name in file.schema_arrow.names]
            last = file.num_row_groups if until is None else until
            table = file.read_row_groups(
                list(range(offset, last)), columns=present, use_threads=False
            )
        columns = [
            table.column(item.name).cast(item.type)
            if item.name in present
            else pa.nulls(table.num_rows, item.type)
            for item in self.schema
        ]
        return pa.table(columns, schema=self.schema)


def _bytes(path: str, offset: int, until: int | None) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(offset)
        return file.read() if until is None else file.read(until - offset)


def _line_marks(path: str, begin: int) -> tuple[list[tuple[int, int]], int]:
    """Row and byte of every so many lines, and the number of lines."""
    marks: list[tuple[int, int]] = []
    rows, offset, last = 0, begin, b"\n"
    with Path(path).open("rb") as file:
        file.seek(begin)
        while block := file.read(SCAN_BYTES):
            if not marks:
                marks.append((0, begin))
            ends: Any = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
            # The line that begins after end number i of this block is row `rows + i + 1`.
            marks.extend(
                (rows + i + 1, offset + int(ends[i]) + 1)
                for i in range(-(rows + 1) % LINES_PER_MARK, len(ends), LINES_PER_MARK)
            )
            rows += len(ends)
            offset += len(block)
            last = block[-1:]
    if last != b"\n":
        rows += 1
    while marks and marks[-1][0] >= rows:
        marks.pop()
    return marks, rows
