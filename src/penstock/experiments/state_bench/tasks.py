"""What the tasks of the state benchmark do: make state, save it, load it, forget it.

Saving and loading are the calls that tasks of a batch make; what lies between, coding, sending,
keeping and putting together, are the engine's own stages.
"""

from __future__ import annotations

import shutil
import time
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.engine.batch import BatchSpec
from penstock.engine.messages import DRIVER, SavedVersion, pack
from penstock.engine.state.backup import backup_messages
from penstock.state.files.local import LocalSegments
from penstock.state.store import StateStore, clear_cache
from penstock.state.table import KeyedTable
from penstock.state.versions import Segment

#: The stateful operator, and the bytes of a row of its state: a key, a counter and a payload.
OPERATOR, ROW_BYTES = "held", 100

#: State that a worker was told to make, until it is saved.
_MADE: dict[tuple[str, int], KeyedTable] = {}

Made = Iterator[tuple[int, bytes]]


@dataclass(frozen=True)
class Answer:
    """What a task tells the driver.

    Parameters
    ----------
    instance : int
    seconds : float
    total : int
        Sum of the counters in its state.
    saved : SavedVersion or None
    """

    instance: int
    seconds: float = 0.0
    total: int = 0
    saved: SavedVersion | None = None


def made_rows(size_bytes: int, seed: int) -> pa.Table:
    """Make the rows of a state of about so many bytes."""
    count = max(1, size_bytes // ROW_BYTES)
    rng = np.random.default_rng(seed)
    width = ROW_BYTES - 20
    payload = pa.py_buffer(rng.bytes(count * width))
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * width)
    return pa.table(
        {
            "key": pa.array(rng.permutation(count)),
            "n": pa.array(rng.integers(0, 1000, count)),
            "payload": pa.Array.from_buffers(pa.binary(), count, [None, offsets, payload]),
        }
    )


@dataclass(frozen=True, eq=False)
class Fill:
    """Makes state in memory; nothing is saved."""

    spec: BatchSpec
    sizes: tuple[int, ...]

    def __call__(self, partition: int, frames: Iterable[bytes], place: Path) -> Made:
        """Make the state of one instance."""
        _drain(frames)
        rows = made_rows(self.sizes[partition], seed=partition)
        state = KeyedTable(("key",)).put(rows).compact()
        _MADE[self.spec.token, partition] = state
        yield _sent(Answer(partition, total=_total(state)))


@dataclass(frozen=True, eq=False)
class Save:
    """Saves all state of an instance, as a task does at the end of its batch.

    Parameters
    ----------
    spec : BatchSpec
    server : str
        URL of a server for files that stands for the shared folder; "" for the folder itself.
    """

    spec: BatchSpec
    server: str = ""

    def __call__(self, partition: int, frames: Iterable[bytes], place: Path) -> Made:
        """Save, and send the fragments to those that keep them."""
        _drain(frames)
        started, spec = time.perf_counter(), self.spec
        state = _MADE.pop((spec.token, partition))
        store = _state_store(spec, place, self.server)
        saved = store.save(OPERATOR, partition, -1, spec.version, pa.table({}), state, whole=True)
        if self.server and store.shared is not None:
            upload(_url(self.server, partition, saved.segment), saved.content)
        for to, message in backup_messages(spec, OPERATOR, partition, saved):
            yield to.partition, pack(message, to)
        seconds = time.perf_counter() - started
        yield _sent(Answer(partition, seconds, saved=SavedVersion.of(spec.version, saved)))


@dataclass(frozen=True, eq=False)
class Load:
    """Loads the state of an instance, as a task does at the beginning of its batch."""

    spec: BatchSpec
    server: str = ""

    def __call__(self, partition: int, frames: Iterable[bytes], place: Path) -> Made:
        """Load, and add up what is there."""
        _drain(frames)
        started, spec = time.perf_counter(), self.spec
        store = _state_store(spec, place, self.server)
        if self.server and store.shared is not None:
            run = Segment(0, spec.version)
            path = store.files.path(OPERATOR, partition, run)
            path.parent.mkdir(parents=True, exist_ok=True)
            download(_url(self.server, partition, run), path)
        state = store.load(OPERATOR, partition, ("key",), spec.version)
        seconds = time.perf_counter() - started
        yield _sent(Answer(partition, seconds, total=_total(state)))


@dataclass(frozen=True, eq=False)
class Clean:
    """Forgets all state, and removes what is in files."""

    def __call__(self, partition: int, frames: Iterable[bytes], place: Path) -> Made:
        """Clean one place."""
        _drain(frames)
        _MADE.clear()
        clear_cache()
        shutil.rmtree(place, ignore_errors=True)
        pa.default_memory_pool().release_unused()
        yield _sent(Answer(partition))


def upload(url: str, content: pa.Buffer) -> None:
    """Send a file to a server."""
    request = urllib.request.Request(url, data=memoryview(content), method="PUT")
    with urllib.request.urlopen(request) as reply:
        reply.read()


def download(url: str, path: Path) -> None:
    """Fetch a file from a server."""
    with urllib.request.urlopen(url) as reply, path.open("wb") as out:
        shutil.copyfileobj(reply, out, 1 << 20)


def _state_store(spec: BatchSpec, place: Path, server: str) -> StateStore:
    state_config = spec.state_config
    if server and state_config.in_checkpoint:
        # What goes over the network lies in a folder of the node before and after it.
        state_config = replace(state_config, shared=str(place / "checkpoint"))
    return StateStore(state_config, place, spec.token)


def _url(server: str, instance: int, run: Segment) -> str:
    return f"{server.rstrip('/')}/{LocalSegments('').path(OPERATOR, instance, run)}"


def _total(state: KeyedTable) -> int:
    rows = state.base.rows
    return 0 if rows is None else int(np.asarray(rows.column("n")).sum())


def _drain(frames: Iterable[bytes]) -> None:
    for _ in frames:
        pass


def _sent(answer: Answer) -> tuple[int, bytes]:
    return DRIVER.partition, pack(answer, DRIVER)
