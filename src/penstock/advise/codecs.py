"""Unpack what Spark packs event logs with: zstd, lz4, snappy, lzf; and gzip, which people add.

Spark's lz4, snappy and lzf streams are those of its Java libraries, not the frames that other tools
write. A stream that ends in the middle, because the application still writes it or was killed,
gives all whole blocks that it has.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

#: Bytes that are read at a time.
CHUNK = 1 << 20

#: Blocks larger than this are not Spark's: its largest are 32 KB to a few MB.
MOST_BLOCK = 1 << 28


class Torn(Exception):
    """A packed stream that ends, or breaks, in the middle of a block."""


def unpacked(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file in pieces, unpacked by what its first bytes say.

    Raises
    ------
    Torn
        After the last whole block, when the stream does not end there.
    """
    head = file.read(8)
    file.seek(0)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        yield from _zstd(file)
    elif head.startswith(b"\x1f\x8b"):
        yield from _gzip(file)
    elif head == b"LZ4Block":
        yield from _lz4(file)
    elif head.startswith(b"\x82SNAPPY"):
        yield from _snappy(file)
    elif head.startswith(b"ZV"):
        yield from _lzf(file)
    else:
        while piece := file.read(CHUNK):
            yield piece


def _zstd(file: BinaryIO) -> Iterator[bytes]:
    # Spark flushes often: a stream that still grows can be read up to its last flush.
    with pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd") as stream:
        while True:
            try:
                piece = stream.read(CHUNK)
            except (OSError, pa.ArrowInvalid) as error:
                raise Torn(str(error)) from None
            if not piece:
                return
            yield piece


def _gzip(file: BinaryIO) -> Iterator[bytes]:
    unpack = zlib.decompressobj(wbits=31)
    while piece := file.read(CHUNK):
        while piece:
            try:
                made = unpack.decompress(piece)
            except zlib.error as error:
                raise Torn(str(error)) from None
            if made:
                yield made
            piece = unpack.unused_data
            if unpack.eof and piece:
                unpack = zlib.decompressobj(wbits=31)
            elif not unpack.eof:
                break
    if not unpack.eof:
        raise Torn("gzip ends early")


def _lz4(file: BinaryIO) -> Iterator[bytes]:
    """Blocks of ``LZ4BlockOutputStream``: magic, method, two lengths, checksum, data."""
    codec = pa.Codec("lz4_raw")
    while head := file.read(21):
        if len(head) < 21 or head[:8] != b"LZ4Block":
            raise Torn("lz4 block without its head")
        packed = _length(head[9:13], "little")
        size = _length(head[13:17], "little")
        if not size:
            continue  # the end of one stream; another may follow
        data = _exactly(file, packed)
        yield data if head[8] & 0xF0 == 0x10 else _decode(codec, data, size)


def _snappy(file: BinaryIO) -> Iterator[bytes]:
    """Blocks of ``SnappyOutputStream``: a head of 16 bytes, then lengths and data."""
    codec = pa.Codec("snappy")
    while head := file.read(4):
        if head == b"\x82SNA":
            _exactly(file, 12)
            continue
        if len(head) < 4:
            raise Torn("snappy block without its length")
        data = _exactly(file, _length(head, "big"))
        yield _decode(codec, data, _varint(data))


def _lzf(file: BinaryIO) -> Iterator[bytes]:
    """Chunks of ``LZFOutputStream``: ZV, packed or not, lengths, data."""
    while head := file.read(5):
        if len(head) < 5 or head[:2] != b"ZV":
            raise Torn("lzf chunk without its head")
        length = int.from_bytes(head[3:5], "big")
        if head[2] == 0:
            yield _exactly(file, length)
        else:
            _exactly(file, 2)
            try:
                yield _lzf_chunk(_exactly(file, length))
            except IndexError:
                raise Torn("lzf chunk ends early") from None


def _lzf_chunk(data: bytes) -> bytes:
    made, at, end = bytearray(), 0, len(data)
    while at < end:
        code = data[at]
        at += 1
        if code < 32:  # so many bytes, and one, as they are
            made += data[at : at + code + 1]
            at += code + 1
            continue
        length = code >> 5
        if length == 7:
            length += data[at]
            at += 1
        back = ((code & 31) << 8) + data[at] + 1
        at += 1
        start, length = len(made) - back, length + 2
        if start < 0:
            raise IndexError
        if back >= length:
            made += made[start : start + length]
        else:  # what is copied overlaps with what it makes
            run = bytes(made[start:])
            made += (run * (length // back + 1))[:length]
    return bytes(made)


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise Torn("block ends early")
    return data


def _length(data: bytes, order: str) -> int:
    value = int.from_bytes(data, "little" if order == "little" else "big")
    if value > MOST_BLOCK:
        raise Torn("block of an impossible length")
    return value


def _varint(data: bytes) -> int:
    """Read the unpacked size that a snappy block begins with."""
    size = 0
    for place, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    if size > MOST_BLOCK:
        raise Torn("block of an impossible length")
    return size


def _decode(codec: pa.Codec, data: bytes, size: int) -> bytes:
    try:
        made: bytes = codec.decompress(data, size, asbytes=True)
    except (OSError, pa.ArrowInvalid) as error:
        raise Torn(str(error)) from None
    return made
