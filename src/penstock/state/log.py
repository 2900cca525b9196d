"""State on disk: a snapshot now and then, and what changed in every batch between.

Files lie at ``<root>/<vertex>/epoch=<n>/instance=<n>/{snapshot,delta}-<version>.arrow``. A version
is the number of the batch that made it. Files of a batch that was never committed are overwritten
when it runs again; whoever loads asks for a committed version and never sees them. An epoch begins
when the number of instances or their routing table changes; its instances read their keys from all
instances of the epoch before.
"""

from __future__ import annotations

import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from penstock.model import PenstockError, RoutingTable
from penstock.model.arrays import IntArray
from penstock.state.keyed import KeyedTable, key_hashes
from penstock.strategies.route.keys import HashArray

#: Batches between snapshots.
SNAPSHOT_EVERY = 20

_NAME = re.compile(r"(snapshot|delta)-(\d+)\.arrow")


class StateLost(PenstockError):
    """State that should be there is not; nothing is started without it."""


@dataclass(frozen=True)
class Epoch:
    """A span of batches in which an operator's instances and routing stay as they are.

    Parameters
    ----------
    number : int
    instances : int
    since : int
        The committed version that it starts from.
    table : RoutingTable or None
    """

    number: int
    instances: int
    since: int
    table: RoutingTable | None = None


@dataclass(frozen=True)
class StateLog:
    """The state files of one pipeline.

    Parameters
    ----------
    root : str
        A folder that all workers share.
    """

    root: str

    def load(
        self,
        vertex: str,
        by: tuple[str, ...],
        epochs: tuple[Epoch, ...],
        instance: int,
        version: int,
    ) -> KeyedTable:
        """State of one instance at a committed version; -1 is before the first batch.

        Parameters
        ----------
        epochs : tuple of Epoch
            The epoch that runs, and the one before it if there was one.
        """
        current = epochs[-1]
        if version < 0 or version == current.since:
            if len(epochs) == 1 and version < 0:
                return KeyedTable(by)
            if len(epochs) == 1:
                raise StateLost(f"the epoch before {current.number} of {vertex!r} is not known")
            return self._carried(vertex, by, epochs[-2], current, instance, version)
        return self._replayed(self._folder(vertex, current.number, instance), by, version)

    def save(
        self,
        vertex: str,
        epoch: Epoch,
        instance: int,
        version: int,
        changed: pa.Table,
        whole: KeyedTable,
    ) -> None:
        """Write what a batch changed, or everything when a snapshot is due."""
        folder = self._folder(vertex, epoch.number, instance)
        folder.mkdir(parents=True, exist_ok=True)
        first = epoch.since + 1
        if version == first or (version - first) % SNAPSHOT_EVERY == 0:
            _write(folder / f"snapshot-{version}.arrow", whole.rows())
            self._forget(folder, version - SNAPSHOT_EVERY)
        else:
            _write(folder / f"delta-{version}.arrow", changed)

    def forget_epochs(self, vertex: str, before: int) -> None:
        """Remove the files of all epochs before one."""
        for folder in (Path(self.root) / vertex).glob("epoch=*"):
            if int(folder.name.partition("=")[2]) < before:
                shutil.rmtree(folder, ignore_errors=True)

    def _folder(self, vertex: str, epoch: int, instance: int) -> Path:
        return Path(self.root) / vertex / f"epoch={epoch}" / f"instance={instance}"

    def _replayed(self, folder: Path, by: tuple[str, ...], version: int) -> KeyedTable:
        files = _files(folder)
        snapshots = [v for v in files.get("snapshot", {}) if v <= version]
        if not snapshots:
            raise StateLost(f"no snapshot at or before version {version} in {folder}")
        start = max(snapshots)
        table = _put(KeyedTable(by), files["snapshot"][start])
        for between in range(start + 1, version + 1):
            delta = files.get("delta", {}).get(between)
            if delta is None:
                raise StateLost(f"version {between} is missing in {folder}")
            table = _put(table, delta)
        return table

    def _carried(
        self,
        vertex: str,
        by: tuple[str, ...],
        before: Epoch,
        current: Epoch,
        instance: int,
        version: int,
    ) -> KeyedTable:
        """Collect an instance's keys from all instances of the epoch before."""
        table = KeyedTable(by)
        for old in range(before.instances):
            rows = self._replayed(self._folder(vertex, before.number, old), by, version).rows()
            if rows is None:
                continue
            mine = homes(key_hashes(rows, by), current) == instance
            table = table.put(rows.filter(pa.array(mine)))
        return table

    def _forget(self, folder: Path, before: int) -> None:
        """Remove files that no committed version needs any more."""
        files = _files(folder)
        kept = [v for v in files.get("snapshot", {}) if v <= before]
        if not kept:
            return
        for found in files.values():
            for version, path in found.items():
                if version < max(kept):
                    path.unlink(missing_ok=True)


def homes(hashes: HashArray, epoch: Epoch) -> IntArray:
    """Instance of each hash under the epoch's routing."""
    if epoch.table is None:
        return np.asarray(hashes % np.uint64(epoch.instances), dtype=np.int64)
    partitions = np.asarray(epoch.table.partitions, dtype=np.int64)
    return np.asarray(partitions[(hashes % np.uint64(len(partitions))).astype(np.int64)])


def _files(folder: Path) -> dict[str, dict[int, Path]]:
    found: dict[str, dict[int, Path]] = {}
    if folder.is_dir():
        for path in folder.iterdir():
            match = _NAME.fullmatch(path.name)
            if match:
                found.setdefault(match[1], {})[int(match[2])] = path
    return found


def _write(path: Path, rows: pa.Table | None) -> None:
    """Write a file that is either whole or not there."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with pa.OSFile(str(partial), "wb") as out:
        table = rows if rows is not None else pa.table({})
        with pa.ipc.new_file(out, table.schema) as writer:
            writer.write_table(table)
    partial.replace(path)


def _put(table: KeyedTable, path: Path) -> KeyedTable:
    try:
        with pa.memory_map(str(path), "rb") as data:
            rows = pa.ipc.open_file(data).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise StateLost(f"state file {path} cannot be read: {error}") from error
    return table.put(rows) if rows.num_columns else table
