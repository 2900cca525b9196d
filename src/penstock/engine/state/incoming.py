"""State on its way to another executor, received part by part until all of it is there."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.messages import FragmentMessage, SegmentMessage, StateReceived
from penstock.state.backup.erasure_code import Code, TooFewFragments
from penstock.state.backup.fragments import FragmentStore
from penstock.state.config import INCOMING, PRECOPIED, STATE
from penstock.state.files.local import LocalSegments
from penstock.state.versions import Copied, Segment, StateLost


@dataclass(frozen=True)
class Expected:
    """The state of one instance that is to be on an executor in the end.

    Parameters
    ----------
    vertex : str
    instance : int
    segments : tuple of Segment
        Segments that must be received, in fragments.
    version : int, optional
        The version that must be complete in the end; None if whatever is received is of use.
    precopied : tuple of (Segment, int)
        Segments that were pre-copied, and their bytes.
    """

    vertex: str
    instance: int
    segments: tuple[Segment, ...] = ()
    version: int | None = None
    precopied: Copied = ()


class IncomingState:
    """Receives the state of one instance.

    1. `add` stores each piece, a part of a segment or a fragment of one, in a folder of its own.
    2. `finish` puts the segments together, decodes those that came in fragments, and writes them
       where the state of the executor is.
    3. It moves pre-copied segments there, if they are as large as they should be.
    4. It says which segments are missing. The caller decides whether it can go on without them.

    Parameters
    ----------
    expected : Expected
    folder : Path
        Folder of the executor.
    name : str
        Folder in it that the state is written to.
    """

    def __init__(self, expected: Expected, folder: Path, name: str = STATE) -> None:
        self.expected = expected
        self._folder, self._state = folder, LocalSegments(str(folder / name))
        folder.mkdir(parents=True, exist_ok=True)
        self._pieces_folder = tempfile.TemporaryDirectory(prefix=INCOMING, dir=folder)
        self._pieces = FragmentStore(self._pieces_folder.name)
        #: Segments of which a piece was received: whether in fragments, and in how many parts.
        self._segments: dict[Segment, tuple[bool, int]] = {}

    def __enter__(self) -> IncomingState:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the pieces."""
        self._pieces_folder.cleanup()

    def add(self, message: FragmentMessage | SegmentMessage) -> None:
        """Store a part of a segment, or a fragment of one."""
        piece = message.piece
        self._pieces.put(*self._key, piece)
        self._segments[piece.segment] = (isinstance(message, FragmentMessage), piece.parts)

    def finish(self) -> StateReceived:
        """Put together and write what was received, and say what is missing."""
        expected, key = self.expected, self._key
        written: dict[Segment, int] = {}
        missing: dict[str, str] = {}
        for segment, (coded, parts) in self._segments.items():
            try:
                contents = (self._part(segment, part, coded) for part in range(parts))
                written[segment] = self._state.write_parts(*key, segment, contents)
            except TooFewFragments as error:
                missing[str(segment)] = str(error)
        for segment in expected.segments:
            if segment not in written:
                missing.setdefault(str(segment), "nothing of it was received")
        precopied = 0
        if expected.version is not None:
            taken = self._take_precopied()
            try:
                needed = self._state.chain(*key, expected.version)
            except StateLost as error:
                missing[f"0-{expected.version}"] = str(error)
            else:
                precopied = sum(taken.get(segment, 0) for segment in needed)
        return StateReceived(*key, written, precopied, missing)

    def _part(self, segment: Segment, part: int, coded: bool) -> bytes:
        """Put together one part of a segment from its pieces."""
        pieces = self._pieces.get(*self._key, segment, part=part)
        contents = [piece.content for piece in pieces]
        if not coded and len(contents) != 1:
            raise TooFewFragments(len(contents), 1, 1, 0)
        return Code.decode(contents) if coded else bytes(contents[0])

    @property
    def _key(self) -> tuple[str, int]:
        return self.expected.vertex, self.expected.instance

    def _take_precopied(self) -> dict[Segment, int]:
        """Move pre-copied segments to the other ones, and remove the rest of them."""
        precopied = LocalSegments(str(self._folder / PRECOPIED))
        taken = {}
        for segment, size in self.expected.precopied:
            if precopied.size(*self._key, segment) == size:
                self._state.take(*self._key, segment, precopied)
                taken[segment] = size
        precopied.forget_instance(*self._key)
        return taken
