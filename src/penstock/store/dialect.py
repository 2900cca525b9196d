"""The two databases behind the store, and all in which they differ."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from penstock.store.errors import StoreError

#: Seconds to wait for a server to answer a connection attempt, or for another writer to finish.
PATIENCE_S = 10

#: Seconds that a single statement on a server may take.
STATEMENT_S = 60

#: What a URL of a PostgreSQL server begins with.
SERVER_PREFIXES = ("postgresql://", "postgres://")


#: How often, and after which pause, a switch to write-ahead logging is tried again.
WAL_ATTEMPTS, WAL_PAUSE_S = 250, 0.02


class Cursor(Protocol):
    """What the store uses of a DB-API cursor."""

    def execute(self, statement: str, values: Sequence[Any] = ..., /) -> object:
        """Run one statement."""

    def executemany(self, statement: str, values: Sequence[Sequence[Any]], /) -> object:
        """Run one statement for each row of values."""

    def fetchall(self) -> list[Any]:
        """Return all rows of the last statement."""

    def fetchone(self) -> Any:
        """Return the next row of the last statement, or None."""


class Connection(Protocol):
    """What the store uses of a DB-API connection, which commits by itself outside of BEGIN."""

    def cursor(self) -> Any:
        """Make a cursor."""

    def close(self) -> None:
        """Close it."""


@dataclass(frozen=True)
class Dialect:
    """What differs between the databases.

    Parameters
    ----------
    name : str
    placeholder : str
        Stands for a value in a statement.
    begin_write, begin_read : str
        Begin a transaction that writes, and one whose reads all see the same moment.
    has_table : str
        Gives a row when the table exists that is its one value.
    foreign : str
        Gives a row when the database holds something else, which the store must not mix with.
        Empty where sharing a database is usual.
    lock_schema : str
        Lets one writer at a time change the schema; empty where `begin_write` does.
    errors : tuple of exception types
        What the driver raises.
    lost : callable
        Whether a connection is gone and another one is to be made.
    """

    name: str
    placeholder: str
    begin_write: str
    begin_read: str
    has_table: str
    foreign: str
    lock_schema: str
    errors: tuple[type[Exception], ...]
    lost: Callable[[Connection], bool]

    def spell(self, statement: str) -> str:
        """Put the placeholder of this database for every ``?``."""
        return statement.replace("?", self.placeholder)


@dataclass(frozen=True)
class Database:
    """Where the store lies: a dialect and a way to connect.

    Parameters
    ----------
    where : str
        The file or server as a message may show it, a password left out.
    """

    where: str
    dialect: Dialect
    connect: Callable[[], Connection]


SQLITE = Dialect(
    name="sqlite",
    placeholder="?",
    begin_write="BEGIN IMMEDIATE",
    begin_read="BEGIN",
    has_table="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?",
    foreign="SELECT name FROM sqlite_master LIMIT 1",
    lock_schema="",
    errors=(sqlite3.Error,),
    lost=lambda connection: False,
)


def database_of(place: str | Path, *, read_only: bool = False) -> Database:
    """Find the database that a path or a URL names.

    Parameters
    ----------
    place : str or Path
        A file (``sqlite:///path`` works too), ``:memory:``, or ``postgresql://...``.
    read_only : bool
        Never create or change anything.

    Raises
    ------
    StoreError
        When the URL is of another kind, or the driver for it is not installed.
    """
    text = str(place)
    if text.startswith(SERVER_PREFIXES):
        return _postgres(text, read_only)
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "sqlite":
        if not rest.startswith("/") or len(rest) == 1:
            raise StoreError(text, "must be spelled sqlite:///file or sqlite:////folder/file")
        text = rest[1:]
    elif separator and scheme.isalnum():
        problem = "is not understood: give a file, or a URL that begins with postgresql://"
        raise StoreError(f"{scheme}://...", problem)
    if not text:
        raise StoreError("''", "has no name: give a file, or a URL that begins with postgresql://")
    return _sqlite(text, read_only)


def _sqlite(path: str, read_only: bool) -> Database:
    return Database(
        path, SQLITE, lambda: _sqlite_reader(path) if read_only else _sqlite_writer(path)
    )


def _sqlite_writer(path: str) -> Connection:
    _private(path)
    connection = _file(path)
    try:
        # Readers do not wait for the writer, nor it for them; a crash of the machine may cost the
        # last batches, never the file.
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging; while another connection switches, SQLite does not wait."""
    for attempt in range(WAL_ATTEMPTS):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or attempt == WAL_ATTEMPTS - 1:
                raise
            time.sleep(WAL_PAUSE_S)


def _sqlite_reader(path: str) -> Connection:
    if path == ":memory:":
        raise StoreError(path, "is always empty, so it cannot be opened for reading only")
    uri = Path(path).absolute().as_uri() + "?mode=ro"
    connection = _file(uri, uri=True)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError:
        connection.close()
        # A reader shares notes with writers in files beside this one. Where it may not make them
        # and there are none, nobody writes, and the file can be read as it is.
        if Path(f"{path}-wal").exists():
            raise
        return _file(uri + "&immutable=1", uri=True)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _private(path: str) -> None:
    """Make the file, for this user alone, if it is not there; SQLite's others follow its mode."""
    if path != ":memory:":
        with contextlib.suppress(OSError):  # SQLite says better what is wrong
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _file(target: str, *, uri: bool = False) -> sqlite3.Connection:
    # The store has a lock of its own, so that another thread may use the connection.
    return sqlite3.connect(
        target, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False, uri=uri
    )


def _postgres(url: str, read_only: bool) -> Database:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        problem = "needs the PostgreSQL driver: pip install 'penstock[postgres]'"
        raise StoreError("postgresql://...", problem) from None
    try:
        options = conninfo_to_dict(url)
        host, port, name = (str(options.get(k) or "") for k in ("host", "port", "dbname"))
        sound = port.replace(",", "").isdigit() if port else True
    except psycopg.Error:
        sound = False
    # A password with a slash or a percent sign in it ends up in other parts: nothing is repeated.
    if not sound or "@" in host + name:
        problem = (
            "is not understood: spell it postgresql://user:password@host:port/database, "
            "with / @ : and % in a password as %2F %40 %3A and %25"
        )
        raise StoreError("postgresql://...", problem) from None

    where = f"postgresql://{host}{f':{port}' if port else ''}/{name}"
    limits = {
        "connect_timeout": PATIENCE_S,
        # A server that vanished without a word is noticed.
        "keepalives_idle": 30,
        "tcp_user_timeout": 1000 * STATEMENT_S,
    }
    given = {k: v for k, v in limits.items() if k not in options}

    def connect() -> Connection:
        connection = psycopg.connect(url, autocommit=True, **cast("dict[str, Any]", given))
        try:
            connection.execute(f"SET statement_timeout = '{STATEMENT_S}s'")
            if read_only:
                connection.execute("SET default_transaction_read_only = on")
        except psycopg.Error:
            connection.close()
            raise
        return connection

    dialect = Dialect(
        name="postgresql",
        placeholder="%s",
        begin_write="BEGIN",
        begin_read="BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        has_table="SELECT 1 WHERE to_regclass(?) IS NOT NULL",
        foreign="",
        # Any number that nobody else uses: the letters of "penstock".
        lock_schema="SELECT pg_advisory_xact_lock(8099552084943364971)",
        errors=(psycopg.Error,),
        lost=lambda connection: bool(cast("psycopg.Connection[Any]", connection).closed),
    )
    return Database(where, dialect, connect)


def first_line(error: Exception) -> str:
    """Return the first line of a driver's message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
