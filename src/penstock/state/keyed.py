"""A keyed table: rows found by key, changed by making a new version that shares the old rows.

Rows lie sorted by the hash of their key, in a large base and a small overlay of what changed
lately. A lookup is two binary searches for all keys at once; a change touches the overlay only,
until that has grown to a part of the base and both are merged. So a batch costs by the keys that it
touches, and the version before it stays whole for a retry. The base may lie in a file that is
mapped into memory: what stays in memory then is the overlay, and eight bytes a key to find it by.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from penstock.model import PenstockError
from penstock.strategies.route.keys import HashArray, combine, hash_keys

#: The overlay is merged into the base when it has this many rows, or this part of the base's.
MERGE_ROWS, MERGE_PART = 20_000, 0.25

#: Rows of a record batch of a mapped base: what a lookup must touch at the least.
CHUNK = 65_536

#: Column that marks, among rows that changed, the keys that were removed.
GONE = "__gone"

Positions = npt.NDArray[np.int64]


class KeyCollision(PenstockError):
    """Two different keys have the same 64-bit hash."""


def key_hashes(table: pa.Table, by: tuple[str, ...]) -> HashArray:
    """Hash the key of every row."""
    return combine([hash_keys(table.column(name)) for name in by])


@dataclass(frozen=True, eq=False)
class _Run:
    """Rows sorted by hash, each key once; some of them may only say that a key is gone."""

    rows: pa.Table | None = None
    hashes: HashArray = None  # type: ignore[assignment]
    gone: npt.NDArray[np.bool_] | None = None

    @property
    def size(self) -> int:
        return 0 if self.rows is None else int(self.rows.num_rows)

    def find(self, hashes: HashArray) -> Positions:
        """Row of each hash, or -1."""
        if not self.size:
            return np.full(len(hashes), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.hashes, hashes), self.size - 1)
        return np.where(self.hashes[at] == hashes, at, -1)

    def alive(self, at: Positions) -> npt.NDArray[np.bool_]:
        """Which of the found rows are there and not gone."""
        there = at >= 0
        if self.gone is not None:
            there &= ~self.gone[at]
        return there

    def take(self, at: Positions) -> pa.Table:
        """Rows at ascending positions."""
        assert self.rows is not None
        if self.rows.column(0).num_chunks == 1:
            return self.rows.take(pa.array(at))
        # Chunk by chunk: Arrow would first put all chunks together.
        bounds = np.searchsorted(at, np.arange(0, self.size + CHUNK, CHUNK))
        parts = [
            self.rows.slice(number * CHUNK, CHUNK).take(pa.array(at[low:high] - number * CHUNK))
            for number, (low, high) in enumerate(itertools.pairwise(bounds))
            if high > low
        ]
        return pa.concat_tables(parts) if parts else self.rows.slice(0, 0)


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
    >>> second.remove(pa.table({"word": ["a"]})).rows().to_pylist()
    [{'word': 'b', 'n': 3}]
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
        older = self.base.find(hashes[recent < 0])
        parts = []
        if self.base.rows is not None:
            parts.append(self.base.take(older[older >= 0]))
        if self.overlay.rows is not None:
            parts.append(self.overlay.take(recent[self.overlay.alive(recent)]))
        found = pa.concat_tables(parts, promote_options="default")
        self._check(keys, hashes, found)
        return found

    def put(self, rows: pa.Table) -> KeyedTable:
        """Return the next version, with these rows new or in place of old ones.

        A key that comes twice keeps its last row. Rows whose column `GONE` is true remove their
        key.
        """
        if not rows.num_rows:
            return self
        gone = None
        if GONE in rows.column_names:
            gone = np.asarray(rows.column(GONE), dtype=bool)
            rows = rows.drop_columns([GONE])
        run = _sorted(rows.combine_chunks(), key_hashes(rows, self.by), gone)
        recent = self.overlay.find(run.hashes)
        known = self.overlay.alive(recent) | ((recent < 0) & (self.base.find(run.hashes) >= 0))
        after = np.ones(run.size, bool) if run.gone is None else ~run.gone
        overlay = _merged(self.overlay, run)
        return replace(self, overlay=overlay, size=self.size + int(after.sum()) - int(known.sum()))

    def remove(self, keys: pa.Table) -> KeyedTable:
        """Return the next version, without these keys."""
        return self.put(removal(keys, self.by))

    @property
    def ripe(self) -> bool:
        """Whether the overlay has grown so that it is time to `compact`."""
        return self.overlay.size > max(MERGE_ROWS, MERGE_PART * self.base.size)

    def compact(self) -> KeyedTable:
        """Return the same version with all rows in the base, in memory."""
        whole = _merged(self.base, self.overlay)
        if whole.gone is not None:
            kept = ~whole.gone
            assert whole.rows is not None
            whole = _Run(whole.rows.filter(pa.array(kept)).combine_chunks(), whole.hashes[kept])
        return KeyedTable(self.by, whole if whole.size else _Run(), _Run(), self.size)

    def rows(self) -> pa.Table | None:
        """All rows; None when there are none."""
        return self.compact().base.rows if self.overlay.size else self.base.rows

    def bytes(self) -> int:
        """Size of the rows, mapped ones included."""
        runs = (self.base.rows, self.overlay.rows)
        return sum(int(rows.nbytes) for rows in runs if rows is not None)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows by hash, in batches of `CHUNK`, without ever holding them all."""
        old, new = self.base, self.overlay
        if old.rows is None and new.rows is None:
            return
        parts = [run.hashes for run in (old, new) if run.size]
        hashes = np.concatenate(parts)
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        order = order[np.append(ordered[1:] != ordered[:-1], True)]
        if new.gone is not None:
            from_new = order >= old.size
            dropped = np.zeros(len(order), bool)
            dropped[from_new] = new.gone[order[from_new] - old.size]
            order = order[~dropped]
        for start in range(0, len(order), CHUNK):
            part = order[start : start + CHUNK]
            is_new = part >= old.size
            tables = []
            if old.rows is not None:
                tables.append(old.take(part[~is_new]))
            if new.rows is not None:
                tables.append(new.take(part[is_new] - old.size))
            mixed = pa.concat_tables(tables, promote_options="default").combine_chunks()
            # Rows of the base come first in `mixed`: put each back to its place in the order.
            at = np.empty(len(part), dtype=np.int64)
            at[np.flatnonzero(~is_new)] = np.arange(int((~is_new).sum()))
            at[np.flatnonzero(is_new)] = int((~is_new).sum()) + np.arange(int(is_new.sum()))
            yield from mixed.take(pa.array(at)).combine_chunks().to_batches()

    @classmethod
    def mapped(cls, by: tuple[str, ...], path: Path) -> KeyedTable:
        """Open rows that `batches` gave and a file keeps, without reading them into memory."""
        rows = pa.ipc.open_file(pa.memory_map(str(path), "rb")).read_all()
        if not rows.num_rows:
            return cls(by)
        hashes = np.concatenate(
            [key_hashes(pa.Table.from_batches([batch]), by) for batch in rows.to_batches()]
        )
        if (hashes[1:] <= hashes[:-1]).any():
            # Not in our order: written by something else.
            return cls(by).put(rows).compact()
        return cls(by, _Run(rows, hashes), _Run(), rows.num_rows)

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


def removal(keys: pa.Table, by: tuple[str, ...]) -> pa.Table:
    """Rows that remove keys when they are put."""
    table = keys.select(list(by))
    return table.append_column(GONE, pa.array(np.ones(table.num_rows, bool)))


def changes(parts: list[pa.Table]) -> pa.Table:
    """Put what changed, in order, into one table; some parts may remove keys."""
    if not parts:
        return pa.table({})
    if any(GONE in part.column_names for part in parts):
        marked = []
        for part in parts:
            if GONE not in part.column_names:
                part = part.append_column(GONE, pa.array(np.zeros(part.num_rows, bool)))
            marked.append(part)
        parts = marked
    return pa.concat_tables(parts, promote_options="default")


def latest(table: pa.Table, by: tuple[str, ...]) -> pa.Table:
    """Keep the last row of every key of a table of changes, removals included."""
    if not table.num_rows:
        return table
    run = _sorted(table.combine_chunks(), key_hashes(table, by), None)
    assert run.rows is not None
    return run.rows


def _sorted(rows: pa.Table, hashes: HashArray, gone: npt.NDArray[np.bool_] | None) -> _Run:
    """Sort rows by hash, keeping the last of equal ones."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    order = order[np.append(ordered[1:] != ordered[:-1], True)]
    marks = gone[order] if gone is not None and gone.any() else None
    if marks is not None and not marks.any():
        marks = None
    return _Run(rows.take(pa.array(order)).combine_chunks(), hashes[order], marks)


def _merged(old: _Run, new: _Run) -> _Run:
    """Merge two runs; rows of the new one win."""
    if not new.size:
        return old
    if not old.size:
        return new
    rows = pa.concat_tables([old.rows, new.rows], promote_options="default").combine_chunks()
    gone = None
    if old.gone is not None or new.gone is not None:
        gone = np.concatenate(
            [np.zeros(r.size, bool) if r.gone is None else r.gone for r in (old, new)]
        )
    return _sorted(rows, np.concatenate([old.hashes, new.hashes]), gone)
