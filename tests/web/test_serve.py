"""The server from its start to its end, with readers that do not go away by themselves."""

from __future__ import annotations

import logging
import threading
import urllib.request
from pathlib import Path

import pytest
import uvicorn

from penstock.common.errors import PenstockError
from penstock.store.records import RunStatus
from penstock.testing.page_store import fill_store
from penstock.web.address import PageAddress
from penstock.web.server import PageProcess, serve


def test_it_ends_while_somebody_follows_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody is cut off: who follows a run is told nothing more, and the connection ends.
    monkeypatch.setattr("penstock.web.server.GRACE_S", 60)
    place = tmp_path / "m.sqlite"
    fill_store(place, batches=3, status=RunStatus.RUNNING)
    found: list[str] = []
    servers: list[uvicorn.Server] = []
    ready = threading.Event()

    def tell(url: str) -> None:
        found.append(url)
        ready.set()

    serving = threading.Thread(
        target=serve, args=(place, PageAddress("127.0.0.1", 0), tell, servers.append)
    )
    serving.start()
    assert ready.wait(30)
    with (
        caplog.at_level(logging.WARNING),
        urllib.request.urlopen(f"{found[0]}api/runs/r1/live", timeout=30) as stream,
    ):
        assert stream.readline().startswith(b"retry: ")
        servers[0].should_exit = True
        stream.read()
        serving.join(30)
    assert not serving.is_alive()
    assert not caplog.records


def test_the_process_of_a_page_has_a_number_while_it_runs(tmp_path: Path) -> None:
    page = PageProcess(tmp_path / "m.sqlite", PageAddress("127.0.0.1", 0))
    with pytest.raises(PenstockError, match="does not run"):
        _ = page.pid
    with page:
        assert page.pid > 0
