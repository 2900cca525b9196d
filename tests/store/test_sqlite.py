"""What is particular to files: bad ones, closed ones, old ones, and how fast they are written."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.store import Histogram, MetricsStore, StoreError
from penstock.store import dialect as dialect_module
from penstock.store import transactions as store_module
from penstock.store.schema import MIGRATIONS
from penstock.store.tables import TABLES
from penstock.testing.metrics_examples import a_batch, a_run

AsNobody = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Make a folder that any user may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def filled(path: Path, batches: int = 3) -> Path:
    with MetricsStore.open(path) as store:
        store.put_run(a_run())
        for number in range(batches):
            store.put_batch(*a_batch("r1", number))
    return path


def refusal(place: str | Path, **options: Any) -> str:
    with pytest.raises(StoreError) as caught:
        MetricsStore.open(place, **options).close()
    return str(caught.value)


def execute(path: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def test_readers_do_not_wait(tmp_path: Path) -> None:
    path = filled(tmp_path / "m.db")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    filled(tmp_path / "m.db")
    assert [p.name for p in tmp_path.iterdir()] == ["m.db"]


@pytest.mark.parametrize("spelled", ["{}", "sqlite:///{}"])
def test_spellings_of_a_file(spelled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    filled(tmp_path / "a b%20#?.db")
    for name in ("a b%20#?.db", str(tmp_path / "a b%20#?.db")):
        for read_only in (False, True):
            with MetricsStore.open(spelled.format(name), read_only=read_only) as store:
                assert len(store.batches("r1")) == 3


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("", "give a file"),
        ("mysql://user:secret@host/db", "begins with postgresql://"),
        ("sqlite://m.db", "sqlite:///"),
        ("sqlite:///", "sqlite:///"),
    ],
)
def test_other_urls_are_refused(place: str, said: str) -> None:
    text = refusal(place)
    assert said in text
    assert "secret" not in text


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "cannot be opened" in refusal(tmp_path / "no" / "m.db")
    assert "cannot be opened" in refusal(tmp_path / "no.db", read_only=True)
    assert not (tmp_path / "no.db").exists()


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    assert "cannot be opened" in refusal(tmp_path)


def test_nothing_to_read_in_memory() -> None:
    assert "always empty" in refusal(":memory:", read_only=True)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_is_no_database(read_only: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    path.write_bytes(b"rows,that,are,no,database\n" * 500)
    before = path.read_bytes()
    assert "file is not a database" in refusal(path, read_only=read_only)
    assert path.read_bytes() == before


def test_a_database_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    execute(path, "CREATE TABLE mine (x)")
    assert "holds something else" in refusal(path)
    assert "holds no metrics" in refusal(path, read_only=True)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]


def test_a_damaged_file(tmp_path: Path) -> None:
    path = filled(tmp_path / "m.db", batches=60)
    content = bytearray(path.read_bytes())
    content[4096 * 2 :] = os.urandom(len(content) - 4096 * 2)
    path.write_bytes(content)

    def read_all() -> None:
        with MetricsStore.open(path) as store:
            store.read("r1")

    with pytest.raises(StoreError, match=r"malformed|cannot be|no run"):
        read_all()


def test_a_truncated_file(tmp_path: Path) -> None:
    path = filled(tmp_path / "m.db", batches=60)
    path.write_bytes(path.read_bytes()[: 4096 * 3])

    def read_all() -> None:
        with MetricsStore.open(path) as store:
            store.read("r1")

    with pytest.raises(StoreError):
        read_all()


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("penstock_batches", "latency", "{"),
        ("penstock_batches", "latency", '{"scheme": "other"}'),
        ("penstock_batches", "latency", "[1]"),
        ("penstock_batches", "lit", "null"),
        ("penstock_batches", "rows_in", "many"),
        ("penstock_batches", "duration_ms", -1),
        ("penstock_runs", "status", "lost"),
        ("penstock_runs", "config", "7"),
        ("penstock_instances", "cpu_ms", "much"),
    ],
)
def test_a_damaged_row(table: str, column: str, value: object, tmp_path: Path) -> None:
    path = filled(tmp_path / "m.db")
    execute(path, f"UPDATE {table} SET {column} = ?", value)
    with MetricsStore.open(path) as store, pytest.raises(StoreError, match=f"row in {table}"):
        store.read("r1")


def test_a_newer_schema(tmp_path: Path) -> None:
    path = filled(tmp_path / "m.db")
    execute(path, "UPDATE penstock_schema SET version = 99")
    for read_only in (False, True):
        assert f"newer Penstock: schema 99, here {len(MIGRATIONS)}" in refusal(
            path, read_only=read_only
        )


def test_an_older_schema_is_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = filled(tmp_path / "m.db")
    more = (*MIGRATIONS, ("CREATE TABLE penstock_more (x BIGINT)",))
    monkeypatch.setattr(store_module, "MIGRATIONS", more)
    told = f"has an old schema ({len(MIGRATIONS)}, here {len(more)})"
    assert told in refusal(path, read_only=True)
    with MetricsStore.open(path) as store:
        assert len(store.batches("r1")) == 3
    with MetricsStore.open(path, read_only=True) as store:
        assert len(store.batches("r1")) == 3


def test_an_upgrade_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path / "m.db")
    bad = (*MIGRATIONS, ("CREATE TABLE penstock_more (x BIGINT)", "NONSENSE"))
    monkeypatch.setattr(store_module, "MIGRATIONS", bad)
    assert "cannot be written" in refusal(path)
    monkeypatch.undo()
    with MetricsStore.open(path) as store:
        assert len(store.batches("r1")) == 3


def test_a_file_that_may_only_be_read(open_folder: Path, run_as_nobody: AsNobody) -> None:
    path = filled(open_folder / "m.db")
    path.chmod(0o444)
    with run_as_nobody():
        assert "cannot be" in refusal(path)
        with MetricsStore.open(path, read_only=True) as store:
            assert len(store.batches("r1")) == 3


def test_a_folder_that_may_only_be_read(open_folder: Path, run_as_nobody: AsNobody) -> None:
    path = filled(open_folder / "m.db")
    path.chmod(0o644)  # it was for its own user alone
    open_folder.chmod(0o555)
    with run_as_nobody():
        assert "cannot be" in refusal(open_folder / "new.db")
        assert "cannot be" in refusal(path)
        with MetricsStore.open(path, read_only=True) as store:
            assert len(store.batches("r1")) == 3
    open_folder.chmod(0o755)


def test_another_writer_holds_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect_module, "PATIENCE_S", 0.1)
    path = filled(tmp_path / "m.db")
    with (
        MetricsStore.open(path) as store,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="database is locked"):
            store.put_batch(*a_batch("r1", 3))
        assert len(store.batches("r1")) == 3, "reading goes on"
        other.execute("ROLLBACK")
        store.put_batch(*a_batch("r1", 3))
        assert len(store.batches("r1")) == 4


def test_tables_have_the_fields_of_the_records(tmp_path: Path) -> None:
    with closing(sqlite3.connect(filled(tmp_path / "m.db"))) as connection:
        for table in TABLES:
            columns = connection.execute(f"PRAGMA table_info({table.name})").fetchall()
            assert [c[1] for c in columns] == [f.name for f in fields(table.record)]
            keys = {c[1]: c[5] for c in columns if c[5]}
            assert sorted(keys, key=lambda k: keys[k]) == list(table.key)


def test_detail_does_not_pile_up(tmp_path: Path) -> None:
    def size(path: Path, batches: int) -> int:
        with MetricsStore.open(path, keep_detail=20) as store:
            store.put_run(a_run())
            for number in range(batches):
                store.put_batch(*a_batch("r1", number, size=20))
        return path.stat().st_size

    short, long = size(tmp_path / "short.db", 60), size(tmp_path / "long.db", 240)
    # Every batch leaves about half a kilobyte of figures; its detail would be 7 more.
    assert long - short < 180 * 1000


def test_numpy_values_are_stored_as_numbers(tmp_path: Path) -> None:
    batch = a_batch("r1", 0)[0]
    values: dict[str, Any] = {"rows_in": np.int64(5), "lin": np.float32(0.5)}
    odd = type(batch)("r1", np.int32(4), np.float64(3.0), 1, **values)  # type: ignore[arg-type]
    with MetricsStore.open(tmp_path / "m.db") as store:
        store.put_run(a_run())
        store.put_batch(odd)
        assert store.batches("r1") == (odd,)
    assert type(odd.batch) is int
    assert type(odd.lin) is float
    assert odd.latency == Histogram()
