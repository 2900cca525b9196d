"""Find and read event logs: one file, a rolling folder, or a folder with several of either."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from penstock.advise.application import Application
from penstock.advise.codecs import Torn, unpacked
from penstock.advise.parse import READ, application_of
from penstock.common.near_miss import near_miss
from penstock.files import FileError

#: Parts of a rolling log: ``events_1_app-2026...zstd``, and ``.compact`` once Spark made it small.
PART = re.compile(r"events_(\d+)_")

#: The kind of an event, at the start of its line. It spares the rest of lines that are not read.
KIND = re.compile(rb'^\{"Event":"([^"\\]{1,200})"')

#: Characters of a line beyond which it is no event.
MOST_LINE = 1 << 28


@dataclass(frozen=True)
class EventLog:
    """The files of one application, in the order in which they were written."""

    name: str
    files: tuple[Path, ...]


@dataclass
class Counts:
    """What happened while lines were read: filled in by `records`."""

    skipped: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    torn: bool = False

    def notes(self) -> tuple[str, ...]:
        """Tell of it in sentences; nothing when all was as it should be."""
        told = []
        if self.broken:
            told.append(f"{self.broken:,} lines were not valid JSON and were left out")
        if self.torn:
            told.append("the log ends in the middle of a line: the application ran on, or died")
        return tuple(told)


def read_logs(path: str | PathLike[str]) -> tuple[Application, ...]:
    """Read every application whose event log a path holds, the first that started first.

    Raises
    ------
    FileError
        When there is nothing, or nothing that is an event log of Spark.
    """
    logs = find_logs(path)
    if len(logs) == 1:
        return (read_log(logs[0]),)
    found, refused = [], []
    for log in logs:
        try:
            found.append(read_log(log))
        except FileError as error:
            refused.append(error)
    if not found:
        raise FileError(str(path), f"holds no event log of Spark; {refused[0]}")
    return tuple(sorted(found, key=lambda a: (a.start_ms, a.id)))


def read_log(log: EventLog) -> Application:
    """Read one application."""
    counts = Counts()
    made = application_of(records(log, counts), log.name)
    return made.noting(counts.notes())


def find_logs(path: str | PathLike[str]) -> tuple[EventLog, ...]:
    """Find event logs without reading them.

    Raises
    ------
    FileError
        When there is nothing.
    """
    place, name = Path(path), str(path)
    try:
        if not place.exists():
            raise FileError(name, f"does not exist{_neighbour(place)}")
        if not place.is_dir():
            return (EventLog(name, (place,)),)
        rolling = _rolling(place)
        if rolling:
            return (EventLog(name, rolling),)
        logs = []
        for entry in sorted(place.iterdir()):
            if entry.name.startswith((".", "_")):
                continue
            parts = _rolling(entry) if entry.is_dir() else (entry,)
            if parts:
                logs.append(EventLog(str(entry), parts))
    except FileError:
        raise
    except OSError as error:
        raise FileError(name, f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the name
        raise FileError(name.replace("\0", "\\0"), f"cannot be read: {error}") from None
    if not logs:
        raise FileError(name, "is a folder without event logs")
    return tuple(logs)


def records(log: EventLog, counts: Counts) -> Iterator[dict[str, Any]]:
    """Yield the events that are read, and count the others.

    Raises
    ------
    FileError
        When the first line shows that this is no event log, or when a file cannot be read.
    """
    known = False
    for file in log.files:
        for line in _lines(file, counts):
            kind = KIND.match(line)
            if known and kind and kind[1].decode("utf-8", "replace") not in READ:
                counts.skipped[kind[1].decode("utf-8", "replace")] += 1
                continue
            record = _parsed(line)
            if not known:
                _require_event(log, record)
                known = True
            if record is None:
                counts.broken += 1
                continue
            event = record.get("Event")
            if event in READ:
                yield record
            else:
                counts.skipped[str(event)] += 1
    if not known and counts.torn:
        _require_event(log, None)
    if not known:
        raise FileError(log.name, "is empty; an event log has a line for each event")


def _lines(file: Path, counts: Counts) -> Iterator[bytes]:
    """Yield the lines of a file; one that has no end is the last, and torn."""
    try:
        with file.open("rb") as opened:
            rest = b""
            try:
                for piece in unpacked(opened):
                    *whole, rest = (rest + piece).split(b"\n")
                    yield from (line for line in whole if line.strip())
                    if len(rest) > MOST_LINE:
                        raise FileError(str(file), "is not an event log: a line never ends")
            except Torn:
                counts.torn = True
            if rest.strip() and _parsed(rest) is None:
                counts.torn = True
            elif rest.strip():
                yield rest
    except OSError as error:
        raise FileError(str(file), f"cannot be read: {error.strerror or error}") from None


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _require_event(log: EventLog, record: dict[str, Any] | None) -> None:
    if record is None:
        raise FileError(log.name, "is not an event log of Spark: its first line is not JSON")
    if not isinstance(record.get("Event"), str):
        raise FileError(log.name, "is not an event log of Spark: its first line is not an event")


def _rolling(folder: Path) -> tuple[Path, ...]:
    """Parts of a rolling log in their order; empty for any other folder."""
    numbered = [
        (int(found[1]), entry) for entry in folder.iterdir() if (found := PART.match(entry.name))
    ]
    compact = [number for number, entry in numbered if entry.name.endswith(".compact")]
    # A compacted part stands for itself and for all before it.
    first = max(compact, default=0)
    kept = [
        (number, entry)
        for number, entry in numbered
        if number > first or (number == first and entry.name.endswith(".compact"))
    ]
    return tuple(entry for _, entry in sorted(kept))


def _neighbour(place: Path) -> str:
    try:
        return near_miss(place.name, (entry.name for entry in place.parent.iterdir()))
    except OSError:
        return ""
