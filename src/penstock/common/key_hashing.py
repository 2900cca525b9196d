"""Hashes of keys: 64 bits, the same on every machine, worked out for whole columns at once.

A key hashes alike however it is held: 32 or 64 bits wide, in NumPy or in Arrow, plain or dictionary
encoded. Nothing here depends on Python's own `hash`, which differs between processes.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from penstock.common.arrays import IntArray
from penstock.common.errors import InvalidValue

if TYPE_CHECKING:
    import pyarrow as pa

HashArray = npt.NDArray[np.uint64]

#: Raised whenever a key gets another hash: state that went by other hashes is not found again.
HASHING = 4

#: Seed of all hashes. Changing it would send every key, and its state, somewhere else.
SEED = np.uint64(0x5DEECE66D2B4A1C7)

#: Hash of a key that is null: nulls are one key, as in a GROUP BY.
NULL_HASH = np.uint64(0x9AE16A3B2F90404F)

#: Keys that are hashed at a time, so that the working arrays stay in the processor's cache.
BLOCK = 1 << 14

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
#: Words of a key up to which it is faster to go through the keys word by word.
COLUMNS = 16
_FOLD = np.uint64(29)
#: What a word of 0 to 8 bytes keeps of the 8 that were read.
_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(9)], dtype=np.uint64)


def hash_keys(keys: Any) -> HashArray:
    """Hash a column of keys.

    Examples
    --------
    >>> bool((hash_keys(np.array([7], np.int8)) == hash_keys([7])).all())
    True
    >>> hash_keys(["lorem", "ipsum", "lorem"])[[0, 2]].tolist()
    [12190298538614130907, 12190298538614130907]

    Parameters
    ----------
    keys : array
        Numbers, truth values, times or strings: a NumPy array, an Arrow array or chunked array, or
        a sequence (which is slow: it is read one object at a time). Arrow columns may have any type
        but maps and unions; structs are keys of several fields. A null is a key of its own, all
        NaN are one key, and -0.0 is 0.0. Byte strings hash like the text that they encode in UTF-8.

    Raises
    ------
    InvalidValue
        For keys of other types, and for mixtures.
    """
    if type(keys).__module__.partition(".")[0] == "pyarrow":
        # Imported late: plans are made without Arrow.
        arrow: Any = importlib.import_module("penstock.common.arrow_hashing")
        hashed: HashArray = arrow.hash_arrow(keys)
        return hashed
    if not isinstance(keys, np.ndarray):
        return _of_objects(list(keys))
    if keys.ndim != 1:
        raise InvalidValue("keys", "a router", "one column", f"an array of shape {keys.shape}")
    if keys.dtype.kind in "iubmM":
        return hash_numbers(keys)
    if keys.dtype.kind == "f":
        return _of_floats(keys)
    if keys.dtype.kind in "US":
        return _of_fixed_strings(keys)
    if keys.dtype.kind in "OT":
        return _of_objects(keys.tolist())
    raise refusal(str(keys.dtype))


def combine(hashes: Sequence[HashArray]) -> HashArray:
    """Hash keys of several fields from the hashes of each; their order counts."""
    total = hashes[0]
    for following in hashes[1:]:
        total = mix(total * _FIRST + following)
    return total


def mix(values: HashArray) -> HashArray:
    """Spread every bit over all 64: the finaliser of splitmix64 (Steele, Lea, Flood, 2014)."""
    out = np.empty(len(values), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for start in range(0, len(values), BLOCK):
            block = out[start : start + BLOCK]
            np.add(values[start : start + BLOCK], _GOLDEN, out=block)
            for shift, factor in ((30, _FIRST), (27, _SECOND)):
                block ^= block >> np.uint64(shift)
                block *= factor
            block ^= block >> np.uint64(31)
    return out


def _factors(count: int) -> HashArray:
    """Odd multipliers of the first words of a key: splitmix64 from the seed on."""
    with np.errstate(over="ignore"):
        return mix(SEED + np.arange(count, dtype=np.uint64) * _GOLDEN) | np.uint64(1)


_FACTORS = _factors(COLUMNS)


def hash_numbers(keys: npt.NDArray[Any]) -> HashArray:
    """Hash whole numbers, truth values and times."""
    if keys.dtype.kind == "u":
        wide = keys.astype(np.uint64)
    elif keys.dtype.kind in "mM":
        wide = keys.astype(keys.dtype.newbyteorder("=")).view(np.int64).view(np.uint64)
    else:
        wide = keys.astype(np.int64).view(np.uint64)
    return mix(wide ^ SEED)


def _of_floats(keys: npt.NDArray[Any]) -> HashArray:
    """Hash floating point numbers: all NaN alike, and -0.0 as 0.0."""
    wide = keys.astype(np.float64) + 0.0
    wide[np.isnan(wide)] = np.nan
    return hash_numbers(wide.view(np.int64))


def _of_fixed_strings(keys: npt.NDArray[Any]) -> HashArray:
    """Hash NumPy's strings, whose rows are padded with zeros."""
    unit = np.uint8 if keys.dtype.kind == "S" else np.uint32
    keys = np.ascontiguousarray(keys.astype(keys.dtype.newbyteorder("="), copy=False))
    if not keys.dtype.itemsize:
        return hash_bytes(np.empty(0, np.uint8), *np.zeros((2, len(keys)), np.int64))
    hashes = np.empty(len(keys), dtype=np.uint64)
    for low in range(0, len(keys), BLOCK):
        block = keys[low : low + BLOCK]
        rows = block.view(unit).reshape(len(block), -1)
        if rows[:, -1].all():
            lengths = np.full(len(block), rows.shape[1])
        else:
            lengths = np.asarray(np.char.str_len(block), dtype=np.int64)
        hashes[low : low + BLOCK] = _of_padded(rows, lengths)
    return hashes


def _of_padded(rows: npt.NDArray[Any], lengths: IntArray) -> HashArray:
    """Hash rows of bytes or of code points."""
    count, width = rows.shape
    if rows.dtype.itemsize == 1 or rows.max() < 0x80:
        narrow = rows.astype(np.uint8, copy=False).ravel()
        return hash_bytes(narrow, np.arange(count) * width, lengths)
    data, sizes = _utf8(rows[np.arange(width) < lengths[:, None]])
    ends = np.concatenate(([0], np.cumsum(sizes)))
    bounds = ends[np.concatenate(([0], np.cumsum(lengths)))]
    return hash_bytes(data, bounds[:-1], np.diff(bounds))


def _utf8(codes: npt.NDArray[np.uint32]) -> tuple[npt.NDArray[np.uint8], IntArray]:
    """Encode code points, and say how many bytes each has."""
    sizes = np.ones(len(codes), dtype=np.int64)
    for limit in (0x80, 0x800, 0x10000):
        sizes += codes >= limit
    first = np.cumsum(sizes) - sizes
    data = np.empty(int(sizes.sum()), dtype=np.uint8)
    for size, lead in ((1, 0x00), (2, 0xC0), (3, 0xE0), (4, 0xF0)):
        mine = sizes == size
        point, at = codes[mine], first[mine]
        data[at] = lead | (point >> (6 * (size - 1)))
        for place in range(1, size):
            data[at + place] = 0x80 | ((point >> (6 * (size - 1 - place))) & 0x3F)
    return data, sizes


def hash_bytes(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[Any], lengths: npt.NDArray[Any]
) -> HashArray:
    """Hash byte strings that lie in one buffer, in the order of their starts.

    Word ``i``, eight bytes with the lowest first and zeros after the end, is folded and multiplied
    by an odd number of its position; the sum of all is mixed with the length. No word waits for
    another, and with a multiplier of its own each counts where it stands. Folded, because the
    highest bit of a product depends on nothing but the highest bit of the word.
    """
    hashes = np.empty(len(starts), dtype=np.uint64)
    for low in range(0, len(starts), BLOCK):
        start = starts[low : low + BLOCK].astype(np.int64)
        length = lengths[low : low + BLOCK].astype(np.int64)
        part = data
        if start[-1] + length[-1] + 8 > len(data):
            # The last words would be read past the end.
            part = np.concatenate((data[start[0] :], np.zeros(8, dtype=np.uint8)))
            start -= start[0]
        hashes[low : low + BLOCK] = _of_block(part, start, length)
    return hashes


def _of_block(data: npt.NDArray[np.uint8], start: IntArray, length: IntArray) -> HashArray:
    # One word begins at every byte, aligned or not; only those that are asked for are read.
    words = np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
    count = (length + 7) >> 3
    if count.max() <= COLUMNS:
        sums = _by_column(words, start, length, count)
    else:
        sums = np.empty(len(start), dtype=np.uint64)
        long = count > COLUMNS
        for rows, work in ((long, _by_word), (~long, _by_column)):
            if rows.any():
                sums[rows] = work(words, start[rows], length[rows], count[rows])
    return mix((sums ^ SEED) + length.view(np.uint64) * _SECOND)


def _by_column(
    words: npt.NDArray[np.uint64], start: IntArray, length: IntArray, count: IntArray
) -> HashArray:
    """Sum up the words of short keys: the first words of all, then the second words, and so on."""
    sums = np.zeros(len(start), dtype=np.uint64)
    shortest, fewest = int(length.min()), int(count.min())
    step = int(start[1] - start[0]) if len(start) > 1 else 1
    even = step > 0 and bool((np.diff(start) == step).all())
    for i, factor in enumerate(_FACTORS[: int(count.max())]):
        rows: Any = slice(None) if i < fewest else np.flatnonzero(count > i)
        if even and i < fewest:
            # Keys at equal distances need no list of places: a view with that stride will do.
            first = int(start[0]) + 8 * i
            word = words[first : first + step * (len(start) - 1) + 1 : step].copy()
        else:
            word = words[start[rows] + 8 * i]
        if 8 * (i + 1) > shortest:
            word &= _MASKS[np.minimum(length[rows] - 8 * i, 8)]
        word ^= word >> _FOLD
        word *= factor
        sums[rows] += word
    return sums


def _by_word(
    words: npt.NDArray[np.uint64], start: IntArray, length: IntArray, count: IntArray
) -> HashArray:
    """Sum up the words of long keys, all words of all keys at once."""
    last = np.cumsum(count) - 1
    first = last - count + 1
    # Word number w of the block is the key's word w - first, at its byte 8 * (w - first).
    nth = np.arange(last[-1] + 1)
    word = words[np.repeat(start - 8 * first, count) + 8 * nth]
    nth -= np.repeat(first, count)
    word[last] &= _MASKS[length - 8 * (count - 1)]
    word ^= word >> _FOLD
    word *= _factors(int(count.max()))[nth]
    return np.asarray(np.add.reduceat(word, first), dtype=np.uint64)


def _of_objects(keys: list[Any]) -> HashArray:
    """Hash Python's own objects: all numbers or all strings, None among them."""
    missing = np.fromiter((key is None for key in keys), bool, len(keys))
    present = [key for key in keys if key is not None]
    hashes = np.full(len(keys), NULL_HASH, dtype=np.uint64)
    if not present:
        return hashes
    if all(isinstance(key, str) for key in present):
        present = [key.encode("utf-8", "surrogatepass") for key in present]
    if all(isinstance(key, bytes) for key in present):
        lengths = np.fromiter(map(len, present), np.int64, len(present))
        data = np.frombuffer(b"".join(present), np.uint8)
        hashes[~missing] = hash_bytes(data, np.cumsum(lengths) - lengths, lengths)
        return hashes
    if all(isinstance(key, float | np.floating) for key in present):
        hashes[~missing] = _of_floats(np.array(present))
        return hashes
    plain = all(isinstance(key, int | np.integer | np.bool_ | np.datetime64) for key in present)
    column = np.array(present) if plain else np.empty(0)
    if column.dtype.kind not in "iubM":
        kinds = ", ".join(sorted({type(key).__name__ for key in present}))
        raise refusal(f"objects of type {kinds}")
    hashes[~missing] = hash_numbers(column)
    return hashes


def refusal(got: str) -> InvalidValue:
    """Say what may be a key."""
    return InvalidValue("keys", "a router", "numbers, times or strings of one type", got)


def key_hashes(table: pa.Table, by: tuple[str, ...]) -> HashArray:
    """Hash the key of every row."""
    return combine([hash_keys(table.column(name)) for name in by])


def modulo(hashes: HashArray, count: int) -> IntArray:
    """Hash modulo a count, as numbers that index arrays."""
    out = np.empty(len(hashes), dtype=np.uint64)
    by = np.uint64(count)
    for start in range(0, len(hashes), BLOCK):
        # NumPy divides by one number with SIMD, and takes remainders without.
        block, rest = hashes[start : start + BLOCK], out[start : start + BLOCK]
        np.floor_divide(block, by, out=rest)
        rest *= by
        np.subtract(block, rest, out=rest)
    return out.view(np.int64)
