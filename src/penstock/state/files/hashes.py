"""The hashes of a mapped segment, in a file beside it, so that they need no memory either."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock.common.key_hashing import HashArray


def hash_path(segment: Path) -> Path:
    """Name the file of hashes that belongs to a segment's file."""
    return segment.with_suffix(".hashes")


@contextlib.contextmanager
def new_hash_file(path: Path) -> Iterator[Any]:
    """Write a file of hashes, all of it or none; `write` of what is yielded takes an array."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with partial.open("wb") as out:
        yield out
    partial.replace(path)


def map_hashes(path: Path, count: int) -> HashArray | None:
    """Map a file of hashes; None when it is missing, or does not have so many."""
    try:
        if path.stat().st_size != count * 8:
            return None
        return np.asarray(np.memmap(path, dtype=np.uint64, mode="r"))
    except FileNotFoundError:
        return None
