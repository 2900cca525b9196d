"""Tasks of a job, where they must run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JJavaError

from penstock.engine.backend import Stage
from penstock.runtimes.spark.backend import SparkBackend
from penstock.runtimes.spark.jvm import AT_ONCE_BYTES, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_task_that_belongs_elsewhere_fails(spark: SparkSession, tmp_path: Path) -> None:
    backend = SparkBackend(spark, str, str(tmp_path))
    (here,) = backend.alive()

    def body(partition: int, frames: Iterable[bytes], folder: Path) -> Iterator[tuple[int, bytes]]:
        yield 0, b"".join(frames)

    stage = Stage((here,), body, ((b"given", b" frames"),))
    assert backend.job("here", [stage]) == [b"given frames"]
    sc = spark.sparkContext
    base = sc.parallelize([()], 1)._jrdd
    jvm = jvm_of(sc)
    assert jvm.pin(base.rdd(), ["executor_far_99"]).count() == 1, "a preference"
    with pytest.raises(Py4JJavaError, match="a task for executor_far_99 was given to executor"):
        jvm.pin(base.rdd(), ["!executor_far_99"]).count()


def test_results_come_whole_and_tasks_are_told_of(spark: SparkSession, tmp_path: Path) -> None:
    backend = SparkBackend(spark, str, str(tmp_path))
    (here,) = backend.alive()

    def body(partition: int, frames: Iterable[bytes], folder: Path) -> Iterator[tuple[int, bytes]]:
        for frame in frames:
            yield 0, bytes(frame)

    # Small ones come with the answer of the call, large ones through a port.
    for sizes in ((), (0,), (3, 0, 70), (0, AT_ONCE_BYTES, 5)):
        wanted = [bytes([n]) * size for n, size in enumerate(sizes)]
        assert backend.job("sizes", [Stage((here, here), body, (tuple(wanted), ()))]) == wanted
        told = jvm_of(spark.sparkContext).tasks(backend.moving)
        assert sorted((fact.partition, fact.status, fact.executor) for fact in told) == [
            (0, "SUCCESS", here),
            (1, "SUCCESS", here),
        ]
