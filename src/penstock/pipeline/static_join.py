"""A join of a stream with a table that is at hand as a whole, and may be loaded again."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.arrays import IntArray
from penstock.common.arrow_keys import check_equal, normal_keys
from penstock.common.key_hashing import HashArray, key_hashes
from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline.keyed.join_columns import JoinColumns
from penstock.pipeline.keyed.rows_by_key import LEFT, RIGHT
from penstock.pipeline.keyed.windows import microseconds

#: Kinds of joins with a table.
HOW = ("inner", "left")

#: Families of types: keys of one family have equal hashes if they are equal.
_ALIKE: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_floating,
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
)

#: Tables by the join that they belong to, of this process.
_LOADED: dict[str, _Loaded] = {}


@dataclass(frozen=True)
class Static:
    """A table that a function loads, now and again; see `static`."""

    load: Callable[[], pa.Table]
    refresh_s: float | None = None


def static(load: Callable[[], pa.Table], *, refresh: float | str | None = None) -> Static:
    """Say how a table is loaded that a stream is joined with.

    Parameters
    ----------
    load : callable
        Returns a `pyarrow.Table`. It is called in each process that needs the table.
    refresh : float or str, optional
        Load it again when it is older than this: seconds, or a number with a unit. A batch sees one
        state of the table in each process; a batch that is repeated may see a newer one. Without
        it, a process loads the table once.
    """
    if not callable(load):
        raise InvalidValue("load", "a static table", "a function that returns a table", load)
    seconds = None
    if refresh is not None:
        seconds = microseconds(refresh, "refresh", "a static table") / 1e6
        if seconds <= 0:
            raise InvalidValue("refresh", "a static table", "a positive time", refresh)
    return Static(load, seconds)


class _Loaded(NamedTuple):
    """Rows of a table by the hash of their key, and when they were loaded."""

    rows: pa.Table
    hashes: HashArray
    at_s: float


@dataclass(frozen=True, eq=False)
class StaticJoin:
    """Joins batches with a table.

    Examples
    --------
    >>> names = pa.table({"id": [1, 2], "name": ["ann", "bob"]})
    >>> join = StaticJoin(names, JoinColumns((("user", "id"),)))
    >>> join(pa.record_batch({"user": [2, 3], "n": [5, 6]})).to_pylist()
    [{'user': 2, 'n': 5, 'id': 2, 'name': 'bob'}]

    Parameters
    ----------
    table : pyarrow.Table or Static
    columns : JoinColumns
    how : str
        One of `HOW`.
    where : pyarrow.compute.Expression, optional
    """

    table: pa.Table | Static
    columns: JoinColumns
    how: str = "inner"
    where: pc.Expression | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        """Join a batch."""
        left = self._renamed(pa.Table.from_batches([batch]), LEFT)
        loaded, on = self._loaded(), self.columns.keys[LEFT]
        self._check_types(left.schema, loaded.rows.schema)
        hashes = key_hashes(left, on)
        low = np.searchsorted(loaded.hashes, hashes, side="left")
        counts = np.searchsorted(loaded.hashes, hashes, side="right") - low
        for name in on:
            counts[np.asarray(left.column(name).is_null())] = 0
        one = np.repeat(np.arange(len(counts)), counts)
        first = np.repeat(low - (np.cumsum(counts) - counts), counts)
        other = first + np.arange(len(one))
        rows, right = left.take(pa.array(one)), loaded.rows.take(pa.array(other))
        if len(one):
            check_equal(rows, right, on)
        made = self.columns.emitted(rows, right)
        if self.where is not None:
            numbered = made.append_column("__pair", pa.array(one)).filter(self.where)
            one, made = np.asarray(numbered.column("__pair")), numbered.drop_columns(["__pair"])
        if self.how == "inner":
            return made
        return pa.concat_tables([made, self._alone(left, one, loaded.rows)])

    def _check_types(self, stream: pa.Schema, table: pa.Schema) -> None:
        """Refuse keys whose hashes differ although they are equal: none would meet another."""
        for name, of_table in self.columns.on:
            one, other = stream.field(name).type, table.field(name).type
            untyped = pa.types.is_null(one) or pa.types.is_null(other)
            alike = one == other or any(test(one) and test(other) for test in _ALIKE)
            if not (alike or untyped):
                raise NotAllowed(
                    f"a join with a table has keys of different types, {one} in {name!r} of the "
                    f"stream and {other} in {of_table!r} of the table; cast one of them before"
                )

    def _alone(self, left: pa.Table, met: IntArray, table: pa.Table) -> pa.Table:
        """Rows that met none, beside nulls."""
        alone = np.ones(left.num_rows, dtype=bool)
        alone[met] = False
        rows = left.filter(pa.array(alone))
        return self.columns.emitted(rows, table.take(pa.nulls(rows.num_rows, pa.int64())))

    def _renamed(self, rows: pa.Table, side: int) -> pa.Table:
        named = rows.rename_columns([self.columns.stored(n, side) for n in rows.column_names])
        made: pa.Table = normal_keys(named, self.columns.keys[LEFT], "a join")
        return made

    def _loaded(self) -> _Loaded:
        """Return the table, loaded again if it is too old."""
        known, now_s = _LOADED.get(self.token), time.monotonic()
        refresh_s = self.table.refresh_s if isinstance(self.table, Static) else None
        if known is not None and (refresh_s is None or now_s - known.at_s < refresh_s):
            return known
        table: Any = self.table.load() if isinstance(self.table, Static) else self.table
        if not isinstance(table, pa.Table):
            raise TypeError(f"'load' must return a pyarrow.Table, got {type(table).__name__}")
        rows = self._renamed(table, RIGHT)
        hashes = key_hashes(rows, self.columns.keys[LEFT])
        order = np.argsort(hashes, kind="stable")
        made = _Loaded(rows.take(pa.array(order)).combine_chunks(), hashes[order], now_s)
        _LOADED[self.token] = made
        return made
