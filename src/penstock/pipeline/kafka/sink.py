"""A Kafka topic as a sink: each batch once, in a transaction that carries its number.

1. When a run starts, the driver opens a producer whose transactional id belongs to the checkpoint
   and the topic. Kafka ends what an earlier producer of that id left open, and refuses it from then
   on: a driver that was replaced can write nothing more.
2. A batch is one transaction: its rows, and its number, as an offset of a consumer group of the
   same name. Both become visible together or not at all.
3. Before a batch is written the number is looked at. A batch that is run again after its
   transaction was committed, and before the commit log knew, is not written again.
4. After any error the producer is given up, and the next try begins with step 1. A transaction
   whose end was not heard of is thereby committed or rolled back, and its number tells which.

With ``exactly_once=False`` tasks write rows themselves, without a transaction: more rows a second,
and rows that are written again when a batch is run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidValue
from penstock.common.keywords import class_keywords
from penstock.pipeline.json_writer import encode_lines
from penstock.pipeline.kafka.cluster import Kafka, KafkaFailed, library
from penstock.pipeline.steps import Attempt, StagedFile

#: Rows that are handed to the client before it may work on what was delivered.
CHUNK = 1000


#: Milliseconds after which Kafka ends a transaction that nobody ended. Until then consumers of
#: committed rows wait for it, unless a driver takes over before.
TRANSACTION_MS = 60_000


class OutputFenced(RuntimeError):
    """Another driver or sink writes to the topic, or a transaction took too long for Kafka.

    Kafka does not tell which. The batch is tried again: a driver that was replaced is then stopped
    by its commit log.
    """


@class_keywords
@dataclass(eq=False)
class KafkaSink:
    """Writes rows to a topic.

    A row with the columns ``value`` and, if there is one, ``key`` (bytes or strings) is written as
    they are. Other rows are written as JSON objects of all columns, and `key` says which of them is
    the key of the message, too.

    Parameters
    ----------
    cluster : Kafka
    topic : str
    key : str, optional
        Column that decides on the partition, for rows that are written as JSON.
    exactly_once : bool
        See the module; without it rows may be written more than once.
    name : str
        Tells sinks of one pipeline apart that write to one topic.
    """

    cluster: Kafka
    topic: str
    key: str | None = None
    exactly_once: bool = True
    name: str = ""
    _id: str = field(default="", init=False, repr=False)
    _producer: Any = field(default=None, init=False, repr=False)
    _group: Any = field(default=None, init=False, repr=False)
    _written: int = field(default=-1, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic:
            raise InvalidValue("topic", "a Kafka sink", "the name of a topic", self.topic)

    @property
    def on_workers(self) -> bool:
        """Whether tasks write the rows: only where they may be written twice."""
        return not self.exactly_once

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_producer": None, "_group": None}

    def start(self, checkpoint: str) -> None:
        """Take over the transactions of the checkpoint.

        Raises
        ------
        KafkaFailed
            When no broker answers in time.
        """
        parts = ("penstock", checkpoint, self.topic, self.name)
        self._id = "-".join(part for part in parts if part)
        if not self.exactly_once:
            return
        try:
            self._open()
        except library().KafkaException as error:
            raise KafkaFailed(
                f"topic {self.topic!r} at {self.cluster.servers} cannot be written in "
                f"transactions: {error.args[0].str()}"
            ) from error

    def stage(self, attempt: Attempt, instance: int, table: pa.Table) -> StagedFile | None:
        """Write one instance's rows, and wait until they are there."""
        kafka = library()
        if table.num_rows:
            self._deliver(kafka.Producer(self._client()), table)
        return None

    def commit(
        self, attempt: Attempt, table: pa.Table | None, staged: Sequence[StagedFile] = ()
    ) -> None:
        """Write a batch and its number in one transaction, unless that was done before.

        Raises
        ------
        OutputFenced
            When another driver has taken over.
        KafkaFailed
            When the topic cannot be written at all.
        """
        if not self.exactly_once or table is None or not table.num_rows:
            return
        kafka = library()
        try:
            if self._producer is None:
                self._open()
            if attempt.batch_id <= self._written:
                return
            self._producer.begin_transaction()
            self._produce(self._producer, table)
            number = kafka.TopicPartition(self.topic, 0, attempt.batch_id + 1)
            limit_s = self.cluster.timeout_s
            self._producer.send_offsets_to_transaction([number], self._group, limit_s)
            self._producer.commit_transaction(limit_s)
            self._written = attempt.batch_id
        except BaseException as error:
            self._producer = self._group = None
            self._raise_if_final(error)
            raise

    def recover(self, committed: int) -> None:
        """Do nothing: what is visible stays, and its number is known."""

    # ---- the client

    def _open(self) -> None:
        """Make a producer, which fences those before it, and see which batch was written last."""
        kafka, limit_s = library(), self.cluster.timeout_s
        producer = kafka.Producer(self._client(**{"transactional.id": self._id}))
        try:
            producer.init_transactions(limit_s)
        except kafka.KafkaException as error:
            self._raise_if_final(error)
            raise
        only_asks = {"enable.auto.commit": False, "isolation.level": "read_committed"}
        reader = kafka.Consumer(self.cluster.client({"group.id": self._id, **only_asks}))
        try:
            (found,) = reader.committed([kafka.TopicPartition(self.topic, 0)], timeout=limit_s)
            self._group = reader.consumer_group_metadata()
        finally:
            reader.close()
        if found.error is not None:
            raise kafka.KafkaException(found.error)
        # Without a number Kafka answers with a negative one.
        self._written = max(int(found.offset), 0) - 1
        self._producer = producer

    def _client(self, **owned: Any) -> dict[str, Any]:
        wait_ms = int(self.cluster.timeout_s * 1000)
        # A transaction that follows on another waits for it by tries, a tenth of a second apart.
        usual = {"linger.ms": 5, "delivery.timeout.ms": wait_ms, "retry.backoff.ms": 20}
        if "transactional.id" in owned:
            usual["transaction.timeout.ms"] = TRANSACTION_MS
        return self.cluster.client({"enable.idempotence": True, **owned}, usual)

    def _produce(self, producer: Any, table: pa.Table, **more: Any) -> None:
        """Hand over rows, to be delivered by and by."""
        for number, (key, value) in enumerate(self._rows(table)):
            while True:
                try:
                    producer.produce(self.topic, value, key, **more)
                    break
                except BufferError:
                    # The client holds as many as it may: let it send some.
                    producer.poll(0.1)
            if number % CHUNK == 0:
                producer.poll(0)

    def _deliver(self, producer: Any, table: pa.Table) -> None:
        """Hand over rows, and wait until all were delivered; without a transaction."""
        failed: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)

        self._produce(producer, table, on_delivery=delivered)
        left = producer.flush(self.cluster.timeout_s)
        if failed:
            raise library().KafkaException(failed[0])
        if left:
            raise TimeoutError(
                f"{left} rows were not taken by {self.cluster.servers} within "
                f"{self.cluster.timeout_s:g} s"
            )

    def _rows(self, table: pa.Table) -> Iterator[tuple[bytes | str | None, bytes | str | None]]:
        """Key and value of each row."""
        names = table.column_names
        if "value" in names and set(names) <= {"key", "value"}:
            keys = table["key"].to_pylist() if "key" in names else [None] * table.num_rows
            return zip(keys, table["value"].to_pylist(), strict=True)
        values = encode_lines(table).split(b"\n")[: table.num_rows]
        if self.key is None:
            return ((None, value) for value in values)
        if self.key not in names:
            raise KafkaFailed(
                f"the key of topic {self.topic!r} is to be the column {self.key!r}; there are "
                + ", ".join(names)
            )
        keys = table[self.key].to_pylist()
        texts = [one if isinstance(one, bytes | str | None) else str(one) for one in keys]
        return zip(texts, values, strict=True)

    def _raise_if_final(self, error: BaseException) -> None:
        """Raise an error that no further try mends."""
        kafka = library()
        if not isinstance(error, kafka.KafkaException):
            return
        what = error.args[0]
        codes = kafka.KafkaError
        if what.code() in (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH):
            raise OutputFenced(
                f"another driver writes to topic {self.topic!r} for this checkpoint, or another "
                "sink of this pipeline does, or the transaction took too long: stop one of the "
                "drivers, give each sink a name, or raise transaction.timeout.ms"
            ) from error
        denied = (codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, codes.TOPIC_AUTHORIZATION_FAILED)
        gone = (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC)
        if what.code() in (*denied, *gone):
            raise KafkaFailed(f"topic {self.topic!r} cannot be written: {what.str()}") from error
