"""A whole simulation: first plan, time, questions to the strategy, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.control.port import ActionFailed
from penstock.model import Cluster, Measurements, Plan, Topology
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.faults import Fault
from penstock.runtimes.sim.record import Moment, summarise
from penstock.runtimes.sim.runtime import SimRuntime
from penstock.runtimes.sim.workload import Workload
from penstock.strategies import Request, Strategy

#: Windows before the latest that a strategy is shown.
RECENT = 3


@dataclass(frozen=True, eq=False)
class Event:
    """Something that happened: when, what, and whether the strategy decided it."""

    at_s: float
    text: str
    decision: bool = True


@dataclass(frozen=True, eq=False)
class Run:
    """What came of a simulation.

    Parameters
    ----------
    strategy : str
    runtime : SimRuntime
        As it ended.
    first : Plan
    events : tuple of Event
    plans : int
        Plans that were applied after the first.
    """

    strategy: str
    runtime: SimRuntime
    first: Plan
    events: tuple[Event, ...]
    plans: int

    @property
    def moments(self) -> Sequence[Moment]:
        """Every interval."""
        return self.runtime.moments

    def summary(self, since_s: float = 0.0) -> dict[str, Any]:
        """Figures of the run from a time on, as plain values."""
        figures = summarise(self.moments, since_s)
        return {
            "strategy": self.strategy,
            **figures,
            "plans": self.plans,
            "state_mb_moved": self.runtime.carried_bytes / 1e6,
        }


def simulate(
    topology: Topology,
    cluster: Cluster,
    strategy: Strategy,
    workload: Workload,
    *,
    seconds: float = 120.0,
    every_s: float = 10.0,
    costs: CostProfile | None = None,
    faults: Sequence[Fault] = (),
    drop: bool = False,
    seed: int = 0,
    interval_s: float = 1.0,
    watch: Callable[[float], None] | None = None,
) -> Run:
    """Run a topology under a strategy in virtual time.

    Examples
    --------
    >>> from penstock.model import Edge, Kind, Operator
    >>> from penstock.pipeline.profile import Profile
    >>> from penstock.strategies import strategies
    >>> pair = Topology("pair", (Operator("read", Kind.SOURCE, cpu_us_per_tuple=100),
    ...     Operator("work", parallelism=2, cpu_us_per_tuple=500)), (Edge("read", "work"),))
    >>> run = simulate(pair, Cluster.of(2), strategies.make("even"),
    ...     Workload({"read": Profile.constant(1000)}), seconds=20)
    >>> round(run.summary()["throughput_per_s"])
    1000

    Parameters
    ----------
    topology : Topology
    cluster : Cluster
    strategy : Strategy
    workload : Workload
    seconds : float
        Virtual time.
    every_s : float
        How often the strategy is asked; 0: only for the first plan.
    costs : CostProfile, optional
    faults : sequence of Fault
    drop : bool
    seed : int
        Of everything that is drawn.
    interval_s : float
        Length of the moments that are kept.
    watch : callable, optional
        Called with the virtual time now and then.

    Raises
    ------
    Refused
        When the strategy does not take the first request.
    """
    first = first_plan(topology, cluster, strategy, workload, costs or CostProfile(), seed)
    runtime = SimRuntime(
        topology,
        cluster,
        first,
        workload,
        costs=costs,
        faults=faults,
        drop=drop,
        seed=seed,
        interval_s=interval_s,
    )
    events = [Event(fault.at_s, str(fault), decision=False) for fault in faults]
    recent: list[Measurements] = []
    plans = 0
    while runtime.now_s < seconds - 1e-9:
        left = seconds - runtime.now_s
        runtime.advance(min(every_s or interval_s, left))
        if watch is not None:
            watch(runtime.now_s)
        if every_s and runtime.now_s < seconds - 1e-9:
            event = consult(runtime, strategy, recent, seed)
            if event is not None:
                events.append(event)
                plans += 1
    events.sort(key=lambda e: e.at_s)
    return Run(strategy.name, runtime, first, tuple(events), plans)


def first_plan(
    topology: Topology,
    cluster: Cluster,
    strategy: Strategy,
    workload: Workload,
    costs: CostProfile,
    seed: int,
) -> Plan:
    """Ask for the plan that a run starts with: all that is known are the rates of the sources."""
    rates = {name: profile.rate(0.0) for name, profile in workload.rates.items()}
    answer = strategy.plan(
        Request(
            topology,
            cluster,
            Measurements(source_rates=rates),
            rng=np.random.default_rng(seed),
        )
    )
    assert isinstance(answer, Plan), "without a running plan a strategy never keeps it"
    return answer


def consult(
    runtime: SimRuntime, strategy: Strategy, recent: list[Measurements], seed: int
) -> Event | None:
    """Ask the strategy once and do what it says; to be replaced by the control loop."""
    seen = runtime.observe()
    if seen.measurements is None and all(n in seen.cluster.index for n in runtime.plan.active):
        return None
    answer = strategy.plan(
        Request(
            runtime.topology,
            seen.cluster,
            seen.measurements,
            runtime.plan,
            now_s=seen.now_s,
            rng=np.random.default_rng(seed),
            recent=tuple(recent),
        )
    )
    if seen.measurements is not None:
        recent[:] = [*recent, seen.measurements][-RECENT:]
    if not isinstance(answer, Plan):
        return None
    try:
        applied = runtime.apply(answer)
    except ActionFailed as error:
        return Event(seen.now_s, f"failed: {error}")
    why = str(answer.reasons[0])
    return Event(seen.now_s, f"{why}; {applied.state_bytes / 1e6:.3g} MB moved")
