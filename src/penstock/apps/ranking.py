"""Rankings as keyed state: the first so many of each group, by count, ties by name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: State of a ranking besides its key.
STATE = pa.schema([("words", pa.list_(pa.string())), ("counts", pa.list_(pa.int64()))])


def top(table: pa.Table, n: int, by: str) -> pa.Table:
    """Keep the rows with the `n` largest counts of each group, in order; ties go by word.

    Examples
    --------
    >>> rows = pa.table({"group": [0, 0, 1, 0], "word": ["b", "a", "c", "d"], "n": [2, 2, 1, 1]})
    >>> top(rows, 2, "group").column("word").to_pylist()
    ['a', 'b', 'c']
    """
    ordered = table.sort_by([(by, "ascending"), ("n", "descending"), ("word", "ascending")])
    return ordered.filter(pa.array(_places(ordered, by) < n))


def _places(ordered: pa.Table, by: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Place of each row in its group, from 0, in a table sorted by group."""
    groups = np.asarray(ordered.column(by))
    first = np.append(True, groups[1:] != groups[:-1]) if len(groups) else np.empty(0, bool)
    starts = np.flatnonzero(first)
    return np.arange(len(groups)) - np.repeat(starts, np.diff(np.append(starts, len(groups))))


@dataclass(frozen=True)
class Ranking:
    """The `n` most frequent words of each group, kept as counts come in.

    It is exact although it forgets all other words, because counts only grow: a word that is not
    among the first can only come to be by a count of its own, and that count comes in.

    Parameters
    ----------
    n : int
    by : str
        Column of the group.
    total : bool
        Emit the whole ranking with ``rank`` from 1, instead of the rows that changed for a next
        ranking.
    """

    n: int
    by: str
    total: bool = False

    def __call__(self, batch: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Merge counts into rankings; see `Pipeline.keyed`."""
        names = [self.by, "word", "n"]
        known = self._rows(state)
        both = pa.concat_tables([known, batch.select(names)]).group_by(
            [self.by, "word"], use_threads=False
        )
        best = top(both.aggregate([("n", "max")]).rename_columns(names), self.n, self.by)
        if self.total:
            rank = pa.array(_places(best, self.by) + 1)
            return best.select(["word", "n"]).add_column(0, "rank", rank), self._state(best)
        changed = best.join(known, names, join_type="left anti", use_threads=False)
        return changed.set_column(0, "ranking", pa.nulls(len(changed), pa.int8()).fill_null(0)), (
            self._state(best)
        )

    def _rows(self, state: pa.Table) -> pa.Table:
        """One row for each word of the rankings."""
        words = state.column("words").combine_chunks()
        counts = state.column("counts").combine_chunks()
        owner = pc.list_parent_indices(words)
        return pa.table(
            {
                self.by: state.column(self.by).take(owner),
                "word": pc.list_flatten(words),
                "n": pc.list_flatten(counts),
            }
        )

    def _state(self, best: pa.Table) -> pa.Table:
        """One row for each ranking."""
        best = best.combine_chunks()
        groups = np.asarray(best.column(self.by))
        starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))
        offsets = pa.array(np.append(starts, len(groups)).astype(np.int32))

        def lists(name: str) -> pa.ListArray:
            return pa.ListArray.from_arrays(offsets, best.column(name).chunk(0))

        return pa.table(
            {
                self.by: best.column(self.by).take(pa.array(starts)),
                "words": lists("word"),
                "counts": lists("n"),
            }
        )
