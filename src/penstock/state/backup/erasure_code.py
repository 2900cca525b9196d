"""Reed-Solomon coded fragments with a header and a checksum (Sl eq. 24, Alg. 4 and 5).

A blob becomes r + c fragments, any r of which decode it. It is coded in stripes that fit the
processor's cache, which is twice as fast as coding it whole. Every fragment begins with a header:
which blob it belongs to, which fragment it is, and a checksum of header and content.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from itertools import chain
from typing import Any, Protocol, runtime_checkable

from penstock.common.errors import InvalidValue, PenstockError

#: Bytes of a stripe that go into one data fragment.
STRIPE_BYTES = 64 * 1024

#: Most data, and most parity fragments; the limit of the library.
MOST = 32

MAGIC, VERSION = b"PSTF", 1

#: Magic, version, r, c, index, stripe width, length of the blob, digest of the blob.
_FIELDS = struct.Struct("<4sBBBBIQQ")
_CHECKSUM = struct.Struct("<I")

#: Bytes that a fragment has besides its payload.
HEADER_BYTES = _FIELDS.size + _CHECKSUM.size


class TooFewFragments(PenstockError):
    """A blob cannot be decoded from the fragments that are left.

    Parameters
    ----------
    found, total, needed : int
        Undamaged fragments of the blob, how many it was cut into, and how many decode it;
        `total` and `needed` are 0 when no fragment could be read at all.
    corrupt : int
        Fragments that were there but are damaged.
    mismatch : bool
        Whether there were enough, but the decoded blob has another checksum.
    """

    def __init__(
        self, found: int, total: int, needed: int, corrupt: int, mismatch: bool = False
    ) -> None:
        super().__init__(found, total, needed, corrupt, mismatch)
        self.found, self.total, self.needed = found, total, needed
        self.corrupt, self.mismatch = corrupt, mismatch

    def __str__(self) -> str:
        corrupt = f"{self.corrupt} corrupt"
        if self.mismatch:
            return f"the blob decoded from {self.found} fragments fails its checksum; {corrupt}"
        if not self.total:
            return f"no fragment can be read; {corrupt}"
        return f"{self.found} of {self.total} fragments are left, {self.needed} needed; {corrupt}"


@dataclass(frozen=True)
class Header:
    """The header of a fragment.

    Parameters
    ----------
    r, c, index : int
        The code, and which of its r + c fragments this is; the first r are data fragments.
    width : int
        Bytes of this fragment in each full stripe; 0 where stripes are not used.
    length : int
        Bytes of the whole blob.
    digest : int
        64 bits that identify the blob; all its fragments have the same.
    """

    r: int
    c: int
    index: int
    width: int
    length: int
    digest: int

    @classmethod
    def of(cls, fragment: bytes | memoryview) -> Header | None:
        """Read and verify a fragment; None when it is damaged."""
        view = memoryview(fragment)
        if len(view) < HEADER_BYTES:
            return None
        magic, version, *fields = _FIELDS.unpack_from(view)
        if magic != MAGIC or version != VERSION:
            return None
        (checksum,) = _CHECKSUM.unpack_from(view, _FIELDS.size)
        payload = zlib.crc32(view[HEADER_BYTES:])
        return cls(*fields) if zlib.crc32(view[: _FIELDS.size], payload) == checksum else None

    def pack(self, payload_checksum: int) -> bytes:
        """Return the header of a payload with that CRC-32."""
        fields = _FIELDS.pack(
            MAGIC, VERSION, self.r, self.c, self.index, self.width, self.length, self.digest
        )
        return fields + _CHECKSUM.pack(zlib.crc32(fields, payload_checksum))


@runtime_checkable
class Codec(Protocol):
    """Cuts a blob into r + c fragments, any r of which decode it.

    `penstock.testing.codec_checks` holds every codec to that.
    """

    @property
    def r(self) -> int:
        """Fragments that decode a blob."""

    @property
    def c(self) -> int:
        """Fragments that may be lost."""

    def encode(self, data: bytes | memoryview) -> list[bytes]:
        """Cut a blob; equal blobs give equal fragments."""

    def decode(self, fragments: Iterable[bytes | memoryview]) -> bytes:
        """Return the blob, or raise `TooFewFragments`."""


@dataclass(frozen=True)
class Code:
    """A Reed-Solomon code of r data and c parity fragments.

    Examples
    --------
    >>> fragments = Code(3, 2).encode(b"all that was counted")
    >>> Code.decode(fragments[2:])
    b'all that was counted'
    >>> Code.decode(fragments[3:])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ...
    penstock.state.backup.erasure_code.TooFewFragments: 2 of 5 fragments are left, 3 needed; 0 \
corrupt

    Parameters
    ----------
    r : int
        Fragments that decode a blob, 1 to 32. With 1, every fragment is a copy.
    c : int
        Fragments that may be lost, 0 to 32. With 0, the blob is only cut in pieces.
    """

    r: int
    c: int

    def __post_init__(self) -> None:
        for name, value, least in (("r", self.r, 1), ("c", self.c, 0)):
            if not isinstance(value, int) or not least <= value <= MOST:
                raise InvalidValue(name, "a code", f"a whole number from {least} to {MOST}", value)

    @property
    def total(self) -> int:
        """How many fragments there are: u = r + c (Sl eq. 24)."""
        return self.r + self.c

    def encode(self, data: bytes | memoryview) -> list[bytes]:
        """Cut a blob into r + c fragments, data fragments first (Sl Alg. 4)."""
        view = memoryview(data).cast("B")
        if self.c and self.r > 1:
            return self._striped(view)
        step = -(-len(view) // self.r)
        data_parts = [view[i * step : (i + 1) * step] for i in range(self.r)]
        digest = _digest(view, self.r)
        fragments = []
        for index in range(self.total):
            payload = data_parts[index % self.r]
            header = Header(self.r, self.c, index, 0, len(view), digest)
            fragments.append(b"".join((header.pack(zlib.crc32(payload)), payload)))
        return fragments

    def _striped(self, view: memoryview) -> list[bytes]:
        driver, step = _driver(self.r, self.c), self.r * STRIPE_BYTES
        stripes = (view[start : start + step] for start in range(0, len(view), step))
        coded = (driver.encode(bytes(stripe)) for stripe in stripes)
        first = next(coded, [b""] * self.total)
        width = len(first[0])
        # Zeroed memory of the full size, which nothing else refers to, is written in place and
        # given out without a copy.
        size = HEADER_BYTES + width * -(-len(view) // step)
        outs = [BytesIO(bytes(size)) for _ in range(self.total)]
        checksums = [0] * self.total
        for out in outs:
            out.seek(HEADER_BYTES)
        for pieces in chain((first,), coded):
            for index, piece in enumerate(pieces):
                outs[index].write(piece)
                checksums[index] = zlib.crc32(piece, checksums[index])
        digest = _digest(view, self.r)
        for index, out in enumerate(outs):
            out.truncate()
            out.seek(0)
            header = Header(self.r, self.c, index, width, len(view), digest)
            out.write(header.pack(checksums[index]))
        return [out.getvalue() for out in outs]

    @staticmethod
    def decode(fragments: Iterable[bytes | memoryview], digest: int | None = None) -> bytes:
        """Decode a blob from any r of its fragments (Sl Alg. 5, with b >= r).

        Damaged fragments count as lost, and fragments of different blobs are never mixed. When
        there are enough of two blobs, the one with more fragments is returned.

        Parameters
        ----------
        fragments : iterable of bytes
            In any order, of any code; they say themselves what they are.
        digest : int, optional
            Take only the fragments with this digest in their header.

        Raises
        ------
        TooFewFragments
        """
        groups, corrupt = _grouped(fragments)
        if digest is not None:
            groups = {key: group for key, group in groups.items() if key.digest == digest}
        if not groups:
            raise TooFewFragments(0, 0, 0, corrupt)
        blob, group = max(groups.items(), key=lambda it: (len(it[1]) - it[0].r, it[0].digest))
        if len(group) < blob.r:
            raise TooFewFragments(len(group), blob.r + blob.c, blob.r, corrupt)
        data = _decoded(blob, group)
        if len(data) != blob.length or _digest(memoryview(data), blob.r) != blob.digest:
            raise TooFewFragments(len(group), blob.r + blob.c, blob.r, corrupt, mismatch=True)
        return data


def _grouped(
    fragments: Iterable[bytes | memoryview],
) -> tuple[dict[Header, dict[int, memoryview]], int]:
    """Return payloads by blob (the header of its fragment 0) and index, and the damaged count."""
    groups: dict[Header, dict[int, memoryview]] = {}
    corrupt = 0
    for fragment in fragments:
        header = Header.of(fragment)
        if header is None:
            corrupt += 1
            continue
        blob = Header(header.r, header.c, 0, header.width, header.length, header.digest)
        groups.setdefault(blob, {})[header.index] = memoryview(fragment)[HEADER_BYTES:]
    return groups, corrupt


def _decoded(blob: Header, group: dict[int, memoryview]) -> bytes:
    # Data fragments first: they need no arithmetic.
    chosen = [group[index] for index in sorted(group)[: blob.r]]
    if blob.r == 1:
        return bytes(chosen[0])
    if not blob.c:
        return b"".join(chosen)
    driver, out = _driver(blob.r, blob.c), BytesIO(bytes(blob.length))
    for start in range(0, len(chosen[0]), max(blob.width, 1)):
        # The library takes bytes only; it ends the process when it is given anything else.
        out.write(driver.decode([bytes(part[start : start + blob.width]) for part in chosen]))
    return out.getvalue()


def _digest(view: memoryview, r: int) -> int:
    """Hash the checksums of a blob's stripes: 64 bits at the price of a CRC-32."""
    hashed, step = hashlib.blake2b(digest_size=8), r * STRIPE_BYTES
    for start in range(0, len(view), step):
        hashed.update(_CHECKSUM.pack(zlib.crc32(view[start : start + step])))
    return int.from_bytes(hashed.digest(), "little")


@cache
def _driver(r: int, c: int) -> Any:
    """Make the library's coder; Cauchy, since Vandermonde is not safe for every r and c."""
    try:
        from pyeclib.ec_iface import ECDriver
    except ImportError as error:
        raise PenstockError(
            "state in coded fragments needs pyeclib: pip install 'penstock[spark]'"
        ) from error
    return ECDriver(k=r, m=c, ec_type="isa_l_rs_cauchy")
