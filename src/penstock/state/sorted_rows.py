"""Rows sorted by the hash of their key: lookup by binary search, and merging two sets of rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.key_hashing import HashArray

#: Rows of one record batch. Merging and searching take this many rows at a time.
CHUNK = 65_536

Positions = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def _no_hashes() -> HashArray:
    return np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class SortedRows:
    """Rows sorted by hash, each key once.

    Parameters
    ----------
    rows : Table or None
        None when there are no rows.
    hashes : array
        Hash of the key of each row, ascending.
    gone : array or None
        Rows that only say that their key was removed; None when no row does.
    """

    rows: pa.Table | None = None
    hashes: HashArray = field(default_factory=_no_hashes)
    gone: Flags | None = None

    @property
    def size(self) -> int:
        """Rows, removals included."""
        return 0 if self.rows is None else int(self.rows.num_rows)

    @property
    def nbytes(self) -> int:
        """Size of the rows in bytes."""
        return 0 if self.rows is None else int(self.rows.nbytes)

    def find(self, hashes: HashArray) -> Positions:
        """Return the position of the row of each hash, or -1."""
        if not self.size:
            return np.full(len(hashes), -1, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.hashes, hashes), self.size - 1)
        return np.where(self.hashes[at] == hashes, at, -1)

    def alive(self, at: Positions) -> Flags:
        """Return which of the found positions are rows and not removals."""
        there = at >= 0
        if self.gone is not None:
            there &= ~self.gone[at]
        return there

    def cut(self, start: int, stop: int) -> SortedRows:
        """Return the rows between two positions."""
        if stop <= start or self.rows is None:
            return EMPTY
        gone = None if self.gone is None else self.gone[start:stop]
        return SortedRows(self.rows.slice(start, stop - start), self.hashes[start:stop], gone)

    def only(self, columns: Sequence[str] | None) -> pa.Table:
        """Return all rows with these columns, as far as there are such."""
        if self.rows is None:
            return pa.table({})
        there = self.rows.column_names
        return self.rows.select(there if columns is None else [c for c in columns if c in there])

    def take(self, at: Positions) -> pa.Table:
        """Return the rows at ascending positions."""
        if self.rows is None:
            return pa.table({})
        if self.rows.column(0).num_chunks == 1:
            return self.rows.take(pa.array(at))
        # Chunk by chunk: Arrow would first copy all chunks into one.
        bounds = np.searchsorted(at, np.arange(0, self.size + CHUNK, CHUNK))
        parts = [
            self.rows.slice(number * CHUNK, CHUNK).take(pa.array(at[low:high] - number * CHUNK))
            for number, (low, high) in enumerate(itertools.pairwise(bounds))
            if high > low
        ]
        return pa.concat_tables(parts) if parts else self.rows.slice(0, 0)

    def remaining(self) -> tuple[pa.Table, HashArray]:
        """Return the rows that are not removals, and their hashes."""
        if self.rows is None:
            return pa.table({}), self.hashes
        if self.gone is None:
            return self.rows, self.hashes
        return self.rows.filter(pa.array(~self.gone)), self.hashes[~self.gone]


#: No rows.
EMPTY = SortedRows()


def sort_rows(rows: pa.Table, hashes: HashArray, gone: Flags | None = None) -> SortedRows:
    """Sort rows by hash; of rows with equal hashes keep the last."""
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    order = order[np.append(ordered[1:] != ordered[:-1], True)]
    marks = gone[order] if gone is not None and gone.any() else None
    if marks is not None and not marks.any():
        marks = None
    return SortedRows(rows.take(pa.array(order)).combine_chunks(), hashes[order], marks)


def merge(old: SortedRows, new: SortedRows) -> SortedRows:
    """Merge two sets of rows; where both have a key, the row of the new one is kept."""
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
    return sort_rows(rows, np.concatenate([old.hashes, new.hashes]), gone)
