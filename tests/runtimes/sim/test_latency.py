"""Latency: what makes it longer makes it longer, and percentiles are percentiles."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.runtimes.sim.graphs import FREE, runtime, single, words

from penstock.model import Cluster, Edge, Grouping, Kind, Operator, TierCosts, Topology
from penstock.runtimes.sim import CostProfile, KeySpace, SimRuntime, parse_fault
from penstock.runtimes.sim.batches import BatchClock, BatchTimes
from penstock.runtimes.sim.moments import latency_of, summarise


def mean_ms(run: SimRuntime, since: int = 0) -> float:
    found = latency_of(run.moments[since:])
    assert found is not None
    return found["mean"]


def test_an_idle_instance_takes_its_service_time() -> None:
    run = runtime(single(1000), Cluster.of(1, cpu_cores=64), [0, 0], 1)
    run.advance(20)
    assert mean_ms(run) == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("use", [0.3, 0.6, 0.9])
def test_waits_are_those_of_a_queue_with_constant_service(use: float) -> None:
    run = runtime(single(1000), Cluster.of(1, cpu_cores=64), [0, 0], use * 1000)
    run.advance(60)
    wanted = 1.0 + use / (2 * (1 - use))
    assert mean_ms(run) == pytest.approx(wanted, rel=0.05)


def test_percentiles_are_in_order_and_spread() -> None:
    run = runtime(single(1000), Cluster.of(1, cpu_cores=64), [0, 0], 800)
    run.advance(30)
    found = latency_of(run.moments)
    assert found is not None
    assert found["p50"] < found["p95"] < found["p99"]


def test_a_tuple_that_crosses_nodes_takes_longer() -> None:
    costs = CostProfile(hop_us=TierCosts(0, 100, 2000))
    cluster = Cluster.of(2, cpu_cores=8)
    together = runtime(words(), cluster, [0] * 12, 100, costs=costs)
    apart = runtime(words(), cluster, [0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0], 100, costs=costs)
    for run in (together, apart):
        run.advance(20)
    assert mean_ms(apart) > mean_ms(together) + 3.5
    assert together.moments[-1].remote_share == 0.0
    assert apart.moments[-1].remote_share == pytest.approx(1.0)


def test_the_slowest_branch_counts() -> None:
    def fan(slow_us: float) -> Topology:
        return Topology(
            "fan",
            (
                Operator("read", Kind.SOURCE),
                Operator("fast", cpu_us_per_tuple=10),
                Operator("slow", cpu_us_per_tuple=slow_us),
            ),
            (Edge("read", "fast"), Edge("read", "slow")),
        )

    run = runtime(fan(3000), Cluster.of(1, cpu_cores=64), [0, 0, 0], 1)
    run.advance(10)
    assert mean_ms(run) == pytest.approx(3.0, rel=0.02)


def test_a_backlog_is_time() -> None:
    run = runtime(single(1000), Cluster.of(1), [0, 0], 2000)
    run.advance(20)
    # 20 s at 1000 tuples/s too many: the last to come waits 20 s.
    assert run.moments[-1].latency_ms.mean() == pytest.approx(20_000, rel=0.02)


def test_skewed_keys_wait_longer_under_hash_than_in_two_tiers() -> None:
    from penstock.model import Plan
    from penstock.pipeline.sources.rates import Profile
    from penstock.runtimes.sim import Workload, simulate
    from penstock.strategies import strategies

    topology = Topology(
        "keyed",
        (
            Operator("read", Kind.SOURCE, 2, cpu_us_per_tuple=10),
            Operator("count", Kind.STATEFUL, 8, cpu_us_per_tuple=800, state_mb=8),
        ),
        (Edge("read", "count", Grouping.FIELDS),),
    )
    cluster = Cluster.of(2, cpu_cores=16, processes=2)
    workload = Workload({"read": Profile.constant(8000)}, KeySpace(1000, 1.0))

    def late(strategy: str) -> tuple[float, float, Plan]:
        run = simulate(topology, cluster, strategies.make(strategy), workload, seconds=90)
        summary = run.summary(60)
        return summary["throughput_per_s"], summary["lit"], run.runtime.plan

    hashed, repartitioned = late("even"), late("penstock")
    assert not hashed[2].routing
    assert repartitioned[2].routing["count"]
    assert repartitioned[0] > 1.1 * hashed[0]
    assert repartitioned[1] < 0.5 * hashed[1]


def test_micro_batches_wait_for_the_batch_and_for_its_work() -> None:
    costs = CostProfile.bare(batch_s=1.0, task_ms=50.0)
    run = runtime(single(100), Cluster.of(1, cpu_cores=4), [0, 0], 1000, costs=costs)
    run.advance(30)
    # Half an interval on average, two layers of one task each, and 100 us a tuple on one core.
    assert mean_ms(run) == pytest.approx(500 + 2 * 50 + 100, rel=0.05)


def test_batches_that_take_longer_than_their_interval_hold_the_sources_back() -> None:
    costs = CostProfile.bare(batch_s=0.5, task_ms=10.0)
    run = runtime(single(1000), Cluster.of(1, cpu_cores=4), [0, 0], 3000, costs=costs)
    run.advance(30)
    assert run.moments[-1].throughput_per_s <= 1000
    assert run.moments[-1].throughput_per_s > 900


def test_a_batch_takes_what_came_during_the_one_before() -> None:
    # 0.4 s and 1 ms a tuple at 500 a second: batches settle where 0.4 + 0.5 * length is the length.
    clock = BatchClock(BatchTimes(0.5, 0.4, 0.001))
    waiting = 0.0
    for _ in range(300):
        taken = clock.advance(0.1, waiting, 50.0)
        waiting += 50.0 - taken
    assert clock.batch.length_s == pytest.approx(0.8, rel=0.02)
    assert clock.batch.tuples == pytest.approx(400, rel=0.02)
    drawn = clock.sample_ms(np.random.default_rng(0), 2000, 0.0)
    assert drawn.max() <= 2 * clock.batch.length_s * 1.02e3


def test_batches_grow_while_too_much_comes() -> None:
    clock, waiting, sizes = BatchClock(BatchTimes(0.5, 0.4, 0.001)), 0.0, []
    for _ in range(200):
        waiting += 150.0 - clock.advance(0.1, waiting, 150.0)
        sizes.append(clock.batch.tuples)
    grown = [b for a, b in pairwise(sizes) if a != b]
    # Each holds what comes in the time of the one before: 1500 a second.
    expected, size = [], grown[0]
    for _ in grown:
        expected.append(size)
        size = 1500 * max(0.5, 0.4 + 0.001 * size)
    assert grown == pytest.approx(expected, rel=1e-6)
    assert len(grown) >= 4


def test_the_step_of_time_does_not_matter_to_batches() -> None:
    ends = []
    for step in (0.1, 1.0, 6.0):
        clock, waiting = BatchClock(BatchTimes(0.5, 0.3, 0.0005)), 0.0
        for _ in range(round(60 / step)):
            waiting += 1000 * step - clock.advance(step, waiting, 1000 * step)
        ends.append(waiting)
    assert ends == pytest.approx([ends[0]] * 3, rel=1e-6)


def test_time_without_output_is_counted() -> None:
    run = runtime(
        single(100),
        Cluster.of(2),
        [0, 0],
        1000,
        costs=FREE,
        faults=[parse_fault("kill-node@t=10:node=node-0")],
    )
    run.advance(30)
    assert summarise(run.moments)["seconds_without_output"] == pytest.approx(20.0)
    assert np.isfinite(run.moments[-1].latency_ms).all()
