"""A profile that is fitted to batches of a known profile is that profile."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.experiments.calibrate.fit import Trial, fit, measured
from penstock.model import Cluster, Edge, InvalidValue, Kind, Operator, Plan, TierCosts, Topology
from penstock.runtimes.sim.batches import BatchTimes
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.keys import KeySpace
from penstock.runtimes.sim.wiring import wire
from penstock.strategies import Request
from penstock.strategies.api import make_plan

TOPOLOGY = Topology(
    "pair",
    (
        Operator("read", Kind.SOURCE, parallelism=3, selectivity=2.0),
        Operator("work", parallelism=3),
    ),
    (Edge("read", "work"),),
)
NODES = Cluster.of(3, cpu_cores=1)
TRUTH = CostProfile(
    cpu_us_per_tuple={"read": 40.0, "work": 300.0},
    hop_cpu_us=TierCosts(2.0, 2.0, 9.0),
    hop_us=TierCosts(0.0, 0.0, 0.0),
    batch_s=0.5,
    task_ms=30.0,
    restart_s=0.0,
)


def placed(nodes: list[int]) -> Plan:
    from penstock.model import Reason

    request = Request(TOPOLOGY, NODES)
    zeros = np.zeros(6, dtype=np.int64)
    return make_plan(request, "fixed", np.array(nodes), zeros, (Reason("told"),))


def trial(plan: Plan, rng: np.random.Generator) -> Trial:
    wiring = wire(TOPOLOGY, plan, NODES, KeySpace(), TRUTH, {"read": 1.0})
    model = BatchTimes.of(wiring, NODES, TRUTH)
    rows = [size for size in (500, 2000, 6000) for _ in range(5)]
    seconds = [model.fixed_s + n * model.per_tuple_s + rng.normal(0, 0.002) for n in rows]
    seconds[3] += 5.0  # one batch in which something else happened
    instances = {
        "read": [(n // 3, 2 * n // 3, n / 3 * 40e-6) for n in rows],
        "work": [(2 * n // 3, 0, 2 * n / 3 * 300e-6) for n in rows],
    }
    return Trial(plan, rows, seconds, instances)


def test_known_costs_are_found_again() -> None:
    rng = np.random.default_rng(0)
    plans = [placed([0] * 6), placed([0, 1, 2, 0, 1, 2]), placed([0, 0, 0, 1, 1, 1])]
    trials = [trial(plan, rng) for plan in plans]
    topology = measured(TOPOLOGY, trials)
    assert topology.operators[0].selectivity == pytest.approx(2.0, rel=0.01)
    found = fit(topology, NODES, trials, KeySpace(), 0.5)
    assert found.cpu_us_per_tuple["read"] == pytest.approx(40, rel=0.02)
    assert found.cpu_us_per_tuple["work"] == pytest.approx(300, rel=0.02)
    assert found.task_ms == pytest.approx(30, rel=0.1)
    assert found.hop_cpu_us.in_process_us == pytest.approx(2.0, abs=1.5)
    assert found.hop_cpu_us.across_us == pytest.approx(9.0, abs=3.0)
    assert found.hop_cpu_us.across_us > found.hop_cpu_us.in_process_us


def test_batches_of_one_size_say_nothing() -> None:
    with pytest.raises(InvalidValue, match="at least two sizes"):
        fit(TOPOLOGY, NODES, [Trial(placed([0] * 6), [5, 5], [1.0, 1.0], {})], KeySpace(), 0.5)
