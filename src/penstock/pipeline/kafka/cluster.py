"""A Kafka cluster as a client sees it: where it is, how to log in, and what its errors are."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from penstock.common.errors import InvalidValue, NotAllowed, PenstockError
from penstock.common.keywords import class_keywords
from penstock.pipeline.secret import Secret

MISSING = "Kafka needs the package confluent-kafka; install it with: pip install 'penstock[kafka]'"

#: Settings of the client that Penstock decides, because equal rows and exactly once rest on them.
OWNED = (
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "group.instance.id",
    "isolation.level",
    "transactional.id",
)

NONE: Mapping[str, Any] = MappingProxyType({})


class KafkaFailed(PenstockError):
    """Kafka did not do what was asked of it; says what and why."""


class OffsetsDeleted(KafkaFailed):
    """Rows that a batch is to read are not in the topic any more."""


class TopicChanged(KafkaFailed):
    """A topic is not the one that a checkpoint was made with: it is gone, or begins anew."""


@class_keywords
@dataclass(frozen=True, eq=False)
class Kafka:
    """A Kafka cluster: topics of it are read by `source` and written by `sink`.

    Examples
    --------
    >>> kafka = Kafka("broker-1:9092,broker-2:9092", settings={"sasl.password": "not shown"})
    >>> kafka
    Kafka(servers='broker-1:9092,broker-2:9092')
    >>> kafka.source("clicks").schema.names
    ['key', 'value', 'partition', 'offset', 'timestamp']

    Parameters
    ----------
    servers : str
        Addresses to begin with, such as ``broker-1:9092,broker-2:9092``.
    settings : mapping of str to value
        More settings of the client, by the names of librdkafka: ``security.protocol``,
        ``sasl.mechanism``, ``sasl.username``, ``sasl.password``, ``ssl.ca.location`` and others.
        They are sent to the executors with the pipeline, and never printed, logged or written into
        metrics. A `Secret` as a value is sent as the name that it is, and read where a client is
        made.
    timeout_s : float
        Seconds to wait for an answer before an error says so. The run tries again after that, as
        its options of recovery say.
    """

    servers: str
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    timeout_s: float = field(default=10.0, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.servers, str) or not self.servers.strip():
            raise InvalidValue("servers", "Kafka", "such as 'broker:9092'", self.servers)
        if not self.timeout_s > 0:
            raise InvalidValue("timeout_s", "Kafka", "above 0", self.timeout_s)
        owned = sorted(set(self.settings) & set(OWNED))
        if owned:
            raise NotAllowed(
                f"setting {owned[0]!r} of Kafka is decided by Penstock: rows that can be read "
                "again and batches that are written once rest on it; leave it out"
            )
        object.__setattr__(self, "settings", dict(self.settings))

    def source(
        self,
        topic: str,
        *,
        value: str | pa.Schema = "binary",
        begin: str = "earliest",
        until: str | None = None,
        when_deleted: str = "stop",
    ) -> Any:
        """Read a topic; see `penstock.pipeline.kafka.source.KafkaSource`."""
        from penstock.pipeline.kafka.source import KafkaSource

        return KafkaSource(self, topic, value, begin, until, when_deleted)

    def sink(
        self, topic: str, *, key: str | None = None, exactly_once: bool = True, name: str = ""
    ) -> Any:
        """Write to a topic; see `penstock.pipeline.kafka.sink.KafkaSink`."""
        from penstock.pipeline.kafka.sink import KafkaSink

        return KafkaSink(self, topic, key, exactly_once, name)

    def client(self, owned: Mapping[str, Any], usual: Mapping[str, Any] = NONE) -> dict[str, Any]:
        """Return the settings of a client, whose log goes where Python's does.

        Parameters
        ----------
        owned : mapping
            Settings that are Penstock's to decide.
        usual : mapping
            Settings that the user's may replace.
        """
        logger = logging.getLogger("penstock.kafka")
        servers = {"bootstrap.servers": self.servers, "logger": logger}
        given = {n: at.read() if isinstance(at, Secret) else at for n, at in self.settings.items()}
        return {**usual, **given, **servers, **owned}

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells clients of one cluster and one login from others."""
        return (self.servers, *sorted((name, str(at)) for name, at in self.settings.items()))


def library(part: str = "") -> Any:
    """Import the client library, or a part of it; say how to get it if it is not there."""
    try:
        return importlib.import_module("confluent_kafka" + part)
    except ImportError as missing:
        raise NotAllowed(MISSING) from missing
