"""Lag and skew by topic partition, from progress reports as Spark prints them."""

from __future__ import annotations

import pytest

from penstock.runtimes.attached.topic_partitions import (
    KEPT,
    TopicPartition,
    topic_figures,
    topic_partitions,
)

#: As Spark 4 prints them for two topics: values, or the text of one.
REPORT = {
    "sources": [
        {
            "description": "KafkaV2[Subscribe[clicks,views]]",
            "startOffset": {"clicks": {"0": 100, "1": 100}, "views": {"0": 0}},
            "endOffset": {"clicks": {"0": 400, "1": 110}, "views": {"0": 20, "1": 7}},
            "latestOffset": '{"clicks":{"0":1400,"1":110},"views":{"0":20,"1":7}}',
        },
        {"description": "RateStream", "startOffset": 3, "endOffset": 4, "latestOffset": None},
    ]
}


def test_rows_and_lag_of_each_partition() -> None:
    assert topic_partitions(REPORT) == (
        TopicPartition("clicks", 0, 300, 1000),
        TopicPartition("clicks", 1, 10, 0),
        TopicPartition("views", 0, 20, 0),
        TopicPartition("views", 1, 0, 0),
    )


def test_figures_of_a_batch() -> None:
    figures = topic_figures(REPORT)
    assert figures["topic_partitions"] == 4
    assert figures["topic_lag"] == figures["topic_lag_largest"] == 1000
    assert figures["topic_skew"] == pytest.approx(300 / (330 / 4))
    assert figures["topic_lag_clicks-0"] == 1000
    assert figures["topic_rows_clicks-1"] == 10


def test_only_the_furthest_behind_are_kept_one_by_one() -> None:
    ends = {str(number): 10 for number in range(100)}
    latest = {str(number): 10 + number for number in range(100)}
    source = {"startOffset": ends, "endOffset": {"t": ends}, "latestOffset": {"t": latest}}
    figures = topic_figures({"sources": [source]})
    assert figures["topic_lag"] == sum(range(100))
    assert sum(name.startswith("topic_lag_t-") for name in figures) == KEPT
    assert figures["topic_lag_t-99"] == 99


@pytest.mark.parametrize("offset", [None, 7, "not json", [], {"t": 3}, {"t": {"a": 1}}])
def test_other_sources_have_no_partitions(offset: object) -> None:
    assert topic_figures({"sources": [{"endOffset": offset}]}) == {}
    assert topic_figures({}) == {}
