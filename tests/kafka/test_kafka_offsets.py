"""What the driver takes for an answer about offsets, with a client that answers as it is told."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engine.source_queue import PartitionedQueue
from penstock.pipeline import Kafka
from penstock.pipeline.kafka import offsets as asked
from penstock.pipeline.kafka.cluster import KafkaFailed, TopicChanged, library
from penstock.pipeline.kafka.offsets import TopicOffsets

pytest.importorskip("confluent_kafka")

#: What the client says for a partition when the connection breaks while it waits for an answer.
NO_OFFSET = -1001


@dataclass
class Client:
    """Stands in for the admin client; each answer about ends is taken from `ends`, the last stays.

    Parameters
    ----------
    ends : list of dict
        Last stable offsets by partition.
    begins : int
        The first offset of each partition.
    """

    ends: list[dict[int, int]]
    begins: int = 0
    looks: int = field(default=0, init=False)

    @staticmethod
    def asked_for_begins(wanted: dict[Any, Any]) -> bool:
        spec = library(".admin").OffsetSpec
        return {type(one) for one in wanted.values()} == {type(spec.earliest())}

    def list_topics(self, topic: str, timeout: float) -> Any:
        about = SimpleNamespace(error=None, partitions=dict.fromkeys(self.ends[0]))
        return SimpleNamespace(topics={topic: about})

    def describe_configs(self, resources: list[Any]) -> dict[Any, Any]:
        policy = {"cleanup.policy": SimpleNamespace(value="delete")}
        return {one: done(policy) for one in resources}

    def list_offsets(self, wanted: dict[Any, Any], **_: object) -> dict[Any, Any]:
        if self.asked_for_begins(wanted):
            return {at: done(SimpleNamespace(offset=self.begins)) for at in wanted}
        now = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        self.looks += 1
        return {at: done(SimpleNamespace(offset=now[at.partition])) for at in wanted}


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


Look = Callable[..., TopicOffsets]


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Look:
    """Make a source's look at its offsets whose client is the one given."""
    monkeypatch.setattr(asked, "SETTLE_S", 0.3)
    monkeypatch.setattr(asked, "AGAIN_S", 0.01)

    def make(client: Client) -> TopicOffsets:
        offsets: TopicOffsets = Kafka("broker:9092").source("t").offsets()
        monkeypatch.setattr(offsets, "_admin", lambda: client)
        return offsets

    return make


def test_a_broken_connection_is_no_answer(look: Look) -> None:
    """A client whose connection breaks says -1001 and no error: nothing was lost."""
    offsets = look(Client([{0: NO_OFFSET, 1: NO_OFFSET}, {0: 7, 1: 3}]))
    with pytest.raises(KafkaFailed, match="no answer from broker:9092") as failed:
        offsets.look({0: 7, 1: 2})
    assert not isinstance(failed.value, TopicChanged)
    assert offsets.look({0: 7, 1: 2}) == {0: (7, 7), 1: (2, 3)}


def test_a_run_does_not_begin_below_zero(look: Look) -> None:
    client = Client([{0: 5}], begins=NO_OFFSET)
    offsets = look(client)
    with pytest.raises(KafkaFailed, match="no answer"):
        offsets.look({})
    client.begins = 2
    assert offsets.look({}) == {0: (2, 5)}


def test_a_leader_that_lags_is_asked_again(look: Look) -> None:
    client = Client([{0: 4}, {0: 5}, {0: 9}])
    assert look(client).look({0: 8}) == {0: (8, 9)}
    assert client.looks == 3


def test_an_end_before_what_was_read_is_believed_in_the_end(look: Look) -> None:
    client = Client([{0: 4}])
    with pytest.raises(TopicChanged, match="ends at offset 4, and 8 was read already"):
        look(client).look({0: 8})
    assert client.looks > 2


def test_a_partition_that_is_gone_is_not_passed_over(look: Look) -> None:
    """Made anew with fewer partitions: the rows of the others would never come."""
    with pytest.raises(TopicChanged, match="partition 1 is not there, and 3 was read already"):
        look(Client([{0: 9}])).look({0: 8, 1: 3})


def test_the_queue_goes_on_where_it_was(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error leaves what was taken as it is."""
    offsets = look(Client([{0: 4}, {0: NO_OFFSET}, {0: 6}]))
    source = Kafka("broker:9092").source("t")
    monkeypatch.setattr(type(source), "offsets", lambda self: offsets)
    queue = PartitionedQueue(source)
    assert queue.take(0.0) == ((0, 4),)
    with pytest.raises(KafkaFailed):
        queue.take(0.0)
    assert queue.take(0.0) == ((4, 6),)
