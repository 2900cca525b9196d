"""Advice from the lag and the skew of topic partitions, and nodes for what waits."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.runtimes.attached.test_query import attached, feed
from tests.runtimes.attached.test_runtime import Noted
from tests.runtimes.attached.texts import batch, progress

from penstock.control.settings import Settings
from penstock.runtimes.attached.reading import KEPT, Read, advice_on
from penstock.runtimes.attached.topic_partitions import TopicPartition


def reads(
    rows: tuple[int, ...] = (500, 500),
    lags: tuple[int, ...] = (),
    grow: int = 0,
    source_ms: float = 600.0,
    cores: int = 2,
) -> list[Read]:
    """Make batches, in each of which a second passes and every partition falls behind by more."""
    return [
        Read(
            tuple(
                TopicPartition("clicks", number, count, lag + at * grow if lag else 0)
                for number, (count, lag) in enumerate(
                    zip(rows, lags or (0,) * len(rows), strict=True)
                )
            ),
            interval_s=1.0,
            duration_ms=1000.0,
            source_ms=source_ms,
            tasks=len(rows),
            cores=cores,
        )
        for at in range(KEPT)
    ]


def test_nothing_is_said_of_a_query_that_keeps_up() -> None:
    assert dict(advice_on(reads(), waits=True)) == {}
    assert dict(advice_on(reads(lags=(5000, 5000)), waits=False)) == {}, "it does not grow"
    assert dict(advice_on(reads(rows=(0, 0)), waits=True)) == {}
    assert dict(advice_on([], waits=True)) == {}


def test_nothing_is_said_before_enough_was_seen() -> None:
    assert dict(advice_on(reads(rows=(900, 10, 10, 10))[1:], waits=True)) == {}


def test_a_heavy_partition_is_named() -> None:
    (told,) = advice_on(reads(rows=(20, 940, 20, 20)), waits=True)
    name, text = told
    assert name == "heavy clicks"
    assert "partition 1 of topic clicks brought 94% of the rows" in text
    assert "3.8 times the mean" in text
    assert dict(advice_on(reads(rows=(20, 940, 20, 20), source_ms=100.0), waits=True)) == {}, (
        "where reading is a small part of the batch it does not matter"
    )


def test_who_holds_the_query_back_is_told() -> None:
    behind = reads(lags=(9000, 1), grow=300)
    found = dict(advice_on(behind, waits=False))
    assert set(found) == {"behind"}
    assert "14,401 rows wait at the topics" in found["behind"]
    assert "600 more every second, while the query reads 1,000 a second" in found["behind"]
    assert "it needs more executors" in found["behind"]
    capped = dict(advice_on(behind, waits=True))
    assert set(capped) == {"capped"}
    assert "maxOffsetsPerTrigger" in capped["capped"]


def test_the_partition_that_waits_is_named() -> None:
    found = dict(advice_on(reads(lags=(9000, 0), grow=300), waits=False))
    assert "100% of them in partition 0 of topic clicks" in found["behind"]


def test_few_readers_on_many_cores_are_told() -> None:
    (told,) = advice_on(reads(cores=8), waits=False)
    assert told[0] == "few"
    assert "2 tasks read the topics for 60% of the batch, and there are 8 cores" in told[1]


class Falling(Noted):
    """A Spark whose query reads a topic, and stays behind by more and more."""

    def __init__(self, lag: int, grow: int, run_ms: int, duration_ms: int) -> None:
        super().__init__()
        self.lag, self.grow = lag, grow
        self.run_ms, self.duration_ms = run_ms, duration_ms

    def text(self, number: int) -> str:
        end = 600 * (number + 1)
        source: dict[str, Any] = {
            "startOffset": {"clicks": {"0": end - 600}},
            "endOffset": {"clicks": {"0": end}},
            "latestOffset": {"clicks": {"0": end + self.lag + self.grow * number}},
        }
        took = {"triggerExecution": self.duration_ms, "addBatch": self.duration_ms}
        report = progress(number, sources=[source], durationMs=took)
        ran = {name: tuple(own) for name, own in self.ran.items()}
        times = {(name, n): self.run_ms for name, own in ran.items() for n in range(len(own))}
        return batch(number, ran=ran, ids=tuple(self.ids), report=report, run_ms=times)


EAGER = Settings(every=2, cooldown=0, stable_rounds=1, max_nodes=6)


@pytest.mark.parametrize(("lag", "grow"), [(0, 0), (300_000, 0)])
def test_nodes_follow_what_waits(lag: int, grow: int) -> None:
    spark = Falling(lag, grow, run_ms=200, duration_ms=1000)
    query = attached(spark, control=EAGER)
    feed(query, spark, 20)
    assert query.events == []
    if lag:
        assert len(spark.ids) > 3, "1,600 rows a second are to be processed, not 600"
    else:
        assert len(spark.ids) <= 3


def test_no_node_is_asked_for_where_the_trigger_holds_the_query_back() -> None:
    spark = Falling(600_000, 600, run_ms=50, duration_ms=300)
    query = attached(spark, control=EAGER)
    feed(query, spark, 20)
    assert len(spark.ids) <= 3
    (told,) = query.advice
    assert "maxOffsetsPerTrigger" in told
    assert query.events == [next(text for text in query.events if "maxOffsetsPerTrigger" in text)]
    assert "611,400 rows wait" in told, "the latest figures"
