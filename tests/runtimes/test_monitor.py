"""What Spark recorded, put into the tiers of the model."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from penstock.runtimes.spark.jvm import TaskFact
from penstock.runtimes.spark.monitor import tiers


def fact(executor: str, host: str, local: int, near: int, remote: int) -> TaskFact:
    return TaskFact(
        0,
        1,
        0,
        0,
        executor,
        host,
        "SUCCESS",
        local_bytes=local,
        host_local_bytes=near,
        remote_bytes=remote,
    )


FACTS = (fact("0", "a", 10, 3, 200), fact("1", "a", 20, 4, 100))


def test_executors_of_a_host_share_a_node() -> None:
    assert tiers(FACTS, {"a", "b"}) == (30, 7, 300)


def test_executors_that_stand_for_nodes_share_nothing() -> None:
    assert tiers(FACTS, {"executor-0", "executor-1"}) == (30, 0, 307)


def test_a_batch_without_tasks() -> None:
    assert tiers((), {"a"}) == (0, 0, 0)
