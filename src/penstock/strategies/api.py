"""The contract of a strategy: one frozen request in, one plan or "keep" out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from penstock.common.arrays import IntArray
from penstock.common.registry import registry
from penstock.model import (
    Cluster,
    Cost,
    InstanceGraph,
    Keep,
    Measurements,
    Plan,
    Reason,
    RoutingTable,
    Topology,
    evaluate,
    expand,
    violations,
)


@dataclass(frozen=True, eq=False)
class Request:
    """All that a strategy may look at.

    Parameters
    ----------
    topology : Topology
    cluster : Cluster
    measurements : Measurements or None
        None before the first batch.
    running : Plan or None
        The plan that runs now; None for the first.
    now_s : float
        Time of the request, in seconds from any fixed start.
    rng : numpy.random.Generator
        The only source of randomness. Equal seeds give equal plans.
    recent : tuple of Measurements
        Windows before `measurements`, the latest last, for strategies that wait until something has
        lasted.
    exact_nodes : bool
        Use every node, and balance them no worse than `metis` would, so that cuts can be compared.
    """

    topology: Topology
    cluster: Cluster
    measurements: Measurements | None = None
    running: Plan | None = None
    now_s: float = 0.0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    recent: tuple[Measurements, ...] = ()
    exact_nodes: bool = False

    @cached_property
    def graph(self) -> InstanceGraph:
        """The topology expanded with what was measured."""
        return expand(self.topology, self.measurements)


@runtime_checkable
class Strategy(Protocol):
    """Something that plans.

    A strategy is a frozen dataclass whose constructor only stores parameters. It is pure: equal
    requests, seeds included, give equal answers.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    origin: ClassVar[str]

    def plan(self, request: Request) -> Plan | Keep:
        """Answer the request.

        Raises
        ------
        Refused
            When the strategy does not take requests of this kind or size.
        """
        ...


strategies, register = registry("strategy", "penstock.strategies", "penstock.strategies")


def make_plan(
    request: Request,
    strategy: str,
    node_of: IntArray,
    process_of: IntArray,
    reasons: Sequence[Reason],
    *,
    graph: InstanceGraph | None = None,
    routing: Mapping[str, RoutingTable] | None = None,
    active: tuple[str, ...] = (),
    pinned: bool = True,
) -> Plan:
    """Wrap a placement into a plan with its costs and with every limit that it breaks.

    Strategies end here, so that no plan can hide a violation.

    Parameters
    ----------
    graph : InstanceGraph, optional
        The graph that was placed, when the strategy changed the parallelism.
    """
    graph = graph or request.graph
    return Plan(
        strategy=strategy,
        topology=request.topology.name,
        parallelism=graph.topology.parallelism,
        nodes=request.cluster.names,
        node_of=node_of,
        process_of=process_of,
        after=evaluate(graph, request.cluster, node_of, process_of),
        before=cost_of_running(request),
        reasons=tuple(reasons),
        infeasible=violations(graph, request.cluster, node_of, process_of),
        active=active,
        routing=routing or {},
        pinned=pinned,
    )


def cost_of_running(request: Request) -> Cost | None:
    """Cost of the running plan at the rates of now; None without one, or when a node is gone."""
    running = request.running
    if running is None or set(running.parallelism) != set(request.topology.parallelism):
        return None
    node_of = running.node_of_in(request.cluster)
    if (node_of < 0).any() or (running.process_of >= request.cluster.processes[node_of]).any():
        return None
    graph = expand(request.topology.with_parallelism(running.parallelism), request.measurements)
    return evaluate(graph, request.cluster, node_of, running.process_of)
