"""Whatever fails, and whenever: the loop goes on, within its bounds, and says what it did."""

from __future__ import annotations

import numpy as np
import pytest
from tests.control.scene import scene

from penstock.control.events import DecisionStatus, Event
from penstock.control.runtime import SPARE
from penstock.control.settings import Settings
from penstock.control.states import State
from penstock.testing import FakeRuntime

MOST, LEAST = 6, 2
METHODS = ("apply", "request_nodes", "release_nodes")


def disturb(runtime: FakeRuntime, rng: np.random.Generator) -> None:
    """Break or mend something, now and then."""
    what = rng.integers(0, 40)
    if what == 0 and len(runtime.cluster) > 1:
        runtime.lose(runtime.cluster.names[int(rng.integers(len(runtime.cluster)))])
    elif what == 1:
        runtime.fails[METHODS[int(rng.integers(3))]] = "it does not work today"
    elif what in (2, 3):
        runtime.fails.clear()
    elif what == 4:
        runtime.taken[runtime.cluster.names[0]] = float(rng.uniform(0, 0.9))
    elif what == 5:
        runtime.taken.clear()
    elif what == 6:
        runtime.start_batches = None if runtime.start_batches else 3


@pytest.mark.parametrize("strategy", ["penstock", "ra", "sra"])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_loop_survives_anything(strategy: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = rng.uniform(300, 4500, 40)
    settings = Settings(
        every=2,
        cooldown=3,
        node_wait=6,
        min_nodes=LEAST,
        max_nodes=MOST,
        max_moves=12,
        max_moves_share=0,
    )
    wild = scene(
        lambda t: float(levels[int(t // 25) % 40]),
        strategy=strategy,
        settings=settings,
        noise=0.1,
        seed=seed,
    )
    runtime = wild.runtime
    for _ in range(150):
        disturb(runtime, rng)
        live = len(runtime.cluster)
        wild.run(1)
        plan = runtime.plan
        assert len(runtime.cluster) <= MOST
        # Only a crash takes nodes below the minimum, never a release.
        assert len(runtime.cluster) >= min(live, LEAST)
        assert not any(name.startswith(SPARE) for name in plan.active)
        assert sum(plan.parallelism.values()) == len(plan.node_of)
    numbers = [event.number for event in wild.told]
    assert max(numbers) == len(wild.events)
    for event in wild.told:
        assert Event.from_dict(event.to_dict()) == event
    runtime.fails.clear()
    runtime.taken.clear()
    runtime.start_batches = 3
    runtime.rate = lambda _: 1000.0
    runtime.noise = 0.0
    wild.run(200)
    assert wild.loop.state is State.IDLE
    assert {s.node for spots in runtime.plan.placement.values() for s in spots} <= set(
        runtime.cluster.names
    )
    ends = {
        DecisionStatus.DONE,
        DecisionStatus.REFUSED,
        DecisionStatus.FAILED,
        DecisionStatus.GIVEN_UP,
        DecisionStatus.NOTED,
    }
    assert {event.status for event in wild.events.values()} <= ends
