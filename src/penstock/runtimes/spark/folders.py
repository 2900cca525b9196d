"""The folders of a run: absolute at the driver, and reachable from every executor."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.model import InvalidValue
from penstock.state.files.filesystem import PRIVATE, is_address


@dataclass(frozen=True)
class Probe:
    """A file that the driver wrote into a folder, for executors to find.

    Parameters
    ----------
    folder : str
    name, content : str
    """

    folder: str
    name: str
    content: str


class RunFolder:
    """The folder of one run: the user's checkpoint, or one that is removed at the end.

    Parameters
    ----------
    checkpoint : str, Path or None
        A folder, which is made absolute, or an address that Arrow can open.

    Attributes
    ----------
    path : Path
        A folder on the driver's machine.
    checkpoint : str
        Where the commit log and the state lie.
    """

    def __init__(self, checkpoint: str | Path | None) -> None:
        self._scratch: str | None = None
        if checkpoint is None or is_address(checkpoint):
            self._scratch = tempfile.mkdtemp(prefix="penstock-run-")
            self.path = Path(self._scratch)
            self.checkpoint = str(checkpoint or self.path)
            return
        # Executors have working folders of their own.
        self.path = Path(checkpoint).expanduser().absolute()
        self.checkpoint = str(self.path)
        try:
            self.path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        except OSError as error:
            allowed = f"a folder that can be made ({error.strerror})"
            raise InvalidValue("checkpoint", "a run", allowed, str(checkpoint)) from error

    def remove(self) -> None:
        """Remove a folder that nobody asked for."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


@contextmanager
def probed(folders: Iterable[Path]) -> Iterator[tuple[Probe, ...]]:
    """Write a file into each folder for the time of a ``with`` block."""
    written: list[tuple[Path, Probe]] = []
    try:
        for folder in dict.fromkeys(folders):
            folder.mkdir(parents=True, exist_ok=True)
            content = uuid.uuid4().hex
            path = folder / f".penstock-probe-{content}"
            written.append((path, Probe(str(folder), path.name, content)))
            path.write_text(content, encoding="utf-8")
        yield tuple(probe for _, probe in written)
    finally:
        for path, _ in written:
            path.unlink(missing_ok=True)


def problem_here(probe: Probe) -> str:
    """Say why this process cannot use a folder that the driver made; empty if it can."""
    folder = Path(probe.folder)
    try:
        found = (folder / probe.name).read_text(encoding="utf-8")
    except OSError as error:
        return f"{folder} does not show what the driver wrote there ({error.strerror})"
    if found != probe.content:
        return f"{folder} is not the driver's"
    own = folder / f"{probe.name}-{uuid.uuid4().hex}"
    try:
        own.write_text("", encoding="utf-8")
        own.unlink()
    except OSError as error:
        return f"{folder} cannot be written ({error.strerror})"
    return ""
