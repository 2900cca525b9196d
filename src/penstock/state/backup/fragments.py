"""Fragments that a backup node keeps for others: files by operator, instance and versions.

A long segment is sent and coded in parts, so that no process has much of it in memory at once.
"""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.state.files.filesystem import folder_name, write_file
from penstock.state.versions import Segment, outdated

#: Bytes of a part of a segment.
PART_BYTES = 16_000_000

_NAME = re.compile(r"(\d+)-(\d+)\.(\d+)of(\d+)\.(\d+)")
_HEAD = struct.Struct("<qqIHH")


@dataclass(frozen=True)
class Piece:
    """Bytes of a segment, or of a fragment of it, that are sent.

    Parameters
    ----------
    segment : Segment
    index : int
        Number of the fragment; 0 where the bytes are those of the segment itself.
    content : bytes or memoryview
    part, parts : int
        Which part of the segment the bytes belong to, and how many parts it has.
    """

    segment: Segment
    index: int
    content: bytes | memoryview
    part: int = 0
    parts: int = 1

    def pack(self) -> bytes:
        """Put a header before the bytes that tells what they are."""
        head = _HEAD.pack(self.segment.first, self.segment.last, self.index, self.part, self.parts)
        return b"".join((head, self.content))

    @classmethod
    def unpack(cls, body: bytes | memoryview) -> Piece:
        """Read back what `pack` wrote; the bytes are not copied."""
        first, last, index, part, parts = _HEAD.unpack_from(body)
        return cls(Segment(first, last), index, memoryview(body)[_HEAD.size :], part, parts)


def cut(segment: Segment, content: memoryview) -> Iterator[Piece]:
    """Cut a segment into parts.

    Examples
    --------
    >>> [len(piece.content) for piece in cut(Segment(0, 7), memoryview(bytes(40_000_000)))]
    [16000000, 16000000, 8000000]
    """
    parts = max(1, -(-len(content) // PART_BYTES))
    for part in range(parts):
        yield Piece(segment, 0, content[part * PART_BYTES : (part + 1) * PART_BYTES], part, parts)


@dataclass(frozen=True)
class FragmentStore:
    """The fragments in one folder.

    Examples
    --------
    >>> import tempfile
    >>> kept = FragmentStore(tempfile.mkdtemp())
    >>> kept.put("count", 2, Piece(Segment(0, 7), 1, b"..."))
    >>> [piece.content for piece in kept.get("count", 2, Segment(0, 7))]
    [b'...']
    """

    root: str

    def put(self, operator: str, instance: int, piece: Piece) -> None:
        """Keep a fragment of a part."""
        name = f"{piece.segment}.{piece.part}of{piece.parts}.{piece.index}"
        write_file(self._folder(operator, instance) / name, lambda out: out.write(piece.content))

    def get(
        self,
        operator: str,
        instance: int,
        segment: Segment,
        *,
        index: int | None = None,
        part: int | None = None,
    ) -> Iterator[Piece]:
        """Read the fragments of a segment: all, those of one part, or those of one number."""
        paths = self.paths(operator, instance)
        for found in sorted(paths, key=lambda piece: (piece.part, piece.index)):
            wanted = index in (None, found.index) and part in (None, found.part)
            if found.segment == segment and wanted:
                try:
                    yield replace(found, content=paths[found].read_bytes())
                except FileNotFoundError:
                    # A batch that runs at the same time has removed it.
                    continue

    def paths(self, operator: str, instance: int) -> dict[Piece, Path]:
        """Return the files of an instance's fragments; the pieces have no content."""
        folder = self._folder(operator, instance)
        if not folder.is_dir():
            return {}
        matches = ((path, _NAME.fullmatch(path.name)) for path in folder.iterdir())
        return {_named(*map(int, m.groups())): path for path, m in matches if m}

    def forget(
        self, operator: str, instance: int, committed: int, needed: Collection[Segment]
    ) -> None:
        """Remove what neither a committed version, made of needed segments, nor a later one needs.

        See `penstock.state.versions.outdated`.
        """
        paths = self.paths(operator, instance)
        old = outdated({piece.segment for piece in paths}, committed, needed)
        for piece, path in paths.items():
            if piece.segment in old:
                path.unlink(missing_ok=True)

    def _folder(self, operator: str, instance: int) -> Path:
        return Path(self.root) / folder_name(operator) / str(instance)


def _named(first: int, last: int, part: int, parts: int, index: int) -> Piece:
    return Piece(Segment(first, last), index, b"", part, parts)


def sweep(root: Path, wanted: Mapping[str, Collection[int]]) -> None:
    """Remove the folders of all instances but the wanted ones."""
    if not root.is_dir():
        return
    by_folder = {folder_name(operator): instances for operator, instances in wanted.items()}
    for operator in root.iterdir():
        instances = by_folder.get(operator.name, ())
        for folder in operator.iterdir():
            if not (folder.name.isdigit() and int(folder.name) in instances):
                shutil.rmtree(folder, ignore_errors=True)
