"""What an attached query read of each partition of its Kafka topics, and how far it is behind.

Spark's progress report has the offsets of every partition: where a batch began and ended, and what
was there when it was planned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Partitions whose figures are kept with a batch: those that are furthest behind.
KEPT = 10


@dataclass(frozen=True)
class TopicPartition:
    """One partition of a topic in one batch.

    Parameters
    ----------
    topic : str
    number : int
    rows : int
        Offsets that the batch read.
    lag : int
        Offsets that were there and were left for a later batch.
    """

    topic: str
    number: int
    rows: int
    lag: int


def topic_partitions(progress: Mapping[str, Any]) -> tuple[TopicPartition, ...]:
    """Read the partitions of all Kafka sources from a progress report; others have none.

    Examples
    --------
    >>> source = {"startOffset": {"t": {"0": 5, "1": 5}}, "endOffset": {"t": {"0": 9, "1": 6}},
    ...     "latestOffset": '{"t":{"0":9,"1":16}}'}
    >>> [(p.number, p.rows, p.lag) for p in topic_partitions({"sources": [source]})]
    [(0, 4, 0), (1, 1, 10)]
    """
    found = []
    for source in progress.get("sources", ()):
        starts, ends, latest = (
            _offsets(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset")
        )
        for place, end in sorted(ends.items()):
            # A partition that is new in this batch has no start: how much was read is unknown.
            rows = end - starts.get(place, end)
            found.append(TopicPartition(*place, rows, max(0, latest.get(place, end) - end)))
    return tuple(found)


def topic_figures(progress: Mapping[str, Any]) -> dict[str, float]:
    """Return figures of a batch: lag and skew over all partitions, and those furthest behind.

    ``topic_skew`` is what the partition with most rows had, in units of the mean: a source task
    reads one partition, so that a batch lasts as long as the largest of them.
    """
    partitions = topic_partitions(progress)
    if not partitions:
        return {}
    rows = [one.rows for one in partitions]
    figures = {
        "topic_partitions": float(len(partitions)),
        "topic_lag": float(sum(one.lag for one in partitions)),
        "topic_lag_largest": float(max(one.lag for one in partitions)),
    }
    if sum(rows):
        figures["topic_skew"] = max(rows) * len(rows) / sum(rows)
    furthest = sorted(partitions, key=lambda one: (-one.lag, -one.rows, one.topic, one.number))
    for one in furthest[:KEPT]:
        figures[f"topic_lag_{one.topic}-{one.number}"] = float(one.lag)
        figures[f"topic_rows_{one.topic}-{one.number}"] = float(one.rows)
    return figures


def _offsets(value: Any) -> dict[tuple[str, int], int]:
    """Take offsets as Spark prints them: by topic and partition, as a value or as its text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, dict):
        return {}
    return {
        (topic, int(number)): at
        for topic, partitions in value.items()
        if isinstance(partitions, dict)
        for number, at in partitions.items()
        if isinstance(at, int) and str(number).isdigit()
    }
