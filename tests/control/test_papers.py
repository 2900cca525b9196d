"""The papers' strategies under the loop: what each is for comes to pass, with default settings."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from tests.control.scene import first_plan, scene, small_nodes

from penstock.control import Event, Loop, Settings
from penstock.control.events import DecisionStatus
from penstock.model import Cluster, Edge, Grouping, Kind, Operator, Reason, Topology
from penstock.strategies import Request, make_plan
from penstock.strategies.ms import MsStream
from penstock.testing.fake_runtime import FakeRuntime

#: Every guard off: a strategy alone with its own trigger.
ALONE = Settings(cooldown=0, stable_rounds=1, patience=0, back_off=0, max_moves=1_000_000)


@pytest.mark.parametrize("settings", [Settings(), ALONE])
def test_ms_levels_nodes_that_lag(settings: Settings) -> None:
    # Loads 0.50, 0.25, 0.13, 0.13: LIN 0.99, of at most 0.4.
    topology = Topology(
        "uneven",
        (
            Operator("in", Kind.SOURCE, rate_per_s=16_000),
            Operator("a", Kind.STATEFUL, 16, cpu_us_per_tuple=125, state_mb=10),
        ),
        (Edge("in", "a", Grouping.SHUFFLE),),
    )
    cluster = Cluster.of(4, cpu_cores=2.0)
    node_of = np.array([0, *np.repeat(np.arange(4), [8, 4, 2, 2])])
    request = Request(topology, cluster)
    first = make_plan(request, "even", node_of, np.zeros_like(node_of), [Reason("put there")])
    assert sorted(first.after.node_load.values()) == pytest.approx([0.125, 0.125, 0.25, 0.5])
    runtime = FakeRuntime(topology, first, cluster, lambda _: 16_000.0)
    events: dict[int, Event] = {}
    strategy = MsStream(epochs=60, groups=4)
    loop = Loop(
        runtime,
        strategy,
        replace(settings, max_nodes=4, min_nodes=4),
        clock=time.perf_counter,
        listener=lambda event: events.update({event.number: event}),
    )
    for _ in range(80):
        runtime.run()
        loop.tick()
    assert loop.assessment is not None
    assert loop.assessment.cost is not None
    assert loop.assessment.cost.lin <= 0.4
    done = [e for e in events.values() if e.status is DecisionStatus.DONE]
    assert len(done) == 1
    assert done[0].gained is not None
    assert done[0].gained.came


def level(now_s: float) -> float:
    return 2000.0 if now_s < 60 else 5000.0 if now_s < 160 else 2000.0


@pytest.mark.parametrize("strategy", ["ra", "ts", "sl"])
def test_nodes_follow_the_rate(strategy: str) -> None:
    watched = scene(level, strategy=strategy, nodes=3, settings=Settings(max_nodes=8))
    used = []
    for batches in (55, 100, 120):
        watched.run(batches)
        used.append(len(np.unique(watched.runtime.plan.node_of)))
    assert used[0] < used[1], "more for more"
    assert used[2] < used[1], "and fewer again"


def test_parallelism_follows_the_rate_under_sra() -> None:
    watched = scene(level, strategy="sra", nodes=3, settings=Settings(max_nodes=8))
    counts = []
    for batches in (55, 100, 120):
        watched.run(batches)
        counts.append(sum(watched.runtime.plan.parallelism.values()))
    assert counts[0] < counts[1] > counts[2]


def test_ms_repartitions_the_keys_of_an_operator_that_lags() -> None:
    plan = first_plan("ms", small_nodes(4))
    # Each partition of the first instance has so much that it gets far more than twice the mean.
    home = np.array(plan.routing["count"].partitions)
    weights = np.where(home == 0, 8.0, 1.0)
    skewed = scene(
        lambda _: 1200.0,
        strategy="ms",
        settings=Settings(min_nodes=4),
        plan=plan,
        weights={"count": weights / weights.sum()},
    )
    skewed.run(80)
    repartitioned = [e for e in skewed.events.values() if e.partitions]
    assert repartitioned
    assert repartitioned[0].gained is not None
    assert repartitioned[0].gained.came
    assert skewed.loop.assessment is not None
    assert skewed.loop.assessment.lit["count"] <= 1.0 + 1e-9, "chi"
    assert (skewed.runtime.plan.node_of == plan.node_of).all(), "only keys moved"
