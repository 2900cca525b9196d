"""The schema, as the steps that lead to it, and what brings a database to its newest version.

A change of the schema is one more step at the end of `MIGRATIONS`, in SQL that both databases take;
a step that was ever released is never edited.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.store.dialect import Cursor, Dialect

VERSION_TABLE = "penstock_schema"

#: Statements of each step; step 1 makes version 1 from an empty database.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE penstock_runs (
            id TEXT PRIMARY KEY,
            topology TEXT NOT NULL,
            strategy TEXT NOT NULL,
            started_at_s DOUBLE PRECISION NOT NULL,
            ended_at_s DOUBLE PRECISION,
            status TEXT NOT NULL,
            config TEXT NOT NULL,
            rows_lost BIGINT,
            rows_duplicated BIGINT
        )""",
        """CREATE TABLE penstock_batches (
            run TEXT NOT NULL REFERENCES penstock_runs (id) ON DELETE CASCADE,
            batch BIGINT NOT NULL,
            started_at_s DOUBLE PRECISION NOT NULL,
            duration_ms DOUBLE PRECISION NOT NULL,
            rows_in BIGINT NOT NULL,
            rows_out BIGINT NOT NULL,
            queue_length BIGINT NOT NULL,
            dropped BIGINT NOT NULL,
            local_bytes BIGINT NOT NULL,
            host_local_bytes BIGINT NOT NULL,
            remote_bytes BIGINT NOT NULL,
            tasks BIGINT NOT NULL,
            tasks_honoured BIGINT NOT NULL,
            nodes_used BIGINT NOT NULL,
            lin DOUBLE PRECISION,
            lit TEXT NOT NULL,
            latency TEXT NOT NULL,
            figures TEXT NOT NULL,
            PRIMARY KEY (run, batch)
        )""",
        """CREATE TABLE penstock_instances (
            run TEXT NOT NULL,
            batch BIGINT NOT NULL,
            operator TEXT NOT NULL,
            "index" BIGINT NOT NULL,
            node TEXT NOT NULL,
            executor TEXT NOT NULL,
            host TEXT NOT NULL,
            tuples_in BIGINT NOT NULL,
            tuples_out BIGINT NOT NULL,
            cpu_ms DOUBLE PRECISION,
            run_ms DOUBLE PRECISION,
            mem_bytes BIGINT,
            PRIMARY KEY (run, batch, operator, "index"),
            FOREIGN KEY (run, batch) REFERENCES penstock_batches (run, batch) ON DELETE CASCADE
        )""",
        """CREATE TABLE penstock_edges (
            run TEXT NOT NULL,
            batch BIGINT NOT NULL,
            source TEXT NOT NULL,
            target TEXT NOT NULL,
            source_instances BIGINT NOT NULL,
            target_instances BIGINT NOT NULL,
            "rows" TEXT NOT NULL,
            columns TEXT NOT NULL,
            tuples TEXT NOT NULL,
            PRIMARY KEY (run, batch, source, target),
            FOREIGN KEY (run, batch) REFERENCES penstock_batches (run, batch) ON DELETE CASCADE
        )""",
        """CREATE TABLE penstock_nodes (
            run TEXT NOT NULL,
            batch BIGINT NOT NULL,
            node TEXT NOT NULL,
            cpu DOUBLE PRECISION,
            mem DOUBLE PRECISION,
            io DOUBLE PRECISION,
            PRIMARY KEY (run, batch, node),
            FOREIGN KEY (run, batch) REFERENCES penstock_batches (run, batch) ON DELETE CASCADE
        )""",
        """CREATE TABLE penstock_plans (
            run TEXT NOT NULL REFERENCES penstock_runs (id) ON DELETE CASCADE,
            from_batch BIGINT NOT NULL,
            plan TEXT NOT NULL,
            PRIMARY KEY (run, from_batch)
        )""",
        """CREATE TABLE penstock_events (
            run TEXT NOT NULL REFERENCES penstock_runs (id) ON DELETE CASCADE,
            number BIGINT NOT NULL,
            at_s DOUBLE PRECISION NOT NULL,
            kind TEXT NOT NULL,
            text TEXT NOT NULL,
            figures TEXT NOT NULL,
            batch BIGINT,
            PRIMARY KEY (run, number)
        )""",
    ),
    (
        """CREATE TABLE penstock_operators (
            run TEXT NOT NULL,
            batch BIGINT NOT NULL,
            operator TEXT NOT NULL,
            late_rows BIGINT NOT NULL,
            watermark_us BIGINT,
            hot_keys TEXT NOT NULL,
            state TEXT NOT NULL,
            PRIMARY KEY (run, batch, operator),
            FOREIGN KEY (run, batch) REFERENCES penstock_batches (run, batch) ON DELETE CASCADE
        )""",
    ),
)


def version_of(cursor: Cursor, dialect: Dialect) -> int:
    """Version of the schema in a database; 0 when it has none yet."""
    cursor.execute(dialect.spell(dialect.has_table), (VERSION_TABLE,))
    if cursor.fetchone() is None:
        return 0
    cursor.execute(f"SELECT version FROM {VERSION_TABLE}")
    row = cursor.fetchone()
    return int(row[0]) if row else 0


def migrate(cursor: Cursor, version: int, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Make the steps after `version`, inside the caller's transaction: all of them or none."""
    if version == 0:
        cursor.execute(f"CREATE TABLE {VERSION_TABLE} (version BIGINT NOT NULL)")
        cursor.execute(f"INSERT INTO {VERSION_TABLE} (version) VALUES (0)")
    for step in migrations[version:]:
        for statement in step:
            cursor.execute(statement)
    cursor.execute(f"UPDATE {VERSION_TABLE} SET version = {len(migrations)}")
