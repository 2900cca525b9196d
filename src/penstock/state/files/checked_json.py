"""Small JSON objects with a checksum of their own, which is their last value."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

from penstock.state.files.checksum import Damaged

_CHECKSUM = re.compile(rb', "crc32": "([0-9a-f]{8})"\}$')


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
