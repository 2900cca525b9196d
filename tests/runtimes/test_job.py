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
from penstock.runtimes.spark.jvm import jvm_of

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
