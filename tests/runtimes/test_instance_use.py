"""What instances take besides time, from what tasks said to what a strategy reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from penstock.model import Cluster, Node, Spot
from penstock.runtimes.spark.instance_use import (
    InstanceUse,
    busy_share,
    instance_uses,
    node_use,
    resources,
    tuples_by_tier,
)
from penstock.runtimes.spark.jvm import TaskFact
from penstock.runtimes.spark.operator_records import node_records
from penstock.store.records import InstanceRecord

CLUSTER = Cluster((Node("a", mem_mb=100.0), Node("b", mem_mb=100.0)))


def use(operator: str, index: int, node: str, worker: int = 1, **kw: Any) -> InstanceUse:
    return InstanceUse(operator, index, node, (node, worker), **kw)


def test_memory_of_a_process_is_shared_by_what_its_instances_hold() -> None:
    uses = [
        use("count", 1, "a", worker_bytes=40_000_000, received_bytes=1_000_000),
        use("count", 0, "a", worker_bytes=30_000_000),
        use("count", 2, "b", worker_bytes=7_000_000),
    ]
    found = resources(uses, {"count": [3_000_000, 0, 0]})
    # The process grew to 40 MB over the batch: three quarters for 3 MB of state, a quarter for 1.
    assert found.mem_mb["count"] == pytest.approx([30.0, 10.0, 7.0], rel=1e-4)
    assert found.state_mb["count"].tolist() == [3.0, 0.0, 0.0]
    assert found.received_mb["count"].tolist() == [0.0, 1.0, 0.0]


def test_disk_traffic_that_nobody_counts_is_left_out() -> None:
    uses = [use("count", 0, "a", disk_bytes=5_000_000), use("count", 1, "a", disk_bytes=None)]
    assert resources(uses, {}).io_mb == {}
    assert resources(uses[:1], {}).io_mb["count"].tolist() == [5.0]
    assert node_use(uses, {"a": 0.5}, CLUSTER, 1.0)["a"].io is None


def test_without_tasks_only_state_is_known() -> None:
    found = resources([], {"count": [1_000_000]})
    assert found.state_mb["count"].tolist() == [1.0]
    assert found.mem_mb == {}


def test_use_of_nodes_in_parts_of_what_they_have() -> None:
    uses = [
        use("in", 0, "a", 1, worker_bytes=10_000_000, crossed_out_bytes=25_000_000, disk_bytes=0),
        use("in", 1, "a", 1, worker_bytes=20_000_000, crossed_in_bytes=5_000_000, disk_bytes=0),
        use("in", 2, "a", 2, worker_bytes=30_000_000, disk_bytes=100_000_000),
    ]
    found = node_use(uses, {"a": 0.5, "gone": 0.1}, CLUSTER, 2.0)
    # Two processes, 20 and 30 MB; 12.5 MB/s leave on a link of 125; 50 MB/s on a disk of 500.
    assert found["a"].cpu == 0.5
    assert found["a"].mem == pytest.approx(0.5)
    assert found["a"].network == pytest.approx(0.1)
    assert found["a"].io == pytest.approx(0.1)
    assert found["gone"].mem is None


def test_records_of_nodes_tell_what_their_disks_did() -> None:
    records = [InstanceRecord("run", 0, "in", i, "a", cpu_ms=250.0) for i in range(2)]
    uses = [use("in", i, "a", disk_bytes=50_000_000) for i in range(2)]
    found = node_records("run", 0, CLUSTER, records, 2.0, uses)
    assert [(one.node, one.cpu, one.io) for one in found] == [
        ("a", pytest.approx(0.0625), pytest.approx(0.1)),
        ("b", 0.0, None),
    ]
    assert node_records("run", 0, CLUSTER, records, 2.0)[0].io is None


def test_who_waits_is_not_busy() -> None:
    records = [InstanceRecord("run", 0, "wait", 0, "a", run_ms=100.0)]
    records.append(InstanceRecord("run", 0, "idle", 0, "a", run_ms=0.0))
    found = busy_share([use("wait", 0, "a", cpu_ms=25.0), use("idle", 0, "a")], records)
    assert found == {"wait": 0.25}


def test_what_crossed_nodes_follows_the_rows() -> None:
    graph: Any = SimpleNamespace(edges=[SimpleNamespace(target="count")])
    plan: Any = SimpleNamespace(
        placement={"in": [Spot("a", 0)], "count": [Spot("a", 0), Spot("b", 0)]}
    )

    def stats(vertex: str, instance: int, sent: dict[int, dict[int, int]], size: int) -> Any:
        return SimpleNamespace(
            vertex=vertex,
            instance=instance,
            sent=sent,
            sent_bytes=size,
            process=7,
            grown_bytes=0,
            cpu_s=0.0,
            disk_bytes=None,
        )

    result: Any = SimpleNamespace(
        stats=[
            stats("in", 0, {0: {0: 30, 1: 10}}, 4000),
            stats("count", 0, {}, 0),
            stats("count", 1, {}, 0),
        ],
        spec=SimpleNamespace(address=lambda vertex, instance: (vertex == "count", instance)),
    )
    ran = {(1, 1): TaskFact(1, 1, 0, 1, "5", "here", "SUCCESS")}
    tiers = tuples_by_tier(graph, plan, result, ran)
    assert list(tiers.values()) == [0.0, 30.0, 10.0], "nobody knows who ran the other two"
    for at in ((0, 0), (1, 0)):
        ran[at] = TaskFact(1, 1, 0, at[1], "4", "here", "SUCCESS")
    assert list(tuples_by_tier(graph, plan, result, ran).values()) == [30.0, 0.0, 10.0]
    source, near, far = instance_uses(graph, plan, result, ran)
    assert (source.sent_bytes, source.crossed_out_bytes) == (4000, 1000)
    assert (near.received_bytes, near.crossed_in_bytes) == (3000, 0)
    assert (far.received_bytes, far.crossed_in_bytes) == (1000, 1000)
    assert far.worker == ("5", 7)
