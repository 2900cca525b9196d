"""Moving state between places: the bodies of the tasks that send it and of those that take it.

State that moves while all is well comes with a batch: what sends it runs beside the batch's own
tasks, and its new home takes it in (`penstock.engine.migration.inband`). Else it is carried
between two. A job of two layers carries whole instances: places that have the runs, or fragments
of them, send; new homes put them together and write them down. A job of three layers deals router
partitions anew: instances send the rows that leave them, those that change save a new version,
keepers store its fragments. Nothing here changes what is in charge; that is the driver's to say, once all is there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.batch import Wave
from penstock.engine.messages import (
    DRIVER,
    ERROR,
    FRAGMENT,
    MOVED,
    RUN,
    STATS,
    Frame,
    decode,
    encode,
    encode_json,
)
from penstock.engine.migration.incoming import Arrival, Arriving
from penstock.engine.repartition import Party
from penstock.engine.state.backup import fragments, keep
from penstock.state.backup.fragments import FragmentStore, Piece, cut
from penstock.state.files.local import StateLog
from penstock.state.store import STATE, Home
from penstock.state.table import changes
from penstock.state.versions import Copied, Span, StateLost


@dataclass(frozen=True)
class Parcel:
    """What one place sends of one instance's state.

    Parameters
    ----------
    vertex, instance
    version : int
    to : int
        Partition of the new home.
    pieces : tuple of (Span, int), optional
        Fragments to send; None: the runs themselves.
    there : tuple of (Span, int)
        Runs that the new home has.
    """

    vertex: str
    instance: int
    version: int
    to: int
    pieces: tuple[tuple[Span, int], ...] | None = None
    there: Copied = ()


@dataclass(frozen=True, eq=False)
class Send:
    """Sends parcels to a layer, and what the driver gave it; what is not there is not sent."""

    parcels: tuple[tuple[Parcel, ...], ...]
    layer: int = 1

    def __call__(
        self, partition: int, frames: Iterable[bytes], place: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Read the files of this place."""
        for data in frames:
            yield Frame.unpack(data).partition, bytes(data)
        log, kept = StateLog(str(place / STATE)), FragmentStore(str(place / "fragments"))
        for parcel in self.parcels[partition]:
            key = (parcel.vertex, parcel.instance)
            if parcel.pieces is None:
                try:
                    runs = log.chain(*key, parcel.version)
                except StateLost:
                    continue
                for run in sorted(set(runs) - {run for run, _ in parcel.there}):
                    try:
                        content = log.read_bytes(*key, run)
                    except FileNotFoundError:
                        # Batches that go on beside a job have merged it.
                        continue
                    for piece in cut(run, content):
                        yield parcel.to, self._frame(RUN, parcel, piece)
            else:
                for run, index in parcel.pieces:
                    for piece in kept.get(*key, run, index=index):
                        yield parcel.to, self._frame(FRAGMENT, parcel, piece)

    def _frame(self, kind: bytes, parcel: Parcel, piece: Piece) -> bytes:
        return Frame(kind, self.layer, parcel.to, 0, 0, piece.pack()).pack()


@dataclass(frozen=True, eq=False)
class Receive:
    """Writes down the state of one instance at its new home, and says what is missing."""

    wanted: tuple[Arrival, ...]
    folder: str = STATE

    def __call__(
        self, partition: int, frames: Iterable[bytes], place: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Take what arrives, decode what came in fragments."""
        started = time.perf_counter()
        wanted = self.wanted[partition]
        with Arriving(wanted, place, self.folder) as arriving:
            for data in frames:
                arriving.take(Frame.unpack(data))
            came = arriving.settle()
        answer = {
            "vertex": wanted.vertex,
            "instance": wanted.instance,
            "bytes": came.size_bytes,
            "ahead": came.ahead_bytes,
            "runs": sorted([run.first, run.last, size] for run, size in came.runs.items()),
            "missing": came.missing,
            "seconds": time.perf_counter() - started,
        }
        yield 0, Frame(STATS, DRIVER, 0, 0, wanted.instance, encode_json(answer)).pack()


@dataclass(frozen=True, eq=False)
class Deal:
    """Sends the rows that leave an instance to those that get them, in a layer."""

    wave: Wave
    parties: tuple[Party, ...]
    to: Mapping[tuple[str, int], int]
    layer: int = 1

    def __call__(
        self, partition: int, frames: Iterable[bytes], place: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Read the state, and send what belongs elsewhere."""
        for _ in frames:
            pass
        party = self.parties[partition]
        home = Home(self.wave.keeping, place, self.wave.token)
        try:
            state = home.load(party.vertex, party.instance, party.by, party.base)
        except StateLost as error:
            yield 0, Frame(ERROR, DRIVER, 0, 1, 0, encode_json(str(error))).pack()
            return
        rows = state.where(party.leave)
        if rows is None:
            return
        owner = party.homes(rows)
        for target in np.unique(owner).tolist():
            to = self.to[party.vertex, target]
            part = rows.filter(pa.array(owner == target))
            yield to, Frame(MOVED, self.layer, to, 0, party.instance, encode(part)).pack()


@dataclass(frozen=True, eq=False)
class Settle:
    """Saves the new version of an instance: without the rows that left, with those that came."""

    wave: Wave
    parties: tuple[Party, ...]

    def __call__(
        self, partition: int, frames: Iterable[bytes], place: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Apply the change and save it."""
        party, wave = self.parties[partition], self.wave
        came = []
        for data in frames:
            frame = Frame.unpack(data)
            if frame.kind == ERROR:
                yield 0, bytes(data)
                return
            came.append(decode(frame.body))
        home = Home(wave.keeping, place, wave.token)
        state = home.load(party.vertex, party.instance, party.by, party.base)
        changed = changes([*party.removed(state), *came])
        answer: dict[str, Any] = {"vertex": party.vertex, "instance": party.instance, "bytes": 0}
        answer["saved"] = None
        if changed.num_rows or party.whole:
            state = state.put(changed)
            key = (party.vertex, party.instance)
            # What is kept elsewhere must be what this starts from, or else be everything.
            backed = wave.backed[party.vertex][party.instance]
            whole = party.whole or (bool(wave.keepers) and backed != party.base)
            saved = home.save(*key, party.base, wave.version, changed, state, whole=whole)
            answer["saved"] = {
                "version": wave.version,
                "run": [saved.run.first, saved.run.last],
                "bytes": saved.content.size,
            }
            answer["bytes"] = sum(part.nbytes for part in came)
            if wave.keepers:
                answer["saved"]["backed"] = [saved.run.first, saved.run.last]
                for frame in fragments(wave, *key, saved.run, saved.content):
                    yield frame.partition, frame.pack()
        yield 0, Frame(STATS, DRIVER, 0, 0, party.instance, encode_json(answer)).pack()


@dataclass(frozen=True, eq=False)
class Keep:
    """Stores fragments, as in the layer of keepers of any batch."""

    wave: Wave

    def __call__(
        self, partition: int, frames: Iterable[bytes], place: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Store what is for this node, hand on the rest."""
        yield from keep(self.wave, partition, frames, place)
