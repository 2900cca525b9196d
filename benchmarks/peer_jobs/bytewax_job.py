"""The two counts on bytewax; its environment runs this by ``python -m bytewax.run``.

Counts are made by `stateful_batch`, which gets all values of a key that wait, and emits one count
for them.
"""

import os
from collections.abc import Iterable
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSource
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic

SERVERS, INTO, OUT, WORKLOAD = (
    os.environ[name] for name in ("PEER_SERVERS", "PEER_INTO", "PEER_OUT", "PEER_WORKLOAD")
)


class Count(StatefulBatchLogic):  # type: ignore[misc]
    """How often a key came."""

    def __init__(self, counted: int | None) -> None:
        self.counted = counted or 0

    def on_batch(self, values: list[Any]) -> tuple[Iterable[int], bool]:
        """Count values, and emit the new count."""
        self.counted += len(values)
        return (self.counted,), StatefulBatchLogic.RETAIN

    def snapshot(self) -> int:
        """Return what is kept for recovery."""
        return self.counted


def keys_of(messages: list[Any]) -> list[tuple[str, None]]:
    """Return the keys of a batch: words of lines, or the value itself."""
    values = (message.value.decode() for message in messages)
    if WORKLOAD == "words":
        return [(word, None) for value in values for word in value.split(" ")]
    return [(value.partition(" ")[0], None) for value in values]


def told(counted: tuple[str, int]) -> Any:
    """Make a message of a count."""
    key, n = counted
    return KafkaSinkMessage(key=key.encode(), value=str(n).encode())


if WORKLOAD == "q5":
    raise NotImplementedError(
        "watermarks of bytewax are of each key: a window over all auctions has no end of its own"
    )
flow = Dataflow("peer")
source = KafkaSource(
    [SERVERS], [INTO], batch_size=10_000, add_config={"isolation.level": "read_committed"}
)
keys = op.flat_map_batch("keys", op.input("in", flow, source), keys_of)
counts = op.stateful_batch("count", keys, Count)
kop.output("out", op.map("told", counts, told), brokers=[SERVERS], topic=OUT)
