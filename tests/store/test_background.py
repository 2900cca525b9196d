"""Metrics that are written beside a run: nothing that happens to the store reaches the run."""

from __future__ import annotations

import contextlib
import logging
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.common.errors import InvalidValue
from penstock.store import BatchRecord, EventRecord, MetricsStore, RunRecord, RunStatus, StoreError
from penstock.store import background as module
from penstock.store.background import METRICS, BackgroundWriter, Write

RUN = RunRecord("r", "words", "even", 1.0)


def batch(number: int) -> Write:
    record = BatchRecord("r", number, float(number), 10.0, rows_in=1)
    return lambda store: store.put_batch(record)


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.05)
    monkeypatch.setattr("penstock.store.dialect.PATIENCE_S", 0.1)


def test_what_was_put_is_read_back(tmp_path: Path) -> None:
    writer = BackgroundWriter(tmp_path / "m.sqlite", RUN)
    for number in range(20):
        writer.put(batch(number))
    assert len(writer.read().batches) == 20
    writer.end(RunRecord("r", "words", "even", 1.0, ended_at_s=9.0, status=RunStatus.FINISHED))
    writer.close()
    with MetricsStore.open(tmp_path / "m.sqlite", read_only=True) as store:
        assert store.run("r").status is RunStatus.FINISHED
    assert writer.dropped == 0


def test_a_locked_file_stops_nobody_and_loses_nothing(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    writer = BackgroundWriter(place, RUN)
    assert writer.flush()
    other = sqlite3.connect(place, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    started = time.monotonic()
    for number in range(50):
        writer.put(batch(number))
    assert time.monotonic() - started < 5, "nobody waits"
    assert not writer.flush(0.5)
    other.execute("ROLLBACK")
    other.close()
    assert len(writer.read().batches) == 50
    writer.close()
    assert writer.dropped == 0


def test_what_does_not_fit_the_buffer_is_dropped_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "m.sqlite"
    writer = BackgroundWriter(place, RUN, buffer=10)
    numbers = iter(range(100))
    writer.number_events_by(lambda: next(numbers))
    assert writer.flush()
    other = sqlite3.connect(place, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with caplog.at_level(logging.WARNING, "penstock.store"):
        for number in range(50):
            writer.put(batch(number))
        until(lambda: any("is tried again" in line for line in caplog.messages))
        assert writer.dropped >= 39
        other.execute("ROLLBACK")
        other.close()
        records = writer.read()
    assert 10 <= len(records.batches) <= 11
    (event,) = [event for event in records.events if event.kind == METRICS]
    assert f"{writer.dropped} records of metrics were dropped" in event.text
    assert "locked" in event.text
    assert any("records of metrics were dropped" in line for line in caplog.messages)
    writer.close()


def test_a_store_that_is_never_there_is_told_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = BackgroundWriter(tmp_path / "no" / "such" / "folder" / "m.sqlite", RUN)
    with caplog.at_level(logging.WARNING, "penstock.store"):
        writer.put(batch(0))
        started = time.monotonic()
        writer.close(timeout_s=0.3)
    assert time.monotonic() - started < 5
    assert writer.dropped == 1
    assert any("1 records of metrics were dropped" in line for line in caplog.messages)
    with pytest.raises(StoreError):
        writer.read(0.0)


def test_a_file_that_vanishes_is_made_again(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    writer = BackgroundWriter(place, RUN)
    writer.put(batch(0))
    assert writer.flush()
    for path in tmp_path.iterdir():
        path.unlink()
    writer.put(batch(1))
    assert [one.batch for one in writer.read().batches] == [1]
    writer.close()


def test_a_damaged_file_of_the_runs_own_is_set_aside(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    place.write_bytes(b"this is no database" * 1000)
    writer = BackgroundWriter(place, RUN, set_aside=True)
    writer.put(batch(0))
    assert len(writer.read().batches) == 1
    writer.close()
    (kept,) = tmp_path.glob("m.sqlite.damaged-*")
    assert kept.read_bytes().startswith(b"this is no database")


def test_a_damaged_file_of_the_users_is_left_alone(tmp_path: Path) -> None:
    place = tmp_path / "m.sqlite"
    place.write_bytes(b"this is no database" * 1000)
    writer = BackgroundWriter(place, RUN)
    writer.put(batch(0))
    writer.close(timeout_s=0.2)
    assert writer.dropped == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m.sqlite"]


def test_a_record_that_nobody_can_write_is_one_record_less(tmp_path: Path) -> None:
    writer = BackgroundWriter(tmp_path / "m.sqlite", RUN)

    def bad(store: MetricsStore) -> None:
        raise InvalidValue("x", "a record", "sound", "not")

    def worse(store: MetricsStore) -> None:
        raise ZeroDivisionError

    writer.put(bad)
    writer.put(worse)
    writer.put(lambda store: store.put_event(EventRecord("r", 7, 1.0, "note", "after it")))
    assert [event.text for event in writer.read().events if event.number == 7] == ["after it"]
    assert writer.dropped == 2
    writer.close()


def test_a_place_that_can_never_work_is_told_at_once() -> None:
    with pytest.raises(StoreError, match="is not understood"):
        BackgroundWriter("mysql://host/db", RUN)


class Door:
    """A way to a server that can be shut and opened again, with all that is connected cut off."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: list[socket.socket] = []
        self.listener = self.listen(0)
        self.port = self.listener.getsockname()[1]

    def listen(self, port: int) -> socket.socket:
        made = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, args=(made,), daemon=True).start()
        return made

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)

    def shut(self) -> None:
        # A thread that waits in accept would keep the port open.
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def reopen(self) -> None:
        self.listener = self.listen(self.port)


def test_a_server_that_goes_away_and_comes_back(schema_url: str) -> None:
    parts = urlsplit(schema_url)
    assert parts.port is not None
    door = Door(parts.port)
    url = schema_url.replace(f":{parts.port}/", f":{door.port}/")
    writer = BackgroundWriter(url, RUN)
    writer.put(batch(0))
    assert writer.flush()
    door.shut()
    started = time.monotonic()
    for number in range(1, 30):
        writer.put(batch(number))
    assert time.monotonic() - started < 5, "nobody waits"
    assert not writer.flush(0.3)
    door.reopen()
    assert len(writer.read().batches) == 30
    writer.end(RunRecord("r", "words", "even", 1.0, ended_at_s=9.0, status=RunStatus.STOPPED))
    door.shut()
    started = time.monotonic()
    writer.close(timeout_s=0.5)
    assert time.monotonic() - started < 10, "nor does anybody at the end"
    assert writer.dropped == 0
