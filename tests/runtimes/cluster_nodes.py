"""The executors of a cluster that checks run on."""

from __future__ import annotations

import time
from typing import Any

from pyspark import SparkContext

from penstock.runtimes.spark.injector import executor_pid
from penstock.runtimes.spark.jvm import jvm_of

NODES = 3

ROWS = 3000

WAIT_S = 90.0


def ask_for(spark: Any, executors: int) -> None:
    sc = spark.sparkContext
    sc._jsc.sc().requestTotalExecutors(executors, 0, sc._jvm.PythonUtils.toScalaMap({}))
    await_executors(spark, executors)


def await_executors(spark: Any, count: int) -> None:
    jvm, deadline = jvm_of(spark.sparkContext), time.monotonic() + WAIT_S
    while True:
        there = {executor.id for executor in jvm.executors()}
        if len(there) == count and not jvm.gone(there):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"there are not {count} executors after {WAIT_S:g} s")
        time.sleep(0.1)


def process_of(executor: str) -> int:
    context = SparkContext._active_spark_context
    assert context is not None
    return executor_pid(str(context.applicationId), executor)
