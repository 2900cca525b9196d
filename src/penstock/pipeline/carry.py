"""Moving state between places: the bodies of the tasks that send it and of those that take it.

A job of two layers carries whole instances: places that have the runs, or fragments of them, send;
new homes put them together and write them down. A job of three layers deals router partitions anew:
instances send the rows that leave them, those that change save a new version, keepers store its
fragments. Nothing here changes what is in charge; that is the driver's to say, once all is there.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.model import RoutingTable
from penstock.model.arrays import BoolArray, IntArray
from penstock.pipeline.frames import (
    DATA,
    DRIVER,
    ERROR,
    FRAGMENT,
    RUN,
    STATS,
    Frame,
    decode,
    encode,
    encode_json,
)
from penstock.pipeline.keepers import fragments, keep
from penstock.pipeline.layout import Layout
from penstock.pipeline.wave import Wave
from penstock.state.codec import Code, TooFewFragments
from penstock.state.fragments import FragmentStore, Piece, cut
from penstock.state.home import ARRIVING, COMING, STATE, Home
from penstock.state.keyed import changes, key_hashes, removal
from penstock.state.log import StateLog
from penstock.state.runs import Span, StateLost
from penstock.strategies.route import modulo
from penstock.strategies.route.keys import HashArray

#: Runs that were copied ahead, and their bytes.
Copied = tuple[tuple[Span, int], ...]

#: The body of a stage's tasks: partition, frames in, folder of the place; partitions, frames out.
Body = Callable[[int, Iterable[bytes], Path], Iterator[tuple[int, bytes]]]


@dataclass(frozen=True, eq=False)
class Stage:
    """Tasks that run together.

    Parameters
    ----------
    places : tuple of str
        One for each partition, "" being anywhere.
    body : callable
    given : tuple of tuple of bytes
        Frames that the driver sends to each partition; of a job's first stage only.
    """

    places: tuple[str, ...]
    body: Body
    given: tuple[tuple[bytes, ...], ...] = ()


class Backend(Protocol):
    """Something that runs tasks in places, and returns the frames for the driver."""

    def run(self, layout: Layout, wave: Wave) -> Iterable[bytes]:
        """Run a batch; raise if any task could not be run."""
        ...

    def job(self, name: str, stages: Sequence[Stage], *, beside: bool = False) -> Iterable[bytes]:
        """Run stages one after the other, each task in its place.

        Parameters
        ----------
        beside : bool
            It is run while batches are, by another thread, and may be cancelled.
        """
        ...

    def cancel_beside(self) -> None:
        """Have the job that runs beside batches fail, if there is one."""
        ...

    def place(self, home: str) -> str:
        """Return what tells the place at a home from all others there ever were; "" is anywhere."""
        ...

    def keepers(self) -> Mapping[str, str]:
        """Return, for each node that is there, the home of the process that keeps fragments."""
        ...

    def alive(self) -> frozenset[str]:
        """Return the places that are there."""
        ...


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


@dataclass(frozen=True)
class Arrival:
    """What is to be at the new home of one instance.

    Parameters
    ----------
    vertex, instance
    runs : tuple of Span
        Runs that must come, in fragments.
    version : int, optional
        What there must be all of then; None: whatever comes is of use.
    there : tuple of (Span, int)
        Runs of it that were copied ahead.
    """

    vertex: str
    instance: int
    runs: tuple[Span, ...] = ()
    version: int | None = None
    there: Copied = ()


@dataclass(frozen=True, eq=False)
class Send:
    """Sends parcels, and what the driver gave it; what is not there is not sent."""

    parcels: tuple[tuple[Parcel, ...], ...]

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
                        yield parcel.to, Frame(RUN, 1, parcel.to, 0, 0, piece.pack()).pack()
            else:
                for run, index in parcel.pieces:
                    for piece in kept.get(*key, run, index=index):
                        yield parcel.to, Frame(FRAGMENT, 1, parcel.to, 0, 0, piece.pack()).pack()


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
        vertex, instance = wanted.vertex, wanted.instance
        log = StateLog(str(place / self.folder))
        done: dict[Span, int] = {}
        missing: dict[str, str] = {}
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=ARRIVING, dir=place) as arriving:
            came = FragmentStore(arriving)
            runs: dict[Span, tuple[bool, int]] = {}
            for data in frames:
                frame = Frame.unpack(data)
                piece = Piece.unpack(frame.body)
                came.put(vertex, instance, piece)
                runs[piece.run] = (frame.kind == FRAGMENT, piece.parts)
            for run, (coded, parts) in runs.items():
                try:
                    contents = (_part(came, wanted, run, part, coded) for part in range(parts))
                    done[run] = log.write_parts(vertex, instance, run, contents)
                except TooFewFragments as error:
                    missing[str(run)] = str(error)
        for run in wanted.runs:
            if run not in done:
                missing.setdefault(str(run), "nothing of it came")
        ahead = 0
        if wanted.version is not None:
            taken = _take_over(wanted, StateLog(str(place / COMING)), log)
            try:
                needed = log.chain(vertex, instance, wanted.version)
            except StateLost as error:
                missing[f"0-{wanted.version}"] = str(error)
            else:
                ahead = sum(taken.get(run, 0) for run in needed)
        answer = {
            "vertex": vertex,
            "instance": instance,
            "bytes": sum(done.values()),
            "ahead": ahead,
            "runs": sorted([run.first, run.last, size] for run, size in done.items()),
            "missing": missing,
            "seconds": time.perf_counter() - started,
        }
        yield 0, Frame(STATS, DRIVER, 0, 0, instance, encode_json(answer)).pack()


def _part(came: FragmentStore, wanted: Arrival, run: Span, part: int, coded: bool) -> bytes:
    """Put together one part of a run from what came of it."""
    pieces = came.get(wanted.vertex, wanted.instance, run, part=part)
    contents = [piece.content for piece in pieces]
    if not coded and len(contents) != 1:
        raise TooFewFragments(len(contents), 1, 1, 0)
    return Code.decode(contents) if coded else bytes(contents[0])


def _take_over(wanted: Arrival, coming: StateLog, log: StateLog) -> dict[Span, int]:
    """Put runs that were copied ahead where the state is, and drop the rest of them."""
    key, taken = (wanted.vertex, wanted.instance), {}
    for run, size in wanted.there:
        if coming.size(*key, run) == size:
            log.take(*key, run, coming)
            taken[run] = size
    coming.forget_instance(*key)
    return taken


@dataclass(frozen=True)
class Party:
    """An instance that takes part in dealing router partitions anew.

    Parameters
    ----------
    vertex, instance
    base : int
        Version that it has; -1 for a new one.
    by, route : tuple of str
        Columns of the state's key, and of the key that tuples are routed by.
    table : RoutingTable or None
        The table from now on; None: all rows stay.
    whole : bool
        Save everything, whatever changes: what peers keep is to be spread anew.
    """

    vertex: str
    instance: int
    base: int
    by: tuple[str, ...]
    route: tuple[str, ...]
    table: RoutingTable | None
    whole: bool = False

    def homes(self, rows: pa.Table) -> IntArray:
        """Instance that each row belongs to from now on."""
        if self.table is None:
            return np.full(rows.num_rows, self.instance, dtype=np.int64)
        return homes(key_hashes(rows, self.route), self.table)

    def leave(self, rows: pa.Table) -> BoolArray:
        """Which rows belong to another instance from now on."""
        return np.asarray(self.homes(rows) != self.instance)


@dataclass(frozen=True, eq=False)
class Deal:
    """Sends the rows that leave an instance to those that get them."""

    wave: Wave
    parties: tuple[Party, ...]
    to: dict[tuple[str, int], int]

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
            yield to, Frame(DATA, 1, to, 0, party.instance, encode(part)).pack()


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
        parts = []
        rows = state.where(party.leave) if party.table is not None else None
        if rows is not None:
            parts.append(removal(rows, party.by))
        parts += came
        changed = changes(parts)
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


def homes(hashes: HashArray, table: RoutingTable) -> IntArray:
    """Instance of each hash."""
    partitions = np.asarray(table.partitions, dtype=np.int64)
    return np.asarray(partitions[modulo(hashes, len(partitions))])
