"""An attached query as the loop sees it, with a Spark that only notes what it is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("pyspark")

from tests.runtimes.attached.texts import CHECKPOINT, JOIN, JOIN_STORES, RUN, SAVE, batch

from penstock.control.runtime import ActionFailed
from penstock.model import Plan, diff
from penstock.runtimes.attached.progress import parse
from penstock.runtimes.attached.runtime import IMPATIENT, AttachedRuntime
from penstock.runtimes.attached.topology import graph_of
from penstock.runtimes.spark.jvm import Executor
from penstock.testing import RUNTIME_CHECKS, Driven


class Noted:
    """Stands for Spark: runs partitions where it was told, as Spark does."""

    def __init__(self, follows: bool = True) -> None:
        self.ids, self.last = ["0", "1", "2"], 0
        self.ran = {JOIN: ["0", "1"], SAVE: ["1", "2"]}
        self.reported: list[str] = []
        self.warmed: list[tuple[str, int]] = []
        self.is_busy, self.follows, self.waits = False, follows, False
        self.master, self.elastic, self.stopped = "local-cluster[3,1,1024]", True, False

    def busy(self, query: str) -> bool:
        return self.is_busy

    def report(self, lines: str) -> None:
        self.reported += lines.splitlines()
        for line in lines.splitlines() if self.follows else ():
            _, _, operator, partition, _, _, executor = line.split("\t")
            self.ran[JOIN if operator == "1" else SAVE][int(partition)] = executor

    def warm(self, query: str, action: str, lines: str) -> int:
        self.warmed.append((action, len(lines.splitlines())))
        return len(lines.splitlines())

    def executors(self) -> list[Executor]:
        return [Executor(id, "host", 1, 10**9) for id in self.ids]

    def request_executors(self, total: int) -> bool:
        if self.elastic:
            while len(self.ids) < total:
                # Spark gives no id twice.
                self.last = max(self.last, *map(int, self.ids)) + 1
                self.ids.append(str(self.last))
        return self.elastic

    def release_executors(self, ids: list[str]) -> bool:
        self.last = max(self.last, *map(int, self.ids))
        self.ids = [id for id in self.ids if id not in ids]
        return True

    def wait_for_preferred(self, seconds: int) -> None:
        self.waits = True

    def wait_as_before(self) -> None:
        self.waits = False

    def text(self, number: int) -> str:
        ran = {name: tuple(own) for name, own in self.ran.items()}
        return batch(number, ran=ran, ids=tuple(self.ids))


def made(spark: Noted) -> AttachedRuntime:
    first = parse(spark.text(0))
    graph = graph_of("clicks", first)
    assert graph is not None
    ticks = iter(range(10**6))
    return AttachedRuntime(
        "query", spark, graph, first, strategy="even", clock=lambda: float(next(ticks))
    )


def test_the_first_plan_is_what_spark_did() -> None:
    runtime = made(Noted())
    nodes = [spot.node for spot in runtime.plan.placement[SAVE]]
    assert nodes == ["executor-1", "executor-2"]
    assert runtime.cluster.names == ("executor-0", "executor-1", "executor-2")


def swapped(plan: Plan) -> Plan:
    """Exchange the two partitions of the aggregation."""
    node_of = plan.node_of.copy()
    node_of[-2:] = node_of[[-1, -2]]
    return replace(plan, node_of=node_of)


def test_every_store_of_a_moved_partition_is_reported() -> None:
    spark = Noted()
    runtime = made(spark)
    runtime.apply(swapped(runtime.plan))
    head = f"{CHECKPOINT}\t{RUN}\t0"
    assert spark.reported == [f"{head}\t0\tdefault\thost\t2", f"{head}\t1\tdefault\thost\t1"]
    spark.reported.clear()
    onto = np.zeros_like(runtime.plan.node_of)
    runtime.apply(replace(runtime.plan, node_of=onto, active=()))
    stores = {line.split("\t")[4] for line in spark.reported if line.split("\t")[2] == "1"}
    assert stores == set(JOIN_STORES.split(","))


def test_nothing_is_reported_while_state_is_in_use_but_after_the_batch() -> None:
    spark = Noted()
    runtime = made(spark)
    spark.is_busy = True
    runtime.apply(swapped(runtime.plan))
    assert spark.reported == []
    spark.is_busy = False
    runtime.take(parse(spark.text(1)), "run")
    assert len(spark.reported) == 2
    spark.reported.clear()
    observed = runtime.take(parse(spark.text(2)), "run")
    assert spark.reported == [], "what runs where it is to run is not told again"
    assert observed is not None
    assert (observed.batch.tasks, observed.batch.tasks_honoured) == (4, 4)


def test_tasks_wait_longer_where_spark_does_not_follow_until_an_executor_is_lost() -> None:
    spark = Noted(follows=False)
    runtime = made(spark)
    runtime.apply(swapped(runtime.plan))
    for number in range(1, IMPATIENT + 1):
        runtime.take(parse(spark.text(number)), "run")
        assert not spark.waits
    runtime.take(parse(spark.text(IMPATIENT + 1)), "run")
    assert spark.waits
    assert runtime.lost("1")
    assert not spark.waits
    assert not runtime.lost("7"), "nothing ran there"


def test_partitions_whose_executor_is_gone_are_not_reported_there() -> None:
    spark = Noted()
    runtime = made(spark)
    spark.ids.remove("2")
    spark.ran[SAVE] = ["1", "0"]
    runtime.take(parse(spark.text(1)), "run")
    assert spark.reported == []


def test_large_state_moves_in_portions() -> None:
    spark = Noted()
    runtime = made(spark)

    def take(number: int) -> None:
        heavy = spark.text(number).replace("\t1000\t1\t2\t0\t0", "\t90000000\t1\t2\t0\t0")
        runtime.take(parse(heavy), "run")

    take(1)
    target = replace(runtime.plan, node_of=np.zeros_like(runtime.plan.node_of), active=())
    rounds = 1
    while runtime.apply(target).left:
        rounds += 1
        take(rounds)
    assert rounds == 3, "three partitions go to one executor, one a batch"
    assert diff(runtime.plan, target).empty


def test_large_state_is_loaded_ahead_and_handed_over_or_dropped() -> None:
    spark = Noted()
    runtime = made(spark)
    heavy = spark.text(1).replace("\t1000\t1\t2\t0\t0", "\t90000000\t1\t2\t0\t0")
    runtime.take(parse(heavy), "run")
    before, target = runtime.plan, swapped(runtime.plan)
    while not runtime.prepare(target):
        time.sleep(0.01)
    assert spark.warmed == [("load", 2)]
    runtime.apply(target)
    while not runtime.prepare(target):
        time.sleep(0.01)
    assert spark.warmed == [("load", 2), ("hand over", 2)]
    runtime.prepare(before)
    while not runtime.prepare(target):
        time.sleep(0.01)
    assert [action for action, _ in spark.warmed[2:]] == ["load", "drop"]


def test_time_of_other_stages_is_charged_to_the_partitions() -> None:
    spark = Noted()
    runtime = made(spark)
    for number in range(1, 5):
        runtime.take(parse(spark.text(number)), "run")
    seen = runtime.observe().measurements
    assert seen is not None
    # Four tasks of 100 ms with state and four of 50 ms without, in batches a second apart.
    total = sum(float(cores.sum()) for cores in seen.cpu_cores.values())
    assert total == pytest.approx(0.6)
    assert seen.cpu_cores["source-0"].sum() == 0
    assert sum(use.cpu or 0.0 for use in seen.nodes.values()) == pytest.approx(0.6)


def test_nodes_say_how_much_they_compute() -> None:
    spark = Noted()
    observed = made(spark).take(parse(spark.text(1)), "run")
    assert observed is not None
    # Three, four and one tasks of a millisecond of CPU, on a core each, in a batch of 0.8 s.
    assert {one.node: one.cpu for one in observed.nodes} == {
        "executor-0": pytest.approx(0.003 / 0.8),
        "executor-1": pytest.approx(0.004 / 0.8),
        "executor-2": pytest.approx(0.001 / 0.8),
    }


def test_fixed_executors_are_neither_asked_for_nor_given_up() -> None:
    spark = Noted()
    spark.elastic = False
    with pytest.raises(ActionFailed, match="cannot be asked"):
        made(spark).request_nodes(5)
    runtime = made(spark)
    with pytest.raises(ActionFailed, match="state partitions run on executor-1"):
        runtime.release_nodes(("executor-1",))


@contextmanager
def driven() -> Iterator[Driven]:
    spark = Noted()
    runtime = made(spark)
    numbers = iter(range(1, 10**6))

    def advance(batches: int) -> None:
        for _ in range(batches):
            runtime.take(parse(spark.text(next(numbers))), "run")

    yield Driven(runtime, advance)


@pytest.mark.parametrize("name", RUNTIME_CHECKS)
def test_it_keeps_the_contract_of_runtimes(name: str) -> None:
    RUNTIME_CHECKS[name](driven)
