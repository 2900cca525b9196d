"""A keyed table: rows found by key, changed by making a new version that shares the old rows.

Rows lie sorted by the hash of their key, in a large base and a small overlay of what changed
lately. A lookup is two binary searches for all keys at once; a change touches the overlay only,
until that has grown to a part of the base and both are merged. So a batch costs by the keys that it
touches, and the version before it stays whole for a retry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model import PenstockError
from penstock.strategies.route.keys import HashArray, combine, hash_keys

#: The overlay is merged into the base when it has this many rows, or this part of the base's.
MERGE_ROWS, MERGE_PART = 20_000, 0.25


class KeyCollision(PenstockError):
    """Two different keys have the same 64-bit hash."""


def key_hashes(table: pa.Table, by: tuple[str, ...]) -> HashArray:
    """Hash the key of every row."""
    return combine([hash_keys(table.column(name)) for name in by])


@dataclass(frozen=True, eq=False)
class _Run:
    """Rows sorted by hash, each key once."""

    rows: pa.Table | None = None
    hashes: HashArray = None  # type: ignore[assignment]

    @property
    def size(self) -> int:
        return 0 if self.rows is None else int(self.rows.num_rows)

    def find(self, hashes: HashArray) -> npt.NDArray[np.int64]:
        """Row of each hash, or -1."""
        if not self.size:
            return np.full(len(hashes), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.hashes, hashes), self.size - 1)
        return np.where(self.hashes[at] == hashes, at, -1)


@dataclass(frozen=True, eq=False)
class KeyedTable:
    """One version of the state of an instance.

    Examples
    --------
    >>> empty = KeyedTable(("word",))
    >>> first = empty.put(pa.table({"word": ["a", "b"], "n": [1, 2]}))
    >>> second = first.put(pa.table({"word": ["b"], "n": [3]}))
    >>> second.get(pa.table({"word": ["b", "c"]})).to_pylist(), first.size, second.size
    ([{'word': 'b', 'n': 3}], 2, 2)
    """

    by: tuple[str, ...]
    base: _Run = _Run()
    overlay: _Run = _Run()
    size: int = 0

    def get(self, keys: pa.Table) -> pa.Table | None:
        """Rows of the given keys that there are, each once; None when nothing is stored at all."""
        if not self.size:
            return None
        hashes = np.unique(key_hashes(keys, self.by))
        recent = self.overlay.find(hashes)
        older = np.where(recent < 0, self.base.find(hashes), -1)
        parts = []
        if self.base.rows is not None:
            parts.append(self.base.rows.take(pa.array(older[older >= 0])))
        if self.overlay.rows is not None:
            parts.append(self.overlay.rows.take(pa.array(recent[recent >= 0])))
        found = pa.concat_tables(parts)
        self._check(keys, hashes, found)
        return found

    def put(self, rows: pa.Table) -> KeyedTable:
        """Return the next version, with these rows new or in place of old ones.

        A key that comes twice keeps its last row.
        """
        if not rows.num_rows:
            return self
        run = _sorted(rows.combine_chunks(), key_hashes(rows, self.by))
        fresh = int(((self.base.find(run.hashes) < 0) & (self.overlay.find(run.hashes) < 0)).sum())
        overlay = _merged(self.overlay, run)
        size = self.size + fresh
        if overlay.size > max(MERGE_ROWS, MERGE_PART * self.base.size):
            return KeyedTable(self.by, _merged(self.base, overlay), _Run(), size)
        return KeyedTable(self.by, self.base, overlay, size)

    def rows(self) -> pa.Table | None:
        """All rows; None when there are none."""
        whole = _merged(self.base, self.overlay) if self.overlay.size else self.base
        return whole.rows

    def _check(self, keys: pa.Table, hashes: HashArray, found: pa.Table) -> None:
        """Raise on a collision: a stored key that has an asked key's hash without being it."""
        names = list(self.by)
        asked = keys.select(names).group_by(names, use_threads=False).aggregate([])
        if asked.num_rows != len(hashes):
            raise KeyCollision(f"two keys of one batch share a hash ({', '.join(names)})")
        joined = found.select(names).join(asked, names, join_type="left anti", use_threads=False)
        if joined.num_rows:
            sample: Any = joined.slice(0, 1).to_pylist()[0]
            raise KeyCollision(f"key {sample} shares its hash with another key of the batch")


def _sorted(rows: pa.Table, hashes: HashArray) -> _Run:
    """Sort rows by hash, keeping the last of equal ones."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    last = np.append(ordered[1:] != ordered[:-1], True)
    return _Run(rows.take(pa.array(order[last])).combine_chunks(), ordered[last])


def _merged(old: _Run, new: _Run) -> _Run:
    """Merge two runs; rows of the new one win."""
    if not new.size:
        return old
    if not old.size:
        return new
    rows = pa.concat_tables([old.rows, new.rows]).combine_chunks()
    return _sorted(rows, np.concatenate([old.hashes, new.hashes]))
