"""From two plans to what moves, and from what moves to an order that keeps the stream going."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.common.errors import InvalidValue
from penstock.model.plan import Plan, Spot
from penstock.model.topology import Topology


@dataclass(frozen=True)
class Move:
    """One instance that moves, appears (`origin` is None) or goes (`target` is None)."""

    operator: str
    index: int
    origin: Spot | None
    target: Spot | None

    def __str__(self) -> str:
        return f"{self.operator}[{self.index}]: {self.origin or 'new'} -> {self.target or 'gone'}"


@dataclass(frozen=True)
class PartitionMove:
    """One router partition, with its state, that changes its instance."""

    operator: str
    partition: int
    origin: int
    target: int


@dataclass(frozen=True)
class Diff:
    """What differs between the running plan and the next."""

    moves: tuple[Move, ...] = ()
    partitions: tuple[PartitionMove, ...] = ()
    woken: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    split_changed: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing has to be done."""
        return self == Diff()


@dataclass(frozen=True)
class MigrationStep:
    """Moves that are made together, between two batches.

    Parameters
    ----------
    layer : int
        Layer of the operators that move.
    half : int
        0 for the first half of the layer's moves, 1 for the second.
    """

    layer: int
    half: int
    moves: tuple[Move, ...] = field(default=())
    partitions: tuple[PartitionMove, ...] = field(default=())


def diff(running: Plan, following: Plan) -> Diff:
    """Work out what moves when `following` replaces `running`.

    Raises
    ------
    InvalidValue
        When the two are plans of different topologies.
    """
    if running.topology != following.topology:
        raise InvalidValue("topology", "the next plan", repr(running.topology), following.topology)
    moves: list[Move] = []
    for operator in {**running.placement, **following.placement}:
        old = running.placement.get(operator, ())
        new = following.placement.get(operator, ())
        for index in range(max(len(old), len(new))):
            origin = old[index] if index < len(old) else None
            target = new[index] if index < len(new) else None
            if origin != target:
                moves.append(Move(operator, index, origin, target))
    partitions: list[PartitionMove] = []
    split_changed: list[str] = []
    for operator, table in following.routing.items():
        before = running.routing.get(operator)
        if before is None:
            continue
        if len(before.partitions) != len(table.partitions):
            raise InvalidValue(
                "routing",
                f"operator {operator!r}",
                f"a table of {len(before.partitions)} partitions, the number it started with",
                len(table.partitions),
            )
        pairs = zip(before.partitions, table.partitions, strict=True)
        partitions += [
            PartitionMove(operator, p, old_owner, new_owner)
            for p, (old_owner, new_owner) in enumerate(pairs)
            if old_owner != new_owner
        ]
        if dict(before.split) != dict(table.split):
            split_changed.append(operator)
    return Diff(
        moves=tuple(moves),
        partitions=tuple(partitions),
        woken=tuple(n for n in following.active if n not in running.active),
        released=tuple(n for n in running.active if n not in following.active),
        split_changed=tuple(split_changed),
    )


def schedule(change: Diff, topology: Topology) -> tuple[MigrationStep, ...]:
    """Order the moves layer by layer from the sources, each layer in two halves (Sl Alg. 3).

    Every operator's moves are halved by themselves, so that at least half of each operator's
    instances, not only of each layer's, work on while a step is made; an operator with a single
    instance has no second half to rely on. New instances come with the first half and instances
    that go with the second, router partitions move between the two: a partition never points to
    an instance that is not there.

    Raises
    ------
    InvalidValue
        When something moves whose operator the topology does not have.
    """
    layer_of: Mapping[str, int] = {
        name: depth for depth, layer in enumerate(topology.layers) for name in layer
    }
    moved = [m.operator for m in change.moves] + [p.operator for p in change.partitions]
    for name in moved:
        if name not in layer_of:
            owner = f"a schedule for topology {topology.name!r}"
            raise InvalidValue("moves", owner, "of its own operators", name)
    steps: list[MigrationStep] = []
    for depth, layer in enumerate(topology.layers):
        halves: tuple[list[Move], list[Move]] = ([], [])
        last: list[Move] = []
        for operator in layer:
            own = [m for m in change.moves if m.operator == operator]
            shifted = [m for m in own if m.origin is not None and m.target is not None]
            halves[0].extend(m for m in own if m.origin is None)
            last.extend(m for m in own if m.target is None)
            middle = (len(shifted) + 1) // 2
            halves[0].extend(shifted[:middle])
            halves[1].extend(shifted[middle:])
        partitions = tuple(p for p in change.partitions if layer_of[p.operator] == depth)
        if halves[0]:
            steps.append(MigrationStep(depth, 0, tuple(halves[0])))
        if halves[1] or last or partitions:
            steps.append(MigrationStep(depth, 1, tuple(halves[1] + last), partitions))
    return tuple(steps)
