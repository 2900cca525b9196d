"""Keys in Arrow columns: their normal form, and whether two are equal.

Equality is that of Spark's ``groupBy``: nulls are one key, so are all NaN, and -0.0 is 0.0. In
normal form, equal keys have equal bytes: floating point numbers are made so, and encodings
(dictionaries, views, runs) are undone, because Arrow groups, sorts and merges few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common import key_hashing
from penstock.common.arrays import BoolArray, IntArray
from penstock.common.errors import NotAllowed, PenstockError
from penstock.common.key_hashing import HashArray

_TYPES = pa.types

#: What may not be a key: Spark cannot group by some of these, and Arrow compares none.
_REFUSED = (_TYPES.is_map, _TYPES.is_union)


class KeyCollision(PenstockError):
    """Two different keys have the same 64-bit hash."""


class DistinctKeys(NamedTuple):
    """The keys of some rows, each once.

    Parameters
    ----------
    hashes : array
        In ascending order.
    first : array
        First row of each.
    of_row : array
        Number of each row's key.
    """

    hashes: HashArray
    first: IntArray
    of_row: IntArray


def distinct_keys(rows: pa.Table, by: Sequence[str]) -> DistinctKeys:
    """Find the keys of rows, which are in normal form, by hash and by comparison.

    Raises
    ------
    KeyCollision
        When two of them have one hash.
    """
    hashes, first, of_row = np.unique(
        key_hashing.key_hashes(rows, tuple(by)), return_index=True, return_inverse=True
    )
    again = np.flatnonzero(first[of_row] != np.arange(len(of_row)))
    check_equal(rows.take(pa.array(again)), rows.take(pa.array(first[of_row[again]])), by)
    return DistinctKeys(hashes, first, of_row)


def check_equal(left: pa.Table, right: pa.Table, by: Sequence[str]) -> None:
    """Raise `KeyCollision` unless the keys of two tables, whose hashes are equal, are equal."""
    same = np.ones(left.num_rows, dtype=bool)
    for name in by:
        same &= equal_keys(left.column(name), right.column(name))
    if not same.all():
        row = int(np.flatnonzero(~same)[0])
        one, other = (
            table.select(list(by)).slice(row, 1).to_pylist()[0] for table in (left, right)
        )
        raise KeyCollision(f"the keys {one} and {other} have the same hash")


def check_key_type(kind: pa.DataType, column: str, owner: str) -> None:
    """Raise `NotAllowed` if a column of this type cannot be part of a key.

    Examples
    --------
    >>> check_key_type(pa.list_(pa.float64()), "k", "step 'count'")
    >>> check_key_type(pa.map_(pa.string(), pa.int8()), "k", "step 'count'")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    penstock.common.errors.NotAllowed: step 'count' has the key 'k' of type map<string, int8>, ...
    """
    if any(test(part) for part in _parts(kind) for test in _REFUSED):
        raise NotAllowed(
            f"{owner} has the key {column!r} of type {kind}, and maps and unions have no equality; "
            "use columns of other types, such as a list of the map's entries in order"
        )


def normal_keys(rows: Any, by: Sequence[str], owner: str = "a keyed step") -> Any:
    """Return a table or a batch with its key columns in normal form; itself if they are.

    Examples
    --------
    >>> rows = pa.table({"k": pa.array(["a", "b", "a"]).dictionary_encode(), "n": [1, 2, 3]})
    >>> normal_keys(rows, ("k",)).schema.field("k").type
    DataType(string)
    """
    for name in by:
        at = rows.schema.get_field_index(name)
        if at < 0:
            raise NotAllowed(
                f"{owner} has the key {name!r}, which is not one column of the rows; they have "
                + ", ".join(rows.schema.names)
            )
        column = rows.column(at)
        check_key_type(column.type, name, owner)
        made = normal(column)
        if made is not column:
            rows = rows.set_column(at, name, made)
    return rows


def decoded(rows: Any) -> Any:
    """Return a table or a batch whose columns Arrow can take rows of; itself if it is one."""
    for at, field in enumerate(rows.schema):
        if any(_is_view(part) or _TYPES.is_run_end_encoded(part) for part in _parts(field.type)):
            rows = rows.set_column(at, field.name, _decoded(rows.column(at)))
    return rows


def normal(column: Any) -> Any:
    """Return a column in normal form; itself if its type is always in it."""
    if not any(_is_changed(part) for part in _parts(column.type)):
        return column
    return _each_chunk(column, _normal)


def equal_keys(left: Any, right: Any) -> BoolArray:
    """Whether the keys of two columns, both in normal form, are equal row by row.

    Examples
    --------
    >>> one = pa.array([[1, None], None, []])
    >>> other = pa.array([[1, None], [2], None])
    >>> equal_keys(one, other).tolist()
    [True, False, False]
    """
    left, right = _whole(left), _whole(right)
    kind, missing = left.type, _nulls(left)
    same: BoolArray = missing == _nulls(right)
    if _TYPES.is_null(kind) or _TYPES.is_null(right.type):
        return same
    if right.type != kind:
        right = right.cast(kind)
    if _TYPES.is_struct(kind):
        for one, other in zip(left.flatten(), right.flatten(), strict=True):
            same &= missing | equal_keys(one, other)
        return same
    if is_list(kind):
        return same & (missing | _equal_lists(left, right))
    if _TYPES.is_floating(kind) or _TYPES.is_interval(kind):
        # As bytes: Arrow says that NaN is no NaN, and compares neither intervals nor half floats.
        one, other = (fixed_bytes(column) for column in (left, right))
        found: BoolArray = np.asarray((one == other).all(axis=1))
    else:
        found = np.asarray(pc.equal(left, right).fill_null(True), dtype=bool)
    return np.asarray(same & (missing | found))


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    """List a type and all that it is made of."""
    found = [kind]
    if isinstance(kind, pa.BaseExtensionType):
        found += _parts(kind.storage_type)
    elif _TYPES.is_dictionary(kind) or _TYPES.is_run_end_encoded(kind):
        found += _parts(kind.value_type)
    else:
        found += [p for i in range(kind.num_fields) for p in _parts(kind.field(i).type)]
    return found


def _is_view(kind: pa.DataType) -> bool:
    return bool(_TYPES.is_string_view(kind) or _TYPES.is_binary_view(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists of any kind."""
    tests = (
        _TYPES.is_list,
        _TYPES.is_large_list,
        _TYPES.is_fixed_size_list,
        _TYPES.is_list_view,
        _TYPES.is_large_list_view,
    )
    return any(test(kind) for test in tests)


def _is_changed(kind: pa.DataType) -> bool:
    """Whether a normal form may differ from a column of this type."""
    encoded = _TYPES.is_dictionary(kind) or _TYPES.is_run_end_encoded(kind) or _is_view(kind)
    lists = _TYPES.is_list_view(kind) or _TYPES.is_large_list_view(kind)
    extension = isinstance(kind, pa.BaseExtensionType)
    return bool(encoded or lists or extension or _TYPES.is_floating(kind))


def _each_chunk(column: Any, change: Any) -> Any:
    if not isinstance(column, pa.ChunkedArray):
        return change(column)
    if not column.num_chunks:
        return pa.chunked_array([change(pa.array([], column.type))])
    return pa.chunked_array([change(chunk) for chunk in column.chunks])


def _decoded(column: Any) -> Any:
    """Undo views and runs, at the top or inside."""
    return _each_chunk(column, lambda array: _rebuilt(array, floats=False))


def _normal(array: Any) -> Any:
    return _rebuilt(array, floats=True)


def _rebuilt(array: Any, *, floats: bool) -> Any:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _rebuilt(array.storage, floats=floats) if floats else array
    if _TYPES.is_run_end_encoded(kind):
        return _rebuilt(pc.run_end_decode(array), floats=floats)
    if _TYPES.is_dictionary(kind):
        # Values that are nested cannot be taken by a cast.
        return _rebuilt(array.dictionary_decode(), floats=floats) if floats else array
    if _is_view(kind):
        return array.cast(pa.string() if _TYPES.is_string_view(kind) else pa.binary())
    if _TYPES.is_floating(kind):
        return _canonical_floats(array) if floats else array
    if _TYPES.is_struct(kind):
        fields = [_rebuilt(field, floats=floats) for field in array.flatten()]
        named = [kind.field(i).with_type(made.type) for i, made in enumerate(fields)]
        named = [field.with_nullable(True) for field in named]
        return pa.StructArray.from_arrays(fields, fields=named, mask=array.is_null())
    if is_list(kind):
        return _rebuilt_list(array, floats)
    return array


def _canonical_floats(array: Any) -> Any:
    """Make all NaN the same NaN, and -0.0 the same as 0.0."""
    missing = _nulls(array)
    values = array.fill_null(0) if missing.any() else array
    # Adding nothing turns -0.0 into 0.0.
    made = values.to_numpy(zero_copy_only=False) + array.type.to_pandas_dtype()(0)
    made[np.isnan(made)] = np.nan
    return pa.array(made, array.type, mask=missing if missing.any() else None)


def _rebuilt_list(array: Any, floats: bool) -> Any:
    """Rebuild a list; views of lists become lists."""
    kind = array.type
    values, lengths = _rebuilt(array.flatten(), floats=floats), list_lengths(array)
    item = kind.value_field.with_type(values.type)
    if _TYPES.is_fixed_size_list(kind):
        # Arrow wants values where a list is missing, too.
        at = np.repeat(np.cumsum(lengths) - lengths, kind.list_size)
        at += np.tile(np.arange(kind.list_size), len(array))
        keep = np.repeat(lengths > 0, kind.list_size)
        values = values.take(pa.array(at, mask=~keep))
        made = pa.list_(item, kind.list_size)
        return pa.FixedSizeListArray.from_arrays(values, type=made, mask=array.is_null())
    wide = _TYPES.is_large_list(kind) or _TYPES.is_large_list_view(kind)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    maker, made = pa.ListArray, pa.list_(item)
    if wide:
        maker, made = pa.LargeListArray, pa.large_list(item)
    bounds = pa.array(offsets, pa.int64() if wide else pa.int32())
    return maker.from_arrays(bounds, values, type=made, mask=array.is_null())


def list_lengths(array: Any) -> IntArray:
    """Items of each list; none where it is missing."""
    return np.asarray(pc.list_value_length(array).fill_null(0), dtype=np.int64)


def _equal_lists(left: Any, right: Any) -> BoolArray:
    lengths = list_lengths(left)
    same: BoolArray = lengths == list_lengths(right)
    if not same.any():
        return same
    one, other = (column.filter(pa.array(same)).flatten() for column in (left, right))
    differs = np.concatenate(([0], np.cumsum(~equal_keys(one, other))))
    ends = np.cumsum(lengths[same])
    same[same] = differs[ends] == differs[ends - lengths[same]]
    return same


def fixed_bytes(array: Any) -> npt.NDArray[np.uint8]:
    """Bytes of values of one width, a row each."""
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1], np.uint8)
    return data[array.offset * width : (array.offset + len(array)) * width].reshape(-1, width)


def _nulls(array: Any) -> BoolArray:
    return np.asarray(array.is_null(), dtype=bool)


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
