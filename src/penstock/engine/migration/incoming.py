"""State that comes to the new home of an instance, part by part, until all of it is there."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.messages import FRAGMENT, Frame
from penstock.state.backup.erasure_code import Code, TooFewFragments
from penstock.state.backup.fragments import FragmentStore, Piece
from penstock.state.files.local import StateLog
from penstock.state.store import ARRIVING, COMING, STATE
from penstock.state.versions import Copied, Span, StateLost


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


@dataclass(frozen=True)
class Came:
    """What is there now.

    Parameters
    ----------
    runs : mapping of Span to int
        Runs that came, and their bytes.
    ahead_bytes : int
        Bytes that were copied ahead and are of use.
    missing : mapping of str to str
        Versions that did not come, and why.
    """

    runs: Mapping[Span, int]
    ahead_bytes: int
    missing: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        """Bytes that came."""
        return sum(self.runs.values())


class Arriving:
    """Takes in the state of one instance; what comes waits in files, and is removed on `close`.

    Parameters
    ----------
    wanted : Arrival
    place : Path
        Folder of the node that this runs on.
    folder : str
        Where in it the state is to be.
    """

    def __init__(self, wanted: Arrival, place: Path, folder: str = STATE) -> None:
        self.wanted = wanted
        self._place, self._log = place, StateLog(str(place / folder))
        place.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix=ARRIVING, dir=place)
        self._came = FragmentStore(self._folder.name)
        self._runs: dict[Span, tuple[bool, int]] = {}

    def __enter__(self) -> Arriving:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what has come and was not settled."""
        self._folder.cleanup()

    def take(self, frame: Frame) -> None:
        """Take a part of a run, or a fragment of one."""
        piece = Piece.unpack(frame.body)
        self._came.put(self.wanted.vertex, self.wanted.instance, piece)
        self._runs[piece.run] = (frame.kind == FRAGMENT, piece.parts)

    def settle(self) -> Came:
        """Put together what came, write it down, and say what is missing."""
        wanted, log = self.wanted, self._log
        key = (wanted.vertex, wanted.instance)
        done: dict[Span, int] = {}
        missing: dict[str, str] = {}
        for run, (coded, parts) in self._runs.items():
            try:
                contents = (self._part(run, part, coded) for part in range(parts))
                done[run] = log.write_parts(*key, run, contents)
            except TooFewFragments as error:
                missing[str(run)] = str(error)
        for run in wanted.runs:
            if run not in done:
                missing.setdefault(str(run), "nothing of it came")
        ahead = 0
        if wanted.version is not None:
            taken = self._take_over()
            try:
                needed = log.chain(*key, wanted.version)
            except StateLost as error:
                missing[f"0-{wanted.version}"] = str(error)
            else:
                ahead = sum(taken.get(run, 0) for run in needed)
        return Came(done, ahead, missing)

    def _part(self, run: Span, part: int, coded: bool) -> bytes:
        """Put together one part of a run from what came of it."""
        pieces = self._came.get(self.wanted.vertex, self.wanted.instance, run, part=part)
        contents = [piece.content for piece in pieces]
        if not coded and len(contents) != 1:
            raise TooFewFragments(len(contents), 1, 1, 0)
        return Code.decode(contents) if coded else bytes(contents[0])

    def _take_over(self) -> dict[Span, int]:
        """Put runs that were copied ahead where the state is, and drop the rest of them."""
        coming = StateLog(str(self._place / COMING))
        key, taken = (self.wanted.vertex, self.wanted.instance), {}
        for run, size in self.wanted.there:
            if coming.size(*key, run) == size:
                self._log.take(*key, run, coming)
                taken[run] = size
        coming.forget_instance(*key)
        return taken
