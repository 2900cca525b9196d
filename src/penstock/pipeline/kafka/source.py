"""A Kafka topic as a source: offsets are the positions, and tasks read their ranges themselves.

1. The driver asks for the last stable offset of every partition, in one request, and takes a range
   of each for a batch (`penstock.pipeline.kafka.offsets`). The ranges are written in the commit log
   before the batch runs.
2. A task reads its part of the ranges with a consumer of its own process that belongs to no group:
   no offsets are stored in Kafka, and nothing is rebalanced.
3. Only committed rows are read. Below the last stable offset no transaction is open, so a range
   has the same rows whenever it is read, until Kafka deletes them. A compacted topic keeps no such
   promise and is refused.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from penstock.common.errors import InvalidValue
from penstock.common.keywords import class_keywords
from penstock.pipeline.json_reader import decode_lines
from penstock.pipeline.kafka.cluster import Kafka, KafkaFailed, OffsetsDeleted, library
from penstock.pipeline.kafka.offsets import TopicOffsets
from penstock.pipeline.steps import PARTITION

#: What a value may be, besides the columns of a JSON object.
VALUES = {"binary": pa.binary(), "text": pa.string()}

#: Where a topic is begun, and what happens when Kafka has deleted what was to be read next.
BEGINNINGS, WHEN_DELETED = ("earliest", "latest"), ("stop", "skip")

#: Columns that come with every row.
PLACE = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)

#: Messages that are asked for at once, and seconds to wait for so many.
MOST, WAIT_S = 10_000, 0.05

#: Milliseconds that a broker may wait for rows before it answers.
FETCH_WAIT_MS = 5


@class_keywords
@dataclass(frozen=True, eq=False)
class KafkaSource:
    """The committed rows of a topic.

    Parameters
    ----------
    cluster : Kafka
    topic : str
    value : str or pyarrow.Schema
        ``binary`` or ``text``: key and value as bytes or as strings, in the columns ``key`` and
        ``value``. A schema: the value is a JSON object, whose fields are the columns instead.
    begin : str
        Where a run without a checkpoint begins: ``earliest`` or ``latest``. Partitions that are
        added later are read from their beginning.
    until : str, optional
        ``latest``: the stream ends at the offsets that were there when the run started.
    when_deleted : str
        When Kafka has deleted rows that no batch has taken yet: ``stop`` with an error, or ``skip``
        them and count them as dropped. A batch that was begun is never run with fewer rows.
    """

    cluster: Kafka
    topic: str
    value: str | pa.Schema = "binary"
    begin: str = "earliest"
    until: str | None = None
    when_deleted: str = "stop"
    stamp: ClassVar[None] = None
    #: Offsets of transaction markers and of rolled back rows hold no row.
    dense: ClassVar[bool] = False

    def __post_init__(self) -> None:
        owner = "a Kafka source"
        if not isinstance(self.topic, str) or not self.topic:
            raise InvalidValue("topic", owner, "the name of a topic", self.topic)
        if isinstance(self.value, pa.Schema):
            taken = sorted(set(self.value.names) & set(PLACE.names))
            if taken:
                allowed = f"a schema without {', '.join(PLACE.names)}, which come with every row"
                raise InvalidValue("value", owner, allowed, taken[0])
        elif self.value not in VALUES:
            allowed = f"one of {', '.join(VALUES)}, or a pyarrow.Schema of JSON objects"
            raise InvalidValue("value", owner, allowed, self.value)
        for name, known in (("begin", BEGINNINGS), ("when_deleted", WHEN_DELETED)):
            if (got := getattr(self, name)) not in known:
                raise InvalidValue(name, owner, "one of " + ", ".join(known), got)
        if self.until not in (None, "latest"):
            raise InvalidValue("until", owner, "None or 'latest'", self.until)

    @property
    def identity(self) -> str:
        """What a checkpoint must go on with."""
        return f"Kafka topic {self.topic}"

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of the value, and where each row is in the topic."""
        if isinstance(self.value, pa.Schema):
            columns = list(self.value)
        else:
            kind = VALUES[self.value]
            columns = [pa.field("key", kind), pa.field("value", kind)]
        return pa.schema([*columns, *PLACE])

    def offsets(self) -> TopicOffsets:
        """Return what tells the driver which offsets are there."""
        skip = self.when_deleted == "skip"
        return TopicOffsets(self.cluster, self.topic, self.begin, skip=skip)

    def read(self, start: int, stop: int) -> pa.Table:
        """Read the rows from position `start` up to `stop`, both of one partition.

        Raises
        ------
        OffsetsDeleted
            When some of them are not in the topic any more.
        KafkaFailed
            When no broker answers in time.
        """
        partition, first = divmod(start, PARTITION)
        last = stop - partition * PARTITION
        if not 0 <= first <= last < PARTITION:
            allowed = "positions of one partition in ascending order"
            raise InvalidValue("start, stop", "a Kafka source", allowed, (start, stop))
        if first == last:
            return self.schema.empty_table()
        messages = list(_messages(self.cluster, self.topic, partition, first, last))
        return self._table(partition, messages)

    def _table(self, partition: int, messages: list[Any]) -> pa.Table:
        values = [message.value() for message in messages]
        if isinstance(self.value, pa.Schema):
            columns = self._objects(values, partition, messages)
        else:
            kind = VALUES[self.value]
            keys = [message.key() for message in messages]
            columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
            columns = [column.cast(kind) for column in columns]
        place = (
            [partition] * len(messages),
            [message.offset() for message in messages],
            [message.timestamp()[1] * 1000 for message in messages],
        )
        columns += [pa.array(of, at.type) for of, at in zip(place, PLACE, strict=True)]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _objects(self, values: list[bytes | None], partition: int, messages: list[Any]) -> Any:
        """Read JSON objects; a value that is missing has no fields."""
        lines = b"\n".join((value or b"{}").replace(b"\n", b" ") for value in values)
        try:
            return list(decode_lines(lines, self.value).columns)
        except Exception as error:
            between = f"{messages[0].offset()} and {messages[-1].offset()}" if messages else ""
            raise KafkaFailed(
                f"a value of topic {self.topic!r}, partition {partition}, between offsets "
                f"{between} is not a JSON object of the columns that were asked for: {error}"
            ) from error


def _messages(cluster: Kafka, topic: str, partition: int, first: int, last: int) -> Iterator[Any]:
    """Read the messages of a range of offsets, without those that were rolled back."""
    kafka = library()
    errors = kafka.KafkaError
    where = f"topic {topic!r}, partition {partition}"
    with _consumer(cluster) as consumer:
        consumer.assign([kafka.TopicPartition(topic, partition, first)])
        at, trouble, give_up = first, "", time.monotonic() + cluster.timeout_s
        while at < last:
            found = consumer.consume(min(last - at, MOST), WAIT_S)
            for message in found:
                error = message.error()
                if error is None:
                    if message.offset() >= last:
                        return
                    yield message
                    at = message.offset() + 1
                    give_up = time.monotonic() + cluster.timeout_s
                elif error.code() == errors._PARTITION_EOF:
                    # Behind the last row there may be offsets without one.
                    if message.offset() >= last:
                        return
                elif error.code() in (errors._AUTO_OFFSET_RESET, errors.OFFSET_OUT_OF_RANGE):
                    raise OffsetsDeleted(
                        f"{where}: offsets from {at} up to {last} belong to a batch and are not "
                        "all in the topic any more. Keep rows for longer (retention.ms) than a "
                        "run may stand still"
                    )
                elif error.code() in (errors.UNKNOWN_TOPIC_OR_PART, errors._UNKNOWN_PARTITION):
                    raise KafkaFailed(f"{where} is not there: {error.str()}")
                else:
                    trouble = error.str()
            if time.monotonic() > give_up:
                raise KafkaFailed(
                    f"{where}: no answer from {cluster.servers} within {cluster.timeout_s:g} s at "
                    f"offset {at}" + (f": {trouble}" if trouble else "")
                )


#: Consumers of this process that nobody uses now, by cluster and login.
_idle: dict[tuple[Any, ...], list[Any]] = {}
_lock = threading.Lock()


@contextmanager
def _consumer(cluster: Kafka) -> Iterator[Any]:
    """Lend a consumer; one that something went wrong with is not used again."""
    with _lock:
        waiting = _idle.setdefault(cluster.key, [])
        consumer = waiting.pop() if waiting else None
    if consumer is None:
        owned = {
            # A name that the client asks for; nothing is stored under it.
            "group.id": "penstock",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        # What is asked for is there. A request that waits for more would hold up the next batch,
        # which uses the same connection.
        usual = {"fetch.wait.max.ms": FETCH_WAIT_MS}
        consumer = library().Consumer(cluster.client(owned, usual))
    try:
        yield consumer
        consumer.unassign()
    except BaseException:
        consumer.close()
        raise
    with _lock:
        _idle[cluster.key].append(consumer)
