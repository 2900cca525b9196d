"""A real broker for the tests of this folder, and what they do with it again and again."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from tests.kafka.counting import committed_rows

from penstock.testing import kafka_broker
from penstock.testing.kafka_broker import Broker


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    """One broker for the tests of this folder; those that stop it start it again."""
    if why := kafka_broker.missing():
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    from confluent_kafka import Producer

    with kafka_broker.broker(tls=True) as made:
        # The first transaction of a broker makes its own topics, which takes long when it is busy.
        first = Producer({"bootstrap.servers": made.servers, "transactional.id": "first"})
        first.init_transactions(120)
        yield made


@pytest.fixture
def topic(broker: Broker) -> Callable[..., str]:
    """Make topics with names of their own."""

    def make(partitions: int = 1, **config: str) -> str:
        name = f"topic-{uuid.uuid4().hex[:8]}"
        broker.create(name, partitions, **config)
        return name

    return make


@pytest.fixture
def send(broker: Broker) -> Callable[..., None]:
    """Write values to a partition; in transactions of `commit`, or rolled back."""
    from confluent_kafka import Producer

    def write(
        topic: str, values: Sequence[str], partition: int = 0, commit: bool | None = None
    ) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": broker.servers}
        if commit is not None:
            settings["transactional.id"] = uuid.uuid4().hex
        producer = Producer(settings)
        if commit is not None:
            producer.init_transactions(20)
            producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, key=value[:1], partition=partition)
        assert producer.flush(20) == 0
        if commit:
            producer.commit_transaction(20)
        elif commit is not None:
            producer.abort_transaction(20)

    return write


@pytest.fixture
def committed(broker: Broker) -> Callable[[str], list[tuple[str | None, str]]]:
    """Read key and value of all committed rows of a topic, as a consumer of it does."""
    return partial(committed_rows, broker.servers)
