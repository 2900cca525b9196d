"""Files that are complete or not there, and stay there when the machine loses its power.

A file gets its name when all of it is written. With ``sync``, file and folder are flushed to the
disk (``fsync``) before the call returns: a commit may refer to them. Files of a run that cannot be
started again need that not.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO
from urllib.parse import quote

#: Modes of folders that are made: for the user of the job alone, or as the umask says.
PRIVATE, OPEN = 0o700, 0o777

#: Longest name of an operator's folder; longer ones are shortened and told apart by a hash.
MAX_NAME = 160


def folder_name(operator: str) -> str:
    """Return the name of an operator's folder: one folder, whatever characters the name has.

    Examples
    --------
    >>> folder_name("count"), folder_name(".."), folder_name("a/b")
    ('count', '%2E.', 'a%2Fb')
    """
    name = quote(operator, safe="")
    if name.startswith("."):
        # "." and ".." are other folders, and names with a dot are those of unfinished files.
        name = f"%2E{name[1:]}"
    if len(name) > MAX_NAME:
        digest = hashlib.blake2b(operator.encode(), digest_size=8).hexdigest()
        name = f"{name[:MAX_NAME]}~{digest}"
    return name


def make_folder(folder: Path, *, sync: bool, mode: int = PRIVATE) -> None:
    """Make a folder and those above it, as far as they are missing."""
    for one in reversed([folder, *folder.parents]):
        if not one.exists():
            one.mkdir(mode=mode, exist_ok=True)
            if sync:
                sync_folder(one.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(
    path: Path, write: Callable[[IO[bytes]], object], *, sync: bool = False, mode: int = PRIVATE
) -> None:
    """Write a file, in place of one of that name."""
    with _partial(path, write, sync, mode) as partial:
        partial.replace(path)
    if sync:
        sync_folder(path.parent)


def create_file(
    path: Path, write: Callable[[IO[bytes]], object], *, sync: bool = False, mode: int = PRIVATE
) -> bool:
    """Write a file unless there is one of that name; return whether it was written.

    Of several processes that create the same file exactly one succeeds.
    """
    with _partial(path, write, sync, mode) as partial:
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
    if sync:
        sync_folder(path.parent)
    return True


@contextlib.contextmanager
def _partial(
    path: Path, write: Callable[[IO[bytes]], object], sync: bool, mode: int
) -> Iterator[Path]:
    """Write under another name first, which is gone afterwards."""
    make_folder(path.parent, sync=sync, mode=mode)
    partial = path.with_name(f".{uuid.uuid4().hex}")
    try:
        with partial.open("wb") as out:
            write(out)
            if sync:
                out.flush()
                os.fsync(out.fileno())
        yield partial
    finally:
        partial.unlink(missing_ok=True)
