"""Fragments: what is lost, corrupt, mixed up or forged, and what comes back."""

from __future__ import annotations

import itertools
import pickle
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import InvalidValue, PenstockError
from penstock.state.backup import erasure_code as codec
from penstock.state.backup.erasure_code import (
    HEADER_BYTES,
    STRIPE_BYTES,
    Code,
    Header,
    TooFewFragments,
)

BLOB = bytes(range(256)) * 9


def test_any_r_fragments_rebuild_and_fewer_do_not() -> None:
    # Sl Alg. 5 prints b > r; with b == r it must work, with b == r - 1 it must not.
    code = Code(4, 3)
    fragments = code.encode(BLOB)
    assert len(fragments) == code.total == 7
    for kept in itertools.combinations(fragments, code.r):
        assert Code.decode(kept) == BLOB
    for kept in itertools.combinations(fragments, code.r - 1):
        with pytest.raises(TooFewFragments, match="3 of 7 fragments are left, 4 needed"):
            Code.decode(kept)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_codes_sizes_and_losses(data: st.DataObject) -> None:
    r, c = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 5))
    blob = data.draw(st.binary(max_size=300))
    fragments = Code(r, c).encode(memoryview(blob))
    kept = data.draw(st.permutations(fragments))[: data.draw(st.integers(r, r + c))]
    assert Code.decode(kept) == blob


@pytest.mark.parametrize("over", [-1, 0, 1, 5 * STRIPE_BYTES + 77])
@pytest.mark.parametrize(("r", "c"), [(3, 2), (1, 2), (3, 0), (2, 1)])
def test_whole_and_broken_stripes(r: int, c: int, over: int) -> None:
    blob = (b"0123456789abcdef!" * (r * STRIPE_BYTES))[: r * STRIPE_BYTES + over]
    fragments = Code(r, c).encode(blob)
    assert Code.decode(fragments[c:]) == blob
    assert Code.decode(reversed(fragments)) == blob


@pytest.mark.parametrize(("r", "c"), [(5, 2), (1, 3), (4, 0)])
@pytest.mark.parametrize("size", [0, 1, 2, 6])
def test_tiny_blobs(r: int, c: int, size: int) -> None:
    blob = b"abcdef"[:size]
    assert Code.decode(Code(r, c).encode(blob)[c:]) == blob


def test_every_flipped_bit_makes_a_fragment_corrupt() -> None:
    fragment = bytearray(Code(2, 1).encode(b"some state")[1])
    for at in range(len(fragment)):
        for bit in (1, 128):
            fragment[at] ^= bit
            assert Header.of(bytes(fragment)) is None
            fragment[at] ^= bit
    assert Header.of(bytes(fragment)) is not None


@pytest.mark.parametrize("damage", [0, 3, HEADER_BYTES - 1, HEADER_BYTES, -1])
def test_a_cut_or_longer_fragment_is_corrupt(damage: int) -> None:
    fragment = Code(2, 1).encode(BLOB)[0]
    assert Header.of(fragment[:damage]) is None
    assert Header.of(fragment + b"x") is None


def test_corrupt_fragments_count_as_lost() -> None:
    fragments = Code(3, 2).encode(BLOB)
    broken = [fragments[0][:-1] + b"?", b"", *fragments[2:]]
    assert Code.decode(broken) == BLOB
    with pytest.raises(TooFewFragments) as caught:
        Code.decode(broken[:4])
    error = caught.value
    assert (error.found, error.total, error.needed, error.corrupt) == (2, 5, 3, 2)
    assert str(error) == "2 of 5 fragments are left, 3 needed; 2 corrupt"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_nothing_readable() -> None:
    with pytest.raises(TooFewFragments, match="no fragment can be read; 1 corrupt"):
        Code.decode([b"nonsense"])


def test_two_attempts_are_never_mixed() -> None:
    one, two = Code(3, 2).encode(b"a" * 40), Code(3, 2).encode(b"b" * 40)
    with pytest.raises(TooFewFragments, match="2 of 5"):
        Code.decode([one[0], one[1], two[2], two[3]])
    assert Code.decode([one[0], two[1], two[2], one[3], two[4]]) == b"b" * 40


def test_a_digest_chooses_between_two_whole_attempts() -> None:
    one, two = Code(2, 1).encode(b"one"), Code(2, 1).encode(b"two")
    for mine, blob in ((one, b"one"), (two, b"two")):
        header = Header.of(mine[0])
        assert header is not None
        assert Code.decode(one + two, header.digest) == blob
        with pytest.raises(TooFewFragments):
            Code.decode([f for f in one + two if f not in mine], header.digest)


def test_the_same_fragment_twice_is_one_fragment() -> None:
    fragments = Code(3, 1).encode(BLOB)
    with pytest.raises(TooFewFragments, match="2 of 4"):
        Code.decode([fragments[0], fragments[0], fragments[3]])


def test_a_blob_that_fails_its_own_checksum_is_not_given_out() -> None:
    fragments = [_forged(fragment, digest=7) for fragment in Code(2, 1).encode(BLOB)]
    with pytest.raises(TooFewFragments, match="fails its checksum"):
        Code.decode(fragments)


def test_fragments_are_a_share_of_the_blob() -> None:
    blob = bytes(1_000_000)
    for fragment in Code(4, 2).encode(blob):
        assert len(fragment) < 1.01 * len(blob) / 4 + 200


@pytest.mark.parametrize(("r", "c"), [(0, 1), (33, 1), (2, -1), (2, 33), (2.0, 1)])
def test_impossible_codes_are_refused(r: int, c: int) -> None:
    with pytest.raises(InvalidValue, match="of a code must be a whole number"):
        Code(r, c)


def test_the_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    codec._driver.cache_clear()
    monkeypatch.setitem(sys.modules, "pyeclib.ec_iface", None)
    with pytest.raises(PenstockError, match=r"pip install 'penstock\[spark\]'"):
        Code(3, 2).encode(b"x")
    assert Code.decode(Code(1, 2).encode(b"x")) == b"x"


def _forged(fragment: bytes, digest: int) -> bytes:
    """Give a fragment another digest, with checksums that fit."""
    import zlib
    from dataclasses import replace

    header = Header.of(fragment)
    assert header is not None
    payload = fragment[HEADER_BYTES:]
    return replace(header, digest=digest).pack(zlib.crc32(payload)) + payload
