"""Segments of state in a file system that is reached by an address.

Instances work on segments in files of their node; at the address are the copies that outlive the
node. They are read and written as a whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.state.files.checksum import Damaged, verify
from penstock.state.files.filesystem import FileSystem, folder_name, open_files
from penstock.state.versions import ChainBroken, Segment, StateLost, chain, removable

_NAME = re.compile(r"segment-(\d+)-(\d+)\.arrow")


@dataclass(frozen=True)
class RemoteSegments:
    """The segments of one pipeline under an address; copies in and out as `LocalSegments` does.

    Parameters
    ----------
    root : str
        An address as in `penstock.state.files.filesystem`.
    """

    root: str

    @cached_property
    def _files(self) -> FileSystem:
        return open_files(self.root)

    def segments(self, operator: str, instance: int) -> list[Segment]:
        """List the segments of an instance."""
        names = map(_NAME.fullmatch, self._files.names(_folder(operator, instance)))
        return [Segment(int(m[1]), int(m[2])) for m in names if m]

    def chain(self, operator: str, instance: int, version: int) -> tuple[Segment, ...]:
        """Find the segments that make up the state at a version; `StateLost` if one is missing."""
        try:
            return chain(self.segments(operator, instance), version)
        except ChainBroken as error:
            raise StateLost(f"{operator}[{instance}]: {error}, in {self.root}") from error

    def write_bytes(self, operator: str, instance: int, segment: Segment, content: Any) -> None:
        """Write the file of a segment."""
        self._files.write(_path(operator, instance, segment), content)

    def read_bytes(self, operator: str, instance: int, segment: Segment) -> memoryview:
        """Read the file of a segment, and verify it; `StateLost` if it is missing or damaged."""
        content = self._files.read(_path(operator, instance, segment))
        where = f"{self.root}/{_path(operator, instance, segment)}"
        if content is None:
            raise StateLost(f"{operator}[{instance}]: state file {where} is missing")
        try:
            verify(content)
        except Damaged as error:
            raise StateLost(f"{operator}[{instance}]: state file {where} is {error}") from error
        return memoryview(content)

    def forget(self, operator: str, instance: int, committed: int) -> None:
        """Remove the segments that a committed version and later ones do not need."""
        for segment in removable(self.segments(operator, instance), committed):
            self._files.remove(_path(operator, instance, segment))


def _folder(operator: str, instance: int) -> str:
    return f"{folder_name(operator)}/{instance}"


def _path(operator: str, instance: int, segment: Segment) -> str:
    return f"{_folder(operator, instance)}/segment-{segment}.arrow"
