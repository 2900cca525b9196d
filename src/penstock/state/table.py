"""A keyed table: rows found by key. A change makes a new version that shares the unchanged rows.

Rows are sorted by the hash of their key, in one large *base* and a few *recent* sets of rows that
changed since, each at most half as long as the one before it. A lookup is one binary search in each
of them for all keys of a batch. A change adds a recent set and merges it with those that are not
longer. When the recent sets together are a quarter of the base, all rows are written into a new
base (`KeyedTable.compact`). So a batch costs by the keys that it touches, and the version before it
stays unchanged for a retry. The base and its hashes may be mapped from files; then only the recent
rows use memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.arrays import IntArray
from penstock.common.arrow_keys import check_equal, distinct_keys, normal_keys
from penstock.common.key_hashing import HashArray, key_hashes
from penstock.state.sorted_rows import CHUNK, EMPTY, SortedRows, merge, sort_rows

#: Recent rows are merged into the base when they are this many, or this part of the base.
MERGE_ROWS, MERGE_PART = 20_000, 0.25

#: Column that marks, among changed rows, the keys that were removed.
GONE = "__gone"


@dataclass(frozen=True, eq=False)
class KeyedTable:
    """One version of the state of an instance.

    Parameters
    ----------
    by : tuple of str
        Columns of the key.
    base : SortedRows
    recent : tuple of SortedRows
        Rows that changed since the base was made, the newest first.
    size : int
        Number of keys.

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
    base: SortedRows = EMPTY
    recent: tuple[SortedRows, ...] = ()
    size: int = 0

    @classmethod
    def opened(cls, by: tuple[str, ...], rows: pa.Table) -> KeyedTable:
        """Make a table of rows; those that `chunks` wrote are used as they are."""
        if not rows.num_rows:
            return cls(by)
        parts = [key_hashes(pa.Table.from_batches([batch]), by) for batch in rows.to_batches()]
        hashes = np.concatenate(parts)
        if (hashes[1:] <= hashes[:-1]).any():
            return cls(by).put(rows).compact()
        return cls(by, SortedRows(rows, hashes), (), rows.num_rows)

    @property
    def layers(self) -> tuple[SortedRows, ...]:
        """The recent rows and the base, the newest first, without an empty base."""
        return (*self.recent, self.base) if self.base.size else self.recent

    def get(self, keys: pa.Table) -> pa.Table | None:
        """Return the rows of the given keys, each once; None when the table is empty."""
        if not self.size:
            return None
        keys = normal_keys(keys.select(list(self.by)), self.by)
        asked = distinct_keys(keys, self.by)
        found = self.at(asked.hashes)
        # A stored key that has an asked key's hash must be that key.
        at = np.searchsorted(asked.hashes, key_hashes(found, self.by))
        check_equal(found, keys.take(pa.array(asked.first[at])), self.by)
        return found

    def at(self, hashes: HashArray) -> pa.Table:
        """Return the rows of the keys with the given hashes, which must be ascending."""
        return self.lookup(hashes)[0]

    def lookup(self, hashes: HashArray) -> tuple[pa.Table, IntArray]:
        """Return the rows with the given hashes, which must be ascending, and which one each has.

        Examples
        --------
        >>> table = KeyedTable(("k",)).put(pa.table({"k": [3, 5], "n": [30, 50]}))
        >>> asked = np.sort(key_hashes(pa.table({"k": [5, 7]}), ("k",)))
        >>> rows, which = table.lookup(asked)
        >>> rows.to_pylist(), bool((asked[which] == key_hashes(rows, ("k",))).all())
        ([{'k': 5, 'n': 50}], True)
        """
        parts, places = [self._schema().empty_table()], [np.empty(0, dtype=np.int64)]
        place = np.arange(len(hashes))
        for layer in self.layers:
            at = layer.find(hashes)
            there = layer.alive(at)
            if there.any():
                parts.append(layer.take(at[there]))
                places.append(place[there])
            missing = at < 0
            hashes, place = hashes[missing], place[missing]
        return pa.concat_tables(parts, promote_options="default"), np.concatenate(places)

    def put(self, rows: pa.Table) -> KeyedTable:
        """Return the next version, in which these rows are new or replace old ones.

        Of rows with one key the last is kept. Rows whose column `GONE` is true remove their key.
        Keys are kept in normal form.
        """
        if not rows.num_rows:
            return self
        rows = normal_keys(rows, self.by)
        gone = None
        if GONE in rows.column_names:
            gone = np.asarray(rows.column(GONE), dtype=bool)
            rows = rows.drop_columns([GONE])
        new = sort_rows(rows.combine_chunks(), key_hashes(rows, self.by), gone)
        after = new.size if new.gone is None else int((~new.gone).sum())
        size = self.size + after - self._known(new.hashes)
        recent = [new, *self.recent]
        while len(recent) > 1 and recent[1].size <= 2 * recent[0].size:
            recent[:2] = [merge(recent[1], recent[0])]
        return replace(self, recent=tuple(recent), size=size)

    def _known(self, hashes: HashArray) -> int:
        """Count the hashes that the table has rows of."""
        known = 0
        for layer in self.layers:
            at = layer.find(hashes)
            known += int(layer.alive(at).sum())
            hashes = hashes[at < 0]
        return known

    def remove(self, keys: pa.Table) -> KeyedTable:
        """Return the next version, without these keys."""
        return self.put(removal(keys, self.by))

    @property
    def due_for_compaction(self) -> bool:
        """Whether so many rows are recent that it is time to `compact`."""
        changed = sum(layer.size for layer in self.recent)
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
        return KeyedTable(self.by, SortedRows(rows, hashes), (), self.size)

    def rows(self) -> pa.Table | None:
        """Return all rows; None when there are none."""
        return self.compact().base.rows

    def where(
        self,
        wanted: Callable[[pa.Table], npt.NDArray[np.bool_]],
        columns: Sequence[str] | None = None,
    ) -> pa.Table | None:
        """Return the rows that a predicate picks; None when it picks none.

        Parameters
        ----------
        wanted : callable
            Takes some rows and returns a flag for each. It is called with parts of the table, which
            include old rows of keys that changed since; those are not returned.
        columns : sequence of str, optional
            Columns that it looks at; those that no row has are left out. By default all.
        """
        parts: list[pa.Table] = []
        for number, layer in enumerate(self.layers):
            if layer.gone is not None and layer.gone.all():
                # Removals have the columns of the key alone.
                continue
            seen = layer.only(columns)
            for start in range(0, layer.size, CHUNK):
                stop = min(start + CHUNK, layer.size)
                flags = np.asarray(wanted(seen.slice(start, stop - start)))
                if layer.gone is not None:
                    flags = flags & ~layer.gone[start:stop]
                at = np.flatnonzero(flags) + start
                for newer in self.recent[:number]:
                    at = at[newer.find(layer.hashes[at]) < 0]
                if len(at):
                    parts.append(layer.take(at))
        return pa.concat_tables(parts, promote_options="default") if parts else None

    def bytes(self) -> int:
        """Size of all rows in bytes, mapped ones included."""
        return self.recent_bytes() + self.base.nbytes

    def recent_bytes(self) -> int:
        """Size of the recent rows in bytes."""
        return sum(layer.nbytes for layer in self.recent)

    def chunks(self) -> Iterator[tuple[pa.RecordBatch, HashArray]]:
        """Yield all rows by hash, in batches of `CHUNK` rows, each with the hashes of its rows.

        Only a few batches are in memory at a time.
        """
        schema = self._schema()
        rows, hashes, waiting = [], [], 0
        for table, part in self._ordered():
            rows.append(pa.concat_tables([schema.empty_table(), table], promote_options="default"))
            hashes.append(part)
            waiting += len(part)
            while waiting >= CHUNK:
                together, every = pa.concat_tables(rows), np.concatenate(hashes)
                yield _batch(together.slice(0, CHUNK)), every[:CHUNK]
                rows, hashes, waiting = [together.slice(CHUNK)], [every[CHUNK:]], waiting - CHUNK
        if waiting:
            yield _batch(pa.concat_tables(rows)), np.concatenate(hashes)

    def _ordered(self) -> Iterator[tuple[pa.Table, HashArray]]:
        """Merge the recent rows into the base, a part of the base at a time."""
        old, new = self.base, SortedRows()
        for layer in reversed(self.recent):
            new = merge(new, layer)
        done = 0
        for low in range(0, max(old.size, 1), CHUNK):
            high = min(low + CHUNK, old.size)
            stop = new.size
            if stop and high < old.size:
                stop = int(np.searchsorted(new.hashes, old.hashes[high - 1], side="right"))
            yield merge(old.cut(low, high), new.cut(done, stop)).remaining()
            done = stop

    def _schema(self) -> pa.Schema:
        """Return the columns of all layers; one that only removes keys has the key's alone."""
        schemas = [layer.rows.schema for layer in self.layers if layer.rows is not None]
        return pa.unify_schemas(schemas[::-1]) if schemas else pa.schema([])


def removal(keys: pa.Table, by: tuple[str, ...]) -> pa.Table:
    """Return the rows that remove keys when they are put into a table."""
    table = keys.select(list(by))
    return table.append_column(GONE, pa.array(np.ones(table.num_rows, bool)))


def changes(parts: list[pa.Table]) -> pa.Table:
    """Put changed rows, in order, into one table; some parts may remove keys."""
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


def last_changes(table: pa.Table, by: tuple[str, ...]) -> pa.Table:
    """Keep the last row of every key among changed rows, removals included."""
    if not table.num_rows:
        return table
    return sort_rows(table.combine_chunks(), key_hashes(table, by)).remaining()[0]


def _batch(rows: pa.Table) -> pa.RecordBatch:
    return rows.combine_chunks().to_batches()[0]
