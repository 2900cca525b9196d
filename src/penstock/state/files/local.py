"""State in files: the runs of every instance, in a folder of a node or in one that all share.

Files lie at ``<root>/<vertex>/<instance>/run-<first>-<last>.arrow``; see
`penstock.state.versions` for what they hold. A file is either whole or not there.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.ipc

from penstock.state import hash_file as hashes
from penstock.state.backup.catalog import ChainBroken, chain, unneeded
from penstock.state.table import KeyedTable, changes, latest
from penstock.state.versions import Segment, StateLost

#: Bytes of a run from which what was written is mapped, and not held in memory besides.
MAPPED_BYTES = 4_000_000

_NAME = re.compile(r"run-(\d+)-(\d+)\.arrow")


@dataclass(frozen=True)
class LocalSegments:
    """The state files of one pipeline in one place.

    Examples
    --------
    >>> import tempfile
    >>> log = LocalSegments(tempfile.mkdtemp())
    >>> _ = log.write("count", 0, Segment(0, 0), pa.table({"k": ["a"], "n": [1]}))
    >>> _ = log.write("count", 0, Segment(1, 1), pa.table({"k": ["a"], "n": [2]}))
    >>> log.load("count", 0, ("k",), 1).rows().to_pylist()
    [{'k': 'a', 'n': 2}]
    """

    root: str

    def folder(self, vertex: str, instance: int) -> Path:
        """Folder of an instance."""
        return Path(self.root) / quote(vertex, safe="") / str(instance)

    def path(self, vertex: str, instance: int, run: Segment) -> Path:
        """File of a run."""
        return self.folder(vertex, instance) / f"run-{run.first}-{run.last}.arrow"

    def runs(self, vertex: str, instance: int) -> list[Segment]:
        """List the runs that there are."""
        folder = self.folder(vertex, instance)
        if not folder.is_dir():
            return []
        found = (_NAME.fullmatch(path.name) for path in folder.iterdir())
        return [Segment(int(m[1]), int(m[2])) for m in found if m]

    def chain(self, vertex: str, instance: int, version: int) -> tuple[Segment, ...]:
        """Find the runs that make up a version.

        Raises
        ------
        StateLost
            When one of them is not here.
        """
        try:
            return chain(self.runs(vertex, instance), version)
        except ChainBroken as error:
            where = self.folder(vertex, instance)
            raise StateLost(f"{vertex}[{instance}]: {error}, in {where}") from error

    def load(
        self, vertex: str, instance: int, by: tuple[str, ...], version: int, mapped_from: int = 0
    ) -> KeyedTable:
        """Read the state of one instance at a version; -1 is before the first.

        Parameters
        ----------
        mapped_from : int
            Bytes from which a run that holds everything is mapped instead of read; 0 is never.
        """
        state = KeyedTable(by)
        for run in reversed(self.chain(vertex, instance, version)):
            path = self.path(vertex, instance, run)
            rows = read(path)
            if run.whole and 0 < mapped_from < path.stat().st_size:
                state = KeyedTable.mapped(by, path)
            elif run.whole:
                state = KeyedTable.opened(by, rows)
            else:
                state = state.put(rows) if rows.num_columns else state
        return state

    def merged(
        self,
        vertex: str,
        instance: int,
        by: tuple[str, ...],
        runs: Iterable[Segment],
        last: pa.Table,
    ) -> pa.Table:
        """Merge what changed over several runs, the newest first, and in a table after them."""
        older = [read(self.path(vertex, instance, run)) for run in runs]
        parts = [rows for rows in (*reversed(older), last) if rows.num_columns]
        return latest(changes(parts), by)

    def write(
        self, vertex: str, instance: int, run: Segment, rows: pa.Table | KeyedTable
    ) -> pa.Buffer:
        """Write a run; return its bytes."""
        path = self.path(vertex, instance, run)
        if isinstance(rows, KeyedTable):
            path.parent.mkdir(parents=True, exist_ok=True)
            hashes.beside(path).unlink(missing_ok=True)
            with hashes.written(hashes.beside(path)) as beside:
                put(path, lambda out: _write_batches(out, rows, beside))
            return _mapped(path)
        if rows.nbytes < MAPPED_BYTES:
            content = packed(rows)
            self.write_bytes(vertex, instance, run, content)
            return content
        hashes.beside(path).unlink(missing_ok=True)
        put(path, lambda out: _write_table(out, rows))
        return _mapped(path)

    def write_bytes(self, vertex: str, instance: int, run: Segment, content: Any) -> None:
        """Write the bytes of a run."""
        self.write_parts(vertex, instance, run, [content])

    def write_parts(self, vertex: str, instance: int, run: Segment, parts: Iterable[Any]) -> int:
        """Write the bytes of a run one part after the other; return how many they are."""
        path = self.path(vertex, instance, run)
        hashes.beside(path).unlink(missing_ok=True)
        put(path, lambda out: [out.write(part) for part in parts])
        return path.stat().st_size

    def take(self, vertex: str, instance: int, run: Segment, other: LocalSegments) -> None:
        """Take over a run from another log on the same disk, which has it no more then."""
        path = self.path(vertex, instance, run)
        path.parent.mkdir(parents=True, exist_ok=True)
        hashes.beside(path).unlink(missing_ok=True)
        other.path(vertex, instance, run).replace(path)

    def size(self, vertex: str, instance: int, run: Segment) -> int | None:
        """Bytes of a run; None when it is not here."""
        try:
            return self.path(vertex, instance, run).stat().st_size
        except FileNotFoundError:
            return None

    def read_bytes(self, vertex: str, instance: int, run: Segment) -> memoryview:
        """Map the bytes of a run."""
        return memoryview(_mapped(self.path(vertex, instance, run)))

    def forget(self, vertex: str, instance: int, committed: int) -> None:
        """Remove the runs that a committed version and later ones do not need, if it is here."""
        for run in unneeded(self.runs(vertex, instance), committed):
            path = self.path(vertex, instance, run)
            hashes.beside(path).unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def forget_instance(self, vertex: str, instance: int) -> None:
        """Remove all runs of an instance."""
        shutil.rmtree(self.folder(vertex, instance), ignore_errors=True)


def packed(rows: pa.Table) -> pa.Buffer:
    """Bytes of a file of rows."""
    out = pa.BufferOutputStream()
    _write_table(out, rows)
    return out.getvalue()


def read(path: Path) -> pa.Table:
    """Rows of a file."""
    try:
        with pa.memory_map(str(path), "rb") as data:
            return pa.ipc.open_file(data).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise StateLost(f"state file {path} cannot be read: {error}") from error


def put(path: Path, write: Callable[[Any], object]) -> None:
    """Make a file that is either whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with pa.OSFile(str(partial), "wb") as out:
            write(out)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


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
