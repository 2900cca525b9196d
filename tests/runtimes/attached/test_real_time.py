"""Queries in real-time mode are measured, sized and advised, and nothing of them moves."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from tests.runtimes.attached.test_runtime import Noted

from penstock.runtimes.attached.attach import attach
from penstock.runtimes.attached.query import AttachedQuery, Watching
from penstock.runtimes.attached.real_time import FIRST, KEPT, Sizing, held
from penstock.runtimes.spark.monitor import Observed
from penstock.store.records import BatchRecord, InstanceRecord
from penstock.strategies import strategies


def observed(busy: dict[str, tuple[float, ...]]) -> Observed:
    """Make a batch of ten seconds whose tasks compute for a part of them."""
    instances = tuple(
        InstanceRecord("run", 0, stage, number, "node", tuples_in=5, cpu_ms=1e4 * part, run_ms=1e4)
        for stage, parts in busy.items()
        for number, part in enumerate(parts)
    )
    return Observed(BatchRecord("run", 0, 0.0, 1e4), instances, (), 0, 0)


def advice(busy: dict[str, tuple[float, ...]], batches: int = FIRST + KEPT) -> dict[str, str]:
    sizing = Sizing()
    for _ in range(batches):
        sizing.add(observed(busy))
    return sizing.advice()


def test_cores_that_are_held_are_counted() -> None:
    told = held(observed({"source": (0.1,), "save": (0.2, 0.2)}), 8)
    assert "its 3 tasks (1 of source, 2 of save) hold as many of the 8 cores" in told


def test_too_few_cores_are_told_when_the_stages_begin() -> None:
    sizing = Sizing()
    assert sizing.submitted("0", 2, cores=4) == {}
    assert (
        "need 5 cores, one for each task, and there are 4" in sizing.submitted("0", 3, 4)["cores"]
    )
    assert sizing.submitted("1", 3, cores=4) == {}, "another batch begins anew"


def test_a_stage_that_holds_more_than_it_uses_is_told() -> None:
    found = advice({"source": (0.3, 0.3), "save": (0.1,) * 8})
    assert set(found) == {"lean save"}
    assert (
        "the 8 tasks of save hold as many cores and compute for 10% of the time: 2"
        in (found["lean save"])
    )


def test_a_task_that_rows_wait_for_is_told() -> None:
    heavy = advice({"save": (0.95, 0.2, 0.2, 0.2)})
    assert "task 0 of save computes for 95% of the time" in heavy["full save"]
    assert "far more to do than the others" in heavy["full save"]
    even = advice({"save": (0.95, 0.9)})
    assert "more tasks would share it" in even["full save"]


def test_nothing_is_said_too_early_or_without_tasks() -> None:
    assert advice({"save": (0.95,)}, batches=KEPT) == {}
    assert advice({}) == {}
    assert advice({"save": (0.0, 0.0)}) == {
        "lean save": "the 2 tasks of save hold as many cores and compute for 0% of the time: "
        "1 would do"
    }


def test_nothing_moves() -> None:
    spark = Noted()
    watching = Watching(strategies.make("penstock"))
    query = AttachedQuery("query", "clicks", spark, watching, real_time=True)
    for number in range(30):
        query.batch(spark.text(number))
    assert query.decisions == []
    assert spark.reported == []
    assert "measures and advises, and moves nothing" in query.events[0]
    query.submitted(
        "31",
        4,
    )
    assert any("need 4 cores" in text for text in query.advice)


# ---- on Spark

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CONF = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1s",
    "spark.sql.shuffle.partitions": "1",
}


def test_a_query_in_real_time_mode_is_measured(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    for key, value in CONF.items():
        session.conf.set(key, value)
    jvm: Any = session._jvm
    classic: Any = session
    source = jvm.org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
    memory = source.apply(classic._jsparkSession, 1, jvm.org.apache.spark.sql.Encoders.STRING())
    counts = DataFrame(memory.toDF(), session).groupBy(sf.length("value")).count()
    writer: Any = counts.writeStream.format("console").option("numRows", 1).outputMode("update")
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(realTime="2 seconds")
        .start()
    )
    seen: list[Observed] = []
    try:
        handle: Any = attach(query, on_batch=seen.append)
        deadline = time.monotonic() + 90
        while sum(one.batch.rows_in for one in seen) < 20:
            assert time.monotonic() < deadline
            assert query.exception() is None
            rows = jvm.java.util.ArrayList()
            for number in range(10):
                rows.append("x" * number)
            memory.addData(jvm.org.apache.spark.api.python.PythonUtils.toSeq(rows))
            time.sleep(0.1)
        handle.detach()
    finally:
        query.stop()
    assert handle.loop is None
    assert {one.operator.split("-")[0] for one in seen[-1].instances} == {
        "source",
        "StatefulStreamlineAggregate",
    }
    assert "its 2 tasks" in handle.events[0]
    assert handle.events[-1] == "detached"
