"""The metrics store: SQLite in a file by default, PostgreSQL when given its URL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from penstock.common.errors import InvalidValue
from penstock.store.dialect import Cursor, Database, database_of
from penstock.store.edge_record import EdgeRecord
from penstock.store.errors import StoreError
from penstock.store.field_checks import LARGEST
from penstock.store.operator_record import OperatorRecord
from penstock.store.records import (
    BatchRecord,
    EventRecord,
    InstanceRecord,
    NodeRecord,
    PlanRecord,
    RunRecord,
    RunRecords,
)
from penstock.store.tables import (
    BATCHES,
    DETAIL,
    EDGES,
    EVENTS,
    INSTANCES,
    NODES,
    OPERATORS,
    PLANS,
    RUNS,
    Table,
)
from penstock.store.transactions import Transactions

R = TypeVar("R")


@dataclass(eq=False)
class MetricsStore:
    """Runs, their batches, plans and events, in a database.

    Writing something that is there already replaces it: a batch that is replayed counts once. All
    methods may be called from any thread, one of them at a time works. Several processes may have
    the same database open; a reader never waits for a writer.

    Examples
    --------
    >>> with MetricsStore.open(":memory:") as store:
    ...     store.put_run(RunRecord("r1", "wordcount", "penstock", started_at_s=0.0))
    ...     store.put_batch(BatchRecord("r1", 0, 0.0, 250.0, rows_in=1000))
    ...     [(b.batch, b.rows_in) for b in store.batches("r1")]
    [(0, 1000)]

    Parameters
    ----------
    database : Database
        Where it lies; `open` finds it from a path or a URL.
    keep_detail : int or None
        Batches of each run whose instances, edges and nodes are kept; those of older ones are
        dropped as new ones come, while the batches themselves stay. None: all.
    read_only : bool
        Change nothing, not even an old schema.
    """

    database: Database
    keep_detail: int | None = None
    read_only: bool = False
    _database: Transactions = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._database = Transactions(self.database, self.read_only)
        if self.keep_detail is not None and (
            not isinstance(self.keep_detail, int)
            or isinstance(self.keep_detail, bool)
            or self.keep_detail < 1
        ):
            allowed = "a whole number of at least 1, or None for all"
            raise InvalidValue("keep_detail", "a metrics store", allowed, self.keep_detail)

    @classmethod
    def open(
        cls, place: str | Path, *, keep_detail: int | None = None, read_only: bool = False
    ) -> MetricsStore:
        """Open a store, and make or upgrade its tables unless it is only read.

        Parameters
        ----------
        place : str or Path
            A file, which is made when it is missing, ``:memory:``, or ``postgresql://...``.
        keep_detail, read_only
            As for the class.

        Raises
        ------
        StoreError
            When there is none, it cannot be reached or written, or it holds something else.
        """
        store = cls(database_of(place, read_only=read_only), keep_detail, read_only)
        try:
            store._database.prepare()
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Close the connection; a second time does nothing."""
        self._database.close()

    def __enter__(self) -> MetricsStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Writing

    def put_run(self, run: RunRecord) -> None:
        """Write a run as it begins, and again as it ends."""
        with self._database.transaction(write=True) as cursor:
            cursor.execute(self._database.sql(RUNS.put), RUNS.row(run))

    def put_batch(
        self,
        batch: BatchRecord,
        instances: Sequence[InstanceRecord] = (),
        edges: Sequence[EdgeRecord] = (),
        nodes: Sequence[NodeRecord] = (),
        operators: Sequence[OperatorRecord] = (),
    ) -> None:
        """Write a batch with its detail, all or nothing, over what it left before.

        Raises
        ------
        InvalidValue, StoreError
            When detail is of another batch, or said twice; when the run is not there.
        """
        detail: tuple[tuple[Table[Any], Sequence[Any]], ...] = (
            (INSTANCES, instances),
            (EDGES, edges),
            (NODES, nodes),
            (OPERATORS, operators),
        )
        for table, records in detail:
            _check_detail(batch, table, records)
        key = (batch.run, batch.batch)
        with self._database.transaction(write=True) as cursor:
            self._require_run(cursor, batch.run)
            # What refers to the batch goes with it.
            cursor.execute(
                self._database.sql(f"DELETE FROM {BATCHES.name} WHERE run = ? AND batch = ?"), key
            )
            cursor.execute(self._database.sql(BATCHES.put), BATCHES.row(batch))
            for table, records in detail:
                if records:
                    rows = [table.row(record) for record in records]
                    cursor.executemany(self._database.sql(table.put), rows)
            if self.keep_detail is not None:
                old = (batch.run, batch.batch - self.keep_detail)
                for table in DETAIL:
                    drop = f"DELETE FROM {table.name} WHERE run = ? AND batch <= ?"
                    cursor.execute(self._database.sql(drop), old)

    def replace_batches(self, old: Sequence[BatchRecord], new: BatchRecord) -> None:
        """Write a batch in place of several of the same run, whose detail goes with them."""
        drop = self._database.sql(f"DELETE FROM {BATCHES.name} WHERE run = ? AND batch = ?")
        with self._database.transaction(write=True) as cursor:
            cursor.executemany(drop, [(one.run, one.batch) for one in old])
            cursor.execute(self._database.sql(BATCHES.put), BATCHES.row(new))

    def put_plan(self, record: PlanRecord) -> None:
        """Write the plan that is in force from a batch on."""
        self._put_of_run(PLANS, record, record.run)

    def put_event(self, record: EventRecord) -> None:
        """Write an event, or say more about one that was written."""
        self._put_of_run(EVENTS, record, record.run)

    def delete_run(self, run: str) -> None:
        """Delete a run with everything that belongs to it; nothing happens when it is not there."""
        with self._database.transaction(write=True) as cursor:
            cursor.execute(self._database.sql(f"DELETE FROM {RUNS.name} WHERE id = ?"), (run,))

    # Reading

    def runs(self) -> tuple[RunRecord, ...]:
        """All runs, the newest first."""
        with self._database.transaction() as cursor:
            found = self._database.fetch(cursor, RUNS, "")
        return tuple(sorted(found, key=lambda r: (r.started_at_s, r.id), reverse=True))

    def latest_run(self, topology: str | None = None) -> RunRecord | None:
        """Return the run that began last, of one topology or of any; None when there is none."""
        return next((r for r in self.runs() if topology in (None, r.topology)), None)

    def run(self, run: str) -> RunRecord:
        """Return one run.

        Raises
        ------
        StoreError
            When it is not there.
        """
        with self._database.transaction() as cursor:
            return self._run(cursor, run)

    def batches(
        self, run: str, *, since: int = 0, before: int | None = None, last: int | None = None
    ) -> tuple[BatchRecord, ...]:
        """Batches of a run, in order.

        Parameters
        ----------
        run : str
        since : int
            Leave out batches of a smaller number.
        before : int or None
            Leave out batches of this number and of larger ones.
        last : int or None
            The last so many; None for all.
        """
        return self._of_batches(BATCHES, run, since=since, before=before, last=last)

    def instances(self, run: str, **window: int | None) -> tuple[InstanceRecord, ...]:
        """Instances in those batches, by batch, operator and index."""
        return self._of_batches(INSTANCES, run, **window)

    def edges(self, run: str, **window: int | None) -> tuple[EdgeRecord, ...]:
        """Edges in those batches, by batch and names."""
        return self._of_batches(EDGES, run, **window)

    def nodes(self, run: str, **window: int | None) -> tuple[NodeRecord, ...]:
        """Nodes in those batches, by batch and name."""
        return self._of_batches(NODES, run, **window)

    def operators(self, run: str, **window: int | None) -> tuple[OperatorRecord, ...]:
        """Operators in those batches, by batch and name."""
        return self._of_batches(OPERATORS, run, **window)

    def plans(self, run: str) -> tuple[PlanRecord, ...]:
        """Plans of a run, in order."""
        with self._database.transaction() as cursor:
            return self._database.fetch(cursor, PLANS, "WHERE run = ?", run)

    def newest_plan(self, run: str) -> int:
        """Return the first batch of the newest plan; -1 when there is none."""
        statement = f"SELECT COALESCE(MAX(from_batch), -1) FROM {PLANS.name} WHERE run = ?"
        with self._database.transaction() as cursor:
            cursor.execute(self._database.sql(statement), (run,))
            return int((cursor.fetchone() or [-1])[0])

    def events(self, run: str) -> tuple[EventRecord, ...]:
        """Events of a run, in the order of their numbers."""
        with self._database.transaction() as cursor:
            return self._database.fetch(cursor, EVENTS, "WHERE run = ?", run)

    def read(self, run: str, *, detail: int | None = None) -> RunRecords:
        """All that is stored of a run, as one moment saw it.

        Parameters
        ----------
        run : str
        detail : int or None
            Read the detail of the last so many batches only.

        Raises
        ------
        StoreError
            When the run is not there.
        """
        of_run, recent = "WHERE run = ?", "WHERE run = ? AND batch >= ?"
        with self._database.transaction() as cursor:
            first = self._first(cursor, run, 0, detail)
            fetch = partial(self._database.fetch, cursor)
            return RunRecords(
                run=self._run(cursor, run),
                batches=fetch(BATCHES, of_run, run),
                instances=fetch(INSTANCES, recent, run, first),
                plans=fetch(PLANS, of_run, run),
                events=fetch(EVENTS, of_run, run),
                edges=fetch(EDGES, recent, run, first),
                nodes=fetch(NODES, recent, run, first),
                operators=fetch(OPERATORS, recent, run, first),
            )

    # Inside

    def _put_of_run(self, table: Table[R], record: R, run: str) -> None:
        with self._database.transaction(write=True) as cursor:
            self._require_run(cursor, run)
            cursor.execute(self._database.sql(table.put), table.row(record))

    def _of_batches(
        self,
        table: Table[R],
        run: str,
        *,
        since: int | None = 0,
        before: int | None = None,
        last: int | None = None,
    ) -> tuple[R, ...]:
        where = "WHERE run = ? AND batch >= ? AND batch <= ?"
        final = LARGEST if before is None else before - 1
        with self._database.transaction() as cursor:
            first = self._first(cursor, run, since or 0, last)
            return self._database.fetch(cursor, table, where, run, first, final)

    def _first(self, cursor: Cursor, run: str, since: int, last: int | None) -> int:
        """Return the number of the first batch of a window."""
        if last is None:
            return since
        if last < 1:
            raise InvalidValue("last", "a window of batches", "at least 1", last)
        statement = f"SELECT batch FROM {BATCHES.name} WHERE run = ? ORDER BY batch DESC"
        cursor.execute(self._database.sql(f"{statement} LIMIT 1 OFFSET ?"), (run, last - 1))
        row = cursor.fetchone()
        return max(since, int(row[0])) if row else since

    def _run(self, cursor: Cursor, run: str) -> RunRecord:
        found = self._database.fetch(cursor, RUNS, "WHERE id = ?", run)
        if not found:
            raise StoreError(self.database.where, f"has no run {run!r}")
        return found[0]

    def _require_run(self, cursor: Cursor, run: str) -> None:
        cursor.execute(self._database.sql(f"SELECT 1 FROM {RUNS.name} WHERE id = ?"), (run,))
        if cursor.fetchone() is None:
            raise StoreError(self.database.where, f"has no run {run!r}; write the run first")


def _check_detail(batch: BatchRecord, table: Table[Any], records: Sequence[Any]) -> None:
    owner = f"batch {batch.batch} of run {batch.run!r}"
    seen = {tuple(getattr(record, name) for name in table.key) for record in records}
    kind = table.name.removeprefix("penstock_")
    if len(seen) != len(records):
        raise InvalidValue(kind, owner, "recorded once each", f"{len(records) - len(seen)} more")
    strange = next((key for key in seen if key[:2] != (batch.run, batch.batch)), None)
    if strange is not None:
        raise InvalidValue(kind, owner, "of the same run and batch", strange)
