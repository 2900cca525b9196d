"""What a run has promised and what it has done: one small file for each attempt, twice.

``offsets/<n>.json`` is written before attempt n of a batch runs and says what it reads;
``commits/<n>.json`` is written when its results are visible. A run that starts again finds the last
commit, and repeats the batch after it, if that was begun, with the same ranges.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.model import PenstockError
from penstock.state.files.filesystem import FileSystem

#: Attempts whose files are kept.
KEPT = 100


class CommitLogDamaged(PenstockError):
    """A file of the journal cannot be read."""


@dataclass(frozen=True)
class CommitLog:
    """The journal of one run, in a folder or at an address (`penstock.state.files.filesystem`)."""

    root: str | Path

    @cached_property
    def _files(self) -> FileSystem:
        return FileSystem(self.root)

    def last_number(self) -> int:
        """Return the last number that was used; -1 before the first."""
        return max(self._numbers("offsets"), default=-1)

    def last_commit(self) -> int:
        """Return the number of the last commit; -1 before the first."""
        return max(self._numbers("commits"), default=-1)

    def begin(self, number: int, entry: dict[str, Any]) -> None:
        """Write down what an attempt is going to read."""
        self._write("offsets", number, entry)

    def begun(self, number: int) -> dict[str, Any] | None:
        """Return what an attempt was going to read; None if it was not begun."""
        return self._read("offsets", number)

    def commit(self, number: int, entry: dict[str, Any]) -> None:
        """Write down that an attempt is done, and forget old ones."""
        self._write("commits", number, entry)
        for folder in ("offsets", "commits"):
            self._files.remove(_path(folder, number - KEPT))

    def committed(self, number: int) -> dict[str, Any] | None:
        """Return what was written when an attempt was done."""
        return self._read("commits", number)

    def _numbers(self, folder: str) -> list[int]:
        return [int(name.removesuffix(".json")) for name in self._files.names(folder)]

    def _write(self, folder: str, number: int, entry: dict[str, Any]) -> None:
        self._files.write(_path(folder, number), json.dumps(entry).encode())

    def _read(self, folder: str, number: int) -> dict[str, Any] | None:
        text = self._files.read(_path(folder, number))
        if text is None:
            return None
        where = f"{self.root}/{_path(folder, number)}"
        try:
            entry = json.loads(text)
        except ValueError as error:
            raise CommitLogDamaged(
                f"{where} is damaged: {error}; remove it to start before it"
            ) from error
        if not isinstance(entry, dict):
            raise CommitLogDamaged(f"{where} is damaged: not an object")
        return entry


def _path(folder: str, number: int) -> str:
    return f"{folder}/{number:012d}.json"
