"""A keyed table: rows found by key, changed by making a new version that shares the old rows.

Rows lie sorted by the hash of their key, in a large base and a few runs of what changed lately,
each at most half as long as the one before it. A lookup is a binary search in each for all keys at
once; a change makes a new run and merges those that are not longer, until all of them together are
a part of the base and are merged into it. So a batch costs by the keys that it touches, and the
version before it stays whole for a retry. The base may lie in a file that is mapped into memory,
and its hashes in another: what stays in memory then are the runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from penstock.common.key_hashing import HashArray, key_hashes
from penstock.model import PenstockError
from penstock.state import hash_file as hash_file

#: What changed is merged into the base when it has this many rows, or this part of the base's.
MERGE_ROWS, MERGE_PART = 20_000, 0.25

#: Rows of a record batch of the base: merging and searching hold no more of it at a time.
CHUNK = 65_536

#: Column that marks, among rows that changed, the keys that were removed.
GONE = "__gone"

Positions = npt.NDArray[np.int64]


class KeyCollision(PenstockError):
    """Two different keys have the same 64-bit hash."""


@dataclass(frozen=True, eq=False)
class _SortedRows:
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

    def cut(self, start: int, stop: int) -> _SortedRows:
        """Rows between two positions."""
        if stop <= start:
            return _SortedRows()
        assert self.rows is not None
        gone = None if self.gone is None else self.gone[start:stop]
        return _SortedRows(self.rows.slice(start, stop - start), self.hashes[start:stop], gone)

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
    base: _SortedRows = _SortedRows()
    recent: tuple[_SortedRows, ...] = ()
    size: int = 0

    @property
    def runs(self) -> tuple[_SortedRows, ...]:
        """All runs that have rows, the newest first."""
        return (*self.recent, self.base) if self.base.size else self.recent

    def get(self, keys: pa.Table) -> pa.Table | None:
        """Rows of the given keys that there are, each once; None when nothing is stored at all."""
        if not self.size:
            return None
        hashes = np.unique(key_hashes(keys, self.by))
        found = self.at(hashes)
        self._check(keys, hashes, found)
        return found

    def at(self, hashes: HashArray) -> pa.Table:
        """Rows of the keys with the given hashes, which are in order, that there are."""
        parts = [self._schema().empty_table()]
        for run in self.runs:
            at = run.find(hashes)
            there = run.alive(at)
            if there.any():
                parts.append(run.take(at[there]))
            hashes = hashes[at < 0]
        return pa.concat_tables(parts, promote_options="default")

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
        after = run.size if run.gone is None else int((~run.gone).sum())
        size = self.size + after - self._known(run.hashes)
        recent = [run, *self.recent]
        while len(recent) > 1 and recent[1].size <= 2 * recent[0].size:
            recent[:2] = [_merged(recent[1], recent[0])]
        return replace(self, recent=tuple(recent), size=size)

    def _known(self, hashes: HashArray) -> int:
        """How many of some hashes there are rows of."""
        known = 0
        for run in self.runs:
            at = run.find(hashes)
            known += int(run.alive(at).sum())
            hashes = hashes[at < 0]
        return known

    def remove(self, keys: pa.Table) -> KeyedTable:
        """Return the next version, without these keys."""
        return self.put(removal(keys, self.by))

    @property
    def ripe(self) -> bool:
        """Whether so much has changed that it is time to `compact`."""
        changed = sum(run.size for run in self.recent)
        return changed > max(MERGE_ROWS, MERGE_PART * self.base.size)

    def compact(self) -> KeyedTable:
        """Return the same version with all rows in the base, in memory."""
        if not self.recent:
            return self
        parts = list(self.chunks())
        if not parts:
            return KeyedTable(self.by)
        rows = pa.Table.from_batches([batch for batch, _ in parts])
        hashes = np.concatenate([part for _, part in parts])
        return KeyedTable(self.by, _SortedRows(rows, hashes), (), self.size)

    def rows(self) -> pa.Table | None:
        """All rows; None when there are none."""
        return self.compact().base.rows

    def where(self, wanted: Callable[[pa.Table], npt.NDArray[np.bool_]]) -> pa.Table | None:
        """Rows that a test picks; None when there are none.

        Parameters
        ----------
        wanted : callable
            From some rows to what it says of each. It sees rows that were changed since, too, and
            never all rows at once.
        """
        parts: list[pa.Table] = []
        for number, run in enumerate(self.runs):
            for start in range(0, run.size, CHUNK):
                at = np.arange(start, min(start + CHUNK, run.size))
                if run.gone is not None:
                    at = at[~run.gone[at]]
                if len(at):
                    at = at[wanted(run.take(at))]
                for newer in self.recent[:number]:
                    at = at[newer.find(run.hashes[at]) < 0]
                if len(at):
                    parts.append(run.take(at))
        return pa.concat_tables(parts, promote_options="default") if parts else None

    def bytes(self) -> int:
        """Size of the rows, mapped ones included."""
        return self.recent_bytes() + (0 if self.base.rows is None else int(self.base.rows.nbytes))

    def recent_bytes(self) -> int:
        """Size of the rows that are not in the base."""
        return sum(int(run.rows.nbytes) for run in self.recent if run.rows is not None)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows by hash, in batches of `CHUNK`, without ever holding them all."""
        return (batch for batch, _ in self.chunks())

    def chunks(self) -> Iterator[tuple[pa.RecordBatch, HashArray]]:
        """Batches as `batches` gives them, and the hashes of their rows."""
        schema = self._schema()
        rows, hashes, waiting = [], [], 0
        for table, part in self._ordered():
            rows.append(pa.concat_tables([schema.empty_table(), table], promote_options="default"))
            hashes.append(part)
            waiting += len(part)
            while waiting >= CHUNK:
                whole, every = pa.concat_tables(rows), np.concatenate(hashes)
                yield _batch(whole.slice(0, CHUNK)), every[:CHUNK]
                rows, hashes, waiting = [whole.slice(CHUNK)], [every[CHUNK:]], waiting - CHUNK
        if waiting:
            yield _batch(pa.concat_tables(rows)), np.concatenate(hashes)

    def _ordered(self) -> Iterator[tuple[pa.Table, HashArray]]:
        """Merge what changed into the base, a piece of the base at a time."""
        old, new = self.base, _SortedRows()
        for run in reversed(self.recent):
            new = _merged(new, run)
        done = 0
        for low in range(0, max(old.size, 1), CHUNK):
            high = min(low + CHUNK, old.size)
            stop = new.size
            if stop and high < old.size:
                stop = int(np.searchsorted(new.hashes, old.hashes[high - 1], side="right"))
            yield _spliced(old.cut(low, high), new.cut(done, stop))
            done = stop

    def _schema(self) -> pa.Schema:
        """Columns of all runs: one that only removes keys has no others."""
        schemas = [run.rows.schema for run in self.runs if run.rows is not None]
        return pa.unify_schemas(schemas[::-1]) if schemas else pa.schema([])

    @classmethod
    def mapped(cls, by: tuple[str, ...], path: Path) -> KeyedTable:
        """Open rows that `batches` gave and a file keeps, without reading them into memory.

        Their hashes are mapped, too; where the file with them is missing, it is made.
        """
        rows = pa.ipc.open_file(pa.memory_map(str(path), "rb")).read_all()
        beside, count = hash_file.beside(path), int(rows.num_rows)
        hashes = hash_file.mapped(beside, count) if count else None
        if hashes is not None:
            return cls(by, _SortedRows(rows, hashes), (), count)
        state = cls.opened(by, rows)
        if state.base.rows is rows:
            with hash_file.written(beside) as out:
                out.write(state.base.hashes)
            hashes = hash_file.mapped(beside, count)
            assert hashes is not None
            state = replace(state, base=_SortedRows(rows, hashes))
        return state

    @classmethod
    def opened(cls, by: tuple[str, ...], rows: pa.Table) -> KeyedTable:
        """Use rows that `batches` gave; any others are put in order first."""
        if not rows.num_rows:
            return cls(by)
        parts = [key_hashes(pa.Table.from_batches([batch]), by) for batch in rows.to_batches()]
        hashes = np.concatenate(parts)
        if (hashes[1:] <= hashes[:-1]).any():
            return cls(by).put(rows).compact()
        return cls(by, _SortedRows(rows, hashes), (), rows.num_rows)

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


def _sorted(rows: pa.Table, hashes: HashArray, gone: npt.NDArray[np.bool_] | None) -> _SortedRows:
    """Sort rows by hash, keeping the last of equal ones."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    order = order[np.append(ordered[1:] != ordered[:-1], True)]
    marks = gone[order] if gone is not None and gone.any() else None
    if marks is not None and not marks.any():
        marks = None
    return _SortedRows(rows.take(pa.array(order)).combine_chunks(), hashes[order], marks)


def _merged(old: _SortedRows, new: _SortedRows) -> _SortedRows:
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


def _spliced(old: _SortedRows, new: _SortedRows) -> tuple[pa.Table, HashArray]:
    """Rows of two runs in order, without those that are gone."""
    run = _merged(old, new)
    if run.rows is None:
        return pa.table({}), np.empty(0, dtype=np.uint64)
    if run.gone is None:
        return run.rows, run.hashes
    return run.rows.filter(pa.array(~run.gone)), run.hashes[~run.gone]


def _batch(rows: pa.Table) -> pa.RecordBatch:
    return rows.combine_chunks().to_batches()[0]
