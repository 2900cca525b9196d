"""The simulator keeps the contract of a runtime, and runs the loop that Spark runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.runtimes.sim.graphs import words

from penstock.model import Cluster
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.sim import (
    CostProfile,
    KeySpace,
    SimRuntime,
    Workload,
    parse_fault,
    simulate,
)
from penstock.runtimes.sim.simulate import SimulatedRun, first_plan
from penstock.strategies import strategies
from penstock.testing import RUNTIME_CHECKS, Driven

COSTS = (CostProfile(arrival_s=4.0), CostProfile.spark())


def made(costs: CostProfile) -> Callable[..., object]:
    @contextmanager
    def maker() -> Iterator[Driven]:
        cluster = Cluster.of(3, cpu_cores=4, processes=2)
        workload = Workload({"lines": Profile.constant(2000)}, KeySpace(1000))
        plan = first_plan(words(), cluster, strategies.make("even"), workload, costs, 0)
        runtime = SimRuntime(words(), cluster, plan, workload, costs=costs)
        yield Driven(runtime, lambda n: runtime.advance(float(n)), node_wait=40)

    return maker


@pytest.mark.parametrize("costs", COSTS, ids=["tuples", "batches"])
@pytest.mark.parametrize("check", RUNTIME_CHECKS.values(), ids=RUNTIME_CHECKS)
def test_the_simulator_keeps_the_contract(
    check: Callable[[Callable[..., object]], None], costs: CostProfile
) -> None:
    check(made(costs))


def run(rate: str, strategy: str = "penstock", **options: object) -> SimulatedRun:
    return simulate(
        words(),
        Cluster.of(6, cpu_cores=2, processes=2),
        strategies.make(strategy),
        Workload({"lines": Profile.parse(rate)}, KeySpace(1000), noise=0.05),
        **{"seconds": 240.0, "every_s": 5.0, **options},  # type: ignore[arg-type]
    )


def test_nodes_follow_the_rate_both_ways() -> None:
    found = run("steps:2000x80,8000x80,2000x80")
    low, high, end = (found.moments[at].nodes for at in (70, 150, 235))
    assert low < high > end
    assert found.decisions
    assert found.plans == found.runtime.changes > 0


def test_a_level_stream_leads_to_no_decision_after_warming_up() -> None:
    found = run("3000", seconds=600.0)
    assert [e for e in found.decisions if e.now_s > 60] == []


def test_instances_leave_a_slow_node() -> None:
    found = run("4000", "penstock", faults=[parse_fault("slow-node@t=60:factor=0.2")])
    slow = next(e for e in found.decisions if e.now_s > 60)
    assert slow.now_s < 90
    assert found.summary(200)["output_per_s"] == pytest.approx(20_000, rel=0.1)


def test_equal_seeds_decide_equally() -> None:
    first, second = run("steps:2000x40,6000x40"), run("steps:2000x40,6000x40")
    assert first.events
    assert [e.to_dict() for e in first.decisions] == [e.to_dict() for e in second.decisions]
    assert first.summary() == second.summary()


def test_without_the_loop_the_first_plan_stays() -> None:
    found = run("steps:2000x40,6000x40", every_s=0.0)
    assert found.decisions == ()
    assert found.plans == 0
