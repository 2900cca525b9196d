"""The pipeline of the kill tests: every row goes to one topic, what was counted to another."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable

import pyarrow as pa

from penstock import functions as F
from penstock.pipeline import Kafka, Pipeline

#: Reads key and value of all committed rows of a topic.
Read = Callable[[str], list[tuple[str | None, str]]]

#: What is sent.
WORDS = [f"w{number % 37}" for number in range(6000)]


def values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave only what was sent."""
    return batch.select(["value"])


def counting(
    kafka: Kafka,
    into: str,
    rows: str,
    counts: str,
    until: str | None,
    *,
    exactly_once: bool = True,
) -> Pipeline:
    """Make the pipeline."""
    return (
        Pipeline("counting")
        .source("words", kafka.source(into, value="text", until=until), parallelism=2)
        .map("values", values)
        .sink("rows", kafka.sink(rows, exactly_once=exactly_once))
        .aggregate("count", after="values", by="value", n=F.count(), parallelism=2)
        .sink("counts", kafka.sink(counts, key="value"))
    )


def assert_each_once(committed: Read, rows: str, counts: str) -> None:
    """Compare what consumers of committed rows see with what was sent."""
    assert Counter(value for _, value in committed(rows)) == Counter(WORDS)
    assert_counts(committed, counts)


def assert_counts(committed: Read, counts: str) -> None:
    """Each new count of a word was written once, and the last ones are those of what was sent."""
    sent = Counter(WORDS)
    told = [(row["value"], row["n"]) for row in (json.loads(v) for _, v in committed(counts))]
    assert max(Counter(told).values()) == 1
    assert {word: max(n for w, n in told if w == word) for word in sent} == sent


def committed_rows(servers: str, topic: str) -> list[tuple[str | None, str]]:
    """Read key and value of all committed rows of a topic, as a consumer of it does."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        numbers = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in numbers])
        rows, left = [], set(numbers)
        while left:
            message = consumer.poll(20)
            assert message is not None, "no answer within 20 s"
            error = message.error()
            if error is None:
                key, value = message.key(), message.value() or b""
                rows.append((None if key is None else key.decode(), value.decode()))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
        return rows
    finally:
        consumer.close()
