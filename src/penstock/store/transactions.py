"""Transactions on the database of a metrics store: one connection, made again when it was cut."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.store.dialect import Connection, Cursor, Database, first_line
from penstock.store.errors import StoreError
from penstock.store.schema import MIGRATIONS, migrate, version_of
from penstock.store.tables import Table

R = TypeVar("R")


@dataclass(eq=False)
class Transactions:
    """Runs transactions, one at a time, from any thread.

    Parameters
    ----------
    database : Database
    read_only : bool
        Refuse to write.
    """

    database: Database
    read_only: bool = False
    _connection: Connection | None = field(default=None, init=False, repr=False)
    _closed: bool = field(default=False, init=False, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)

    def close(self) -> None:
        """Close the connection; a second time does nothing."""
        with self._lock:
            self._closed = True
            if self._connection is not None:
                connection, self._connection = self._connection, None
                connection.close()

    @contextlib.contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[Cursor]:
        """Give a cursor; commit what it did at the end, or roll it back after an error."""
        dialect = self.database.dialect
        if write and self.read_only:
            raise StoreError(self.database.where, "was opened for reading only")
        with self._lock:
            connection = self._connected()
            with contextlib.closing(connection.cursor()) as cursor:
                try:
                    cursor.execute(dialect.begin_write if write else dialect.begin_read)
                    yield cursor
                    cursor.execute("COMMIT")
                except BaseException as error:
                    # Nothing to roll back when BEGIN failed or the connection is gone.
                    with contextlib.suppress(*dialect.errors):
                        cursor.execute("ROLLBACK")
                    if isinstance(error, dialect.errors):
                        verb = "written" if write else "read"
                        problem = f"cannot be {verb}: {first_line(error)}"
                        raise StoreError(self.database.where, problem) from error
                    raise

    def fetch(self, cursor: Cursor, table: Table[R], where: str, *values: Any) -> tuple[R, ...]:
        """Read the records of a table that a condition finds, in the order of their key."""
        cursor.execute(self.sql(f"{table.select} {where}"), values)
        try:
            return table.sorted(table.read(row) for row in cursor.fetchall())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            problem = f"holds a row in {table.name} that cannot be read: {first_line(error)}"
            raise StoreError(self.database.where, problem) from error

    def sql(self, statement: str) -> str:
        """Spell a statement as this database wants it."""
        return self.database.dialect.spell(statement)

    def prepare(self) -> None:
        """Bring the schema to the version of this code, or say why not."""
        dialect, where, newest = self.database.dialect, self.database.where, len(MIGRATIONS)
        # Begun for writing even where nothing is to be done: a store that cannot be written is
        # found now and not at the end of the first batch.
        with self.transaction(write=not self.read_only) as cursor:
            if dialect.lock_schema and not self.read_only:
                cursor.execute(dialect.lock_schema)
            version = version_of(cursor, dialect)
            if version > newest:
                problem = f"was written by a newer Penstock: schema {version}, here {newest}"
                raise StoreError(where, problem)
            if self.read_only:
                if version == 0:
                    raise StoreError(where, "holds no metrics")
                if version < newest:
                    problem = f"has an old schema ({version}, here {newest}): open it for writing"
                    raise StoreError(where, problem)
            elif version < newest:
                if version == 0 and dialect.foreign:
                    cursor.execute(dialect.foreign)
                    if cursor.fetchone() is not None:
                        raise StoreError(where, "holds something else: name another file")
                migrate(cursor, version, MIGRATIONS)

    def _connected(self) -> Connection:
        if self._closed:
            raise StoreError(self.database.where, "is closed")
        if self._connection is not None and self.database.dialect.lost(self._connection):
            self._connection = None
        if self._connection is None:
            try:
                self._connection = self.database.connect()
            except self.database.dialect.errors as error:
                problem = f"cannot be opened: {first_line(error)}"
                raise StoreError(self.database.where, problem) from error
        return self._connection
