"""Rows in groups, and lists of values with one list for each group."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.arrays import IntArray


class Groups(NamedTuple):
    """Which group each row is in, and how many groups there are."""

    of_row: IntArray
    size: int

    @classmethod
    def of(cls, members: Any, rows: int) -> Groups:
        """Read them from a column with a list of the rows of each group."""
        lists = whole(members)
        of_row = np.empty(rows, dtype=np.int64)
        of_row[np.asarray(pc.list_flatten(lists))] = np.asarray(
            pc.list_parent_indices(lists), dtype=np.int64
        )
        return cls(of_row, len(lists))


def as_lists(values: Any, group: IntArray, kept: IntArray, count: int) -> pa.Array:
    """Make a list of each group from some of the values, in the order that they are given in.

    Examples
    --------
    >>> as_lists(pa.array("abc"), np.array([1, 0, 1]), np.array([2, 1, 0]), 3).to_pylist()
    [['b'], ['c', 'a'], []]
    """
    order = kept[np.argsort(group[kept], kind="stable")]
    ends = np.cumsum(np.bincount(group[kept], minlength=count))
    offsets = pa.array(np.concatenate(([0], ends)).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, whole(values).take(pa.array(order)))


def whole(column: Any) -> Any:
    """Make one array of a column that may be in chunks."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
