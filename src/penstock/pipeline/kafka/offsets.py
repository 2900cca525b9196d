"""Which offsets of a topic are there, as the driver asks for them before every batch."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from penstock.common.errors import NotAllowed
from penstock.pipeline.kafka.cluster import (
    Kafka,
    KafkaFailed,
    OffsetsDeleted,
    TopicChanged,
    library,
)

#: Seconds between two looks at what seldom changes: partitions, deleted rows, the topic's settings.
REFRESH_S = 5.0

#: Seconds for which a topic that seems to end before what was read is asked again, and the pause in
#: between. A broker that has just become the leader may not know yet how far its rows are stable.
SETTLE_S, AGAIN_S = 5.0, 0.2


class TopicOffsets:
    """Asks for the offsets of a topic; lives in the driver.

    Parameters
    ----------
    cluster : Kafka
    topic : str
    begin : str
        Where partitions begin that are there at the first look: ``earliest`` or ``latest``. Those
        that come later begin at their first row.
    skip : bool
        Go on after rows that were deleted before they were taken, instead of an error.
    """

    def __init__(self, cluster: Kafka, topic: str, begin: str, *, skip: bool) -> None:
        self._cluster, self._topic, self._begin, self._skip = cluster, topic, begin, skip
        self._client: Any = None
        self._looked = -REFRESH_S
        self._earliest: dict[int, int] = {}

    def look(self, reached: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Return where each partition goes on, and the offset up to which its rows are stable.

        Parameters
        ----------
        reached : mapping of int to int
            Offsets up to which batches have taken the partitions; empty when a run begins.

        Raises
        ------
        OffsetsDeleted
            When rows were deleted that no batch has taken, and they are not to be skipped.
        TopicChanged
            When the topic is gone, or one of its partitions, or ends before what was taken of it.
        NotAllowed
            When it is compacted.
        KafkaFailed
            When no broker answers in time.
        """
        give_up = time.monotonic() + SETTLE_S
        while (shrunk := self._shrunk(reached, latest := self._latest())) is not None:
            if time.monotonic() >= give_up:
                raise shrunk
            self._looked = -REFRESH_S
            time.sleep(AGAIN_S)
        found: dict[int, tuple[int, int]] = {}
        for partition, end in sorted(latest.items()):
            earliest = self._earliest[partition]
            start = reached.get(partition)
            if start is None:
                new = bool(reached) or self._begin == "earliest"
                start = earliest if new else end
            found[partition] = (self._from(partition, start, earliest), end)
        return found

    def _latest(self) -> dict[int, int]:
        if time.monotonic() - self._looked >= REFRESH_S or not self._earliest:
            self._refresh()
        return self._ends(self._earliest, "latest")

    def _shrunk(self, reached: Mapping[int, int], latest: Mapping[int, int]) -> TopicChanged | None:
        """Say which partition is gone, or ends before what was read of it."""
        for partition, start in sorted(reached.items()):
            end = latest.get(partition)
            if end is None or end < start:
                ends = "is not there" if end is None else f"ends at offset {end}"
                return TopicChanged(
                    f"topic {self._topic!r}, partition {partition} {ends}, and {start} was read "
                    "already: the topic was made anew or has lost rows. Start with another "
                    "checkpoint, or with forget=[the source]"
                )
        return None

    def _from(self, partition: int, start: int, earliest: int) -> int:
        if start >= earliest:
            return start
        if not self._skip:
            raise OffsetsDeleted(
                f"topic {self._topic!r}, partition {partition}: offsets from {start} up to "
                f"{earliest} were deleted before they were read. Keep rows for longer "
                "(retention.ms), or go on without them by when_deleted='skip', which counts them "
                "as dropped"
            )
        return earliest

    def _refresh(self) -> None:
        """See which partitions there are, where they begin, and that the topic is not compacted."""
        admin = self._admin()
        try:
            about = admin.list_topics(self._topic, timeout=self._cluster.timeout_s)
        except Exception as error:
            self._give_up_client()
            raise KafkaFailed(f"no answer from {self._cluster.servers}: {_told(error)}") from error
        topic = about.topics[self._topic]
        if topic.error is not None or not topic.partitions:
            why = "it has no partitions" if topic.error is None else topic.error.str()
            raise TopicChanged(f"topic {self._topic!r} cannot be read: {why}")
        self._refuse_compacted()
        self._earliest = self._ends(topic.partitions, "earliest")
        self._looked = time.monotonic()

    def _refuse_compacted(self) -> None:
        admin = library(".admin")
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, self._topic)
        asked = self._admin().describe_configs([resource])[resource]
        policy = self._answer(asked)["cleanup.policy"].value
        if "compact" in policy:
            raise NotAllowed(
                f"topic {self._topic!r} is compacted (cleanup.policy={policy}): rows that a batch "
                "has read may be gone when it is run again, so its results could differ. Read a "
                "topic with cleanup.policy=delete"
            )

    def _ends(self, partitions: Collection[int], which: str) -> dict[int, int]:
        """Ask for the first or the last stable offset of partitions, all in one request."""
        kafka, admin = library(), library(".admin")
        spec = getattr(admin.OffsetSpec, which)()
        wanted = {kafka.TopicPartition(self._topic, number): spec for number in partitions}
        committed = kafka.IsolationLevel.READ_COMMITTED
        asked = self._admin().list_offsets(
            wanted, isolation_level=committed, request_timeout=self._cluster.timeout_s
        )
        found = {at.partition: int(self._answer(of).offset) for at, of in asked.items()}
        if min(found.values()) < 0:
            # So the client answers when the connection breaks while it waits.
            self._give_up_client()
            raise KafkaFailed(
                f"topic {self._topic!r}: no answer from {self._cluster.servers}: the connection "
                "broke while its offsets were asked for"
            )
        return found

    def _answer(self, asked: Any) -> Any:
        try:
            return asked.result(self._cluster.timeout_s + 1.0)
        except Exception as error:
            self._give_up_client()
            raise KafkaFailed(
                f"topic {self._topic!r}: no answer from {self._cluster.servers}: {_told(error)}"
            ) from error

    def _give_up_client(self) -> None:
        self._client, self._looked = None, -REFRESH_S

    def _admin(self) -> Any:
        if self._client is None:
            self._client = library(".admin").AdminClient(self._cluster.client({}))
        return self._client


def _told(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    return str(cause.str()) if hasattr(cause, "str") else str(error)
