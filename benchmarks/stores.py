"""The stores that `state_store.py` compares: Arrow in, Arrow out."""

# ruff: noqa: D102 - what the methods do is said once, in Store

from __future__ import annotations

import importlib
import sqlite3
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from penstock.state.files.local import LocalSegments
from penstock.state.table import KeyedTable

BY = ("key",)

#: Rows that go to a store of rows at a time when it is filled.
FILL_ROWS = 250_000


class Store(Protocol):
    """One state of one instance."""

    def load(self, content: pa.Table) -> None:
        """Fill an empty store."""

    def open(self) -> None:
        """Open a store that was closed."""

    def get(self, keys: pa.Table) -> pa.Table:
        """Rows of the keys."""

    def put(self, changed: pa.Table) -> None:
        """Put rows that replace old ones."""

    @property
    def due(self) -> bool:
        """Whether it is time to `compact`."""

    def compact(self) -> None:
        """Do what is put off from batch to batch, such as merging."""

    def close(self) -> None:
        """Have everything on disk."""


class Memory:
    """`KeyedTable`, all rows in memory; a file of them when it is closed."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "rows.arrow"
        self.table = KeyedTable(BY)

    def load(self, content: pa.Table) -> None:
        self.table = self.table.put(content).compact()

    def open(self) -> None:
        with pa.memory_map(str(self.file)) as data:
            self.load(pa.ipc.open_file(data).read_all())

    def get(self, keys: pa.Table) -> pa.Table:
        found = self.table.get(keys)
        assert found is not None
        return found

    def put(self, changed: pa.Table) -> None:
        self.table = self.table.put(changed)

    @property
    def due(self) -> bool:
        return self.table.due_for_compaction

    def compact(self) -> None:
        self.table = self.table.compact()

    def close(self) -> None:
        write(self.table, self.file)


class Mapped(Memory):
    """`KeyedTable` with its rows in a file that is mapped, changes in memory."""

    def load(self, content: pa.Table) -> None:
        super().load(content)
        self.compact()

    def open(self) -> None:
        self.table = LocalSegments.map(BY, self.file)

    def compact(self) -> None:
        """Write a new file and map it; the old one goes when nobody has it mapped any more."""
        fresh = self.file.with_suffix(".new")
        write(self.table, fresh)
        fresh.replace(self.file)
        self.open()

    def close(self) -> None:
        self.compact()


def write(table: KeyedTable, file: Path) -> None:
    """Write the rows of a table, a batch at a time."""
    batches = (batch for batch, _ in table.chunks())
    first = next(batches)
    with pa.ipc.new_file(str(file), first.schema) as out:
        out.write_batch(first)
        for batch in batches:
            out.write_batch(batch)


class Sqlite:
    """SQLite with a write-ahead log; a batch is a transaction."""

    due = False  # it does so by itself

    def __init__(self, folder: Path) -> None:
        self.file = folder / "state.db"

    def load(self, content: pa.Table) -> None:
        self.open()
        self.db.execute("CREATE TABLE s (key TEXT PRIMARY KEY, a INT, b INT) WITHOUT ROWID")
        ordered = content.sort_by("key")
        for low in range(0, ordered.num_rows, FILL_ROWS):
            self.put(ordered.slice(low, FILL_ROWS))

    def open(self) -> None:
        self.db = sqlite3.connect(self.file)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = NORMAL")
        self.db.execute("PRAGMA cache_size = -65536")
        self.db.execute("CREATE TEMP TABLE asked (key TEXT PRIMARY KEY) WITHOUT ROWID")

    def get(self, keys: pa.Table) -> pa.Table:
        asked = keys.column("key").to_pylist()
        with self.db:
            self.db.execute("DELETE FROM asked")
            self.db.executemany("INSERT INTO asked VALUES (?)", zip(asked, strict=True))
            found = self.db.execute("SELECT s.* FROM asked CROSS JOIN s USING (key)").fetchall()
        names, a, b = zip(*found, strict=True)
        return pa.table({"key": list(names), "a": list(a), "b": list(b)})

    def put(self, changed: pa.Table) -> None:
        columns = [column.to_pylist() for column in changed.columns]
        upsert = (
            "INSERT INTO s VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET a=excluded.a, b=excluded.b"
        )
        with self.db:
            self.db.executemany(upsert, zip(*columns, strict=True))

    def compact(self) -> None:
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        self.db.close()


def _packed(changed: pa.Table) -> list[tuple[bytes, bytes]]:
    """Keys, and both counters in 16 bytes."""
    keys = changed.column("key").cast(pa.binary()).to_pylist()
    numbers = np.column_stack([changed.column(name).to_numpy() for name in ("a", "b")])
    packed = numbers.astype("<i8").tobytes()
    return [(key, packed[16 * i : 16 * i + 16]) for i, key in enumerate(keys)]


def _unpacked(keys: list[bytes], values: list[bytes]) -> pa.Table:
    numbers = np.frombuffer(b"".join(values), "<i8").reshape(-1, 2)
    names = pa.array(keys, pa.binary()).cast(pa.string())
    return pa.table({"key": names, "a": numbers[:, 0].copy(), "b": numbers[:, 1].copy()})


class Lmdb:
    """LMDB: a mapped B+ tree; a batch is a transaction, synced by the system."""

    due = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, content: pa.Table) -> None:
        self.open()
        ordered = content.sort_by("key")
        for low in range(0, ordered.num_rows, FILL_ROWS):
            self.put(ordered.slice(low, FILL_ROWS))

    def open(self) -> None:
        lmdb: Any = importlib.import_module("lmdb")
        self.db = lmdb.open(str(self.folder), map_size=1 << 34, sync=False, writemap=False)

    def get(self, keys: pa.Table) -> pa.Table:
        asked = keys.column("key").cast(pa.binary()).to_pylist()
        with self.db.begin() as transaction, transaction.cursor() as cursor:
            found = cursor.getmulti(asked)
        return _unpacked([key for key, _ in found], [value for _, value in found])

    def put(self, changed: pa.Table) -> None:
        with self.db.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(_packed(changed))

    def compact(self) -> None:
        self.db.sync(True)

    def close(self) -> None:
        self.compact()
        self.db.close()


class Rocksdb:
    """RocksDB, an LSM tree, through rocksdict; a batch is a write batch."""

    due = False  # it does so by itself, in threads of its own

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "rocks"
        self.library: Any = importlib.import_module("rocksdict")

    def load(self, content: pa.Table) -> None:
        self.open()
        for low in range(0, content.num_rows, FILL_ROWS):
            self.put(content.slice(low, FILL_ROWS))
        self.db.flush()

    def open(self) -> None:
        options = self.library.Options(raw_mode=True)
        options.create_if_missing(True)
        table = self.library.BlockBasedOptions()
        table.set_bloom_filter(10.0, False)
        table.set_block_cache(self.library.Cache(64 << 20))
        options.set_block_based_table_factory(table)
        self.db = self.library.Rdict(str(self.folder), options)

    def get(self, keys: pa.Table) -> pa.Table:
        asked = keys.column("key").cast(pa.binary()).to_pylist()
        values = self.db.get(asked)
        there = [(key, value) for key, value in zip(asked, values, strict=True) if value]
        return _unpacked([key for key, _ in there], [value for _, value in there])

    def put(self, changed: pa.Table) -> None:
        batch = self.library.WriteBatch(raw_mode=True)
        for key, value in _packed(changed):
            batch.put(key, value)
        self.db.write(batch)

    def compact(self) -> None:
        self.db.flush()
        self.db.compact_range(None, None)

    def close(self) -> None:
        self.db.close()


#: Every store by its name.
STORES: dict[str, Any] = {
    "memory": Memory,
    "mapped": Mapped,
    "sqlite": Sqlite,
    "lmdb": Lmdb,
    "rocksdb": Rocksdb,
}
