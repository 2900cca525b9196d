"""Topologies and plans for the simulator's tests."""

from __future__ import annotations

import numpy as np

from penstock.model import Cluster, Edge, Grouping, Kind, Operator, Plan, Reason, Topology
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.sim import CostProfile, KeySpace, SimRuntime, Workload
from penstock.strategies.api import Request, make_plan

#: Nothing costs but the work itself.
FREE = CostProfile.bare()


def words(
    lines: int = 2, split: int = 4, count: int = 6, *, cpu_us: float = 50.0, state_mb: float = 100.0
) -> Topology:
    return Topology(
        "words",
        (
            Operator("lines", Kind.SOURCE, lines, cpu_us_per_tuple=cpu_us, mem_mb=100),
            Operator("split", parallelism=split, cpu_us_per_tuple=2 * cpu_us, selectivity=5),
            Operator("count", Kind.STATEFUL, count, cpu_us_per_tuple=cpu_us, state_mb=state_mb),
        ),
        (Edge("lines", "split"), Edge("split", "count", Grouping.FIELDS)),
    )


def single(cpu_us: float = 1000.0, parallelism: int = 1) -> Topology:
    """A source that costs nothing, and one operator that does."""
    return Topology(
        "single",
        (
            Operator("read", Kind.SOURCE),
            Operator("work", parallelism=parallelism, cpu_us_per_tuple=cpu_us),
        ),
        (Edge("read", "work"),),
    )


def placed(topology: Topology, cluster: Cluster, node_of: list[int]) -> Plan:
    request = Request(topology, cluster)
    nodes = np.array(node_of)
    return make_plan(request, "test", nodes, np.zeros(len(nodes), int), (Reason("a test"),))


def runtime(
    topology: Topology,
    cluster: Cluster,
    node_of: list[int],
    rate: float | str,
    *,
    keys: KeySpace | None = None,
    costs: CostProfile = FREE,
    **more: object,
) -> SimRuntime:
    names = [o.name for o in topology.sources]
    workload = Workload({name: Profile.of(rate) for name in names}, keys or KeySpace())
    plan = placed(topology, cluster, node_of)
    return SimRuntime(topology, cluster, plan, workload, costs=costs, **more)  # type: ignore[arg-type]
