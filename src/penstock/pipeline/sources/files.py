"""Files as a stream: their rows in order, at a chosen speed, up to the end."""

from __future__ import annotations

import glob
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from penstock.model import InvalidValue, PenstockError
from penstock.pipeline.sources.generator import STAMP
from penstock.pipeline.sources.memory import check_range
from penstock.pipeline.sources.rates import Profile

#: Lines between two entries of a file's index: what is read at least to get at one line.
LINES_PER_MARK = 4096

#: Bytes that are scanned for line ends at a time.
SCAN_BYTES = 1 << 22

_COMPRESSED = (".gz", ".bz2", ".zip", ".zst", ".xz", ".lz4")


@dataclass(frozen=True)
class RowPosition:
    """A place in a file where a known row begins.

    Parameters
    ----------
    file : int
        Number of the file.
    row : int
        Position in the stream.
    place : int
        Byte for text, row group for Parquet.
    """

    file: int
    row: int
    place: int


class Reader(Hashable, Protocol):
    """A way to read one kind of file: a frozen value, small when pickled."""

    @property
    def schema(self) -> pa.Schema:
        """Columns that it gives."""
        ...

    def marks(self, path: str) -> tuple[list[tuple[int, int]], int]:
        """Return (row, place) at the starts of the parts of a file, and its number of rows.

        Raises
        ------
        InvalidValue
            When the file is not of this kind.
        """
        ...

    def part(self, path: str, place: int, until: int | None) -> pa.Table:
        """Read from one mark up to the next, or to the end of the file."""
        ...


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

    def part(self, path: str, place: int, until: int | None) -> pa.Table:
        """Read lines."""
        text = _bytes(path, place, until).decode("utf-8", errors="replace")
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
        return pa.table([pa.array([line.removesuffix("\r") for line in lines])], schema=self.schema)


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

    def part(self, path: str, place: int, until: int | None) -> pa.Table:
        """Read rows."""
        return self._parse(_bytes(path, place, until), path, self._columns(path)[0])

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

    def part(self, path: str, place: int, until: int | None) -> pa.Table:
        """Read row groups."""
        with pq.ParquetFile(path) as file:
            present = [name for name in self.schema.names if name in file.schema_arrow.names]
            last = file.num_row_groups if until is None else until
            table = file.read_row_groups(
                list(range(place, last)), columns=present, use_threads=False
            )
        columns = [
            table.column(item.name).cast(item.type)
            if item.name in present
            else pa.nulls(table.num_rows, item.type)
            for item in self.schema
        ]
        return pa.table(columns, schema=self.schema)


@dataclass(frozen=True, eq=False)
class Replay:
    r"""The rows of files, one file after the other by name, at a chosen speed.

    The files are gone through once to find where rows begin; that index, some bytes for every few
    thousand rows, travels with the source to the workers, which must reach the files under the same
    path. Compressed text is not read.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = Path(folder.name, "poem.txt").write_text("to be\nor not\nto be\n")
    >>> poem = Replay(folder.name + "/*.txt", TextLines(), 2)
    >>> poem.end, poem.available(1.0), poem.read(1, 3).to_pylist()
    (3, 2, [{'line': 'or not', 'stamp_us': 1000000}, {'line': 'to be', 'stamp_us': 1500000}])
    >>> folder.cleanup()

    Parameters
    ----------
    path : str or Path
        A file, a folder, or a pattern such as ``data/2024-*.csv``.
    reader : Reader
    speed : Profile, str or float
        Rows a second over time; see `Profile`.
    rows : int, optional
        Where to end, if before the end of the files.
    """

    path: str | Path
    reader: Reader
    speed: Profile | str | float = 1000.0
    rows: int | None = None
    stamp: ClassVar[str] = STAMP

    def __post_init__(self) -> None:
        object.__setattr__(self, "speed", Profile.of(self.speed))
        if self.rows is not None and self.rows < 0:
            raise InvalidValue("rows", "Replay", "a whole number of at least 0", self.rows)

    def checked(self) -> Replay:
        """Go through the files now, so that a wrong one is told before anything runs."""
        _ = self._index
        return self

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the reader, and the stamp."""
        return self.reader.schema.append(pa.field(STAMP, pa.int64()))

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The files, in order."""
        return _files(self.path)

    @property
    def end(self) -> int:
        """Number of rows."""
        ends = (self.rows, self._profile.total, self._index[1])
        return min(end for end in ends if end is not None)

    @property
    def rate_per_s(self) -> float:
        """Rows a second over the first minute."""
        return self._profile.mean_rate(60.0)

    def available(self, elapsed_s: float) -> int:
        """Rows that are due after so many seconds."""
        return min(self._profile.position(elapsed_s), self.end)

    def read(self, start: int, stop: int) -> pa.Table:
        """Read rows from position `start` up to `stop`."""
        check_range(start, stop, self.end, "Replay")
        if start == stop:
            return self.schema.empty_table()
        marks = self._index[0]
        rows = [mark.row for mark in marks]
        first = int(np.searchsorted(rows, start, side="right")) - 1
        last = int(np.searchsorted(rows, stop, side="left"))
        parts = [self._part(number) for number in range(first, last)]
        begin = start - marks[first].row
        table = pa.concat_tables(parts).slice(begin, stop - start)
        if table.num_rows != stop - start:
            names = ", ".join(sorted({self.files[mark.file] for mark in marks[first:last]}))
            raise PenstockError(f"{names} changed while being replayed: rows are missing")
        return table.append_column(
            self.schema.field(STAMP), pa.array(self._profile.stamps_us(start, stop))
        )

    def _part(self, number: int) -> pa.Table:
        marks = self._index[0]
        mark = marks[number]
        following = marks[number + 1] if number + 1 < len(marks) else None
        until = following.place if following is not None and following.file == mark.file else None
        path = self.files[mark.file]
        about = Path(path).stat()
        return _cached_part(self.reader, path, mark.place, until, about.st_mtime_ns, about.st_size)

    @cached_property
    def _index(self) -> tuple[tuple[RowPosition, ...], int]:
        """Marks of all files, and the number of rows."""
        found: list[RowPosition] = []
        total = 0
        for number, path in enumerate(self.files):
            marks, rows = self.reader.marks(path)
            found.extend(RowPosition(number, total + row, place) for row, place in marks)
            total += rows
        return tuple(found), total

    @property
    def _profile(self) -> Profile:
        assert isinstance(self.speed, Profile)
        return self.speed


def reader_for(
    path: str | Path, schema: pa.Schema, required: Sequence[str] = (), *, header: bool = True
) -> Csv | Parquet:
    """Choose a reader of rows by the name of the first file: Parquet, tab separated, or CSV."""
    suffix = Path(_files(path)[0]).suffix.lower()
    if suffix in (".parquet", ".pq"):
        return Parquet(schema, tuple(required))
    return Csv(schema, tuple(required), header, "\t" if suffix == ".tsv" else ",")


@lru_cache(maxsize=4)
def _cached_part(
    reader: Reader, path: str, place: int, until: int | None, changed_ns: int, size: int
) -> pa.Table:
    # A batch often ends inside a part, and the next one begins there.
    return reader.part(path, place, until)


def _files(path: str | Path) -> tuple[str, ...]:
    where = Path(path)
    if where.is_dir():
        files = sorted(str(p) for p in where.iterdir() if p.is_file() and p.name[0] not in "._")
    elif where.is_file():
        files = [str(where)]
    else:
        files = sorted(p for p in glob.glob(str(path)) if Path(p).is_file())  # noqa: PTH207
    if not files:
        allowed = "a file, a folder with files, or a pattern that some files match"
        raise InvalidValue("path", "Replay", allowed, str(path))
    for file in files:
        if file.lower().endswith(_COMPRESSED):
            raise InvalidValue("path", "Replay", "of files that are not compressed", file)
    return tuple(files)


def _bytes(path: str, place: int, until: int | None) -> bytes:
    with Path(path).open("rb") as file:
        file.seek(place)
        return file.read() if until is None else file.read(until - place)


def _line_marks(path: str, begin: int) -> tuple[list[tuple[int, int]], int]:
    """Row and byte of every so many lines, and the number of lines."""
    marks: list[tuple[int, int]] = []
    rows, place, last = 0, begin, b"\n"
    with Path(path).open("rb") as file:
        file.seek(begin)
        while block := file.read(SCAN_BYTES):
            if not marks:
                marks.append((0, begin))
            ends: Any = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
            # The line that begins after end number i of this block is row `rows + i + 1`.
            marks.extend(
                (rows + i + 1, place + int(ends[i]) + 1)
                for i in range(-(rows + 1) % LINES_PER_MARK, len(ends), LINES_PER_MARK)
            )
            rows += len(ends)
            place += len(block)
            last = block[-1:]
    if last != b"\n":
        rows += 1
    while marks and marks[-1][0] >= rows:
        marks.pop()
    return marks, rows
