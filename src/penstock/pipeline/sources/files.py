"""Files as a stream: their rows in order, at a chosen speed, up to the end."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.common.keywords import class_keywords
from penstock.model import InvalidValue, NotAllowed, PenstockError
from penstock.pipeline.sources.generator import STAMP
from penstock.pipeline.sources.memory import check_range
from penstock.pipeline.sources.rates import Profile
from penstock.pipeline.sources.readers import Csv, Parquet, Reader

_COMPRESSED = (".gz", ".bz2", ".zip", ".zst", ".xz", ".lz4")

_STAMP = pa.field(STAMP, pa.int64())


@dataclass(frozen=True)
class RowPosition:
    """Where in a file a known row begins.

    Parameters
    ----------
    file : int
        Number of the file.
    row : int
        Position in the stream.
    offset : int
        Byte for text, row group for Parquet.
    """

    file: int
    row: int
    offset: int


@class_keywords
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
    >>> from penstock.pipeline import TextLines
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
        return self.reader.schema.append(_STAMP)

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
        # Files may have a column of that name: the stamp is the last one.
        return table.append_column(_STAMP, pa.array(self._profile.stamps_us(start, stop)))

    def _part(self, number: int) -> pa.Table:
        marks = self._index[0]
        mark = marks[number]
        following = marks[number + 1] if number + 1 < len(marks) else None
        until = following.offset if following is not None and following.file == mark.file else None
        path = self.files[mark.file]
        about = Path(path).stat()
        return _cached_part(self.reader, path, mark.offset, until, about.st_mtime_ns, about.st_size)

    @cached_property
    def _index(self) -> tuple[tuple[RowPosition, ...], int]:
        """Marks of all files, and the number of rows."""
        found: list[RowPosition] = []
        total = 0
        for number, path in enumerate(self.files):
            marks, rows = self.reader.marks(path)
            found.extend(RowPosition(number, total + row, offset) for row, offset in marks)
            total += rows
        return tuple(found), total

    @property
    def _profile(self) -> Profile:
        return Profile.of(self.speed)


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
    reader: Reader, path: str, offset: int, until: int | None, changed_ns: int, size: int
) -> pa.Table:
    # A batch often ends inside a part, and the next one begins there.
    return reader.part(path, offset, until)


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
            raise NotAllowed(
                f"Replay cannot read the compressed file {file}; unpack it, or give a pattern that "
                "leaves it out"
            )
    return tuple(files)
