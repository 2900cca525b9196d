"""Executors that come and go under a run, without Spark."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any, cast

import pytest

pytest.importorskip("pyspark")

from penstock.control.runtime import ActionFailed
from penstock.runtimes.spark import executors as module
from penstock.runtimes.spark.errors import ExecutorLost
from penstock.runtimes.spark.executors import Executors
from penstock.runtimes.spark.jvm import Executor, Jvm


class FakeSpark:
    """Lists executors and warms them up; the first `times` it fails with `error`.

    With `ends` the run is over while it does.
    """

    def __init__(self, *ids: str) -> None:
        self.ids = list(ids)
        self.warmed: list[Collection[str] | None] = []
        self.error: Exception | None = None
        self.times = 1
        self.stopped = self.ends = False
        self.over = threading.Event()
        self.master, self.elastic = "here://", True
        self.requested: list[int] = []

    def executors(self) -> list[Executor]:
        return [Executor(name, "here", 1, 1_000_000) for name in self.ids]

    def request_executors(self, total: int) -> bool:
        self.requested.append(total)
        return self.elastic

    def release_executors(self, ids: list[str]) -> bool:
        return self.elastic

    def warm_up(self, only: Collection[str] | None) -> None:
        self.warmed.append(only)
        if self.ends:
            self.over.set()
        if self.error is not None and len(self.warmed) <= self.times:
            raise self.error

    def pool(self, processes: int = 1) -> Executors:
        return Executors(cast(Jvm, self), self.warm_up, processes)


def watched(spark: FakeSpark) -> list[Exception]:
    """Let one come whose warm-up fails, and return what was told once the thread has ended."""
    pool, told = spark.pool(), list[Exception]()
    spark.ids.append("9")
    thread = pool.watch(spark.over, told.append)
    thread.join(10)
    assert not thread.is_alive()
    return told


@pytest.fixture(autouse=True)
def _soon(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.001)


def test_those_that_come_later_count_once_they_are_warm() -> None:
    spark = FakeSpark("0", "1")
    pool = spark.pool()
    spark.ids.append("2")
    assert len(pool.executors()) == 3
    assert pool.look().names == ("executor-0", "executor-1")
    pool.warm_up_new()
    pool.warm_up_new()
    assert spark.warmed == [{"2"}]
    assert len(pool.cluster) == 2
    assert len(pool.look()) == len(pool.cluster) == 3
    assert pool.executor_of("executor-2/0") == "2"
    assert pool.executor_of("elsewhere/0") == "elsewhere/0"


def test_one_that_is_lost_while_it_warms_up_is_warmed_up_again() -> None:
    spark = FakeSpark("0", "1")
    pool = spark.pool()
    spark.ids.append("2")
    spark.error = ExecutorLost(["2"])
    pool.warm_up_new()
    assert len(pool.look()) == 2
    pool.warm_up_new()
    assert len(pool.look()) == 3


def test_those_that_were_given_up_are_left_out() -> None:
    pool = FakeSpark("0", "1").pool()
    pool.released(["1"])
    assert [executor.id for executor in pool.executors()] == ["0"]
    # One is left of a cluster whose executors stand for nodes.
    assert pool.look().names == ("executor-0",)


def test_the_nodes_of_before_are_named_while_all_are_lost() -> None:
    spark = FakeSpark("0", "1")
    pool = spark.pool()
    spark.ids = []
    assert pool.look().names == ("executor-0", "executor-1")
    assert pool.ready() == []
    spark.ids = ["7"]
    pool.warm_up_new()
    assert pool.look().names == ("executor-7",)


def test_several_executors_stand_for_a_node() -> None:
    spark = FakeSpark("0", "1", "2", "3")
    pool = spark.pool(2)
    assert pool.cluster.names == ("node-0", "node-1")
    assert pool.cluster.processes.tolist() == [2, 2]
    assert pool.cluster.cpu_cores.tolist() == [2.0, 2.0]
    assert (pool.executor_of("node-0/1"), pool.executor_of("node-1/0")) == ("1", "2")
    assert pool.release(["node-0"]) == ["0", "1"]
    assert pool.look().names == ("node-1",)
    # One of two is lost, and another comes with a number of its own: nodes are still of two.
    spark.ids = ["2", "4"]
    pool.warm_up_new()
    assert pool.look().names == ("node-1", "node-2")
    assert pool.cluster.processes.tolist() == [1, 1]
    pool.request(3)
    assert spark.requested[-1] == 6


def test_nodes_are_requested_and_released() -> None:
    spark = FakeSpark("0", "1", "2")
    pool = spark.pool()
    pool.request(5)
    assert pool.release(["executor-1"]) == ["1"]
    assert [executor.id for executor in pool.executors()] == ["0", "2"]
    # One that dies later is to be replaced: Spark must know how many are wanted.
    assert spark.requested == [5, 2]


def test_a_fixed_cluster_says_that_it_is() -> None:
    spark = FakeSpark("0", "1")
    spark.elastic = False
    with pytest.raises(ActionFailed, match="here:// cannot be asked for executors"):
        spark.pool().request(3)
    pool = spark.pool()
    with pytest.raises(ActionFailed, match="cannot be told to release"):
        pool.release(["executor-1"])
    assert len(pool.executors()) == 2


def test_the_first_warm_up_is_tried_again() -> None:
    spark = FakeSpark("0", "1")
    spark.error, spark.times = ExecutorLost(["7"]), module.ATTEMPTS - 1
    spark.pool().warm_up()
    assert spark.warmed == [None] * module.ATTEMPTS
    spark.warmed, spark.times = [], module.ATTEMPTS
    with pytest.raises(ExecutorLost):
        spark.pool().warm_up()


def test_a_stop_of_spark_ends_the_watch_and_is_no_failure() -> None:
    spark = FakeSpark("0")
    spark.error, spark.stopped = AttributeError("'NoneType' object has no attribute 'sc'"), True
    assert watched(spark) == []
    assert spark.warmed == [{"9"}]


def test_so_does_the_end_of_the_run() -> None:
    spark = FakeSpark("0")
    spark.error, spark.ends = RuntimeError("cancelled"), True
    assert watched(spark) == []


def test_any_other_error_is_told() -> None:
    spark = FakeSpark("0")
    spark.error = RuntimeError("no module named numpy")
    assert watched(spark) == [spark.error]
