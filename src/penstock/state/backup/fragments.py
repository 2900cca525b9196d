"""Fragments that a node keeps for others: files, found by vertex, instance and versions.

What is long travels, and is coded, in parts, so that no process holds much of it at once.
"""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote

from penstock.state.files.local import put
from penstock.state.versions import Segment, outdated

#: Bytes of a part of a run.
PART_BYTES = 16_000_000

_NAME = re.compile(r"(\d+)-(\d+)\.(\d+)of(\d+)\.(\d+)")
_HEAD = struct.Struct("<qqIHH")


@dataclass(frozen=True)
class Piece:
    """Bytes of a run that travel.

    Parameters
    ----------
    run : Segment
    index : int
        Number of the fragment; 0 where the bytes are those of the run itself.
    content : bytes or memoryview
    part, parts : int
        Which part of the run it is of, and how many there are.
    """

    run: Segment
    index: int
    content: bytes | memoryview
    part: int = 0
    parts: int = 1

    def pack(self) -> bytes:
        """Put before the bytes what they are."""
        head = _HEAD.pack(self.run.first, self.run.last, self.index, self.part, self.parts)
        return b"".join((head, self.content))

    @classmethod
    def unpack(cls, body: bytes | memoryview) -> Piece:
        """Read back what `pack` wrote; the bytes are not copied."""
        first, last, index, part, parts = _HEAD.unpack_from(body)
        return cls(Segment(first, last), index, memoryview(body)[_HEAD.size :], part, parts)


def cut(run: Segment, content: memoryview) -> Iterator[Piece]:
    """Cut a run into parts.

    Examples
    --------
    >>> [len(piece.content) for piece in cut(Segment(0, 7), memoryview(bytes(40_000_000)))]
    [16000000, 16000000, 8000000]
    """
    parts = max(1, -(-len(content) // PART_BYTES))
    for part in range(parts):
        yield Piece(run, 0, content[part * PART_BYTES : (part + 1) * PART_BYTES], part, parts)


@dataclass(frozen=True)
class FragmentStore:
    """The fragments in one place.

    Examples
    --------
    >>> import tempfile
    >>> kept = FragmentStore(tempfile.mkdtemp())
    >>> kept.put("count", 2, Piece(Segment(0, 7), 1, b"..."))
    >>> [piece.content for piece in kept.get("count", 2, Segment(0, 7))]
    [b'...']
    """

    root: str

    def put(self, vertex: str, instance: int, piece: Piece) -> None:
        """Keep a fragment of a part."""
        name = f"{piece.run}.{piece.part}of{piece.parts}.{piece.index}"
        put(self._folder(vertex, instance) / name, lambda out: out.write(piece.content))

    def get(
        self,
        vertex: str,
        instance: int,
        run: Segment,
        *,
        index: int | None = None,
        part: int | None = None,
    ) -> Iterator[Piece]:
        """Read the fragments of a run that are there; those of one part, or of one number."""
        paths = self.paths(vertex, instance)
        for found in sorted(paths, key=lambda piece: (piece.part, piece.index)):
            if found.run == run and index in (None, found.index) and part in (None, found.part):
                try:
                    yield replace(found, content=paths[found].read_bytes())
                except FileNotFoundError:
                    # A keeper has removed it meanwhile.
                    continue

    def paths(self, vertex: str, instance: int) -> dict[Piece, Path]:
        """Files of an instance's fragments, by what they are; without their content."""
        folder = self._folder(vertex, instance)
        if not folder.is_dir():
            return {}
        matches = ((path, _NAME.fullmatch(path.name)) for path in folder.iterdir())
        return {_named(*map(int, m.groups())): path for path, m in matches if m}

    def forget(
        self, vertex: str, instance: int, committed: int, needed: Collection[Segment]
    ) -> None:
        """Remove what a committed version, made of the needed runs, and later ones do not need."""
        paths = self.paths(vertex, instance)
        old = outdated({piece.run for piece in paths}, committed, needed)
        for piece, path in paths.items():
            if piece.run in old:
                path.unlink(missing_ok=True)

    def _folder(self, vertex: str, instance: int) -> Path:
        return Path(self.root) / quote(vertex, safe="") / str(instance)


def _named(first: int, last: int, part: int, parts: int, index: int) -> Piece:
    return Piece(Segment(first, last), index, b"", part, parts)


def sweep(root: Path, wanted: Mapping[str, Collection[int]]) -> None:
    """Remove the folders of instances that a place has no business with any more."""
    if not root.is_dir():
        return
    for vertex in root.iterdir():
        instances = wanted.get(unquote(vertex.name), ())
        for folder in vertex.iterdir():
            if not (folder.name.isdigit() and int(folder.name) in instances):
                shutil.rmtree(folder, ignore_errors=True)
