"""From one plan to the next in steps, with the plan that is in force after each of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.common.arrays import frozen_ints
from penstock.model import (
    Cluster,
    Cost,
    InvalidValue,
    Kind,
    Measurements,
    MigrationStep,
    Move,
    Plan,
    Reason,
    RoutingTable,
    Spot,
    Topology,
    evaluate,
    expand,
)


@dataclass(frozen=True, eq=False)
class RolloutStage:
    """What is moved at one batch boundary, and the plan that it leads to."""

    plan: Plan
    moves: tuple[Move, ...] = ()
    partitions: int = 0


def stages_of(
    running: Plan,
    target: Plan,
    steps: tuple[MigrationStep, ...],
    topology: Topology,
    price: Callable[[Plan], Plan],
) -> tuple[RolloutStage, ...]:
    """Build the plan at each batch boundary; the last one is the target itself.

    A change that moves nothing, as of the keys that are split, is one stage.

    Parameters
    ----------
    price : callable
        Gives a plan its cost; what stands between two plans was priced by nobody.
    """
    if not steps:
        return (RolloutStage(target),)
    made: list[RolloutStage] = []
    walk = _Walk.of(running)
    together = gathered(steps, topology)
    for number, group in enumerate(together, start=1):
        for step in group:
            walk = walk.after(step, target)
        last = number == len(together)
        plan = target if last else price(walk.plan(target, number, len(together)))
        moves = tuple(move for step in group for move in step.moves)
        made.append(RolloutStage(plan, moves, sum(len(step.partitions) for step in group)))
    return tuple(made)


def gathered(
    steps: tuple[MigrationStep, ...], topology: Topology
) -> tuple[tuple[MigrationStep, ...], ...]:
    """Make steps that carry no state together with the next one that does, or with the last.

    Between two batches an instance without state moves for free: a batch of its own would only
    delay what comes after it.
    """
    groups: list[list[MigrationStep]] = [[]]
    for step in steps:
        groups[-1].append(step)
        operators = {m.operator for m in step.moves} | {p.operator for p in step.partitions}
        if any(topology[name].kind is Kind.STATEFUL for name in operators):
            groups.append([])
    rest = groups.pop()
    if groups:
        groups[-1] += rest
    else:
        groups = [rest]
    return tuple(tuple(group) for group in groups)


def limited(steps: tuple[MigrationStep, ...], max_moves: int) -> tuple[MigrationStep, ...]:
    """Keep the steps from the first on in which no more instances move than allowed.

    Only instances that go from one spot to another count: one that is new or that goes carries no
    load. The step that goes too far is cut, without the router partitions that were to follow it.
    """
    kept: list[MigrationStep] = []
    left = max_moves
    for step in steps:
        shifted = tuple(m for m in step.moves if m.origin is not None and m.target is not None)
        if len(shifted) <= left:
            kept.append(step)
            left -= len(shifted)
            continue
        new = tuple(m for m in step.moves if m.origin is None)
        if new or left:
            kept.append(replace(step, moves=(*new, *shifted[:left]), partitions=()))
        break
    return tuple(kept)


def plan_after(running: Plan, target: Plan, steps: tuple[MigrationStep, ...]) -> Plan:
    """Return the plan that some of the steps lead to; its cost is still the target's."""
    walk = _Walk.of(running)
    for step in steps:
        walk = walk.after(step, target)
    return walk.plan(target, len(steps), len(steps))


def priced(
    plan: Plan, topology: Topology, cluster: Cluster, measurements: Measurements | None
) -> Plan:
    """Give a plan the cost that it has on a cluster at some rates."""
    return replace(plan, after=cost_on(plan, topology, cluster, measurements) or plan.after)


def cost_on(
    plan: Plan, topology: Topology, cluster: Cluster, measurements: Measurements | None
) -> Cost | None:
    """Cost of a plan on a cluster at some rates; None when it uses what the cluster lacks."""
    node_of = plan.node_of_in(cluster)
    if (node_of < 0).any() or (plan.process_of >= cluster.processes[node_of]).any():
        return None
    graph = expand(topology.with_parallelism(plan.parallelism), measurements)
    return evaluate(graph, cluster, node_of, plan.process_of)


@dataclass(frozen=True)
class _Walk:
    """Spots and tables on the way from one plan to another."""

    spots: Mapping[str, tuple[Spot, ...]]
    routing: Mapping[str, RoutingTable]
    nodes: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan) -> _Walk:
        return cls(dict(plan.placement), dict(plan.routing), plan.nodes)

    def after(self, step: MigrationStep, target: Plan) -> _Walk:
        spots = {name: list(own) for name, own in self.spots.items()}
        for move in step.moves:
            own = spots.setdefault(move.operator, [])
            if move.origin is None and move.target is not None and move.index == len(own):
                own.append(move.target)
            elif move.target is not None and move.index < len(own):
                own[move.index] = move.target
            elif move.target is not None:
                where = f"a step of operator {move.operator!r}"
                raise InvalidValue("index", where, f"at most {len(own)}", move.index)
        gone = [m for m in step.moves if m.target is None]
        for move in sorted(gone, key=lambda m: -m.index):
            del spots[move.operator][move.index]
        routing = dict(self.routing)
        # Only now are all instances there that the new tables point to.
        changed = {m.operator for m in step.moves} | {p.operator for p in step.partitions}
        for name in changed if step.half else ():
            table = target.routing.get(name)
            if table is not None:
                routing[name] = table
            else:
                routing.pop(name, None)
        return _Walk({n: tuple(own) for n, own in spots.items()}, routing, self.nodes)

    def plan(self, target: Plan, number: int, count: int) -> Plan:
        order = [name for name in target.parallelism if self.spots.get(name)]
        spots = [spot for name in order for spot in self.spots[name]]
        used = {spot.node for spot in spots}
        names = (*target.nodes, *(n for n in self.nodes if n not in target.nodes))
        position = {name: i for i, name in enumerate(names)}
        note = Reason(f"step {number} of {count} towards the next plan")
        return replace(
            target,
            parallelism={name: len(self.spots[name]) for name in order},
            nodes=names,
            node_of=frozen_ints([position[spot.node] for spot in spots]),
            process_of=frozen_ints([spot.process for spot in spots]),
            routing=self.routing,
            active=tuple(n for n in names if n in used),
            reasons=(note, *target.reasons),
        )
