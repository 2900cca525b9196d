"""Moving state between places: the bodies of the tasks that send it and of those that take it.

State that moves while all is well comes with a batch: what sends it runs beside the batch's own
tasks, and its new home takes it in (`penstock.engine.migration.inband`). Else it is carried
between two. A job of two layers carries whole instances: places that have the runs, or fragments
of them, send; new homes put them together and write them down. A job of three layers deals router
partitions anew: instances send the rows that leave them, those that change save a new version,
backup nodes store its fragments. Nothing here changes what is in charge; that is the driver's to
say, once all is there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.batch import BatchSpec
from penstock.engine.messages import (
    DRIVER,
    ERROR,
    FRAGMENT,
    MOVED,
    RUN,
    STATS,
    Message,
    decode,
    encode,
    encode_json,
)
from penstock.engine.migration.incoming import Expected, IncomingState
from penstock.engine.repartition import Participant
from penstock.engine.state.backup import fragments, keep
from penstock.state.backup.fragments import FragmentStore, Piece, cut
from penstock.state.config import STATE
from penstock.state.files.local import LocalSegments
from penstock.state.store import StateStore
from penstock.state.table import changes
from penstock.state.versions import Copied, Segment, StateLost


@dataclass(frozen=True)
class Transfer:
    """What one place sends of one instance's state.

    Parameters
    ----------
    vertex, instance
    version : int
    to : int
        Partition of the new home.
    pieces : tuple of (Segment, int), optional
        Fragments to send; None: the runs themselves.
    there : tuple of (Segment, int)
        Runs that the new home has.
    """

    vertex: str
    instance: int
    version: int
    to: int
    pieces: tuple[tuple[Segment, int], ...] | None = None
    there: Copied = ()


@dataclass(frozen=True, eq=False)
class SendState:
    """Sends parcels to a layer, and what the driver gave it; what is not there is not sent."""

    transfers: tuple[tuple[Transfer, ...], ...]
    layer: int = 1

    def __call__(
        self, partition: int, frames: Iterable[bytes], place: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Read the files of this place."""
        for data in frames:
            yield Message.unpack(data).partition, bytes(data)
        log, kept = LocalSegments(str(place / STATE)), FragmentStore(str(place / "fragments"))
        for transfer in self.transfers[partition]:
            key = (transfer.vertex, transfer.instance)
            if transfer.pieces is None:
                try:
                    runs = log.chain(*key, transfer.version)
                except StateLost:
                    continue
                for run in sorted(set(runs) - {run for run, _ in transfer.there}):
                    try:
                        content = log.read_bytes(*key, run)
                    except StateLost:
                        # It is damaged, or batches that go on beside a job have merged it.
                        continue
                    for piece in cut(run, content):
                        yield transfer.to, self._frame(RUN, transfer, piece)
            else:
                for run, index in transfer.pieces:
                    for piece in kept.get(*key, run, index=index):
                        yield transfer.to, self._frame(FRAGMENT, transfer, piece)

    def _frame(self, kind: bytes, transfer: Transfer, piece: Piece) -> bytes:
        return Message(kind, self.layer, transfer.to, 0, 0, piece.pack()).pack()


@dataclass(frozen=True, eq=False)
class ReceiveState:
    """Writes down the state of one instance at its new home, and says what is missing."""

    wanted: tuple[Expected, ...]
    folder: str = STATE

    def __call__(
        self, partition: int, frames: Iterable[bytes], place: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Take what arrives, decode what came in fragments."""
        started = time.perf_counter()
        wanted = self.wanted[partition]
        with IncomingState(wanted, place, self.folder) as incoming:
            for data in frames:
                incoming.take(Message.unpack(data))
            came = incoming.settle()
        answer = {
            "vertex": wanted.vertex,
            "instance": wanted.instance,
            "bytes": came.size_bytes,
            "ahead": came.precopied_bytes,
            "runs": sorted([run.first, run.last, size] for run, size in came.runs.items()),
            "missing": came.missing,
            "seconds": time.perf_counter() - started,
        }
        yield 0, Message(STATS, DRIVER, 0, 0, wanted.instance, encode_json(answer)).pack()


@dataclass(frozen=True, eq=False)
class SendRows:
    """Sends the rows that leave an instance to those that get them, in a layer."""

    spec: BatchSpec
    participants: tuple[Participant, ...]
    to: Mapping[tuple[str, int], int]
    layer: int = 1

    def __call__(
        self, partition: int, frames: Iterable[bytes], place: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Read the state, and send what belongs elsewhere."""
        for _ in frames:
            pass
        participant = self.participants[partition]
        home = StateStore(self.spec.state_config, place, self.spec.token)
        try:
            state = home.load(
                participant.vertex, participant.instance, participant.by, participant.base
            )
        except StateLost as error:
            yield 0, Message(ERROR, DRIVER, 0, 1, 0, encode_json(str(error))).pack()
            return
        rows = state.where(participant.leave)
        if rows is None:
            return
        owner = participant.homes(rows)
        for target in np.unique(owner).tolist():
            to = self.to[participant.vertex, target]
            part = rows.filter(pa.array(owner == target))
            yield to, Message(MOVED, self.layer, to, 0, participant.instance, encode(part)).pack()


@dataclass(frozen=True, eq=False)
class SaveRows:
    """Saves the new version of an instance: without the rows that left, with those that came."""

    spec: BatchSpec
    participants: tuple[Participant, ...]

    def __call__(
        self, partition: int, frames: Iterable[bytes], place: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Apply the change and save it."""
        participant, spec = self.participants[partition], self.spec
        came = []
        for data in frames:
            frame = Message.unpack(data)
            if frame.kind == ERROR:
                yield 0, bytes(data)
                return
            came.append(decode(frame.body))
        home = StateStore(spec.state_config, place, spec.token)
        state = home.load(
            participant.vertex, participant.instance, participant.by, participant.base
        )
        changed = changes([*participant.removed(state), *came])
        answer: dict[str, Any] = {
            "vertex": participant.vertex,
            "instance": participant.instance,
            "bytes": 0,
        }
        answer["saved"] = None
        if changed.num_rows or participant.whole:
            state = state.put(changed)
            key = (participant.vertex, participant.instance)
            # What is kept elsewhere must be what this starts from, or else be everything.
            backed = spec.backed[participant.vertex][participant.instance]
            whole = participant.whole or (bool(spec.backup_nodes) and backed != participant.base)
            saved = home.save(*key, participant.base, spec.version, changed, state, whole=whole)
            answer["saved"] = {
                "version": spec.version,
                "run": [saved.segment.first, saved.segment.last],
                "bytes": saved.content.size,
            }
            answer["bytes"] = sum(part.nbytes for part in came)
            if spec.backup_nodes:
                answer["saved"]["backed"] = [saved.segment.first, saved.segment.last]
                for frame in fragments(spec, *key, saved.segment, saved.content):
                    yield frame.partition, frame.pack()
        yield 0, Message(STATS, DRIVER, 0, 0, participant.instance, encode_json(answer)).pack()


@dataclass(frozen=True, eq=False)
class StoreFragments:
    """Stores fragments, as in the layer of keepers of any batch."""

    spec: BatchSpec

    def __call__(
        self, partition: int, frames: Iterable[bytes], place: Path
    ) -> Iterator[tuple[int, bytes]]:
        """Store what is for this node, hand on the rest."""
        yield from keep(self.spec, partition, frames, place)
