"""Every code keeps the contract, and the contract catches what does not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest

from penstock.state.backup.erasure_code import HEADER_BYTES, Code, Header, TooFewFragments
from penstock.testing import CODEC_CHECKS, ContractBroken, check_codec

CODES = [(7, 3), (1, 0), (1, 1), (1, 3), (2, 1), (3, 0), (4, 2), (8, 8), (16, 3), (32, 2), (5, 32)]


@pytest.mark.parametrize("check", CODEC_CHECKS.values(), ids=CODEC_CHECKS)
@pytest.mark.parametrize(("r", "c"), CODES)
def test_codes(r: int, c: int, check: Callable[[Code], None]) -> None:
    check(Code(r, c))


class Broken:
    """A good code, until a test overrides a part of it."""

    code = Code(3, 2)

    @property
    def r(self) -> int:
        return self.code.r

    @property
    def c(self) -> int:
        return self.code.c

    def encode(self, data: bytes | memoryview) -> list[bytes]:
        return self.code.encode(data)

    def decode(self, fragments: Iterable[bytes | memoryview]) -> bytes:
        return self.code.decode(fragments)


class OneTooFew(Broken):
    def encode(self, data: bytes | memoryview) -> list[bytes]:
        return self.code.encode(data)[:-1]


class StrictlyMore(Broken):
    """Alg. 5 as printed: b > r."""

    def decode(self, fragments: Iterable[bytes | memoryview]) -> bytes:
        given = list(fragments)
        if len(given) <= self.r:
            raise TooFewFragments(len(given), self.r + self.c, self.r, 0)
        return self.code.decode(given)


class FirstOnly(Broken):
    """Needs the data fragments: survives no loss."""

    def decode(self, fragments: Iterable[bytes | memoryview]) -> bytes:
        given = [f for f in fragments if (it := Header.of(f)) is not None and it.index < self.r]
        return self.code.decode(given)


class Padded(Broken):
    """Gives back whole words."""

    def decode(self, fragments: Iterable[bytes | memoryview]) -> bytes:
        data = self.code.decode(fragments)
        return data + bytes(-len(data) % 8)


class Trusting(Broken):
    """Takes fragments by what they say, without a look at the checksum."""

    def decode(self, fragments: Iterable[bytes | memoryview]) -> bytes:
        kept = [bytes(it) for it in fragments]
        kept += [b"nonsense"] * (1 if any(Header.of(it) is None for it in kept) else 0)
        return self.code.decode(kept)


class Mixing(Broken):
    """Joins the bytes of whatever comes."""

    code = Code(3, 0)

    def decode(self, fragments: Iterable[bytes | memoryview]) -> bytes:
        good = {it.index: f for f in fragments if (it := Header.of(f)) is not None}
        if len(good) < self.r:
            raise TooFewFragments(len(good), self.r + self.c, self.r, 0)
        return b"".join(bytes(good[i])[HEADER_BYTES:] for i in sorted(good))


class CountingTwice(Broken):
    """Counts a fragment that comes twice as two."""

    def decode(self, fragments: Iterable[bytes | memoryview]) -> bytes:
        given = list(fragments)
        try:
            return self.code.decode(given)
        except TooFewFragments:
            if len(given) >= self.r:
                return b""
            raise


class Salted(Broken):
    def encode(self, data: bytes | memoryview) -> list[bytes]:
        fragments = self.code.encode(data)
        random.shuffle(fragments)
        return fragments


class Copies(Broken):
    """Whole copies, said to be thirds."""

    def encode(self, data: bytes | memoryview) -> list[bytes]:
        return Code(1, self.r + self.c - 1).encode(data)


class BytesOnly(Broken):
    """Codes the whole buffer that a part was given of."""

    def encode(self, data: bytes | memoryview) -> list[bytes]:
        return self.code.encode(data.obj if isinstance(data, memoryview) else data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("codec", "check"),
    [
        (OneTooFew(), "as many as said"),
        (StrictlyMore(), "every loss of c"),
        (FirstOnly(), "every loss of c"),
        (Padded(), "sizes"),
        (Padded(), "generated blobs"),
        (Trusting(), "corrupt is lost"),
        (Mixing(), "never mixed"),
        (CountingTwice(), "any order"),
        (Salted(), "repeatable"),
        (Copies(), "too few"),
        (Copies(), "small"),
        (BytesOnly(), "any buffer"),
    ],
)
def test_the_contract_catches(codec: Broken, check: str) -> None:
    with pytest.raises(ContractBroken):
        CODEC_CHECKS[check](codec)


def test_the_whole_suite() -> None:
    check_codec(Code(4, 2))
    with pytest.raises(ContractBroken):
        check_codec(StrictlyMore())
