"""The commit log of a run: what every batch was going to read, and which batches are done.

1. A driver that starts takes an *epoch*: it creates ``epochs/epoch-<n>.json``, where n is one more
   than the newest. Of two drivers that start at once each gets a number of its own.
2. Before attempt n of a batch runs, ``offsets/<n>.json`` says what the attempt reads.
3. When its results are visible, ``commits/<n>.json`` says so, with the versions of the state.
4. Before both, the driver looks for a newer epoch. If there is one, another driver has taken over
   the checkpoint, and this one is `Fenced`: it commits nothing any more.
5. A driver that starts again goes on after the last commit. It repeats the attempt after it, if one
   was begun, with the same ranges.

Every entry ends with a checksum, and is created, never overwritten: two drivers cannot both commit
the same attempt. At an address (`penstock.state.files.filesystem`), where files cannot be created
exclusively, fencing is best effort: two drivers that write within the same moment may both go on.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.common.errors import PenstockError
from penstock.state.files.checksum import Damaged, pack_json, unpack_json
from penstock.state.files.filesystem import FileSystem, open_files

#: Attempts whose entries are kept.
KEPT = 100

#: Folder of the commit log in a checkpoint.
FOLDER = "commit-log"

_ENTRY = re.compile(r"(\d{12,})\.json")
_EPOCH = re.compile(r"epoch-(\d+)\.json")
_SET_ASIDE = re.compile(r"\.json\.unusable-\d+$")


class CommitLogDamaged(PenstockError):
    """An entry of the commit log cannot be read."""


class Fenced(PenstockError):
    """Another driver has taken over the checkpoint, so this one stops."""


@dataclass(eq=False)
class CommitLog:
    """The commit log of one checkpoint.

    Parameters
    ----------
    root : str or Path
        A folder, or an address.
    sync : bool
        Flush every entry to the disk before a call returns.

    Attributes
    ----------
    epoch : int
        Number of this driver's turn at the checkpoint; 0 until `take_epoch`.
    notes : list of str
        What a user should know of the files that were found: entries that were passed over.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> first = CommitLog(folder)
    >>> first.take_epoch()
    1
    >>> first.begin(0, {"ranges": {}})
    0
    >>> first.commit(0, {"batch": 0})
    >>> CommitLog(folder).last_commit()
    0
    >>> CommitLog(folder).take_epoch()
    2
    >>> first.begin(1, {"ranges": {}})  # doctest: +ELLIPSIS +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ...
    penstock.engine.driver.commit_log.Fenced: another driver has taken over the checkpoint ...
    """

    root: str | Path
    sync: bool = False
    epoch: int = 0
    notes: list[str] = field(default_factory=list)

    @cached_property
    def _files(self) -> FileSystem:
        return open_files(self.root, sync=self.sync)

    def identity(self) -> str:
        """Return what tells this checkpoint from all others; sinks mark their output with it."""
        known = self._read("identity.json")
        if known is None:
            self._files.create("identity.json", pack_json({"id": uuid.uuid4().hex}))
            known = self._read("identity.json") or {}
        return str(known.get("id"))

    # ---- epochs

    def take_epoch(self) -> int:
        """Take over the checkpoint from any other driver; return the new epoch."""
        owner = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        number = max(self._epochs(), default=0) + 1
        while not self._files.create(_epoch_path(number), pack_json(owner)):
            number += 1
        self.epoch = number
        for old in self._epochs():
            if old <= number - KEPT:
                self._files.remove(_epoch_path(old))
        return number

    def check_epoch(self) -> None:
        """Raise `Fenced` if another driver has taken over the checkpoint since `take_epoch`."""
        newest = max(self._epochs(), default=0)
        if newest <= self.epoch:
            return
        raise Fenced(
            f"another driver has taken over the checkpoint at {self.root}: {self._owner(newest)} "
            f"(epoch {newest}; this one has {self.epoch}). This run stops, and what it had not "
            "committed is repeated there. Stop that driver first if this one should go on"
        )

    def _owner(self, epoch: int) -> str:
        try:
            owner = self._read(_epoch_path(epoch)) or {}
        except CommitLogDamaged:
            return "an unknown process"
        return f"process {owner.get('pid')} on {owner.get('host')}, since {owner.get('since')}"

    def _epochs(self) -> list[int]:
        found = map(_EPOCH.fullmatch, self._files.names("epochs"))
        return [int(match[1]) for match in found if match]

    # ---- attempts

    def last_number(self) -> int:
        """Return the last number that was used; -1 before the first."""
        return max([*self._numbers("offsets"), *self._numbers("commits")], default=-1)

    def last_commit(self) -> int:
        """Return the number of the last commit; -1 before the first."""
        return max(self._numbers("commits"), default=-1)

    def commits(self) -> Iterator[int]:
        """Yield the numbers of the commits that are kept, the newest first."""
        yield from sorted(self._numbers("commits"), reverse=True)

    def begin(self, number: int, entry: dict[str, Any]) -> int:
        """Write down what an attempt is going to read.

        Parameters
        ----------
        number : int
            The next number. A driver that was fenced meanwhile may have used it.

        Returns
        -------
        int
            The number that the attempt has: this one, or the next that is free.

        Raises
        ------
        Fenced
            When another driver has taken over the checkpoint.
        """
        while not self._create("offsets", number, entry):
            number += 1
        return number

    def begun(self, number: int) -> dict[str, Any] | None:
        """Return what an attempt was going to read; None if it was not begun."""
        return self._read(_path("offsets", number))

    def commit(self, number: int, entry: dict[str, Any]) -> None:
        """Write down that an attempt is done, and remove old entries.

        Raises
        ------
        Fenced
            When another driver has taken over the checkpoint, or committed this attempt.
        """
        if not self._create("commits", number, entry):
            raise Fenced(
                f"{self.root}/{_path('commits', number)} is there already, though this driver has "
                "not written it: another driver uses the checkpoint. Stop one of them, and start "
                "this one again"
            )
        for folder in ("offsets", "commits"):
            self._files.remove(_path(folder, number - KEPT))

    def committed(self, number: int) -> dict[str, Any] | None:
        """Return what was written when an attempt was done.

        Raises
        ------
        CommitLogDamaged
        """
        return self._read(_path("commits", number))

    def roll_back(self, unusable: Mapping[int, str]) -> None:
        """Set aside the newest commits, so that the one before them is the last.

        The first batch after that one is repeated with the ranges that it had; what was begun after
        it is set aside, too.

        Parameters
        ----------
        unusable : mapping of int to str
            The newest commits, and why they cannot be used.
        """
        batches = [n for n in sorted(unusable) if "ranges" in (self.begun(n) or {})]
        for number in self._numbers("offsets"):
            if batches and number > batches[0]:
                self._set_aside(_path("offsets", number))
        for number in sorted(unusable, reverse=True):
            self._set_aside(_path("commits", number))
            self._note(f"commit {number} was set aside: {unusable[number]}")

    def _set_aside(self, path: str) -> None:
        self._files.rename(path, f"{path}.unusable-{self.epoch}")

    # ---- files

    def _numbers(self, folder: str) -> list[int]:
        numbers = []
        for name in self._files.names(folder):
            match = _ENTRY.fullmatch(name)
            if match:
                numbers.append(int(match[1]))
            elif not _SET_ASIDE.search(name):
                self._note(
                    f"{self.root}/{folder}/{name} is not an entry of the commit log: ignored"
                )
        return numbers

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _create(self, folder: str, number: int, entry: dict[str, Any]) -> bool:
        self.check_epoch()
        return self._files.create(_path(folder, number), pack_json({**entry, "epoch": self.epoch}))

    def _read(self, path: str) -> dict[str, Any] | None:
        text = self._files.read(path)
        if text is None:
            return None
        try:
            return unpack_json(text)
        except Damaged as error:
            raise CommitLogDamaged(f"{self.root}/{path} is {error}") from error


def _path(folder: str, number: int) -> str:
    return f"{folder}/{number:012d}.json"


def _epoch_path(number: int) -> str:
    return f"epochs/epoch-{number:06d}.json"
