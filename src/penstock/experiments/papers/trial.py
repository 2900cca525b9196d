"""How an experiment runs a system: steady rates, and the most that it sustains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

from penstock.control.settings import Settings
from penstock.experiments.papers.physics import KEYS, PHYSICS
from penstock.model import Cluster, Keep, Plan, Reason, Topology
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.sim.keys import KeySpace
from penstock.runtimes.sim.simulate import SimulatedRun, simulate
from penstock.runtimes.sim.workload import Workload, scaled
from penstock.strategies import Request, Strategy, strategies

#: Virtual time of a steady trial, and the part of it that is left out as warming up.
SECONDS, WARM_S = 240.0, 120.0

#: Part of the arriving tuples that must be processed for a rate to be sustained.
SUSTAINED = 0.99

#: How much the tuples of a second vary, as a coefficient of variation.
NOISE = 0.05

#: How exactly a maximum is looked for, as a part of it.
FINENESS = 0.04

#: What Storm takes a task for that declares nothing: percent of a core, and MB.
DECLARED_CPU_PCT, DECLARED_MB = 10.0, 128.0

#: When schedulers that plan at submission have seen enough.
SETTLED_S = 30.0

SEED = 0

#: The papers' systems act as soon as their trigger says so, and move all that they want to.
AT_ONCE = Settings(every=10, cooldown=0, stable_rounds=1, verify=1, max_moves=1_000_000)


@dataclass(frozen=True)
class System:
    """What is compared: a strategy, and how keys are distributed where its plans have no table.

    Parameters
    ----------
    label : str
        As in the paper.
    strategy : str
    settles : bool
        Whether it plans at submission only. It is then asked until `SETTLED_S`, so that it knows
        what was measured, and no more.
    router : str
        Of keyed edges; empty for that of the plan, or ``hash``.
    adapted : callable
        Changes the topology as the system needs it, for instance by a merge behind split keys.
    declared : bool
        Whether it knows what users declare and nothing that was measured, as in Storm.
    parameters : mapping
        Of the strategy; the others are its defaults.
    """

    label: str
    strategy: str
    settles: bool = False
    router: str = ""
    adapted: Callable[[Topology], Topology] = field(default=lambda topology: topology)
    declared: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def alone(self, label: str) -> System:
        """Return the paper's algorithm without the local search that is ours."""
        return replace(self, label=label, parameters={**self.parameters, "polish": 0})


@dataclass(frozen=True)
class Declared:
    """A strategy that sees what users declare, and nothing that was measured.

    The papers do not say what they declared, so it is Storm's defaults: every task takes a tenth of
    a core and 128 MB (``topology.component.cpu.pcore.percent``,
    ``topology.component.resources.onheap.memory.mb``).
    """

    name: str
    inner: Strategy
    summary: ClassVar[str] = "plans by what is declared"
    origin: ClassVar[str] = "experiments"

    def plan(self, request: Request) -> Plan | Keep:
        """Pass the request on with what is declared in place of what is known."""
        operators = tuple(
            replace(
                o,
                cpu_us_per_tuple=0.0,
                cpu_pct=DECLARED_CPU_PCT,
                mem_mb=DECLARED_MB,
                state_mb=0.0,
            )
            for o in request.topology.operators
        )
        topology = replace(request.topology, operators=operators)
        return self.inner.plan(replace(request, topology=topology, measurements=None, recent=()))


@dataclass(frozen=True)
class Settling:
    """A strategy that plans at submission, and again only when a node of its plan is gone."""

    name: str
    inner: Strategy
    summary: ClassVar[str] = "plans for a while, then keeps its plan"
    origin: ClassVar[str] = "experiments"

    def plan(self, request: Request) -> Plan | Keep:
        """Pass the request on, or keep the plan."""
        running = request.running
        if running is None or request.now_s <= SETTLED_S:
            return self.inner.plan(request)
        if any(name not in request.cluster.index for name in running.active):
            return self.inner.plan(request)
        return Keep((Reason("the scheduler plans at submission only"),))


def run(
    system: System,
    topology: Topology,
    cluster: Cluster,
    rate: Profile | str | float,
    *,
    zipf: float = 0.8,
    seconds: float = SECONDS,
    each: bool = False,
) -> SimulatedRun:
    """Simulate a system; `each` gives every source the whole rate instead of its part."""
    topology = system.adapted(topology)
    keys = KeySpace(KEYS, zipf, SEED)
    profile = Profile.of(rate)
    part = profile if each else scaled(profile, 1.0 / len(topology.sources))
    routers = {o.name: system.router for o in topology.operators} if system.router else {}
    workload = Workload({o.name: part for o in topology.sources}, keys, NOISE, routers)
    strategy: Strategy = strategies.make(system.strategy, **system.parameters)
    if system.declared:
        strategy = cast(Strategy, Declared(strategy.name, strategy))
    if system.settles:
        strategy = cast(Strategy, Settling(strategy.name, strategy))
    return simulate(
        topology,
        cluster,
        strategy,
        workload,
        seconds=seconds,
        costs=PHYSICS,
        seed=SEED,
        control=replace(AT_ONCE, max_nodes=len(cluster)),
    )


def steady(
    system: System, topology: Topology, cluster: Cluster, rate: float, **more: Any
) -> Mapping[str, Any]:
    """Figures of a system at a steady rate, once it has settled."""
    return run(system, topology, cluster, rate, **more).summary(WARM_S)


def bottleneck(
    system: System, topology: Topology, cluster: Cluster, *, step: float = 500.0, **more: Any
) -> float:
    """Return a rate, in steps, that a system sustains, and no more than `FINENESS` below the most.

    The papers raise the rate step by step; halving the distance asks less.
    """

    def holds(count: int) -> bool:
        found = run(system, topology, cluster, count * step, seconds=80.0, **more).summary(40.0)
        return bool(found["throughput_per_s"] >= SUSTAINED * found["arriving_per_s"])

    low, high = 0, 32
    while holds(high):
        low, high = high, high * 2
    while high - low > max(1, FINENESS * low):
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low * step


def typical(values: Iterable[float]) -> float:
    """Geometric mean: what rates or skews have in common, not dominated by the one overloaded."""
    kept = [math.log(max(value, 1e-9)) for value in values]
    return math.exp(sum(kept) / len(kept))
