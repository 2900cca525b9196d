"""What is particular to a server: one that is not there, goes away, or holds other things."""

from __future__ import annotations

import sys
import time
from dataclasses import fields

import pytest

from penstock.store import MetricsStore, StoreError
from penstock.store.schema import MIGRATIONS
from penstock.store.tables import TABLES
from penstock.testing.metrics_examples import a_batch, a_run

psycopg = pytest.importorskip("psycopg", reason="the PostgreSQL driver is not installed")


def refusal(place: str, *, read_only: bool = False) -> str:
    with pytest.raises(StoreError) as caught:
        MetricsStore.open(place, read_only=read_only).close()
    return str(caught.value)


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_a_server_that_is_not_there() -> None:
    start = time.monotonic()
    text = refusal("postgresql://me:s3cret@127.0.0.1:1/db")
    assert "metrics store postgresql://127.0.0.1:1/db cannot be opened" in text
    assert "s3cret" not in text
    assert time.monotonic() - start < 15


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3/cret@host/db",
        "postgresql://me:s3%cret@host/db",
        "postgresql://me:s3@cret@host/db",
        "postgres://me:s3cret@host:port/db",
        "postgresql://host/db?s3cret=1",
    ],
)
def test_a_url_that_is_not_understood(url: str) -> None:
    text = refusal(url)
    assert "spell it postgresql://" in text or "cannot be opened" in text
    assert "s3" not in text


def test_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "pip install 'penstock[postgres]'" in refusal("postgresql://host/db")


def test_a_database_that_is_not_there(postgres_url: str) -> None:
    assert 'database "nothing" does not exist' in refusal(
        postgres_url.replace("/postgres", "/nothing")
    )


def test_other_tables_do_not_matter(schema_url: str) -> None:
    execute(schema_url, "CREATE TABLE runs (mine TEXT)")
    with MetricsStore.open(schema_url) as store:
        store.put_run(a_run())
        assert store.run("r1") == a_run()
    execute(schema_url, "SELECT mine FROM runs")


def test_a_newer_schema(schema_url: str) -> None:
    MetricsStore.open(schema_url).close()
    execute(schema_url, "UPDATE penstock_schema SET version = 99")
    for read_only in (False, True):
        text = refusal(schema_url, read_only=read_only)
        assert f"newer Penstock: schema 99, here {len(MIGRATIONS)}" in text


def test_a_user_who_may_not_write(schema_url: str) -> None:
    execute(schema_url, "DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN")
    guest = schema_url.replace("penstock@", "guest@")
    assert "cannot be" in refusal(guest)


def test_it_connects_again_after_the_server_cut_it_off(schema_url: str) -> None:
    with MetricsStore.open(schema_url) as store:
        store.put_run(a_run())
        execute(
            schema_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND query <> '' AND usename = 'penstock'",
        )
        with pytest.raises(StoreError, match="cannot be written"):
            store.put_batch(*a_batch("r1", 0))
        store.put_batch(*a_batch("r1", 0))
        assert len(store.batches("r1")) == 1


def test_a_damaged_row(schema_url: str) -> None:
    with MetricsStore.open(schema_url) as store:
        store.put_run(a_run())
        store.put_batch(*a_batch("r1", 0))
        execute(schema_url, "UPDATE penstock_batches SET latency = '{'")
        with pytest.raises(StoreError, match="row in penstock_batches"):
            store.batches("r1")
        assert store.run("r1") == a_run(), "the store goes on"


def test_tables_have_the_fields_of_the_records(schema_url: str) -> None:
    MetricsStore.open(schema_url).close()
    with psycopg.connect(schema_url) as connection:
        for table in TABLES:
            rows = connection.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_name = %s "
                "AND table_schema = current_schema() ORDER BY ordinal_position",
                (table.name,),
            ).fetchall()
            assert [row[0] for row in rows] == [f.name for f in fields(table.record)]
