"""Fragments that a node keeps for others: one file each, found by vertex, instance and versions."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from penstock.state.log import put
from penstock.state.runs import Span, outdated

_NAME = re.compile(r"(\d+)-(\d+)\.(\d+)")
_HEAD = struct.Struct("<qqi4x")


@dataclass(frozen=True)
class FragmentStore:
    """The fragments in one place.

    Examples
    --------
    >>> import tempfile
    >>> kept = FragmentStore(tempfile.mkdtemp())
    >>> kept.put("count", 2, Span(0, 7), 1, b"...")
    >>> kept.get("count", 2, Span(0, 7), 1), kept.get("count", 2, Span(0, 7), 0)
    (b'...', None)
    """

    root: str

    def put(self, vertex: str, instance: int, run: Span, index: int, content: object) -> None:
        """Keep a fragment."""
        put(self._path(vertex, instance, run, index), lambda out: out.write(content))

    def get(self, vertex: str, instance: int, run: Span, index: int) -> bytes | None:
        """Return a fragment; None when it is not there."""
        try:
            return self._path(vertex, instance, run, index).read_bytes()
        except FileNotFoundError:
            return None

    def paths(self, vertex: str, instance: int) -> dict[tuple[Span, int], Path]:
        """Files of an instance's fragments."""
        folder = self._folder(vertex, instance)
        if not folder.is_dir():
            return {}
        matches = ((path, _NAME.fullmatch(path.name)) for path in folder.iterdir())
        return {(Span(int(m[1]), int(m[2])), int(m[3])): path for path, m in matches if m}

    def forget(self, vertex: str, instance: int, committed: int, floor: int) -> None:
        """Remove what a committed version and later ones do not need."""
        paths = self.paths(vertex, instance)
        old = outdated({run for run, _ in paths}, committed, floor)
        for (run, _), path in paths.items():
            if run in old:
                path.unlink(missing_ok=True)

    def _folder(self, vertex: str, instance: int) -> Path:
        return Path(self.root) / quote(vertex, safe="") / str(instance)

    def _path(self, vertex: str, instance: int, run: Span, index: int) -> Path:
        return self._folder(vertex, instance) / f"{run.first}-{run.last}.{index}"


def labelled(run: Span, index: int, content: bytes | memoryview) -> bytes:
    """Put a run, and the number of a fragment, before bytes that travel."""
    return b"".join((_HEAD.pack(run.first, run.last, index), content))


def unlabelled(body: bytes | memoryview) -> tuple[Span, int, memoryview]:
    """Take apart what `labelled` put together."""
    first, last, index = _HEAD.unpack_from(body)
    return Span(first, last), index, memoryview(body)[_HEAD.size :]


def sweep(root: Path, wanted: Mapping[str, Collection[int]]) -> None:
    """Remove the folders of instances that a place has no business with any more."""
    if not root.is_dir():
        return
    for vertex in root.iterdir():
        instances = wanted.get(unquote(vertex.name), ())
        for folder in vertex.iterdir():
            if not (folder.name.isdigit() and int(folder.name) in instances):
                shutil.rmtree(folder, ignore_errors=True)
