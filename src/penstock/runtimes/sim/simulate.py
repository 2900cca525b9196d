"""A whole simulation: first plan, virtual time under the control loop, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.control.events import DecisionStatus
from penstock.control.events import Event as Decision
from penstock.control.explain import headline
from penstock.control.loop import Loop
from penstock.control.settings import Settings
from penstock.model import Cluster, Keep, Measurements, PenstockError, Plan, Topology
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.faults import SimulatedFault, SimulatedFaultKind
from penstock.runtimes.sim.moments import Moment, summarise
from penstock.runtimes.sim.recorder import SimulationRecorder
from penstock.runtimes.sim.runtime import SimRuntime
from penstock.runtimes.sim.workload import Workload
from penstock.strategies import Request, Strategy


@dataclass(frozen=True, eq=False)
class SimulatedEvent:
    """Something that happened: when, what, and whether the strategy decided it."""

    at_s: float
    text: str
    decision: bool = True


@dataclass(frozen=True, eq=False)
class SimulatedRun:
    """What came of a simulation.

    Parameters
    ----------
    strategy : str
    runtime : SimRuntime
        As it ended.
    first : Plan
    events : tuple of SimulatedEvent
        Faults, and all that the loop told.
    decisions : tuple of penstock.control.SimulatedEvent
        What the loop decided, each as it was known at the end.
    plans : int
        Plans that were applied after the first.
    """

    strategy: str
    runtime: SimRuntime
    first: Plan
    events: tuple[SimulatedEvent, ...]
    decisions: tuple[Decision, ...]
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
            "state_mb_moved": self.runtime.migrated_bytes / 1e6,
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
    faults: Sequence[SimulatedFault] = (),
    drop: bool = False,
    seed: int = 0,
    interval_s: float = 1.0,
    watch: Callable[[float], None] | None = None,
    control: Settings | None = None,
    recorder: SimulationRecorder | None = None,
) -> SimulatedRun:
    """Run a topology under a strategy in virtual time.

    Examples
    --------
    >>> from penstock.model import Edge, Kind, Operator
    >>> from penstock.pipeline.sources.rates import Profile
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
        How often the control loop evaluates; 0: the first plan stays.
    costs : CostProfile, optional
    faults : sequence of SimulatedFault
    drop : bool
    seed : int
        Of everything that is drawn.
    interval_s : float
        Length of the moments that are kept.
    watch : callable, optional
        Called with the virtual time now and then.
    control : Settings, optional
        Of the control loop, instead of those that `settings` makes of `every_s`.
    recorder : SimulationRecorder, optional
        Writes it into a metrics store.

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
    told: dict[int, Decision] = {}

    def hear(event: Decision) -> None:
        told[event.number] = event
        if recorder is not None:
            recorder.decided(event)

    loop: Loop | None = None
    if every_s:
        loop = Loop(
            runtime,
            strategy,
            control or settings(cluster, faults, every_s, interval_s),
            clock=lambda: runtime.now_s,
            seed=seed,
            listener=hear,
        )
    while runtime.now_s < seconds - 1e-9:
        _advance(runtime, min(interval_s, seconds - runtime.now_s), recorder)
        if watch is not None:
            watch(runtime.now_s)
        if loop is not None:
            loop.tick()
    if recorder is not None:
        recorder.end()
    decisions = tuple(e for e in told.values() if e.status is not DecisionStatus.NOTED)
    events = _events(faults, told.values())
    return SimulatedRun(strategy.name, runtime, first, events, decisions, runtime.changes)


def _advance(runtime: SimRuntime, seconds: float, recorder: SimulationRecorder | None) -> None:
    """Let an interval pass, and write it down."""
    if recorder is not None:
        recorder.plan(runtime.plan)
    runtime.advance(seconds)
    if recorder is not None and runtime.last_step is not None:
        recorder.moment(runtime.moments[-1], runtime.fluid, runtime.last_step)


def _events(
    faults: Sequence[SimulatedFault], told: Iterable[Decision]
) -> tuple[SimulatedEvent, ...]:
    """Faults and decisions, in the order in which they happened."""
    events = [SimulatedEvent(fault.at_s, str(fault), decision=False) for fault in faults]
    events += [
        SimulatedEvent(e.now_s, headline(e), e.status is not DecisionStatus.NOTED) for e in told
    ]
    return tuple(sorted(events, key=lambda e: e.at_s))


def settings(
    cluster: Cluster, faults: Sequence[SimulatedFault], every_s: float, interval_s: float
) -> Settings:
    """Make settings of the loop: its own, evaluating so often, with all nodes that will be there.

    A batch of the loop is an interval of the simulation. As many nodes are never released as faults
    will kill, and one more: nothing can run on none.
    """
    added = sum(fault.count for fault in faults if fault.kind is SimulatedFaultKind.ADD_NODE)
    killed = sum(fault.kind is SimulatedFaultKind.KILL_NODE for fault in faults)
    return Settings(
        every=max(1, round(every_s / interval_s)),
        min_nodes=min(len(cluster), 1 + killed),
        max_nodes=len(cluster) + added,
    )


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
    if isinstance(answer, Keep):
        raise PenstockError(f"the strategy has no first plan: {answer.reasons[0]}")
    return answer
