"""How an experiment runs a system: steady rates, and the most that it sustains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.model import Cluster, Topology
from penstock.pipeline.profile import Profile
from penstock.runtimes.sim.drive import Run, simulate
from penstock.runtimes.sim.experiments.physics import KEYS, PHYSICS
from penstock.runtimes.sim.keys import KeySpace
from penstock.runtimes.sim.runtime import Workload, scaled
from penstock.strategies import strategies

#: Virtual time of a steady trial, and the part of it that is left out as warming up.
SECONDS, WARM_S = 240.0, 120.0

#: Part of the arriving tuples that must be processed for a rate to be sustained.
SUSTAINED = 0.99

#: How much the tuples of a second vary, as a coefficient of variation.
NOISE = 0.05

SEED = 0


@dataclass(frozen=True)
class System:
    """What is compared: a strategy, and how keys are dealt where its plans have no table.

    Parameters
    ----------
    label : str
        As in the paper.
    strategy : str
    router : str
        Of keyed edges; empty for that of the plan, or ``hash``.
    adapted : callable
        Changes the topology as the system needs it, for instance by a merge behind split keys.
    """

    label: str
    strategy: str
    router: str = ""
    adapted: Callable[[Topology], Topology] = field(default=lambda topology: topology)


def run(
    system: System,
    topology: Topology,
    cluster: Cluster,
    rate: Profile | str | float,
    *,
    zipf: float = 0.8,
    seconds: float = SECONDS,
    each: bool = False,
) -> Run:
    """Simulate a system; `each` gives every source the whole rate instead of its part."""
    topology = system.adapted(topology)
    keys = KeySpace(KEYS, zipf, SEED)
    profile = Profile.of(rate)
    part = profile if each else scaled(profile, 1.0 / len(topology.sources))
    routers = {o.name: system.router for o in topology.operators} if system.router else {}
    workload = Workload({o.name: part for o in topology.sources}, keys, NOISE, routers)
    return simulate(
        topology,
        cluster,
        strategies.make(system.strategy),
        workload,
        seconds=seconds,
        costs=PHYSICS,
        seed=SEED,
    )


def steady(
    system: System, topology: Topology, cluster: Cluster, rate: float, **more: Any
) -> Mapping[str, Any]:
    """Figures of a system at a steady rate, once it has settled."""
    return run(system, topology, cluster, rate, **more).summary(WARM_S)


def bottleneck(
    system: System, topology: Topology, cluster: Cluster, *, step: float = 500.0, **more: Any
) -> float:
    """Return the highest multiple of `step` tuples a second that a system sustains."""

    def holds(count: int) -> bool:
        found = run(system, topology, cluster, count * step, seconds=120.0, **more).summary(60.0)
        return bool(found["throughput_per_s"] >= SUSTAINED * found["arriving_per_s"])

    low, high = 0, 16
    while holds(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low * step


def typical(values: Iterable[float]) -> float:
    """Geometric mean: what rates or skews have in common, not dominated by the one overloaded."""
    kept = [math.log(max(value, 1e-9)) for value in values]
    return math.exp(sum(kept) / len(kept))
