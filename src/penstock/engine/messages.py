"""What travels between instances: a short header and an Arrow IPC message."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.ipc

#: Kinds of frames: tuples for an instance, rows for a sink, statistics, an error; and of state: a
#: fragment, a run, rows that change their instance, rows of split keys.
DATA, SINK, STATS, ERROR = b"D", b"K", b"S", b"E"
FRAGMENT, RUN, MOVED, SHARED = b"F", b"R", b"M", b"P"

#: Layer number of the driver.
DRIVER = 0xFFFF

#: 16 bytes, so that the body stays aligned for Arrow.
_HEADER = struct.Struct("<cxHIHxxI")


@dataclass(frozen=True)
class Message:
    """One message.

    Parameters
    ----------
    kind : bytes
    layer, partition : int
        Where it goes; layer `DRIVER` is the driver.
    edge : int
        Number of the wire, or of the sink, that it belongs to.
    sender : int
        Instance that sent it.
    body : bytes
    """

    kind: bytes
    layer: int
    partition: int
    edge: int
    sender: int
    body: memoryview | bytes

    def pack(self) -> bytes:
        """Write header and body."""
        head = _HEADER.pack(self.kind, self.layer, self.partition, self.edge, self.sender)
        return b"".join((head, self.body))

    @classmethod
    def unpack(cls, data: bytes) -> Message:
        """Read back what `pack` wrote; the body is not copied."""
        kind, layer, partition, edge, sender = _HEADER.unpack_from(data)
        return cls(kind, layer, partition, edge, sender, memoryview(data)[_HEADER.size :])


def encode(table: pa.Table | pa.RecordBatch) -> memoryview:
    """Turn rows into an Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write(table)
    return memoryview(out.getvalue())


def decode(body: memoryview | bytes) -> pa.Table:
    """Read rows back; they share the message's memory."""
    return pa.ipc.open_stream(pa.py_buffer(body)).read_all()


def encode_json(values: Any) -> bytes:
    """Turn plain values into a body."""
    return json.dumps(values, separators=(",", ":")).encode()


def decode_json(body: memoryview | bytes) -> Any:
    """Read plain values back."""
    return json.loads(bytes(body))
