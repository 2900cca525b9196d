"""State that comes to the new home of an instance, part by part, until all of it is there."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.messages import FRAGMENT, Message
from penstock.state.backup.erasure_code import Code, TooFewFragments
from penstock.state.backup.fragments import FragmentStore, Piece
from penstock.state.config import INCOMING, PRECOPIED, STATE
from penstock.state.files.local import LocalSegments
from penstock.state.versions import Copied, Segment, StateLost


@dataclass(frozen=True)
class Expected:
    """What is to be at the new home of one instance.

    Parameters
    ----------
    vertex, instance
    runs : tuple of Segment
        Runs that must come, in fragments.
    version : int, optional
        What there must be all of then; None: whatever comes is of use.
    there : tuple of (Segment, int)
        Runs of it that were copied ahead.
    """

    vertex: str
    instance: int
    runs: tuple[Segment, ...] = ()
    version: int | None = None
    there: Copied = ()


@dataclass(frozen=True)
class Received:
    """What is there now.

    Parameters
    ----------
    runs : mapping of Segment to int
        Runs that came, and their bytes.
    precopied_bytes : int
        Bytes that were copied ahead and are of use.
    missing : mapping of str to str
        Versions that did not come, and why.
    """

    runs: Mapping[Segment, int]
    precopied_bytes: int
    missing: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        """Bytes that came."""
        return sum(self.runs.values())


class IncomingState:
    """Takes in the state of one instance; what comes waits in files, and is removed on `close`.

    Parameters
    ----------
    wanted : Expected
    place : Path
        Folder of the node that this runs on.
    folder : str
        Where in it the state is to be.
    """

    def __init__(self, wanted: Expected, place: Path, folder: str = STATE) -> None:
        self.wanted = wanted
        self._place, self._log = place, LocalSegments(str(place / folder))
        place.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix=INCOMING, dir=place)
        self._came = FragmentStore(self._folder.name)
        self._runs: dict[Segment, tuple[bool, int]] = {}

    def __enter__(self) -> IncomingState:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove what has come and was not settled."""
        self._folder.cleanup()

    def take(self, frame: Message) -> None:
        """Take a part of a run, or a fragment of one."""
        piece = Piece.unpack(frame.body)
        self._came.put(self.wanted.vertex, self.wanted.instance, piece)
        self._runs[piece.segment] = (frame.kind == FRAGMENT, piece.parts)

    def settle(self) -> Received:
        """Put together what came, write it down, and say what is missing."""
        wanted, log = self.wanted, self._log
        key = (wanted.vertex, wanted.instance)
        done: dict[Segment, int] = {}
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
        return Received(done, ahead, missing)

    def _part(self, run: Segment, part: int, coded: bool) -> bytes:
        """Put together one part of a run from what came of it."""
        pieces = self._came.get(self.wanted.vertex, self.wanted.instance, run, part=part)
        contents = [piece.content for piece in pieces]
        if not coded and len(contents) != 1:
            raise TooFewFragments(len(contents), 1, 1, 0)
        return Code.decode(contents) if coded else bytes(contents[0])

    def _take_over(self) -> dict[Segment, int]:
        """Put runs that were copied ahead where the state is, and drop the rest of them."""
        coming = LocalSegments(str(self._place / PRECOPIED))
        key, taken = (self.wanted.vertex, self.wanted.instance), {}
        for run, size in self.wanted.there:
            if coming.size(*key, run) == size:
                self._log.take(*key, run, coming)
                taken[run] = size
        coming.forget_instance(*key)
        return taken
