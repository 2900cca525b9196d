"""State with many rows for each key, of one or two sides, in a table that has each key once.

The rows of a key and a side are numbered, and the number is part of the state's key. One more row
for each key, its *counter*, says how many numbers were given and how many rows there still are. So
all rows of a key are found by their hashes, and a batch writes the rows that are new and the
counters of their keys, however many rows a key has. Where most numbers of a key belong to rows that
are gone, its rows are numbered anew.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.common.arrays import IntArray
from penstock.common.arrow_keys import check_equal, distinct_keys
from penstock.common.key_hashing import HashArray, combine, hash_keys, key_hashes
from penstock.pipeline.keyed.protocols import StateAccess

#: Columns of the state's key besides the key of the rows: a side or the counter, and a number.
SIDE, NUMBER = "__side", "__number"
LEFT, RIGHT, COUNTER = 0, 1, 2

#: Columns of a counter: rows that there are of each side, and numbers that were given.
_COUNTS = (("__left_rows", "__left_numbers"), ("__right_rows", "__right_numbers"))

#: Rows are numbered anew when a key has this many numbers more than twice its rows.
_SPARE = 16


class RowsByKey:
    """The rows of some keys while a batch changes them.

    Parameters
    ----------
    state : StateAccess
    on : tuple of str
        Columns of the key; with `SIDE` and `NUMBER` they are the key of the state.
    keys : Table
        Keys, in normal form; each may be there several times.

    Attributes
    ----------
    of_row : array
        Number of the key of each row of `keys`.
    """

    def __init__(self, state: StateAccess, on: tuple[str, ...], keys: pa.Table) -> None:
        found = distinct_keys(keys, on)
        self.state, self.on, self.of_row = state, on, found.of_row
        self._hashes = found.hashes
        self._keys = keys.select(list(on)).take(pa.array(found.first))
        size = len(found.hashes)
        self._rows = np.zeros((2, size), dtype=np.int64)
        self._numbers = np.zeros((2, size), dtype=np.int64)
        self._touched = np.zeros(size, dtype=bool)
        self._new: list[pa.Table] = []
        every = np.arange(size)
        counters, which = self._lookup(every, COUNTER, np.zeros(size, dtype=np.int64))
        for side, (rows, numbers) in enumerate(_COUNTS):
            if counters.num_rows:
                self._rows[side, which] = np.asarray(counters.column(rows))
                self._numbers[side, which] = np.asarray(counters.column(numbers))

    def number(self, rows: pa.Table) -> IntArray:
        """Return the number of the key of each row; the keys must be among those given."""
        return np.searchsorted(self._hashes, key_hashes(rows, self.on)).astype(np.int64)

    def find(self, side: int, keys: IntArray) -> tuple[pa.Table, IntArray]:
        """Return all rows of a side that have one of the keys, and the number of their keys."""
        keys = np.unique(keys)
        counts = self._numbers[side, keys]
        repeated = np.repeat(keys, counts)
        numbers = np.arange(len(repeated)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows, key = self._lookup(repeated, side, numbers)
        sparse = counts > 2 * self._rows[side, keys] + _SPARE
        if sparse.any():
            rows = self._number_anew(side, rows, key, keys[sparse])
        return rows, key

    def add(self, side: int, rows: pa.Table, keys: IntArray) -> None:
        """Add rows to a side; `keys` has the number of the key of each."""
        if not rows.num_rows:
            return
        numbers = self._numbers[side, keys] + _place_in_group(keys)
        np.add.at(self._numbers[side], keys, 1)
        np.add.at(self._rows[side], keys, 1)
        self._touched[keys] = True
        self._new.append(_numbered(rows, side, numbers))

    def replace(self, rows: pa.Table) -> None:
        """Write rows that `find` returned and that were changed."""
        if rows.num_rows:
            self._new.append(rows)

    def remove(self, rows: pa.Table, keys: IntArray) -> None:
        """Remove rows of any side, which have the columns of the state's key."""
        sides = np.asarray(rows.column(SIDE), dtype=np.int64)
        np.subtract.at(self._rows, (sides, keys), 1)
        self._numbers[self._rows == 0] = 0
        self._touched[keys] = True
        self.state.remove(rows.select([*self.on, SIDE, NUMBER]))

    def write(self) -> None:
        """Put what is new into the state, with the counters that changed."""
        keys = np.flatnonzero(self._touched)
        gone = self._rows[:, keys].sum(axis=0) == 0
        if gone.any():
            self.state.remove(self._counters(keys[gone]).select([*self.on, SIDE, NUMBER]))
        parts = [*self._new, self._counters(keys[~gone])]
        self.state.put(pa.concat_tables(parts, promote_options="default"))

    def _counters(self, keys: IntArray) -> pa.Table:
        rows = self._keys.take(pa.array(keys))
        for side, names in enumerate(_COUNTS):
            for name, counts in zip(names, (self._rows, self._numbers), strict=True):
                rows = rows.append_column(name, pa.array(counts[side, keys]))
        return _numbered(rows, COUNTER, np.zeros(len(keys), dtype=np.int64))

    def _lookup(self, keys: IntArray, side: int, numbers: IntArray) -> tuple[pa.Table, IntArray]:
        """Return rows by key and number, and the numbers of their keys."""
        hashes = _state_hashes(self._hashes[keys], side, numbers)
        order = np.argsort(hashes, kind="stable")
        rows, which = self.state.lookup(hashes[order])
        found = keys[order[which]]
        if rows.num_rows:
            check_equal(rows, self._keys.take(pa.array(found)), self.on)
        return rows, found

    def _number_anew(self, side: int, rows: pa.Table, key: IntArray, sparse: IntArray) -> pa.Table:
        """Give the rows of some keys the first numbers."""
        chosen = np.isin(key, sparse)
        self.state.remove(rows.filter(pa.array(chosen)).select([*self.on, SIDE, NUMBER]))
        numbers = np.where(chosen, _place_in_group(key), np.asarray(rows.column(NUMBER)))
        at = rows.column_names.index(NUMBER)
        rows = rows.set_column(at, NUMBER, pa.array(numbers, pa.int64()))
        # At once: whoever asked for the rows may remove some of them before the others are written.
        self.state.put(rows.filter(pa.array(chosen)))
        self._numbers[side, sparse] = self._rows[side, sparse]
        self._touched[sparse] = True
        return rows


def _state_hashes(keys: HashArray, side: int, numbers: IntArray) -> HashArray:
    """Hash keys of the state: key, side and number."""
    return combine([keys, hash_keys(np.full(len(keys), side)), hash_keys(numbers)])


def _numbered(rows: pa.Table, side: int, numbers: IntArray) -> pa.Table:
    sides = pa.array(np.full(rows.num_rows, side, dtype=np.int8))
    return rows.append_column(SIDE, sides).append_column(NUMBER, pa.array(numbers, pa.int64()))


def _place_in_group(groups: IntArray) -> IntArray:
    """Place of each row among the rows of its group.

    Examples
    --------
    >>> _place_in_group(np.array([7, 2, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
    sizes = np.diff(np.append(first, len(ordered)))
    places = np.empty(len(groups), dtype=np.int64)
    places[order] = np.arange(len(groups)) - np.repeat(first, sizes)
    return places
