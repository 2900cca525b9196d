"""What a run has promised and what it has done: one small file for each attempt, twice.

``offsets/<n>.json`` is written before attempt n of a batch runs and says what it reads;
``commits/<n>.json`` is written when its results are visible. A run that starts again finds the last
commit, and repeats the batch after it, if that was begun, with the same ranges.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.model import PenstockError

#: Attempts whose files are kept.
KEPT = 100


class JournalDamaged(PenstockError):
    """A file of the journal cannot be read."""


@dataclass(frozen=True)
class Journal:
    """The journal of one run, in a folder."""

    root: Path

    def last_number(self) -> int:
        """Return the last number that was used; -1 before the first."""
        return max(_numbers(self.root / "offsets"), default=-1)

    def last_commit(self) -> int:
        """Return the number of the last commit; -1 before the first."""
        return max(_numbers(self.root / "commits"), default=-1)

    def begin(self, number: int, entry: dict[str, Any]) -> None:
        """Write down what an attempt is going to read."""
        _write(self.root / "offsets" / f"{number:012d}.json", entry)

    def begun(self, number: int) -> dict[str, Any] | None:
        """Return what an attempt was going to read; None if it was not begun."""
        return _read(self.root / "offsets" / f"{number:012d}.json")

    def commit(self, number: int, entry: dict[str, Any]) -> None:
        """Write down that an attempt is done, and forget old ones."""
        _write(self.root / "commits" / f"{number:012d}.json", entry)
        for folder in ("offsets", "commits"):
            old = self.root / folder / f"{number - KEPT:012d}.json"
            old.unlink(missing_ok=True)

    def committed(self, number: int) -> dict[str, Any] | None:
        """Return what was written when an attempt was done."""
        return _read(self.root / "commits" / f"{number:012d}.json")


def _numbers(folder: Path) -> list[int]:
    return [int(p.stem) for p in folder.glob("*.json")] if folder.is_dir() else []


def _write(path: Path, entry: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    partial.write_text(json.dumps(entry), encoding="utf-8")
    partial.replace(path)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        entry = json.loads(text)
    except ValueError as error:
        raise JournalDamaged(f"{path} is damaged: {error}; remove it to start before it") from error
    if not isinstance(entry, dict):
        raise JournalDamaged(f"{path} is damaged: not an object")
    return entry
