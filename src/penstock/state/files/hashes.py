"""The hashes of a mapped segment, in a file beside it, so that they need no memory either."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from penstock.common.key_hashing import HashArray
from penstock.state.files.checksum import ChecksumWriter, Damaged, verify
from penstock.state.files.filesystem import write_file


def hash_path(segment: Path) -> Path:
    """Name the file of hashes that belongs to a segment's file."""
    return segment.with_suffix(".hashes")


def write_hashes(path: Path, write: Callable[[Any], object]) -> None:
    """Write a file of hashes; `write` gets a file that takes arrays.

    It is not flushed to the disk: where it is missing or damaged, it is made again.
    """

    def all_of_it(out: Any) -> None:
        writer = ChecksumWriter(out)
        write(writer)
        writer.finish()

    write_file(path, all_of_it)


def map_hashes(path: Path, count: int) -> HashArray | None:
    """Map a file of hashes; None when it is missing or damaged, or does not have so many."""
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")
        if verify(data.data) != count * 8:
            return None
    except (FileNotFoundError, ValueError, Damaged):
        # An empty file cannot be mapped, which is a ValueError.
        return None
    return np.asarray(data[: count * 8].view(np.uint64))
