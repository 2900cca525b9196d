"""Writes metrics beside a run: buffered, retried, dropped with a count; it never stops the run."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from penstock.common.errors import PenstockError
from penstock.store.dialect import database_of
from penstock.store.errors import StoreError
from penstock.store.records import EventRecord, RunRecord, RunRecords
from penstock.store.retention import Retention, RollUp
from penstock.store.store import MetricsStore

#: Records that may wait to be written; when more come, the oldest are dropped.
BUFFER = 5_000

#: Seconds before a store that failed is tried again, at first and at most.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0

#: Seconds to wait for what is buffered: before records are read, and when a run is closed.
FLUSH_S = 15.0

#: Kind of the event that tells how many records are missing.
METRICS = "metrics"

_LOG = logging.getLogger("penstock.store")

#: Writes one thing.
Write = Callable[[MetricsStore], None]


class BackgroundWriter:
    """Writes the records of one run in a thread of its own.

    `put` never waits and never raises. A store that cannot be opened or written is tried again and
    again, with longer and longer pauses; meanwhile records are buffered, and the oldest are dropped
    when there are too many. How many were dropped, and why, is logged, and written as an event when
    the store is there again.

    Parameters
    ----------
    place : str or Path
        As in `MetricsStore.open`.
    run : RunRecord
        Written before anything else, and again by `end`.
    retention : Retention
    set_aside : bool
        Whether a damaged file is renamed, and another one begun: right where nobody else owns it.
    buffer : int
        Records that may wait.
    """

    def __init__(
        self,
        place: str | Path,
        run: RunRecord,
        *,
        retention: Retention | None = None,
        set_aside: bool = False,
        buffer: int = BUFFER,
    ) -> None:
        self._place, self._set_aside = place, set_aside
        # A name that can never work is the user's mistake, and is told at once.
        database_of(place)
        self._file = None if "://" in str(place) or str(place) == ":memory:" else Path(place)
        self._retention = retention or Retention()
        self._roll_up = RollUp(self._retention, run.id)
        self._buffer = buffer
        self._changed = threading.Condition()
        self._waiting: deque[Write] = deque()
        self._run, self._run_due = run, True
        self._busy = False
        self._closing = False
        self._store: MetricsStore | None = None
        self._why = "they came faster than the store takes them"
        self._trouble = ""
        self._told_dropped = 0
        self._numbers: Callable[[], int] | None = None
        #: Records that were dropped so far.
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="penstock-metrics", daemon=True)
        self._thread.start()

    def number_events_by(self, number: Callable[[], int]) -> None:
        """Let the event that tells of dropped records have a number of the run's own."""
        self._numbers = number

    @property
    def trouble(self) -> str:
        """Why the store cannot be written for now; empty while it can."""
        return self._trouble

    def put(self, write: Write) -> None:
        """Have something written, soon."""
        with self._changed:
            if self._closing:
                self.dropped += 1
                return
            if len(self._waiting) >= self._buffer:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append(write)
            self._changed.notify_all()

    def end(self, run: RunRecord) -> None:
        """Have the run written as it ended."""
        with self._changed:
            self._run, self._run_due = run, True
            self._changed.notify_all()

    def flush(self, timeout_s: float = FLUSH_S) -> bool:
        """Wait until all is written, and return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._pending, timeout_s)

    def read(self, timeout_s: float = FLUSH_S) -> RunRecords:
        """Return all that the store has of the run, once what waits is written.

        Raises
        ------
        StoreError
            When the store cannot be read; the run itself goes on.
        """
        self.flush(timeout_s)
        if str(self._place) == ":memory:":
            if self._store is None:
                raise StoreError(":memory:", "is closed")
            return self._store.read(self._run.id)
        with MetricsStore.open(self._place, read_only=True) as store:
            return store.read(self._run.id)

    def close(self, timeout_s: float = FLUSH_S) -> None:
        """Write what waits, if that is possible within some seconds, and close the store."""
        self.flush(timeout_s)
        with self._changed:
            self._closing = True
            left = len(self._waiting)
            self._waiting.clear()
            self.dropped += left
            self._run_due = False
            self._changed.notify_all()
        if self.dropped > self._told_dropped:
            _LOG.warning("%d records of metrics were dropped: %s", self.dropped, self._why)
        # One that waits for a locked file ends by itself.
        self._thread.join(1.0)

    # ---- the thread

    @property
    def _pending(self) -> bool:
        return self._busy or self._run_due or bool(self._waiting)

    def _work(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self._pending)
                if self._closing:
                    break
                write, run = self._next()
                self._busy = True
            try:
                self._write(write, run)
                self._trouble = ""
                pause_s = FIRST_PAUSE_S
            except PenstockError as error:
                self._failed(write, error)
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            except Exception as error:  # noqa: BLE001 - one record less, and the run goes on
                self._lose(error)
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()
        self._forget_store()

    def _next(self) -> tuple[Write | None, RunRecord | None]:
        if self._run_due or self._store is None:
            self._run_due = False
            return None, self._run
        return self._waiting.popleft(), None

    def _write(self, write: Write | None, run: RunRecord | None) -> None:
        if self._file is not None and self._store is not None and not self._file.exists():
            # Removed while it was open: what is written into it would be lost without a word.
            self._forget_store()
        fresh = self._store is None
        store = self._opened()
        if fresh or run is not None:
            store.put_run(self._run)
        self._tell_dropped(store)
        if write is not None:
            write(store)
            self._roll_up.after_write(store)

    def _opened(self) -> MetricsStore:
        if self._store is None:
            keep = self._retention.keep_detail
            try:
                self._store = MetricsStore.open(self._place, keep_detail=keep)
            except StoreError as error:
                if not (self._set_aside and _damaged(error)):
                    raise
                self._store = self._begun_anew(error)
        return self._store

    def _begun_anew(self, error: StoreError) -> MetricsStore:
        """Rename a damaged file of the run's own, and begin another one."""
        assert self._file is not None
        damaged = self._file.with_name(f"{self._file.name}.damaged-{int(time.time())}")
        with contextlib.suppress(FileNotFoundError):
            self._file.rename(damaged)
        for suffix in ("-wal", "-shm"):
            Path(f"{self._file}{suffix}").unlink(missing_ok=True)
        _LOG.warning("%s; it was renamed to %s, and another one is begun", error, damaged)
        return MetricsStore.open(self._place, keep_detail=self._retention.keep_detail)

    def _failed(self, write: Write | None, error: PenstockError) -> None:
        """Keep what could not be written for the next try, unless it can never be written."""
        if not isinstance(error, StoreError):
            self._lose(error)
            return
        if self._why != str(error):
            _LOG.warning("%s; it is tried again, and the run goes on", error)
        self._why = self._trouble = str(error)
        self._forget_store()
        with self._changed:
            self._run_due = not self._closing
            if write is not None:
                if len(self._waiting) < self._buffer:
                    self._waiting.appendleft(write)
                else:
                    self.dropped += 1

    def _lose(self, error: Exception) -> None:
        self._why = f"{type(error).__name__}: {error}"
        _LOG.warning("a record of metrics was dropped: %s", self._why)
        with self._changed:
            self.dropped += 1

    def _tell_dropped(self, store: MetricsStore) -> None:
        missing = self.dropped - self._told_dropped
        if not missing:
            return
        text = f"{missing} records of metrics were dropped: {self._why}"
        _LOG.warning("%s", text)
        if self._numbers is not None:
            number = self._numbers()
            store.put_event(EventRecord(self._run.id, number, time.time(), METRICS, text))
        self._told_dropped += missing

    def _forget_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(Exception):
                store.close()


def _damaged(error: StoreError) -> bool:
    """Whether a file is no database any more, and not merely locked or out of reach."""
    causes = ("not a database", "malformed", "disk image", "something else")
    return any(text in str(error) for text in causes)
