"""Runs of state in a file system that is reached by an address: whole files, in and out.

State is worked on in files of the node; here lie the copies that outlive it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote

from penstock.state.backup.catalog import ChainBroken, chain, unneeded
from penstock.state.files.filesystem import FileSystem
from penstock.state.versions import Segment, StateLost


@dataclass(frozen=True)
class RemoteSegments:
    """The runs under an address; offers what `LocalSegments` does to whoever copies.

    Parameters
    ----------
    root : str
    """

    root: str

    @cached_property
    def _files(self) -> FileSystem:
        return FileSystem(self.root)

    def runs(self, vertex: str, instance: int) -> list[Segment]:
        """List the runs that there are."""
        names = self._files.names(_folder(vertex, instance))
        return [Segment(*map(int, name.split("-"))) for name in names]

    def chain(self, vertex: str, instance: int, version: int) -> tuple[Segment, ...]:
        """Find the runs that make up a version; `StateLost` when one is not here."""
        try:
            return chain(self.runs(vertex, instance), version)
        except ChainBroken as error:
            raise StateLost(f"{vertex}[{instance}]: {error}, in {self.root}") from error

    def write_bytes(self, vertex: str, instance: int, run: Segment, content: Any) -> None:
        """Write the bytes of a run."""
        self._files.write(f"{_folder(vertex, instance)}/{run}", content)

    def read_bytes(self, vertex: str, instance: int, run: Segment) -> memoryview:
        """Read the bytes of a run."""
        content = self._files.read(f"{_folder(vertex, instance)}/{run}")
        if content is None:
            raise StateLost(f"run {run} of {vertex}[{instance}] is gone from {self.root}")
        return memoryview(content)

    def forget(self, vertex: str, instance: int, committed: int) -> None:
        """Remove the runs that a committed version and later ones do not need, if it is here."""
        for run in unneeded(self.runs(vertex, instance), committed):
            self._files.remove(f"{_folder(vertex, instance)}/{run}")


def _folder(vertex: str, instance: int) -> str:
    return f"{quote(vertex, safe='')}/{instance}"
