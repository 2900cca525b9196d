"""Gives nodes that are processes of one machine cores of their own, and takes them away again."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock.runtimes.spark.injector import processes_below

#: A process that does nothing but use a core, for as long as its parent lives.
SPIN = """
import os, sys
core, parent = map(int, sys.argv[1:])
os.sched_setaffinity(0, {core})
while os.getppid() == parent:
    for _ in range(200_000):
        pass
"""


def bind(pid: int, core: int) -> None:
    """Let a process and all below it run on one core only, every thread; later ones inherit it."""
    for one in processes_below(pid):
        with contextlib.suppress(FileNotFoundError):
            for task in list(Path(f"/proc/{one}/task").iterdir()):
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), {core})


@contextlib.contextmanager
def taken(core: int, processes: int) -> Iterator[None]:
    """Let so many processes use a core for a ``with`` block, each as much as it is given.

    They stay in the session of this process: the kernel may deal CPU to sessions first.
    """
    command = [sys.executable, "-I", "-c", SPIN, str(core), str(os.getpid())]
    with contextlib.ExitStack() as stack:
        for _ in range(processes):
            process = subprocess.Popen(command)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield
