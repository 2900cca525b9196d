"""What the process of a task takes of memory and disks, as the kernel counts it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

#: Resident memory of a process when its first task began, by process id: what its interpreter and
#: libraries take, wherever instances run.
_AT_FIRST: dict[int, int] = {}


class ProcessUse:
    """What this process takes, from the begin of a task on.

    One process runs the tasks of several instances, one after the other: what it has `grown` by is
    for its reader to share among them.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self._first = _AT_FIRST.setdefault(self.process, resident_bytes())
        self._disk = disk_bytes()

    def grown(self) -> int:
        """Bytes of memory beyond what the process took before its first task."""
        return max(0, resident_bytes() - self._first)

    def disk(self) -> int | None:
        """Bytes read from and written to disks since the task began; None where nobody counts."""
        now = disk_bytes()
        return None if now is None or self._disk is None else max(0, now - self._disk)


def resident_bytes() -> int:
    """Memory that this process takes now; where the kernel does not tell, the most so far."""
    try:
        with Path("/proc/self/statm").open("rb") as told:
            return int(told.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def disk_bytes() -> int | None:
    """Bytes that this process has read from and written to disks; None where nobody counts."""
    try:
        with Path("/proc/self/io").open(encoding="ascii") as told:
            counts = dict(line.split(": ") for line in told)
    except OSError:
        return None
    return int(counts["read_bytes"]) + int(counts["write_bytes"])
