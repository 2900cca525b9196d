"""The hashes of a mapped state in a file beside it, so that they need no memory of their own."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock.common.key_hashing import HashArray


def beside(path: Path) -> Path:
    """Name the file of hashes of a file of rows."""
    return path.with_suffix(".hashes")


@contextlib.contextmanager
def written(path: Path) -> Iterator[Any]:
    """Write a file of hashes, whole or not at all; `write` takes an array."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with partial.open("wb") as out:
        yield out
    partial.replace(path)


def mapped(path: Path, count: int) -> HashArray | None:
    """Map a file of so many hashes; None when it is not there, or not of as many."""
    try:
        if path.stat().st_size != count * 8:
            return None
        return np.asarray(np.memmap(path, dtype=np.uint64, mode="r"))
    except FileNotFoundError:
        return None
