"""The messages that tasks send to each other and to the driver, and their one encoding.

A message is a header of 16 bytes and a body. The header has the kind of the message, its address
(a layer and a partition, or the driver) and two small numbers. The body is

- an Arrow IPC stream for messages with rows: `EdgeRows`, `SinkRows`, `SharedRows`, `MovedRows`;
- a piece of a segment for messages with state: `FragmentMessage`, `SegmentMessage`;
- the pickle of any other value, such as `TaskStats`. Both ends are processes of one Spark
  application and one release, so that nothing has to be converted by hand.

A task that only passes a message on reads its `address_of` and nothing else.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.ipc

from penstock.common.arrays import IntArray
from penstock.engine.errors import StepFailed
from penstock.pipeline.steps import StagedFile
from penstock.state.backup.fragments import Piece
from penstock.state.store import Saved
from penstock.state.versions import Segment, StateLost

#: Kind, layer, partition and two numbers: 16 bytes, so that an Arrow body stays aligned.
_HEADER = struct.Struct("<cxHIHxxI")
_ADDRESS = struct.Struct("<xxHI")


class Address(NamedTuple):
    """Where a message goes: a partition of a layer of the job."""

    layer: int
    partition: int


#: The address of the driver.
DRIVER = Address(0xFFFF, 0)

Body = memoryview | bytes


class EdgeRows(NamedTuple):
    """Tuples that an instance sends to another one along an edge of the job graph."""

    edge: int
    sender: int
    body: Body


class SinkRows(NamedTuple):
    """Rows for a sink that lives in the driver; `step` is the sink's number in the pipeline."""

    step: int
    sender: int
    body: Body


class SharedRows(NamedTuple):
    """What an instance made of split keys, for the driver to merge; see `task.hot_keys`."""

    step: int
    sender: int
    body: Body


class MovedRows(NamedTuple):
    """Rows of state that go from one instance to another when state is repartitioned."""

    vertex: int
    sender: int
    body: Body


class FragmentMessage(NamedTuple):
    """A data or parity fragment of an instance's segment."""

    vertex: int
    instance: int
    piece: Piece


class SegmentMessage(NamedTuple):
    """A part of an instance's segment, as it is in the file."""

    vertex: int
    instance: int
    piece: Piece


@dataclass(frozen=True)
class SavedVersion:
    """The version of its state that an instance saved.

    Parameters
    ----------
    version : int
    segment : Segment
        The file that was written.
    size_bytes : int
        Size of that file.
    postponed : bool
        Whether segments should have been merged, which would have written too much.
    """

    version: int
    segment: Segment
    size_bytes: int
    postponed: bool = False

    @classmethod
    def of(cls, version: int, saved: Saved) -> SavedVersion:
        """Describe what a state store wrote."""
        return cls(version, saved.segment, saved.content.size, saved.postponed)


@dataclass(frozen=True)
class MigratedBytes:
    """State that reached an instance with a batch, and state that was pre-copied to it before."""

    received: int
    precopied: int


@dataclass(frozen=True, eq=False)
class TaskStats:
    """What one instance did in one batch; a task sends it to the driver.

    Parameters
    ----------
    vertex : str
    instance : int
    rows_in : int
        Rows that it read or received.
    sent : mapping of int to mapping of int to int
        By edge and target instance: rows that it sent.
    sinks : mapping of str to int
        By sink: rows.
    staged : mapping of str to StagedFile
        By sink that tasks write: the file of this instance.
    partitions : mapping of str to array
        By target vertex: rows of each router partition.
    hot_keys : mapping of str to mapping of int to int
        By target vertex and key hash: rows of the most frequent keys.
    key_names : mapping of str to mapping of int to str
        By target vertex and key hash: how the hottest keys read.
    late : mapping of str to int
        By step that follows event time: rows that came too late for it.
    event_times : mapping of str to int
        By stream of such a step: the latest event time, in microseconds.
    key_types : mapping of str to collection of tuple of str
        By step with state: types that the columns of the keys had that were sent to it.
    skipped : int
        Rows that were left out because a function failed on them.
    first_error : StepFailed or None
        The first of these failures.
    stamps : mapping of int to int
        Rows that the source made in each millisecond, for the latency.
    cpu_s, wall_s : float
    rss_bytes : int
        Memory that the process took at the end.
    process : int
        Id of the process.
    grown_bytes : int
        Memory of the process beyond what it took before its first task.
    disk_bytes : int or None
        Read from and written to disks by the process meanwhile; None where nobody counts.
    sent_bytes : int
        Sent to other instances.
    next_timer_us : int or None
        When the next key is due by the clock, in microseconds since 1970.
    saved : SavedVersion or None
        The version of its state that it saved, if it changed.
    migrated : MigratedBytes or None
        State that came with the batch, if any did.
    """

    vertex: str
    instance: int
    rows_in: int
    sent: Mapping[int, Mapping[int, int]]
    sinks: Mapping[str, int]
    staged: Mapping[str, StagedFile]
    partitions: Mapping[str, IntArray]
    skipped: int
    first_error: StepFailed | None
    stamps: Mapping[int, int]
    cpu_s: float
    wall_s: float
    rss_bytes: int
    saved: SavedVersion | None = None
    migrated: MigratedBytes | None = None
    hot_keys: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    key_names: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    event_times: Mapping[str, int] = field(default_factory=dict)
    key_types: Mapping[str, Collection[tuple[str, ...]]] = field(default_factory=dict)
    next_timer_us: int | None = None
    process: int = 0
    grown_bytes: int = 0
    disk_bytes: int | None = None
    sent_bytes: int = 0

    @property
    def rows_out(self) -> int:
        """Rows sent on all edges and to all sinks."""
        sent = sum(sum(targets.values()) for targets in self.sent.values())
        return sent + sum(self.sinks.values())


@dataclass(frozen=True, eq=False)
class TaskError:
    """Why a task could not do its part of the batch, or of a migration."""

    error: StepFailed | StateLost


@dataclass(frozen=True)
class StateReceived:
    """What a migration task wrote on the new executor of an instance.

    Parameters
    ----------
    vertex : str
    instance : int
    segments : mapping of Segment to int
        Segments that were received, and their bytes.
    precopied_bytes : int
        Bytes that had been pre-copied and are of use.
    missing : mapping of str to str
        Segments that were not received, and why.
    """

    vertex: str
    instance: int
    segments: Mapping[Segment, int]
    precopied_bytes: int
    missing: Mapping[str, str]

    @property
    def size_bytes(self) -> int:
        """Bytes that were received."""
        return sum(self.segments.values())


@dataclass(frozen=True)
class StateSaved:
    """The version that an instance saved between two batches; None if nothing changed."""

    vertex: str
    instance: int
    saved: SavedVersion | None
    received_bytes: int


_ROWS: dict[bytes, type[EdgeRows | SinkRows | SharedRows | MovedRows]] = {
    b"R": EdgeRows,
    b"K": SinkRows,
    b"S": SharedRows,
    b"M": MovedRows,
}
_PIECES: dict[bytes, type[FragmentMessage | SegmentMessage]] = {
    b"F": FragmentMessage,
    b"G": SegmentMessage,
}
_VALUE = b"V"
_KIND_OF: dict[type, bytes] = {made: kind for kind, made in (*_ROWS.items(), *_PIECES.items())}


def pack(message: object, to: Address) -> bytes:
    """Encode a message for an address."""
    kind = _KIND_OF.get(type(message), _VALUE)
    number, sender = 0, 0
    body: Body
    if isinstance(message, EdgeRows | SinkRows | SharedRows | MovedRows):
        number, sender, body = message
    elif isinstance(message, FragmentMessage | SegmentMessage):
        number, sender, body = message.vertex, message.instance, message.piece.pack()
    else:
        body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return b"".join((_HEADER.pack(kind, to.layer, to.partition, number, sender), body))


def unpack(data: bytes) -> object:
    """Decode what `pack` encoded; rows and pieces share the memory of `data`."""
    kind, _, _, number, sender = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if kind in _ROWS:
        return _ROWS[kind](number, sender, body)
    if kind in _PIECES:
        return _PIECES[kind](number, sender, Piece.unpack(body))
    return pickle.loads(body)


def address_of(data: bytes) -> Address:
    """Read where an encoded message goes, and nothing else of it."""
    return Address(*_ADDRESS.unpack_from(data))


def encode(table: pa.Table | pa.RecordBatch) -> memoryview:
    """Turn rows into an Arrow IPC stream."""
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write(table)
    return memoryview(out.getvalue())


def decode(body: Body) -> pa.Table:
    """Read rows back; they share the memory of the message."""
    return pa.ipc.open_stream(pa.py_buffer(body)).read_all()


def raise_error(messages: Iterable[object]) -> None:
    """Raise what a task failed with, if one did."""
    for message in messages:
        if isinstance(message, TaskError):
            raise message.error
