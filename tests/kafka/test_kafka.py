"""Kafka as source and sink, against a real broker, without Spark."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import functions as F
from penstock.common.errors import InvalidValue, NotAllowed
from penstock.engine.driver.fingerprint import PipelineChanged
from penstock.engine.errors import SinkFailed, StepFailed
from penstock.engine.job_graph import JobGraph
from penstock.engine.source_queue import PartitionedQueue, even_shares
from penstock.pipeline import Attempt, Kafka, Memory, Pipeline, Secret
from penstock.pipeline.kafka.cluster import KafkaFailed, OffsetsDeleted, TopicChanged
from penstock.pipeline.kafka.sink import KafkaSink, OutputFenced
from penstock.pipeline.kafka.source import KafkaSource
from penstock.pipeline.steps import PARTITION
from penstock.runtimes.local import run_locally
from penstock.runtimes.spark.serialize import packed
from penstock.testing import kafka_broker
from penstock.testing.kafka_broker import PASSWORD, USER, Broker

pytestmark = pytest.mark.slow

Make = Callable[..., str]
Send = Callable[..., None]
Read = Callable[[str], list[tuple[str | None, str]]]


@pytest.fixture
def kafka(broker: Broker) -> Kafka:
    return Kafka(broker.servers, timeout_s=20.0)


def taken(source: KafkaSource, queue: PartitionedQueue | None = None) -> list[str]:
    """Read what waits, and return its values."""
    queue = queue or PartitionedQueue(source)
    tables = [source.read(*cut) for cut in queue.take(0.0)]
    return [value for table in tables for value in table["value"].to_pylist()]


# Without a broker.


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the jars nor Maven: a sentence, which the fixture skips or fails with."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("there is no Java")
    (tmp_path / "java").symlink_to(java)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "could not be had: Maven did not get org.apache.kafka" in kafka_broker.missing()
    (tmp_path / "java").unlink()
    assert "needs Java" in kafka_broker.missing()


def test_settings_that_rest_on_penstock_are_refused() -> None:
    with pytest.raises(NotAllowed, match=r"'isolation\.level' of Kafka is decided by Penstock"):
        Kafka("broker:9092", settings={"isolation.level": "read_uncommitted"})
    with pytest.raises(InvalidValue, match="servers of Kafka"):
        Kafka("")
    with pytest.raises(InvalidValue, match="one of earliest, latest, got 'begining'"):
        Kafka("broker:9092").source("t", begin="begining")
    with pytest.raises(InvalidValue, match="without partition, offset, timestamp"):
        Kafka("broker:9092").source("t", value=pa.schema([("offset", pa.int64())]))


def test_secrets_are_not_shown() -> None:
    kafka = Kafka("broker:9092", settings={"sasl.username": "me", "sasl.password": "hush-hush"})
    for thing in (
        kafka,
        kafka.source("t"),
        kafka.sink("t"),
        Pipeline("p").source("s", kafka.source("t")),
    ):
        assert "hush-hush" not in repr(thing) + str(thing)
    assert pickle.loads(pickle.dumps(kafka)).settings == kafka.settings


def test_a_batch_takes_partitions_evenly() -> None:
    assert even_shares({0: 100, 1: 100, 2: 1}, 21) == {0: 10, 1: 10, 2: 1}
    assert sum(even_shares({n: n * 7 for n in range(9)}, 100).values()) == 100


# The source.


def test_rows_and_where_they_are(kafka: Kafka, topic: Make, send: Send) -> None:
    name = topic(2)
    send(name, ["a1", "a2"], 0)
    send(name, ["b1"], 1)
    source = kafka.source(name, value="text")
    queue = PartitionedQueue(source)
    cuts = queue.take(0.0)
    assert cuts == ((0, 2), (PARTITION, PARTITION + 1))
    rows = [row for cut in cuts for row in source.read(*cut).to_pylist()]
    assert [(r["key"], r["value"], r["partition"], r["offset"]) for r in rows] == [
        ("a", "a1", 0, 0),
        ("a", "a2", 0, 1),
        ("b", "b1", 1, 0),
    ]
    assert rows[0]["timestamp"].tzinfo is not None
    assert queue.take(0.0) == ()
    binary = kafka.source(name).read(0, 2)
    assert binary["value"].to_pylist() == [b"a1", b"a2"]
    assert pickle.loads(pickle.dumps(source)).read(1, 2).equals(source.read(1, 2))


def test_json_objects_become_columns(kafka: Kafka, topic: Make, send: Send) -> None:
    name = topic()
    send(name, ['{"user": "u", "n": 3}', '{"n":\n 4}'])
    columns = pa.schema([("user", pa.string()), ("n", pa.int64())])
    source = kafka.source(name, value=columns)
    assert source.read(0, 2).select(["user", "n", "offset"]).to_pylist() == [
        {"user": "u", "n": 3, "offset": 0},
        {"user": None, "n": 4, "offset": 1},
    ]
    send(name, ["{not json"])
    with pytest.raises(KafkaFailed, match=r"between offsets 2 and 2 is not a JSON object"):
        source.read(2, 3)


def test_only_committed_rows_and_the_same_ones_again(
    kafka: Kafka, topic: Make, send: Send, broker: Broker
) -> None:
    from confluent_kafka import Producer

    name = topic()
    send(name, ["a", "b"], commit=True)
    send(name, ["no", "never"], commit=False)
    send(name, ["c"], commit=True)
    open_ended = Producer({"bootstrap.servers": broker.servers, "transactional.id": name})
    open_ended.init_transactions(20)
    open_ended.begin_transaction()
    open_ended.produce(name, "later")
    assert open_ended.flush(20) == 0
    source = kafka.source(name, value="text")
    queue = PartitionedQueue(source)
    (cut,) = queue.take(0.0)
    first = source.read(*cut)
    assert first["value"].to_pylist() == ["a", "b", "c"]
    assert queue.take(0.0) == ()
    open_ended.commit_transaction(20)
    assert source.read(*cut).equals(first)
    # However it is cut, the parts together are the whole.
    parts = [source.read(at, at + 1) for at in range(*cut)]
    assert pa.concat_tables(parts).equals(first.combine_chunks())
    assert taken(source, queue) == ["later"]


def test_a_compacted_topic_is_refused(kafka: Kafka, topic: Make) -> None:
    name = topic(**{"cleanup.policy": "compact"})
    with pytest.raises(NotAllowed, match=rf"{name}' is compacted"):
        PartitionedQueue(kafka.source(name)).take(0.0)


def test_new_partitions_are_read_from_their_beginning(
    kafka: Kafka, topic: Make, send: Send, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka.cimpl import NewPartitions

    monkeypatch.setattr("penstock.pipeline.kafka.offsets.REFRESH_S", 0.0)
    name = topic()
    send(name, ["old"])
    source = kafka.source(name, value="text", begin="latest")
    queue = PartitionedQueue(source)
    assert queue.take(0.0) == ((1, 1),)
    client = broker.admin
    client.create_partitions([NewPartitions(name, 2)])[name].result(20)
    send(name, ["new"], 1)
    send(name, ["newer"], 0)
    assert sorted(taken(source, queue)) == ["new", "newer"]


def test_deleted_offsets(
    kafka: Kafka, topic: Make, send: Send, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import TopicPartition

    monkeypatch.setattr("penstock.pipeline.kafka.offsets.REFRESH_S", 0.0)
    name = topic()
    send(name, ["a", "b", "c", "d"])
    source = kafka.source(name, value="text")
    # A run that has read one row, and rows 1 and 2 are gone.
    stopping, skipping = (
        PartitionedQueue(source, reached={0: 1}),
        PartitionedQueue(kafka.source(name, value="text", when_deleted="skip"), reached={0: 1}),
    )
    client = broker.admin
    client.delete_records([TopicPartition(name, 0, 3)])[TopicPartition(name, 0, 3)].result(20)
    with pytest.raises(OffsetsDeleted, match="offsets from 1 up to 3 were deleted"):
        stopping.take(0.0)
    assert taken(source, skipping) == ["d"]
    assert skipping.dropped == 2
    # A range that belongs to a batch is never read with fewer rows.
    with pytest.raises(OffsetsDeleted, match="offsets from 1 up to 4 belong to a batch"):
        source.read(1, 4)
    # A new run begins with what is there.
    assert taken(source) == ["d"]


def test_a_topic_that_was_made_anew(
    kafka: Kafka, topic: Make, send: Send, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.pipeline.kafka.offsets.SETTLE_S", 0.3)
    name = topic()
    send(name, ["a"])
    queue = PartitionedQueue(kafka.source(name), reached={0: 7})
    with pytest.raises(TopicChanged, match="ends at offset 1, and 7 was read already"):
        queue.take(0.0)
    with pytest.raises(TopicChanged, match="cannot be read"):
        PartitionedQueue(kafka.source("no-such-topic")).take(0.0)


def login(over: str, password: Any = PASSWORD, **more: str) -> dict[str, Any]:
    asked = {"security.protocol": over, "sasl.mechanism": "PLAIN", "sasl.username": USER}
    return {**asked, "sasl.password": password, **more}


def test_passwords_pass_through_and_never_show(
    broker: Broker, topic: Make, send: Send, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    send(name, ["a"])
    asked = login("SASL_PLAINTEXT")
    source = Kafka(broker.sasl_servers, settings=asked).source(name, value="text")
    assert taken(source) == ["a"]
    caplog.set_level(logging.DEBUG)
    wrong = Kafka(
        broker.sasl_servers, settings=login("SASL_PLAINTEXT", "wrong-secret"), timeout_s=1.0
    )
    with pytest.raises(KafkaFailed) as refused:
        taken(wrong.source(name))
    with pytest.raises(KafkaFailed) as refused_too:
        wrong.sink(name).start("check")
    with pytest.raises(KafkaFailed) as refused_as_well:
        wrong.source(name).read(0, 1)
    told = f"{refused.value} {refused_too.value} {refused_as_well.value} {caplog.text}"
    assert "wrong-secret" not in told


def test_secrets_are_read_where_they_are_used(
    broker: Broker,
    topic: Make,
    send: Send,
    committed: Read,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over TLS, with the name of a password; nothing that is written or sent has the password."""
    into, out = topic(), topic()
    send(into, ["a", "b", "a"])
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    trust = {"ssl.ca.location": str(broker.certificate)}
    asked = login("SASL_SSL", Secret(environment="KAFKA_PASSWORD"), **trust)
    kafka = Kafka(broker.tls_servers, settings=asked)
    pipeline = counting(kafka, into, kafka.sink(out, key="value"))
    assert PASSWORD.encode() not in packed(JobGraph.of(pipeline))
    run_locally(pipeline, root=tmp_path)
    assert {json.loads(v)["value"]: json.loads(v)["n"] for _, v in committed(out)} == {
        "a": 2,
        "b": 1,
    }
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert written
    assert not [file for file in written if PASSWORD.encode() in file.read_bytes()]
    monkeypatch.delenv("KAFKA_PASSWORD")
    with pytest.raises(NotAllowed, match="environment variable KAFKA_PASSWORD is empty or not set"):
        Kafka(kafka.servers, settings={**asked, "client.id": "new"}).source(into).read(0, 1)


def test_a_certificate_that_is_not_trusted(broker: Broker, topic: Make) -> None:
    stranger = Kafka(broker.tls_servers, settings=login("SASL_SSL"), timeout_s=1.0)
    with pytest.raises(KafkaFailed, match="no answer"):
        taken(stranger.source(topic()))


# The sink.


def test_a_batch_is_written_once(kafka: Kafka, topic: Make, committed: Read) -> None:
    name = topic()
    rows = pa.table({"key": ["k", None], "value": ["v", "w"]})
    sink = kafka.sink(name)
    sink.start("check")
    sink.commit(Attempt(0, 0, 1), rows)
    sink.commit(Attempt(0, 1, 1), rows)
    # A driver that starts again, and does not know that batch 1 was written.
    sink.commit(Attempt(1, 2, 1), rows)
    again = kafka.sink(name)
    again.start("check")
    again.commit(Attempt(1, 3, 2), rows)
    again.commit(Attempt(2, 4, 2), rows)
    assert committed(name) == [("k", "v"), (None, "w")] * 3
    # The driver before is refused, and another checkpoint writes for itself.
    with pytest.raises(OutputFenced, match="another driver writes"):
        sink.commit(Attempt(2, 5, 1), rows)
    other = kafka.sink(name)
    other.start("another")
    other.commit(Attempt(0, 0, 1), rows)
    assert len(committed(name)) == 8


def test_rows_as_json_with_a_key(kafka: Kafka, topic: Make, committed: Read) -> None:
    name = topic()
    sink = kafka.sink(name, key="word")
    sink.start("check")
    sink.commit(Attempt(0), pa.table({"word": ["to", "be"], "count": [2, 1]}))
    assert [(k, json.loads(v)) for k, v in committed(name)] == [
        ("to", {"word": "to", "count": 2}),
        ("be", {"word": "be", "count": 1}),
    ]
    with pytest.raises(KafkaFailed, match="is to be the column 'word'; there are n"):
        sink.commit(Attempt(1), pa.table({"n": [1]}))
    nowhere = Kafka(kafka.servers, timeout_s=4.0).sink("no-such-topic")
    nowhere.start("check")
    with pytest.raises((KafkaFailed, Exception), match=r"no-such-topic|Unknown|unknown"):
        nowhere.commit(Attempt(0), pa.table({"n": [1]}))


def counting(kafka: Kafka, topic: str, out: Any) -> Pipeline:
    return (
        Pipeline("counting")
        .source("words", kafka.source(topic, value="text", until="latest"))
        .aggregate("count", by="value", n=F.count())
        .sink("out", out)
    )


@pytest.mark.parametrize("exactly_once", [True, False])
def test_from_topic_to_topic(
    kafka: Kafka, topic: Make, send: Send, committed: Read, tmp_path: Path, exactly_once: bool
) -> None:
    into, out = topic(3), topic(2)
    words = [f"w{n % 5}" for n in range(60)]
    for partition in range(3):
        send(into, words[partition::3], partition, commit=True)
    pipeline = counting(kafka, into, kafka.sink(out, key="value", exactly_once=exactly_once))
    run_locally(pipeline, root=tmp_path)
    found = {row["value"]: row["n"] for row in (json.loads(v) for _, v in committed(out))}
    assert found == Counter(words)
    # Goes on where it was, also with what came meanwhile.
    send(into, ["w1", "new"], 2)
    run_locally(pipeline, root=tmp_path)
    rows = Counter((row["value"], row["n"]) for row in (json.loads(v) for _, v in committed(out)))
    assert rows == Counter([*found.items(), ("w1", 13), ("new", 1)])


def test_another_topic_on_the_checkpoint_is_refused(
    kafka: Kafka, topic: Make, send: Send, tmp_path: Path
) -> None:
    one, two = topic(), topic()
    send(one, ["a"])
    run_locally(counting(kafka, one, Memory()), root=tmp_path)
    with pytest.raises(PipelineChanged, match="words"):
        run_locally(counting(kafka, two, Memory()), root=tmp_path)


def test_a_broker_that_is_not_there(
    kafka: Kafka, topic: Make, send: Send, broker: Broker, committed: Read, tmp_path: Path
) -> None:
    """Stopped: each part says so in time, and goes on when the broker is back."""
    into, out = topic(), topic()
    send(into, ["a", "b"])
    quick = Kafka(broker.servers, timeout_s=4.0)
    source, sink = quick.source(into, value="text"), quick.sink(out)
    queue = PartitionedQueue(source)
    (cut,) = queue.take(0.0)
    sink.start("check")
    rows = pa.table({"value": ["x"]})
    broker.stop()
    try:
        with pytest.raises(KafkaFailed, match="no answer"):
            source.read(*cut)
        with pytest.raises(KafkaFailed, match="no answer"):
            queue.take(0.0)
        with pytest.raises(KafkaFailed, match="cannot be written in transactions"):
            quick.sink(out).start("another")
        with pytest.raises(Exception, match=r".") as refused:
            sink.commit(Attempt(0), rows)
        assert not isinstance(refused.value, NotAllowed | StepFailed | SinkFailed)
    finally:
        broker.start()
    assert source.read(*cut)["value"].to_pylist() == ["a", "b"]
    send(into, ["c"])
    assert taken(source, queue) == ["c"]
    sink.commit(Attempt(0), rows)
    assert committed(out) == [(None, "x")]


def test_sinks_travel_without_their_producer(kafka: Kafka, topic: Make) -> None:
    sink = kafka.sink(topic(), exactly_once=False)
    sink.start("check")
    copy = pickle.loads(pickle.dumps(sink))
    assert isinstance(copy, KafkaSink)
    assert copy.on_workers
