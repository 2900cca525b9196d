"""A strategy for a query that stays as it is: what it cannot have is said as advice. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from penstock.control.rollout import priced
from penstock.model import Keep, Kind, Plan, Reason, Spot, diff
from penstock.runtimes.attached.balance import Halves, balanced, time_with_state
from penstock.strategies import Request, Strategy

#: How the reasons begin that only a person can act on.
ADVICE = "advice: "

#: Part of the time without a batch from which on a query is taken to wait for its trigger, and the
#: part by which batches of one that does not may grow for fewer nodes.
PAUSES, STRETCH = 0.1, 0.1


@dataclass(frozen=True)
class Unchanged:
    """Asks a strategy, and takes of its plan what an unchanged query can have.

    State partitions are placed as it says. The number of partitions, the split of hot keys and
    the placement of the other stages are the query's and Spark's own; where the strategy would
    have them otherwise the plan says so in its reasons.

    Parameters
    ----------
    strategy : Strategy
    balance : bool
        Spread heavy state partitions even where no node is overloaded: a batch waits for the
        executor with the most work.
    least_nodes : int
        Nodes that stay whatever is planned: to use fewer of them would save nothing.
    idle_share : float
        Part of the time in which no batch runs. Where it is next to nothing a batch follows the
        other, and nodes are given up only if batches take hardly longer without them.
    halves : mapping, optional
        As in `balanced`.
    """

    name: ClassVar[str] = "unchanged"
    summary: ClassVar[str] = "another strategy's plan, as far as an unchanged query can have it"
    origin: ClassVar[str] = "Penstock"

    strategy: Strategy
    balance: bool = False
    least_nodes: int = 0
    idle_share: float = 1.0
    halves: Halves | None = None

    def plan(self, request: Request) -> Plan | Keep:
        """Plan, or keep the running plan."""
        answer = self.strategy.plan(request)
        made = answer if isinstance(answer, Keep) else fitted(answer, request)
        if not self.balance:
            return made
        if isinstance(made, Plan) and request.running is not None:
            made = _worth_it(made, request.running)
        base = made if isinstance(made, Plan) else request.running
        better = (
            balanced(base, request, self.least_nodes, self.halves) if base is not None else None
        )
        if better is not None:
            made = priced(better, request.topology, request.cluster, request.measurements)
        if not isinstance(made, Plan):
            return made
        return self._not_too_tight(made, request)

    def _not_too_tight(self, plan: Plan, request: Request) -> Plan | Keep:
        """Keep the running plan where one on fewer nodes would make every batch longer."""
        running = request.running
        if running is None or request.measurements is None or self.idle_share >= PAUSES:
            return plan
        if (running.node_of_in(request.cluster) < 0).any() or len(plan.active) >= len(
            running.active
        ):
            return plan
        longer = time_with_state(plan, request) - time_with_state(running, request)
        if longer <= STRETCH:
            return plan
        text = (
            f"batches follow each other without a pause, and on {len(plan.active)} instead of "
            f"{len(running.active)} nodes they would take {longer:.0%} longer"
        )
        return Keep((Reason(text, {"longer": longer, "nodes": len(plan.active)}),))


def _worth_it(plan: Plan, running: Plan) -> Plan | Keep:
    """Keep the running plan where another one uses the same nodes.

    It would save a part of what goes between partitions and tasks of other stages, and those run
    wherever Spark likes. How partitions are spread over the nodes is looked at apart from it.
    """
    if set(plan.active) != set(running.active):
        return plan
    told = tuple(reason for reason in plan.reasons if reason.text.startswith(ADVICE))
    return Keep((Reason(f"the {len(running.active)} nodes in use stay"), *told))


def fitted(plan: Plan, request: Request) -> Plan | Keep:
    """Fit a plan to a query whose partitions are given and whose other stages Spark places."""
    topology = request.topology
    spots: list[Spot] = []
    stateful = [o.name for o in topology.operators if o.kind is Kind.STATEFUL]
    nodes = _nodes(plan, stateful)
    for operator in topology.operators:
        own = plan.placement.get(operator.name, ())
        if operator.kind is Kind.STATEFUL and own:
            spots += [own[i % len(own)] for i in range(operator.parallelism)]
        else:
            spots += _stay(operator.name, operator.parallelism, nodes, request)
    position = {name: at for at, name in enumerate(plan.nodes)}
    made = replace(
        plan,
        parallelism=topology.parallelism,
        node_of=np.array([position[spot.node] for spot in spots]),
        process_of=np.array([spot.process for spot in spots]),
        routing={},
        active=(),
        reasons=(*plan.reasons, *advice(plan, request)),
    )
    running = request.running
    if running is not None and diff(running, made).empty:
        return Keep(made.reasons)
    return priced(made, topology, request.cluster, request.measurements)


def advice(plan: Plan, request: Request) -> Iterator[Reason]:
    """Say what a strategy wants that only a change of the query or its settings can give."""
    for operator in request.topology.operators:
        wanted = plan.parallelism.get(operator.name, operator.parallelism)
        if wanted != operator.parallelism and operator.kind is Kind.STATEFUL:
            text = (
                f"{ADVICE}{plan.strategy} would give {operator.name} {wanted} state partitions "
                f"instead of {operator.parallelism}; that takes spark.sql.shuffle.partitions="
                f"{wanted} and a checkpoint that is repartitioned or new"
            )
            yield Reason(text, {"partitions": operator.parallelism, "wanted": wanted})
        elif wanted != operator.parallelism:
            text = (
                f"{ADVICE}{plan.strategy} would run {operator.name} in {wanted} tasks instead of "
                f"{operator.parallelism}; the source's own options set that"
            )
            yield Reason(text, {"tasks": operator.parallelism, "wanted": wanted})
    for name, table in plan.routing.items():
        if table.split:
            text = (
                f"{ADVICE}{plan.strategy} would split {len(table.split)} hot keys of {name}; "
                "in the query that is an aggregation in two steps, by key and a random number first"
            )
            yield Reason(text, {"hot_keys": len(table.split)})


def _nodes(plan: Plan, stateful: list[str]) -> tuple[str, ...]:
    """Nodes that a plan has state partitions on; those that it keeps where there are none."""
    used = {spot.node for name in stateful for spot in plan.placement.get(name, ())}
    return tuple(name for name in plan.nodes if name in used) or plan.active


def _stay(name: str, count: int, nodes: tuple[str, ...], request: Request) -> list[Spot]:
    """Spread tasks that Spark places over the nodes in use, those of now first."""
    running = request.running
    before: Any = running.placement.get(name, ()) if running is not None else ()
    if len(before) == count and {spot.node for spot in before} == set(nodes):
        return list(before)
    return [Spot(nodes[i % len(nodes)]) for i in range(count)]
