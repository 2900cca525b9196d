"""What Spark packs is unpacked, and a packed log that is cut gives what it has."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.advise.codecs import Torn, unpacked

LOGS = Path(__file__).parents[1] / "data" / "event_logs"

#: Packed by Spark's own codecs.
PACKED = ("skew.zstd", "partitions.lz4", "idle.snappy", "commit.lzf")


def content(data: bytes) -> tuple[bytes, bool]:
    """All that comes out, and whether the stream was torn."""
    made = b""
    try:
        for piece in unpacked(io.BytesIO(data)):
            made += piece
    except Torn:
        return made, True
    return made, False


@pytest.mark.parametrize("name", PACKED)
def test_a_log_that_spark_packed_is_whole(name: str) -> None:
    made, torn = content((LOGS / name).read_bytes())
    assert not torn
    assert made.startswith(b'{"Event":"SparkListenerLogStart"')
    assert made.endswith(b"}\n")


@pytest.mark.parametrize("name", PACKED)
@given(data=st.data())
def test_a_packed_log_that_is_cut_gives_its_beginning(name: str, data: st.DataObject) -> None:
    packed = (LOGS / name).read_bytes()
    cut = data.draw(st.integers(16, len(packed) - 1))
    whole, _ = content(packed)
    made, _ = content(packed[:cut])
    assert whole.startswith(made)


@pytest.mark.parametrize("name", PACKED)
@given(data=st.data())
def test_a_packed_log_with_broken_bytes_ends_or_is_torn(name: str, data: st.DataObject) -> None:
    packed = bytearray((LOGS / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        packed[data.draw(st.integers(8, len(packed) - 1))] = data.draw(st.integers(0, 255))
    content(bytes(packed))


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=4))
def test_gzip_in_several_parts_is_read_through(parts: list[bytes]) -> None:
    packed = b"".join(gzip.compress(part) for part in parts)
    assert content(packed) == (b"".join(parts), False)


def test_gzip_that_is_cut_is_torn() -> None:
    packed = gzip.compress(b"a line\n" * 1000)
    assert content(packed[:-4])[1]


@given(st.binary(max_size=200).filter(lambda b: b[:1] not in (b"\x28", b"\x1f", b"\x82")))
def test_what_is_not_packed_stays_as_it_is(data: bytes) -> None:
    if not data.startswith((b"LZ4Block", b"ZV")):
        assert content(data) == (data, False)
