"""What faults do to processes, files and the clock of this machine, and how it is undone.

Each class disturbs when it is made, and `undo` puts back what can be put back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import psutil

from penstock.model import PenstockError


class NotDisturbed(PenstockError):
    """A fault could not be made to happen on this machine."""


class Disturbance(Protocol):
    """Something that lasts until it is undone."""

    def undo(self) -> None:
        """Put back what was; more than once does no harm."""
        ...


class Paused:
    """Processes that are stopped, and go on when it is undone.

    Parameters
    ----------
    pids : iterable of int
        Those that are gone already are left out.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self.pids = [pid for pid in pids if _sent(pid, signal.SIGSTOP)]

    def undo(self) -> None:
        """Let them go on."""
        for pid in self.pids:
            _sent(pid, signal.SIGCONT)
        self.pids = []


def _sent(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class FullDisk:
    """Processes of which every write to a file fails, as on a full disk.

    The limit on the size of files is set to nothing. The error is another one than that of a full
    disk, ``EFBIG`` in place of ``ENOSPC``; it comes in the same calls. Python programs ignore the
    signal that comes with it.

    Parameters
    ----------
    pids : iterable of int
        Processes that run Python. Those that they start have the limit too.
    """

    def __init__(self, pids: Iterable[int]) -> None:
        self._before: dict[int, tuple[int, int]] = {}
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                before = process.rlimit(psutil.RLIMIT_FSIZE)
                process.rlimit(psutil.RLIMIT_FSIZE, (0, before[1]))
                self._before[pid] = before

    def __len__(self) -> int:
        return len(self._before)

    def undo(self) -> None:
        """Let them write again, and what they have started meanwhile."""
        before, self._before = self._before, {}
        for pid, limits in before.items():
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                for one in (process, *process.children(recursive=True)):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.rlimit(psutil.RLIMIT_FSIZE, limits)


class ReadOnly:
    """A folder in which nothing can be made, changed or removed.

    Parameters
    ----------
    folder : Path

    Raises
    ------
    NotDisturbed
        When permissions do not hold for this process.
    """

    def __init__(self, folder: Path) -> None:
        self._modes: dict[Path, int] = {}
        for path in (folder, *folder.rglob("*")):
            # What is removed meanwhile needs no protection.
            with contextlib.suppress(FileNotFoundError):
                if path.is_dir():
                    self._modes[path] = stat.S_IMODE(path.stat().st_mode)
                    path.chmod(0o555)
        if os.access(folder, os.W_OK):
            self.undo()
            raise NotDisturbed(
                f"{folder} can be written whatever its permissions are: this process has the "
                "rights of root; drop its capability DAC_OVERRIDE, or run it as somebody else"
            )

    def undo(self) -> None:
        """Give the folders back the permissions that they had."""
        modes, self._modes = self._modes, {}
        for path, mode in modes.items():
            with contextlib.suppress(FileNotFoundError):
                path.chmod(mode)


class ClockSetBack:
    """A clock of this process, ``time.time``, that shows an earlier time.

    Parameters
    ----------
    seconds : float
    """

    def __init__(self, seconds: float) -> None:
        before = time.time

        def shifted() -> float:
            return before() - seconds

        self._before, self._shifted = before, shifted
        time.time = shifted

    def undo(self) -> None:
        """Set it right again."""
        if time.time is self._shifted:
            time.time = self._before
