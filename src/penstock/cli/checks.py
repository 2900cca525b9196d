"""What can be checked of a command's input before anything is started."""

from __future__ import annotations

import os
import re
import socket
import tempfile
from pathlib import Path

from penstock.model import InvalidValue, PenstockError
from penstock.state.files.filesystem import is_address, open_files
from penstock.store.store import MetricsStore

#: Memory in MB that an executor's process takes at the least, whatever it may take at the most.
LEAST_MB = 300

#: Masters of Spark, as a user may write them.
MASTERS = (
    (re.compile(r"local(\[(\*|[1-9]\d*)(,\s*[1-9]\d*)?\])?$"), "local[4]"),
    (
        re.compile(r"local-cluster\[\s*[1-9]\d*\s*,\s*[1-9]\d*\s*,\s*[1-9]\d*\s*\]$"),
        "local-cluster[4,1,1024]",
    ),
    (re.compile(r"spark://[^:/,\s]+:\d+(,[^:/,\s]+:\d+)*$"), "spark://HOST:PORT"),
    (re.compile(r"yarn$"), "yarn"),
    (re.compile(r"k8s://\S+$"), "k8s://URL"),
)

#: Seconds to wait for the answer of a standalone master.
PATIENCE_S = 5.0


def check_master(master: str | None) -> None:
    """Refuse what is no master of Spark, and a standalone master at which nobody listens."""
    if master is None:
        return
    if not any(pattern.match(master) for pattern, _ in MASTERS):
        allowed = "one of " + ", ".join(shown for _, shown in MASTERS)
        raise InvalidValue("master", "a run", allowed, master)
    if not master.startswith("spark://"):
        return
    problems = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not 0 < int(port) < 65536:
            raise InvalidValue("master", "a run", "one with a port from 1 to 65535", master)
        try:
            socket.create_connection((host, int(port)), PATIENCE_S).close()
        except OSError as error:
            problems.append(f"{address} ({error.strerror or error})")
        else:
            return
    raise PenstockError(
        f"no Spark master answers at {', '.join(problems)}; start one, or leave --master out for "
        "an embedded cluster"
    )


def check_nodes(nodes: int, *, least: int = 1, available_mb: int | None = None) -> None:
    """Refuse an embedded cluster that this machine has no memory for.

    Parameters
    ----------
    nodes : int
    least : int
        Nodes that are needed.
    available_mb : int, optional
        Memory of the machine; asked of the system by default.
    """
    if nodes < least:
        allowed = f"a whole number of at least {least}"
        raise InvalidValue("nodes", "an embedded cluster", allowed, nodes)
    memory_mb = available_mb or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    most = max(least, memory_mb // LEAST_MB)
    if nodes > most:
        raise PenstockError(
            f"an embedded cluster of {nodes} nodes needs about {nodes * LEAST_MB:,} MB, and this "
            f"machine has {memory_mb:,} MB; give --nodes of at most {most}, or a --master"
        )


def check_file(option: str, file: Path | None) -> None:
    """Refuse a file that cannot be written."""
    if file is None:
        return
    if file.is_dir():
        raise PenstockError(f"{option} {file} is a folder; name a file in it")
    check_folder(option, file.parent, make=False)
    if file.exists() and not os.access(file, os.W_OK):
        raise PenstockError(f"{option} {file} cannot be written; name another file")


def check_folder(option: str, folder: Path, *, make: bool) -> None:
    """Refuse a folder that cannot be written; one that may be made needs a parent that can be."""
    there = folder
    while make and not there.exists() and there != there.parent:
        there = there.parent
    if not there.exists():
        raise PenstockError(f"{option}: there is no folder {folder}; make it first")
    if not there.is_dir():
        raise PenstockError(f"{option}: {there} is a file, not a folder; name a folder")
    try:
        # Asked by doing: rights alone do not tell of a file system that is mounted for reading.
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        problem = error.strerror or str(error)
        raise PenstockError(f"{option}: {there} cannot be written: {problem}") from None


def check_checkpoint(checkpoint: str | None) -> None:
    """Refuse a checkpoint that cannot be written, or whose address nobody understands."""
    if checkpoint is None:
        return
    if not checkpoint.strip():
        raise InvalidValue("checkpoint", "a run", "a folder or an address", checkpoint)
    if is_address(checkpoint):
        open_files(checkpoint)
    else:
        check_folder("--checkpoint", Path(checkpoint), make=True)


def check_store(store: str | None) -> None:
    """Open a metrics store as the run will, so that what is wrong with it is said now."""
    if store is not None:
        MetricsStore.open(store).close()
