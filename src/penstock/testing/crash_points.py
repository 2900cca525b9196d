"""Deaths and failures at every file operation of a run, in one process and in order.

A run of a pipeline stands on files: the commit log, segments of state, staged and committed output.
`CrashPoints` counts the file operations below some folders and lets something happen at one of
them:

``die``
    the process is gone: this operation and all later ones do not happen;
``fail``
    the operation fails once with an `OSError`, as on a full disk;
``tear``
    the process dies while it writes: the file stays with a part of its content;
``lose``
    the process dies and the machine loses power: files and names that were not synced are gone;
``delay``
    the operation takes some milliseconds longer.

What it sees are the operations of Python (`open` for writing, `os.replace`, `os.link`, `os.remove`,
`os.mkdir`, `shutil.rmtree`), through audit hooks. What Arrow writes by itself is seen when the file
gets its name. It does not model a file system that reorders operations, or two machines.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

#: What can happen at an operation.
FAULTS = ("die", "fail", "tear", "lose", "delay")

#: Seconds that a delayed operation takes longer.
DELAY_S = 0.01

#: Audit events that change files; each begins with the path that is changed.
_CHANGES = frozenset({"os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.truncate"})

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_ACTIVE: list[CrashPoints] = []
_INSTALLED = threading.Event()


class Died(BaseException):
    """The process is gone; only the harness catches this."""


class CrashPoints:
    """Let one thing happen at one file operation, and count the operations.

    Parameters
    ----------
    folders : iterable of Path
        Only operations below these are counted.
    at : int
        Number of the operation, from 0; -1 only counts.
    fault : str
        One of `FAULTS`.
    seed : int
        For how much of a torn file stays.

    Attributes
    ----------
    count : int
        Operations seen so far.
    happened : str
        The operation that was hit; empty if none was.
    """

    def __init__(
        self, folders: Iterable[Path], at: int = -1, fault: str = "die", seed: int = 0
    ) -> None:
        if fault not in FAULTS:
            raise ValueError(f"fault must be one of {', '.join(FAULTS)}, got {fault!r}")
        self._folders = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        self._at, self._fault = at, fault
        self._random = random.Random(seed)
        self.count, self.happened = 0, ""
        self._dead = False
        self._torn: str | None = None
        self._busy = threading.local()
        self._lock = threading.RLock()
        self._unsynced: set[str] = set()
        self._renames: list[tuple[str, str, str | None]] = []
        self._aside = ""

    def __enter__(self) -> CrashPoints:
        self._aside = tempfile.mkdtemp(prefix="penstock-crash-")
        self._fsync = os.fsync
        os.fsync = self._synced  # type: ignore[assignment]
        if not _INSTALLED.is_set():
            sys.addaudithook(_hook)
            _INSTALLED.set()
        _ACTIVE.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _ACTIVE.remove(self)
        os.fsync = self._fsync
        if self._dead:
            self._tear()
            if self._fault == "lose":
                self._lose()
        shutil.rmtree(self._aside, ignore_errors=True)

    # ---- what happens

    def see(self, event: str, args: tuple[Any, ...]) -> None:
        """Take note of an operation; raise if it is the one."""
        paths = _paths(event, args)
        if not paths or getattr(self._busy, "now", False):
            return
        real = [_real(p) for p in paths]
        if not any(p.startswith(self._folders) for p in real):
            return
        self._busy.now = True
        try:
            with self._lock:
                self._operate(event, real)
        finally:
            self._busy.now = False

    def _operate(self, event: str, paths: list[str]) -> None:
        if self._dead:
            raise Died(f"{event} {paths[0]} after the death")
        if self._torn is not None:
            self._die(f"writing {self._torn}")
        number, self.count = self.count, self.count + 1
        if number == self._at:
            self.happened = f"{event} {' '.join(paths)}"
            if self._fault == "fail":
                raise OSError(errno.ENOSPC, "No space left on device", paths[0])
            if self._fault == "delay":
                time.sleep(DELAY_S)
            elif self._fault == "tear" and event in ("open", "os.rename"):
                self._torn = paths[-1]
            else:
                self._die(self.happened)
        self._remember(event, paths)

    def _die(self, what: str) -> None:
        self._dead = True
        raise Died(what)

    # ---- what a power cut takes away

    def _remember(self, event: str, paths: list[str]) -> None:
        if event == "open":
            self._unsynced.add(paths[0])
        elif event == "os.rename":
            source, target = paths
            before = None
            if Path(target).is_file():
                before = f"{self._aside}/{len(self._renames)}"
                os.link(target, before)
            self._renames.append((source, target, before))
            if source in self._unsynced:
                self._unsynced.discard(source)
                self._unsynced.add(target)

    def _synced(self, descriptor: Any) -> None:
        self._fsync(descriptor)
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        path = os.path.realpath(f"/proc/self/fd/{number}")
        with self._lock:
            self._unsynced.discard(path)
            if Path(path).is_dir():
                self._renames = [one for one in self._renames if str(Path(one[1]).parent) != path]

    def _tear(self) -> None:
        if self._torn is not None and Path(self._torn).is_file():
            size = Path(self._torn).stat().st_size
            os.truncate(self._torn, self._random.randrange(size) if size else 0)

    def _lose(self) -> None:
        for path in self._unsynced:
            if Path(path).is_file():
                os.truncate(path, 0)
        for source, target, before in reversed(self._renames):
            with suppress(FileNotFoundError):
                Path(source).parent.mkdir(parents=True, exist_ok=True)
                Path(target).rename(source)
            if before is not None:
                with suppress(FileNotFoundError):
                    Path(before).rename(target)


def crash_everywhere(
    attempt: Callable[[], object],
    folders: Iterable[Path],
    *,
    at: int,
    fault: str = "die",
    seed: int = 0,
) -> CrashPoints:
    """Run something with a fault at one operation, and return what was seen.

    `Died` and, for ``fail``, any error of the run are expected: the run is then over, and a new
    process would start again from the folders.
    """
    with CrashPoints(folders, at, fault, seed) as points:
        try:
            attempt()
        except Died:
            pass
        except Exception:
            if not points.happened:
                raise
    return points


def _real(path: str) -> str:
    return f"{os.path.realpath(Path(path).parent)}{os.sep}{Path(path).name}"


def _paths(event: str, args: tuple[Any, ...]) -> list[str]:
    """Return the paths that an audit event changes; none if it changes nothing."""
    if event == "open":
        path, mode, flags = args
        if isinstance(path, int) or path is None:
            return []
        writes = bool(flags & _WRITES) if isinstance(flags, int) else False
        writes = writes or (isinstance(mode, str) and any(c in mode for c in "wax+"))
        return [os.fsdecode(path)] if writes else []
    if event in _CHANGES:
        count = 2 if event in ("os.rename", "os.link") else 1
        return [os.fsdecode(p) for p in args[:count] if not isinstance(p, int)]
    return []


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _ACTIVE and (event == "open" or event in _CHANGES):
        for points in tuple(_ACTIVE):
            points.see(event, args)
