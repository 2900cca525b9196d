"""Checksums of what a checkpoint holds: damage is noticed, and where it is.

A state file ends with a trailer: the CRC-32 of every block of `BLOCK_BYTES` of its content, then a
tail with the length of the content and a CRC-32 of the trailer itself. The trailer is written with
the content and copied with it, so that what a node, a backup node or a checkpoint returns is
verified where it is used. CRC-32 finds every error of up to 32 bits in a row; other damage goes
unnoticed once in four thousand million times. It is in Python's standard library, and verifies
faster than state is loaded (``benchmarks/durability.py``).

Small JSON objects, such as the entries of a commit log, have their checksum as their last value.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Mapping
from typing import Any

#: Bytes that one checksum covers, which is how exactly damage is located.
BLOCK_BYTES = 1 << 20

_MAGIC = b"PSCK"
_SUM = struct.Struct("<I")

#: Magic, format, bytes of a block, bytes of the content, CRC-32 of the trailer before it.
_TAIL = struct.Struct("<4sB3xIQI")
_FORMAT = 1

_CHECKSUM = re.compile(rb', "crc32": "([0-9a-f]{8})"\}$')


class Damaged(Exception):
    """The content of a file is not what was written.

    Parameters
    ----------
    offset : int
        Where the damage begins, to the block.
    reason : str
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset, self.reason = offset, reason

    def __str__(self) -> str:
        return f"damaged at byte {self.offset}: {self.reason}"


class ChecksumWriter:
    """A file to write to that adds the trailer when it is finished.

    Parameters
    ----------
    out : file object
        Open for writing in binary mode.
    """

    closed = False

    def __init__(self, out: Any) -> None:
        self._out = out
        self._sums = bytearray()
        self._sum = self._length = 0

    def write(self, data: Any) -> int:
        """Write bytes, or anything with a buffer."""
        view = memoryview(data).cast("B")
        self._out.write(view)
        start = 0
        while start < len(view):
            room = BLOCK_BYTES - self._length % BLOCK_BYTES
            part = view[start : start + room]
            self._sum = zlib.crc32(part, self._sum)
            self._length += len(part)
            start += len(part)
            if self._length % BLOCK_BYTES == 0:
                self._sums += _SUM.pack(self._sum)
                self._sum = 0
        return len(view)

    def tell(self) -> int:
        """Return the bytes of content so far."""
        return self._length

    def flush(self) -> None:
        """Do nothing: whoever opened the file flushes it."""

    def close(self) -> None:
        """Do nothing: whoever opened the file closes it."""

    def finish(self) -> None:
        """Write the trailer."""
        if self._length % BLOCK_BYTES:
            self._sums += _SUM.pack(self._sum)
        head = _TAIL.pack(_MAGIC, _FORMAT, BLOCK_BYTES, self._length, 0)[: -_SUM.size]
        total = zlib.crc32(head, zlib.crc32(self._sums))
        self._out.write(bytes(self._sums) + head + _SUM.pack(total))


def content_bytes(view: memoryview) -> int:
    """Return how many bytes of a file are its content, without verifying it.

    Raises
    ------
    Damaged
        When the trailer is not what was written.
    """
    end = len(view)
    if end < _TAIL.size:
        raise Damaged(0, f"it has {end} bytes, too few for a checksum")
    magic, kind, block, length, total = _TAIL.unpack_from(view, end - _TAIL.size)
    blocks = -(-length // BLOCK_BYTES)
    if magic != _MAGIC or kind != _FORMAT or block != BLOCK_BYTES:
        raise Damaged(end - _TAIL.size, "it does not end with a checksum")
    if length + blocks * _SUM.size + _TAIL.size != end:
        raise Damaged(end - _TAIL.size, f"it has {end} bytes, not as many as were written")
    if zlib.crc32(view[length : end - _SUM.size]) != total:
        raise Damaged(length, "its list of checksums is damaged")
    return int(length)


def verify(data: Any) -> int:
    """Verify a file, and return how many of its bytes are content.

    Examples
    --------
    >>> import io
    >>> out = io.BytesIO()
    >>> writer = ChecksumWriter(out)
    >>> _ = writer.write(b"all rows")
    >>> writer.finish()
    >>> verify(out.getvalue())
    8
    >>> verify(b"A" + out.getvalue()[1:])
    Traceback (most recent call last):
    ...
    penstock.state.files.checksum.Damaged: damaged at byte 0: its checksum is another

    Raises
    ------
    Damaged
        Naming where.
    """
    view = memoryview(data).cast("B")
    length = content_bytes(view)
    for number, start in enumerate(range(0, length, BLOCK_BYTES)):
        (expected,) = _SUM.unpack_from(view, length + number * _SUM.size)
        if zlib.crc32(view[start : min(start + BLOCK_BYTES, length)]) != expected:
            raise Damaged(start, "its checksum is another")
    return length


def pack_json(values: Mapping[str, Any]) -> bytes:
    """Write an object; it must have a value.

    Examples
    --------
    >>> pack_json({"batch": 7})
    b'{"batch": 7, "crc32": "a2038daf"}'
    """
    body = json.dumps(dict(values)).encode()[:-1]
    return body + f', "crc32": "{zlib.crc32(body):08x}"}}'.encode()


def unpack_json(text: bytes) -> dict[str, Any]:
    """Read back what `pack_json` wrote, without the checksum.

    Raises
    ------
    Damaged
    """
    match = _CHECKSUM.search(text)
    if match is None:
        at = max(0, len(text) - len(', "crc32": "00000000"}'))
        raise Damaged(at, "it does not end with a checksum")
    body = text[: match.start()]
    if zlib.crc32(body) != int(match[1], 16):
        raise Damaged(0, f"the checksum of its {len(body)} bytes is another")
    values: dict[str, Any] = json.loads(body + b"}")
    return values
