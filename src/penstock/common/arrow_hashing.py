"""Hashes of Arrow columns, worked out from their buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common import key_hashing
from penstock.common.arrow_keys import check_key_type, fixed_bytes, is_list, list_lengths, normal
from penstock.common.key_hashing import HashArray

_TYPES = pa.types

#: Distinguishes a struct that is null from one whose only field is.
NULL_STRUCT_HASH = np.uint64(0xC2B2AE3D27D4EB4F)


def hash_arrow(keys: Any) -> HashArray:
    """Hash an Arrow column; see `key_hashing.hash_keys`."""
    if isinstance(keys, pa.ChunkedArray):
        parts = [hash_arrow(chunk) for chunk in keys.chunks]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)
    if not isinstance(keys, pa.Array):
        raise key_hashing.refusal(type(keys).__name__)
    check_key_type(keys.type, "keys", "a router")
    null = NULL_STRUCT_HASH if _TYPES.is_struct(keys.type) else key_hashing.NULL_HASH
    if _TYPES.is_dictionary(keys.type):
        # A value of the dictionary may be null, and so may an index.
        hashes = hash_arrow(keys.dictionary)
        if not len(hashes):
            return np.full(len(keys), null, dtype=np.uint64)
        hashes = hashes[keys.indices.fill_null(0).to_numpy(zero_copy_only=False)]
        keys = keys.indices
    elif keys.null_count == len(keys):
        return np.full(len(keys), null, dtype=np.uint64)
    else:
        keys = normal(keys)
        hashes = _hash_values(keys)
    if keys.null_count:
        hashes[keys.is_null().to_numpy(zero_copy_only=False)] = null
    return hashes


def _hash_values(keys: Any) -> HashArray:
    """Hash a column in normal form that is not all null; at nulls anything may come out."""
    kind = keys.type
    if _TYPES.is_struct(kind):
        return key_hashing.combine([hash_arrow(field) for field in keys.flatten()])
    if is_list(kind):
        return _hash_lists(keys)
    if _TYPES.is_boolean(kind):
        keys = keys.cast(pa.int8())
    elif _TYPES.is_temporal(kind) and not _TYPES.is_interval(kind):
        keys = keys.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    if _TYPES.is_integer(keys.type):
        filled = keys.fill_null(0) if keys.null_count else keys
        return key_hashing.hash_numbers(filled.to_numpy(zero_copy_only=False))
    if _TYPES.is_floating(kind):
        # 32 and 64 bits wide are the same number.
        keys = keys.cast(pa.float64())
        bits = np.frombuffer(fixed_bytes(keys), np.int64)
        return key_hashing.hash_numbers(bits)
    if _TYPES.is_decimal(kind):
        keys = keys.cast(pa.decimal256(76, kind.scale))
    if _TYPES.is_decimal(kind) or _TYPES.is_interval(kind):
        rows = fixed_bytes(keys)
        count, width = rows.shape
        starts, lengths = np.arange(count) * width, np.full(count, width)
        return key_hashing.hash_bytes(rows.ravel(), starts, lengths)
    return _hash_strings(keys)


def _hash_strings(keys: Any) -> HashArray:
    kind = keys.type
    width: Any = np.int64
    if _TYPES.is_string(kind) or _TYPES.is_binary(kind):
        width = np.int32
    elif _TYPES.is_fixed_size_binary(kind):
        keys = keys.cast(pa.large_binary())
    elif not (_TYPES.is_large_string(kind) or _TYPES.is_large_binary(kind)):
        raise key_hashing.refusal(str(kind))
    _, places, content = keys.buffers()
    bounds = np.frombuffer(places, width)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(content or b"", np.uint8)
    return key_hashing.hash_bytes(data, bounds[:-1], np.diff(bounds))


def _hash_lists(keys: Any) -> HashArray:
    """Hash lists: each item with its place in the list, and the length."""
    lengths, items = list_lengths(keys), hash_arrow(keys.flatten())
    ends = np.cumsum(lengths)
    place = np.arange(len(items)) - np.repeat(ends - lengths, lengths)
    placed = key_hashing.combine([key_hashing.hash_numbers(place), items])
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(placed, dtype=np.uint64)))
    return key_hashing.combine(
        [key_hashing.hash_numbers(lengths), sums[ends] - sums[ends - lengths]]
    )
