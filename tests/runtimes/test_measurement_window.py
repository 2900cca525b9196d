"""The last batches as the loop sees them: rates that lead, nodes that are slow and stay so."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

from penstock.model import Cluster, Node
from penstock.runtimes.spark.measurement_window import (
    PARTS,
    STRAGGLES,
    MeasurementWindow,
    slowness,
    stragglers,
)
from penstock.runtimes.spark.monitor import Observed
from penstock.store.records import BatchRecord, InstanceRecord

NODES = ("a", "b", "c")


def instances(ms_a_tuple: Sequence[float], tuples: Sequence[int] = (100,) * 3) -> Any:
    return tuple(
        InstanceRecord("run", 0, "count", i, node, tuples_in=count, run_ms=ms * count)
        for i, (node, ms, count) in enumerate(zip(NODES, ms_a_tuple, tuples, strict=True))
    )


def added(
    window: MeasurementWindow, rows: int, interval_s: float = 2.0, waiting: int = 0, **kw: Any
) -> None:
    stats: Any = kw.get("stats", ())
    batch = BatchRecord("run", 0, 0.0, 500.0, rows_in=rows)
    made = kw.get("instances", instances((1.0, 1.0, 1.0)))
    window.add(Observed(batch, made, (), 0, 0), interval_s, waiting, stats)


def test_a_step_of_the_rate_shows_within_a_few_batches() -> None:
    window = MeasurementWindow()
    for rows in [200] * 20 + [400] * 5:
        added(window, rows)
    processed, incoming = window.rates()
    assert incoming == pytest.approx(200.0)
    assert processed == pytest.approx((15 * 200 + 5 * 400) / 40)


def test_tuples_that_wait_have_come() -> None:
    window = MeasurementWindow()
    for waiting in range(0, 2000, 100):
        added(window, 200, waiting=waiting)
    assert list(window.rates()) == pytest.approx([100.0, 150.0])


def test_a_backlog_that_is_worked_off_does_not_come() -> None:
    window = MeasurementWindow()
    for waiting in range(4000, 0, -200):
        added(window, 200, waiting=waiting)
    assert window.rates()[1] == 0.0


def test_load_of_batches_that_grow_is_what_it_is() -> None:
    # Each batch takes half as long again as the one before: the nodes are half too slow.
    window, began = MeasurementWindow(), 1.0
    for _ in range(6):
        ms = began * 1.5 * 1000.0
        added(window, 100, began, instances=instances((ms / 100,) * 3))
        began *= 1.5
    found = window.measurements(["keys"], Cluster(tuple(Node(n, cpu_cores=1.0) for n in NODES)))
    assert found is not None
    assert found.cpu_cores["count"] == pytest.approx([1.5] * 3, rel=1e-6)


def test_a_node_that_stays_slow_is_a_straggler() -> None:
    steady = instances((1.0, 1.0, 1.1))
    assert stragglers([steady] * 20) == {}
    for least, length in STRAGGLES:
        slow = instances((1.0, 1.0, least * 1.1))
        enough = PARTS * length
        assert stragglers([steady] * 11 + [slow] * enough) == {"c": pytest.approx(least * 1.1)}
        assert stragglers([steady] * 11 + [slow] * (enough - length)) == {}


def test_a_hiccup_is_no_straggler() -> None:
    steady, slow = instances((1.0, 1.0, 1.0)), instances((1.0, 1.0, 40.0))
    for at in range(20):
        batches = [steady] * 20
        batches[at] = slow
        assert stragglers(batches) == {}


def test_noise_is_no_straggler() -> None:
    rng = np.random.default_rng(3)
    batches = [instances(rng.lognormal(0.0, 0.4, 3).tolist()) for _ in range(400)]
    found = [stragglers(batches[i : i + 20]) for i in range(380)]
    assert sum(bool(slow) for slow in found) <= 4


def test_few_tuples_that_take_long_each_are_not_slow() -> None:
    # A task takes 100 ms whatever it gets.
    ms = (1.0, 1.0, 2.0)
    assert slowness(instances(ms, (100, 100, 50)))["c"] == pytest.approx(1.0)
    assert slowness(instances((1.0, 1.0, 5.0), (100, 100, 50)))["c"] == pytest.approx(2.5)


def test_hot_keys_and_partitions_are_rates_over_all_senders() -> None:
    window = MeasurementWindow()
    sender: Any = SimpleNamespace(partitions={"count": [30, 10]}, hot_keys={"count": {7: 20}})
    for _ in range(4):
        added(window, 80, stats=(sender, sender))
    found = window.measurements(["keys"], Cluster(tuple(Node(n, cpu_cores=1.0) for n in NODES)))
    assert found is not None
    assert found.partition_rates["count"].tolist() == [30.0, 10.0]
    assert dict(found.hot_keys["count"]) == {7: pytest.approx(20.0)}
