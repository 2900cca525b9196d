"""Small files in a folder of this machine, or in any file system that Arrow knows by its address.

An address is a path, or one such as ``hdfs://host/folder`` or ``s3://bucket/folder``. What the
latter need on every node (Hadoop's native library, credentials) is Arrow's business.
"""

from __future__ import annotations

import uuid
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs

from penstock.common.errors import InvalidValue


def is_address(root: str | Path) -> bool:
    """Whether something names a file system, and not just a folder."""
    return "://" in str(root)


class FileSystem:
    """The files under one root; a file is either whole or not there.

    Examples
    --------
    >>> import tempfile
    >>> files = FileSystem(f"file://{tempfile.mkdtemp()}")
    >>> files.write("a/b", b"...")
    >>> files.names("a"), files.read("a/b"), files.read("a/c")
    (['b'], b'...', None)
    """

    def __init__(self, root: str | Path) -> None:
        self.root = str(root)
        self._system, self._base = _system(self.root)

    def names(self, folder: str) -> list[str]:
        """Names in a folder; none when it is not there."""
        where = pa.fs.FileSelector(f"{self._base}/{folder}", allow_not_found=True)
        found = self._system.get_file_info(where)
        return sorted(info.base_name for info in found if not info.base_name.startswith("."))

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None when it is not there."""
        try:
            with self._system.open_input_stream(f"{self._base}/{path}") as data:
                return bytes(data.read())
        except FileNotFoundError:
            return None

    def write(self, path: str, content: Any) -> None:
        """Write a file, in place of one of that name."""
        target = f"{self._base}/{path}"
        folder, _, name = target.rpartition("/")
        self._system.create_dir(folder, recursive=True)
        partial = f"{folder}/.{name}.{uuid.uuid4().hex}"
        with self._system.open_output_stream(partial) as out:
            out.write(content)
        if is_address(self.root):
            # Not every file system moves onto a file that is there.
            self.remove(path)
        self._system.move(partial, target)

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""
        try:
            self._system.delete_file(f"{self._base}/{path}")
        except FileNotFoundError:
            return


@cache
def _system(root: str) -> tuple[Any, str]:
    if not is_address(root):
        return pa.fs.LocalFileSystem(), str(Path(root).absolute())
    try:
        system, base = pa.fs.FileSystem.from_uri(root)
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        allowed = "a folder, or an address of a file system that Arrow can open here"
        raise InvalidValue("checkpoint", "a run", allowed, f"{root} ({error})") from error
    return system, base.rstrip("/")
