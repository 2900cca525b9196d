"""The contract of a codec, as checks that can be run one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations
from math import comb
from random import Random

from penstock.state.backup.erasure_code import STRIPE_BYTES, Codec, TooFewFragments
from penstock.testing.broken import ContractBroken, require

Check = Callable[[Codec], None]

#: Choices of fragments that a check tries at most.
CHOICES = 250

#: Blobs that the generated check draws.
EXAMPLES = 30

#: Bytes that a fragment may have besides its share of the blob, and per part of its share.
OVERHEAD_BYTES, OVERHEAD_PART = 256, 0.01


def check_codec(codec: Codec) -> None:
    """Run every check of `CODEC_CHECKS`.

    Raises
    ------
    ContractBroken
        On the first promise that is not kept.
    """
    for check in CODEC_CHECKS.values():
        check(codec)


def check_as_many_as_said(codec: Codec) -> None:
    """Check that there are r + c fragments (Sl eq. 24), each of them bytes."""
    require(isinstance(codec, Codec), f"{codec!r} lacks a member of the protocol")
    require(codec.r >= 1 and codec.c >= 0, f"r is {codec.r} and c is {codec.c}")
    fragments = codec.encode(_blob(1000))
    require(
        len(fragments) == codec.r + codec.c,
        f"{codec.r} + {codec.c} fragments were promised, {len(fragments)} were made",
    )
    require(all(isinstance(it, bytes) for it in fragments), "fragments must be bytes")


def check_every_loss_of_c(codec: Codec) -> None:
    """Check that any r fragments, and any more, give the blob back (Sl Alg. 5 with b >= r)."""
    blob = _blob(1000)
    fragments = codec.encode(blob)
    for count in range(codec.r, codec.r + codec.c + 1):
        for kept in _choices(len(fragments), count):
            got = _decoded(codec, (fragments[i] for i in kept), f"fragments {kept}")
            require(got == blob, f"fragments {kept} give another blob")


def check_too_few(codec: Codec) -> None:
    """Check that r - 1 fragments are refused, with the figures."""
    fragments = codec.encode(_blob(1000))
    for kept in _choices(len(fragments), codec.r - 1):
        error = _refusal(codec, [fragments[i] for i in kept], f"{len(kept)} fragments")
        require(error.found == len(kept), f"{len(kept)} fragments are said to be {error.found}")
        if kept:
            said = (error.needed, error.total)
            require(said == (codec.r, codec.r + codec.c), f"needed and total are said as {said}")


def check_any_order(codec: Codec) -> None:
    """Check that order does not count, and that a fragment that comes twice is one."""
    blob = _blob(777)
    fragments = codec.encode(blob)
    got = _decoded(codec, (*reversed(fragments), fragments[0]), "reversed fragments")
    require(got == blob, "reversed fragments give another blob")
    if codec.r > 1:
        _refusal(codec, [fragments[-1]] * (codec.r + codec.c), "one fragment, many times")


def check_corrupt_is_lost(codec: Codec) -> None:
    """Check that damaged fragments count as lost, c of them at most, and are counted."""
    blob = _blob(1000)
    for damage in _DAMAGES:
        fragments = codec.encode(blob)
        for i in range(codec.c):
            fragments[i] = damage(fragments[i])
        got = _decoded(codec, fragments, f"{codec.c} damaged fragments")
        require(got == blob, "damaged fragments were used")
        fragments[codec.c] = damage(fragments[codec.c])
        error = _refusal(codec, fragments, f"{codec.c + 1} damaged fragments")
        require(
            error.corrupt == codec.c + 1,
            f"{codec.c + 1} damaged fragments are counted as {error.corrupt}",
        )


def check_never_mixed(codec: Codec) -> None:
    """Check that fragments of two attempts are never put together."""
    one, two = (bytes([letter]) * 1000 for letter in b"12")
    first, second = codec.encode(one), codec.encode(two)
    if codec.r > 1:
        half = codec.r - 1
        _refusal(codec, first[:half] + second[half : 2 * half], "too few of either attempt")
    mixed = first[: codec.r - 1] + second[codec.c :]
    require(_decoded(codec, mixed, "two attempts") == two, "the attempt that is whole must win")


def check_sizes(codec: Codec) -> None:
    """Check blobs from nothing to several stripes, and around the sizes that divide evenly."""
    stripe = codec.r * STRIPE_BYTES
    sizes = {0, 1, codec.r - 1, codec.r, codec.r + 1, 4096, stripe - 1, stripe, 2 * stripe + 1}
    for size in sorted(sizes):
        blob = _blob(size)
        got = _decoded(codec, codec.encode(blob)[codec.c :], f"a blob of {size} bytes")
        require(got == blob, f"{len(got)} bytes come back of {size}, or other ones")


def check_any_buffer(codec: Codec) -> None:
    """Check that memory is coded where it lies, and left alone; and decoded likewise."""
    whole = bytearray(_blob(5000))
    before = bytes(whole)
    fragments = codec.encode(memoryview(whole)[100:4100])
    got = _decoded(codec, map(memoryview, fragments), "fragments in other memory")
    require(got == before[100:4100], "a part of a buffer gives another blob")
    require(whole == before, "the blob was changed")


def check_repeatable(codec: Codec) -> None:
    """Check that equal blobs give equal fragments, so that a retry overwrites itself."""
    require(codec.encode(_blob(999)) == codec.encode(_blob(999)), "a retry gives other fragments")


def check_small(codec: Codec) -> None:
    """Check that a fragment is little more than its share of the blob."""
    size = 1_000_000
    most = size / codec.r * (1 + OVERHEAD_PART) + OVERHEAD_BYTES
    for fragment in codec.encode(_blob(size)):
        require(len(fragment) <= most, f"a fragment of {size} bytes has {len(fragment)}")


def check_generated_blobs(codec: Codec) -> None:
    """Check that hypothesis finds no blob and no loss that is not survived."""
    from hypothesis import given, settings
    from hypothesis import strategies as st

    every = range(codec.r + codec.c)

    @settings(max_examples=EXAMPLES, deadline=None, database=None)
    @given(st.binary(max_size=500), st.permutations(every), st.integers(codec.r, len(every)))
    def run(blob: bytes, order: list[int], count: int) -> None:
        fragments = codec.encode(blob)
        got = _decoded(codec, (fragments[i] for i in order[:count]), f"fragments {order[:count]}")
        require(got == blob, f"fragments {order[:count]} give another blob")

    run()


def _blob(size: int) -> bytes:
    """Make bytes that no shift or repetition looks like."""
    return b"".join(i.to_bytes(4, "little") for i in range(size // 4 + 1))[:size]


def _choices(total: int, count: int) -> Iterator[tuple[int, ...]]:
    """Give all choices of so many fragments, or a sample that is the same every time."""
    if comb(total, count) <= CHOICES:
        return combinations(range(total), count)
    rng = Random(total)
    return (tuple(rng.sample(range(total), count)) for _ in range(CHOICES))


def _decoded(codec: Codec, fragments: Iterable[bytes | memoryview], what: str) -> bytes:
    try:
        return codec.decode(fragments)
    except TooFewFragments as error:
        raise ContractBroken(f"{what} must do: {error}") from error


def _refusal(codec: Codec, fragments: list[bytes], what: str) -> TooFewFragments:
    try:
        codec.decode(fragments)
    except TooFewFragments as error:
        return error
    raise ContractBroken(f"{what} must be refused")


#: Ways to damage a fragment: its first, middle and last byte, its length, all of it.
_DAMAGES: tuple[Callable[[bytes], bytes], ...] = (
    lambda it: bytes([it[0] ^ 1]) + it[1:],
    lambda it: it[: len(it) // 2] + bytes([it[len(it) // 2] ^ 128]) + it[len(it) // 2 + 1 :],
    lambda it: it[:-1] + bytes([it[-1] ^ 4]),
    lambda it: it[:-1],
    lambda it: it + b"\0",
    lambda it: bytes(len(it)),
    lambda it: b"",
)

#: Every check by its name.
CODEC_CHECKS: Mapping[str, Check] = {
    "as many as said": check_as_many_as_said,
    "every loss of c": check_every_loss_of_c,
    "too few": check_too_few,
    "any order": check_any_order,
    "corrupt is lost": check_corrupt_is_lost,
    "never mixed": check_never_mixed,
    "sizes": check_sizes,
    "any buffer": check_any_buffer,
    "repeatable": check_repeatable,
    "small": check_small,
    "generated blobs": check_generated_blobs,
}
