"""Segments of state as files in a folder: of a node, or of a checkpoint that all nodes reach.

The file of a segment is ``<root>/<operator>/<instance>/segment-<first>-<last>.arrow``; what it
holds is told in `penstock.state.versions`. A file is either complete or not there.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.ipc

from penstock.state.files.hashes import hash_path, map_hashes, new_hash_file
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

    def folder(self, operator: str, instance: int) -> Path:
        """Return the folder of an instance."""
        return Path(self.root) / quote(operator, safe="") / str(instance)

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
                state = self.map(by, path)
            elif segment.whole:
                state = KeyedTable.opened(by, rows)
            else:
                state = state.put(rows) if rows.num_columns else state
        return state

    @staticmethod
    def map(by: tuple[str, ...], path: Path) -> KeyedTable:
        """Use a segment with all rows from its file, without loading it into memory.

        Its hashes are mapped, too, from a file that is made where it is missing.
        """
        rows = read_rows(path)
        beside, count = hash_path(path), int(rows.num_rows)
        hashes = map_hashes(beside, count) if count else None
        if hashes is not None:
            return KeyedTable(by, SortedRows(rows, hashes), (), count)
        state = KeyedTable.opened(by, rows)
        if state.base.rows is rows:
            with new_hash_file(beside) as out:
                out.write(state.base.hashes)
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
        if isinstance(rows, KeyedTable):
            path.parent.mkdir(parents=True, exist_ok=True)
            hash_path(path).unlink(missing_ok=True)
            with new_hash_file(hash_path(path)) as beside:
                write_file(path, lambda out: _write_batches(out, rows, beside))
            return _mapped(path)
        if rows.nbytes < MAPPED_BYTES:
            content = _packed(rows)
            self.write_bytes(operator, instance, segment, content)
            return content
        hash_path(path).unlink(missing_ok=True)
        write_file(path, lambda out: _write_table(out, rows))
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
        write_file(path, lambda out: [out.write(part) for part in parts])
        return path.stat().st_size

    def take(self, operator: str, instance: int, segment: Segment, other: LocalSegments) -> None:
        """Move a segment here from another folder of the same disk."""
        path = self.path(operator, instance, segment)
        path.parent.mkdir(parents=True, exist_ok=True)
        hash_path(path).unlink(missing_ok=True)
        other.path(operator, instance, segment).replace(path)

    def size(self, operator: str, instance: int, segment: Segment) -> int | None:
        """Return the size of a segment in bytes; None when it is missing."""
        try:
            return self.path(operator, instance, segment).stat().st_size
        except FileNotFoundError:
            return None

    def read_bytes(self, operator: str, instance: int, segment: Segment) -> memoryview:
        """Map the file of a segment."""
        return memoryview(_mapped(self.path(operator, instance, segment)))

    def forget(self, operator: str, instance: int, committed: int) -> None:
        """Remove the segments that a committed version and later ones do not need."""
        for segment in removable(self.segments(operator, instance), committed):
            path = self.path(operator, instance, segment)
            hash_path(path).unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def forget_instance(self, operator: str, instance: int) -> None:
        """Remove all segments of an instance."""
        shutil.rmtree(self.folder(operator, instance), ignore_errors=True)


def read_rows(path: Path) -> pa.Table:
    """Map the rows of a segment's file.

    Raises
    ------
    StateLost
        When the file is missing or damaged.
    """
    try:
        with pa.memory_map(str(path), "rb") as data:
            return pa.ipc.open_file(data).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise StateLost(f"state file {path} cannot be read: {error}") from error


def write_file(path: Path, write: Callable[[Any], object]) -> None:
    """Make a file that is either complete or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with pa.OSFile(str(partial), "wb") as out:
            write(out)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _packed(rows: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    _write_table(out, rows)
    return out.getvalue()


def _mapped(path: Path) -> pa.Buffer:
    with pa.memory_map(str(path), "rb") as data:
        return data.read_buffer()


def _write_table(out: Any, rows: pa.Table) -> None:
    with pa.ipc.new_file(out, rows.schema) as writer:
        writer.write_table(rows)


def _write_batches(out: Any, state: KeyedTable, beside: Any) -> None:
    """Write the rows of a state to one file, and their hashes to another."""
    writer = None
    for batch, part in state.chunks():
        if writer is None:
            writer = pa.ipc.new_file(out, batch.schema)
        writer.write_batch(batch)
        beside.write(part)
    if writer is None:
        writer = pa.ipc.new_file(out, pa.schema([]))
    writer.close()
