"""Files in a folder of this machine, or in any file system that Arrow knows by its address.

A file is complete or not there: it gets its name when all of it is written. With ``sync``, file and
folder are flushed to the disk (``fsync``) before a call returns, so that a commit may refer to them
and they stay there when the machine loses its power. Files of a run that cannot be started again
need that not.

An address is a path, or one such as ``hdfs://host/folder`` or ``s3://bucket/folder``. What the
latter need on every node (Hadoop's native library, credentials) is described in Arrow's manual.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs

from penstock.common.errors import InvalidValue

#: Modes of folders that are made: for the user of the job alone, or as the umask says.
PRIVATE, OPEN = 0o700, 0o777

#: Longest name of an operator's folder; longer ones are shortened and told apart by a hash.
MAX_NAME = 160


def is_address(root: str | Path) -> bool:
    """Whether something names a file system, and not just a folder."""
    return "://" in str(root)


class FileSystem(Protocol):
    """The files under one root. A file is either complete or not there."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; none when it is missing."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None when it is missing."""

    def write(self, path: str, content: Any) -> None:
        """Write a file, in place of one of that name."""

    def create(self, path: str, content: Any) -> bool:
        """Write a file unless there is one of that name; return whether it was written."""

    def rename(self, path: str, to: str) -> None:
        """Give a file another name in its folder."""

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""


def open_files(root: str | Path, *, sync: bool = False) -> FileSystem:
    """Open a folder or an address.

    Parameters
    ----------
    sync : bool
        Flush every file to the disk before a call returns; of a folder. At an address a file is as
        durable as that file system makes it.

    Examples
    --------
    >>> import tempfile
    >>> files = open_files(f"file://{tempfile.mkdtemp()}")
    >>> files.write("a/b", b"...")
    >>> files.names("a"), files.read("a/b"), files.read("a/c")
    (['b'], b'...', None)
    >>> files.create("a/b", b"again")
    False
    """
    return RemoteFiles(str(root)) if is_address(root) else LocalFiles(Path(root), sync=sync)


class LocalFiles:
    """The files under a folder of this machine."""

    def __init__(self, root: Path, *, sync: bool) -> None:
        self.root, self._sync = root.absolute(), sync

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; see `FileSystem`."""
        try:
            names = [path.name for path in (self.root / folder).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if not name.startswith("."))

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; see `FileSystem`."""
        try:
            return (self.root / path).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: str, content: Any) -> None:
        """Write a file; see `FileSystem`."""
        write_file(self.root / path, lambda out: out.write(content), sync=self._sync)

    def create(self, path: str, content: Any) -> bool:
        """Write a file unless there is one; of several processes exactly one succeeds."""
        return create_file(self.root / path, lambda out: out.write(content), sync=self._sync)

    def rename(self, path: str, to: str) -> None:
        """Give a file another name in its folder."""
        (self.root / path).replace(self.root / to)
        if self._sync:
            sync_folder((self.root / to).parent)

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""
        (self.root / path).unlink(missing_ok=True)


class RemoteFiles:
    """The files under an address."""

    def __init__(self, root: str) -> None:
        self._system, self._base = _system(root)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; see `FileSystem`."""
        where = pa.fs.FileSelector(f"{self._base}/{folder}", allow_not_found=True)
        found = self._system.get_file_info(where)
        return sorted(info.base_name for info in found if not info.base_name.startswith("."))

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; see `FileSystem`."""
        try:
            with self._system.open_input_stream(f"{self._base}/{path}") as data:
                return bytes(data.read())
        except FileNotFoundError:
            return None

    def write(self, path: str, content: Any) -> None:
        """Write a file; see `FileSystem`."""
        target = f"{self._base}/{path}"
        folder, _, name = target.rpartition("/")
        self._system.create_dir(folder, recursive=True)
        partial = f"{folder}/.{name}.{uuid.uuid4().hex}"
        with self._system.open_output_stream(partial) as out:
            out.write(content)
        # Not every file system moves onto a file that is there.
        self.remove(path)
        self._system.move(partial, target)

    def create(self, path: str, content: Any) -> bool:
        """Write a file unless there is one. Two processes may both succeed if they are as fast."""
        found = self._system.get_file_info(f"{self._base}/{path}")
        if found.type != pa.fs.FileType.NotFound:
            return False
        self.write(path, content)
        return self.read(path) == bytes(content)

    def rename(self, path: str, to: str) -> None:
        """Give a file another name in its folder."""
        self._system.move(f"{self._base}/{path}", f"{self._base}/{to}")

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""
        try:
            self._system.delete_file(f"{self._base}/{path}")
        except FileNotFoundError:
            return


@cache
def _system(root: str) -> tuple[Any, str]:
    try:
        system, base = pa.fs.FileSystem.from_uri(root)
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        allowed = "a folder, or an address of a file system that Arrow can open here"
        raise InvalidValue("checkpoint", "a run", allowed, f"{root} ({error})") from error
    return system, base.rstrip("/")


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
