"""Segments of state as files in a folder: of a node, or of a checkpoint that all nodes reach.

The file of a segment is ``<root>/<operator>/<instance>/segment-<first>-<last>.arrow``; what it
holds is told in `penstock.state.versions`. A file is either complete or not there, and ends with
checksums that are verified before its rows are used (`penstock.state.files.checksum`). The hashes
of a segment that is mapped are in a file beside it, so that they need no memory either.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from penstock.common.key_hashing import HashArray
from penstock.state.files.checksum import ChecksumWriter, Damaged, content_bytes, verify
from penstock.state.files.filesystem import folder_name, make_folder, write_file
from penstock.state.sorted_rows import SortedRows
from penstock.state.table import KeyedTable, changes, last_changes
from penstock.state.versions import ChainBroken, Segment, StateLost, chain, removable

#: A segment of at least this many bytes is mapped after it was written, not kept in memory.
MAPPED_BYTES = 4_000_000

_NAME = re.compile(r"segment-(\d+)-(\d+)\.arrow")


@dataclass(frozen=True)
class LocalSegments:
    """The segments of one pipeline in one folder.

    Parameters
    ----------
    root : str
    sync : bool
        Flush files to the disk before a call returns. A checkpoint needs that.

    Examples
    --------
    >>> import tempfile
    >>> files = LocalSegments(tempfile.mkdtemp())
    >>> _ = files.write("count", 0, Segment(0, 0), pa.table({"k": ["a"], "n": [1]}))
    >>> _ = files.write("count", 0, Segment(1, 1), pa.table({"k": ["a"], "n": [2]}))
    >>> files.load("count", 0, ("k",), 1).rows().to_pylist()
    [{'k': 'a', 'n': 2}]
    """

    root: str
    sync: bool = False

    def folder(self, operator: str, instance: int) -> Path:
        """Return the folder of an instance."""
        return Path(self.root) / folder_name(operator) / str(instance)

    def path(self, operator: str, instance: int, segment: Segment) -> Path:
        """Return the file of a segment."""
        return self.folder(operator, instance) / f"segment-{segment}.arrow"

    def segments(self, operator: str, instance: int) -> list[Segment]:
        """List the segments of an instance."""
        folder = self.folder(operator, instance)
        if not folder.is_dir():
            return []
        found = (_NAME.fullmatch(path.name) for path in folder.iterdir())
        return [Segment(int(m[1]), int(m[2])) for m in found if m]

    def chain(self, operator: str, instance: int, version: int) -> tuple[Segment, ...]:
        """Find the segments that make up the state at a version, the newest first.

        Raises
        ------
        StateLost
            When one of them is missing.
        """
        try:
            return chain(self.segments(operator, instance), version)
        except ChainBroken as error:
            where = self.folder(operator, instance)
            raise StateLost(f"{operator}[{instance}]: {error}, in {where}") from error

    def load(
        self, operator: str, instance: int, by: tuple[str, ...], version: int, mapped_from: int = 0
    ) -> KeyedTable:
        """Load the state of one instance at a version; -1 is before the first.

        Parameters
        ----------
        mapped_from : int
            Size in bytes from which a segment with all rows is mapped, not loaded; 0 is never.
        """
        state = KeyedTable(by)
        for segment in reversed(self.chain(operator, instance, version)):
            path = self.path(operator, instance, segment)
            rows = read_rows(path)
            if segment.whole and 0 < mapped_from < path.stat().st_size:
                state = self._with_hashes(by, path, rows)
            elif segment.whole:
                state = KeyedTable.opened(by, rows)
            else:
                state = state.put(rows) if rows.num_columns else state
        return state

    @classmethod
    def map(cls, by: tuple[str, ...], path: Path) -> KeyedTable:
        """Use the rows of a segment that was just written from its file, without loading them."""
        return cls._with_hashes(by, path, read_rows(path, written=True))

    @staticmethod
    def _with_hashes(by: tuple[str, ...], path: Path, rows: pa.Table) -> KeyedTable:
        """Use rows of a file with their hashes of another, which is made where it is missing."""
        beside, count = hash_path(path), int(rows.num_rows)
        hashes = map_hashes(beside, count) if count else None
        if hashes is not None:
            return KeyedTable(by, SortedRows(rows, hashes), (), count)
        state = KeyedTable.opened(by, rows)
        if state.base.rows is rows:
            write_hashes(beside, lambda out: out.write(state.base.hashes))
            hashes = map_hashes(beside, count)
            if hashes is not None:
                state = replace(state, base=SortedRows(rows, hashes))
        return state

    def merged(
        self,
        operator: str,
        instance: int,
        by: tuple[str, ...],
        segments: Iterable[Segment],
        last: pa.Table,
    ) -> pa.Table:
        """Merge the changes of several segments, the newest first, and those of a table after them.

        Returns
        -------
        Table
            The last row of every key.
        """
        older = [read_rows(self.path(operator, instance, segment)) for segment in segments]
        parts = [rows for rows in (*reversed(older), last) if rows.num_columns]
        return last_changes(changes(parts), by)

    def write(
        self, operator: str, instance: int, segment: Segment, rows: pa.Table | KeyedTable
    ) -> pa.Buffer:
        """Write a segment, and return the bytes of its file."""
        path = self.path(operator, instance, segment)
        if isinstance(rows, pa.Table) and rows.nbytes < MAPPED_BYTES:
            content = _packed(rows)
            self.write_bytes(operator, instance, segment, content)
            return content
        hash_path(path).unlink(missing_ok=True)
        if isinstance(rows, KeyedTable):
            state = rows

            def both(beside: Any) -> None:
                write_file(path, lambda out: _write_batches(out, state, beside), sync=self.sync)

            write_hashes(hash_path(path), both)
        else:
            write_file(path, lambda out: _write_table(out, rows), sync=self.sync)
        return _mapped(path)

    def write_bytes(self, operator: str, instance: int, segment: Segment, content: Any) -> None:
        """Write the file of a segment that was read elsewhere."""
        self.write_parts(operator, instance, segment, [content])

    def write_parts(
        self, operator: str, instance: int, segment: Segment, parts: Iterable[Any]
    ) -> int:
        """Write the file of a segment that comes in parts; return its size in bytes."""
        path = self.path(operator, instance, segment)
        hash_path(path).unlink(missing_ok=True)
        write_file(path, lambda out: [out.write(part) for part in parts], sync=self.sync)
        return path.stat().st_size

    def take(self, operator: str, instance: int, segment: Segment, other: LocalSegments) -> None:
        """Move a segment here from another folder of the same disk."""
        path = self.path(operator, instance, segment)
        make_folder(path.parent, sync=self.sync)
        hash_path(path).unlink(missing_ok=True)
        other.path(operator, instance, segment).replace(path)

    def size(self, operator: str, instance: int, segment: Segment) -> int | None:
        """Return the size of a segment in bytes; None when it is missing."""
        try:
            return self.path(operator, instance, segment).stat().st_size
        except FileNotFoundError:
            return None

    def read_bytes(self, operator: str, instance: int, segment: Segment) -> memoryview:
        """Map the file of a segment, and verify it.

        Raises
        ------
        StateLost
            When it is missing or damaged.
        """
        return memoryview(_verified(self.path(operator, instance, segment)))

    def set_aside_damaged(self, operator: str, instance: int) -> None:
        """Rename the files of an instance that are damaged, so that they are not found any more."""
        for segment in self.segments(operator, instance):
            path = self.path(operator, instance, segment)
            try:
                _verified(path)
            except StateLost:
                path.replace(path.with_suffix(".damaged"))

    def forget(self, operator: str, instance: int, committed: int) -> None:
        """Remove the segments that a committed version and later ones do not need."""
        for segment in removable(self.segments(operator, instance), committed):
            path = self.path(operator, instance, segment)
            hash_path(path).unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def forget_instance(self, operator: str, instance: int) -> None:
        """Remove all segments of an instance."""
        shutil.rmtree(self.folder(operator, instance), ignore_errors=True)


def read_rows(path: Path, *, written: bool = False) -> pa.Table:
    """Map the rows of a segment's file, and verify them.

    Parameters
    ----------
    written : bool
        The file was just written by this process: it is not read to verify it.

    Raises
    ------
    StateLost
        When the file is missing or damaged.
    """
    content = _mapped(path) if written else _verified(path)
    rows = content.slice(0, content_bytes(memoryview(content)))
    return pa.ipc.open_file(pa.BufferReader(rows)).read_all()


def _verified(path: Path) -> pa.Buffer:
    try:
        content = _mapped(path)
        verify(content)
    except (OSError, pa.ArrowInvalid) as error:
        raise StateLost(f"state file {path} cannot be read: {error}") from error
    except Damaged as error:
        raise StateLost(f"state file {path} is {error}") from error
    return content


def _packed(rows: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    _write_table(out, rows)
    return out.getvalue()


def _mapped(path: Path) -> pa.Buffer:
    with pa.memory_map(str(path), "rb") as data:
        return data.read_buffer()


def _write_table(out: Any, rows: pa.Table) -> None:
    checked = ChecksumWriter(out)
    with pa.ipc.new_file(checked, rows.schema) as writer:
        writer.write_table(rows)
    checked.finish()


def _write_batches(out: IO[bytes], state: KeyedTable, beside: Any) -> None:
    """Write the rows of a state to one file, and their hashes to another."""
    checked = ChecksumWriter(out)
    writer = None
    for batch, part in state.chunks():
        if writer is None:
            writer = pa.ipc.new_file(checked, batch.schema)
        writer.write_batch(batch)
        beside.write(part)
    if writer is None:
        writer = pa.ipc.new_file(checked, pa.schema([]))
    writer.close()
    checked.finish()


def hash_path(segment: Path) -> Path:
    """Name the file of hashes that belongs to a segment's file."""
    return segment.with_suffix(".hashes")


def write_hashes(path: Path, write: Callable[[Any], object]) -> None:
    """Write a file of hashes; `write` gets a file that takes arrays.

    It is not flushed to the disk: where it is missing or damaged, it is made again.
    """

    def all_of_it(out: Any) -> None:
        writer = ChecksumWriter(out)
        write(writer)
        writer.finish()

    write_file(path, all_of_it)


def map_hashes(path: Path, count: int) -> HashArray | None:
    """Map a file of hashes; None when it is missing or damaged, or does not have so many."""
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")
        if verify(data.data) != count * 8:
            return None
    except (FileNotFoundError, ValueError, Damaged):
        # An empty file cannot be mapped, which is a ValueError.
        return None
    return np.asarray(data[: count * 8].view(np.uint64))
