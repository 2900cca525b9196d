"""A word count on small nodes, and a loop that is driven by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.control.events import Event
from penstock.control.loop import Loop
from penstock.control.settings import Settings
from penstock.model import Cluster, Edge, Grouping, Kind, Operator, Plan, Topology
from penstock.strategies import Request, strategies
from penstock.testing.fake_runtime import FakeRuntime

WORDS = Topology(
    "wordcount",
    (
        Operator("lines", Kind.SOURCE, 4, cpu_us_per_tuple=50, mem_mb=100, rate_per_s=2_000),
        Operator("split", parallelism=8, cpu_us_per_tuple=200, mem_mb=100, selectivity=5),
        Operator("count", Kind.STATEFUL, 8, cpu_us_per_tuple=40, mem_mb=200, state_mb=80),
    ),
    (Edge("lines", "split"), Edge("split", "count", Grouping.FIELDS)),
)


def small_nodes(count: int) -> Cluster:
    return Cluster.of(count, cpu_cores=1, mem_mb=4000, slots=32)


def first_plan(strategy: str, cluster: Cluster, topology: Topology = WORDS) -> Plan:
    plan = strategies.make(strategy).plan(Request(topology, cluster, rng=np.random.default_rng(0)))
    assert isinstance(plan, Plan)
    return plan


@dataclass
class Scene:
    """A runtime and its loop; events as they were last told, by number."""

    runtime: FakeRuntime
    loop: Loop
    events: dict[int, Event] = field(default_factory=dict)
    told: list[Event] = field(default_factory=list)

    def run(self, batches: int) -> None:
        for _ in range(batches):
            self.runtime.run()
            self.loop.tick()

    def hear(self, event: Event) -> None:
        self.events[event.number] = event
        self.told.append(event)

    def since(self, batch: int) -> list[Event]:
        return [e for e in self.events.values() if e.batch >= batch]


def scene(
    rate: Callable[[float], float] = lambda _: 2000.0,
    *,
    strategy: str | Any = "penstock",
    nodes: int = 4,
    settings: Settings | None = None,
    **runtime: Any,
) -> Scene:
    planner = strategies.make(strategy) if isinstance(strategy, str) else strategy
    cluster = small_nodes(nodes)
    plan = runtime.pop("plan", None) or first_plan(planner.name, cluster)
    fake = FakeRuntime(WORDS, plan, cluster, rate, **runtime)
    made: list[Scene] = []
    loop = Loop(
        fake, planner, settings, clock=lambda: 0.0, listener=lambda event: made[0].hear(event)
    )
    made.append(Scene(fake, loop))
    return made[0]
