"""State partitions are spread so that the stage of the batch that uses them ends early. Pure.

The tasks of a stage wait for each other at the end of a batch: the executor with the most work
decides how long that takes, whatever the others do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.control.offer import is_spare
from penstock.model import Kind, Plan, Reason, expand
from penstock.strategies import Request

#: Part of the time of the stages with state that a new spread must save.
GAIN = 0.08

#: What the partitions of a stage did in two halves of the batches, in units of their mean.
Halves = Mapping[str, tuple[FloatArray, FloatArray]]

#: Moves that are tried for one stage at most, in times of its partitions.
ROUNDS = 2


@dataclass(frozen=True)
class Spread:
    """The spread of one stage: node of each partition, and its longest time before and after."""

    node_of: IntArray
    before: float
    after: float


def spread(work: FloatArray, node_of: IntArray, speed: FloatArray) -> Spread:
    """Move or exchange partitions, one after the other, while the busiest node gets less busy.

    Examples
    --------
    >>> made = spread(np.array([4.0, 3, 2, 1]), np.array([0, 0, 0, 1]), np.array([1.0, 1]))
    >>> made.before, made.after, made.node_of.tolist()
    (9.0, 5.0, [1, 0, 0, 1])

    Parameters
    ----------
    work : array
        Work of each partition.
    node_of : array of int
        Node of each partition.
    speed : array
        Work that each node does in a unit of time.
    """
    place = np.array(node_of, dtype=np.int64)
    times = np.bincount(place, weights=work, minlength=len(speed)) / speed
    before = float(times.max())
    for _ in range(ROUNDS * len(work)):
        step = _best_step(work, place, speed, times)
        if step is None:
            break
        for partition, node in step.items():
            place[partition] = node
        times = np.bincount(place, weights=work, minlength=len(speed)) / speed
    return Spread(place, before, float(times.max()))


def _best_step(
    work: FloatArray, place: IntArray, speed: FloatArray, times: FloatArray
) -> dict[int, int] | None:
    """Find the move or the exchange that leaves the two nodes in question least busy."""
    top = int(times.argmax())
    best, found = float(times[top]) * (1 - 1e-9), None
    here = np.flatnonzero(place == top)
    for node in np.argsort(times).tolist():
        if node == top:
            continue
        there: Sequence[int | None] = [None, *np.flatnonzero(place == node).tolist()]
        for mine in here.tolist():
            for other in there:
                back = float(work[other]) if other is not None else 0.0
                shift = float(work[mine]) - back
                if shift <= 0:
                    continue
                longest = max(times[top] - shift / speed[top], times[node] + shift / speed[node])
                if longest < best:
                    best = float(longest)
                    found = {mine: node} if other is None else {mine: node, other: top}
    return found


def balanced(
    plan: Plan, request: Request, least_nodes: int = 0, halves: Halves | None = None
) -> Plan | None:
    """Spread the state partitions of a plan over its nodes; None where that saves too little.

    What a spread saves of the work that it was made for is in part luck: of partitions that differ
    by chance it saves something, too, and nothing in the next batches. So each half of the batches
    has to gain by what was found in the other one.

    Parameters
    ----------
    least_nodes : int
        Nodes to use at the least, as far as they are there: fewer would save nothing.
    halves : mapping, optional
        Where it is not known how the work varies, what is saved is believed.
    """
    cluster = request.cluster
    node_of = plan.node_of_in(cluster)
    if request.measurements is None or (node_of < 0).any():
        return None
    nodes = _at_least(least_nodes, np.unique(node_of), request)
    made: dict[str, Spread] = {}
    target = node_of.copy()
    for name, own, work in _stateful(request):
        position = {int(node): at for at, node in enumerate(nodes)}
        local = np.array([position[int(node)] for node in node_of[own]])
        made[name] = spread(work, local, _speed(request, nodes))
        target[own] = nodes[made[name].node_of]
    before, after = (sum(getattr(s, w) for s in made.values()) for w in ("before", "after"))
    moved = int((target != node_of).sum())
    if not moved or after > before * (1 - GAIN):
        return None
    if halves is not None and _saved_elsewhere(request, node_of, nodes, halves) < GAIN:
        return None
    processes = np.where(target == node_of, plan.process_of, 0)
    return replace(
        plan,
        nodes=cluster.names,
        node_of=target,
        process_of=processes,
        active=(),
        reasons=(_reason(made, before, after, moved), *plan.reasons),
    )


def _saved_elsewhere(request: Request, node_of: IntArray, nodes: IntArray, halves: Halves) -> float:
    """Part of the time of one half of the batches that a spread for the other half saves."""
    speed = _speed(request, nodes)
    position = {int(node): at for at, node in enumerate(nodes)}
    before = after = 0.0
    for name, own, work in _stateful(request):
        local = np.array([position[int(node)] for node in node_of[own]])
        for one, other in itertools.permutations(halves[name], 2):
            target = spread(work * one, local, speed).node_of
            before += _longest(work * other, local, speed)
            after += _longest(work * other, target, speed)
    return 1.0 - after / before if before else 0.0


def _longest(work: FloatArray, place: IntArray, speed: FloatArray) -> float:
    """Time of the busiest node."""
    return float((np.bincount(place, weights=work, minlength=len(speed)) / speed).max())


def time_with_state(plan: Plan, request: Request) -> float:
    """Part of the time from batch to batch that the stages with state take under a plan."""
    node_of = plan.node_of_in(request.cluster)
    every = np.arange(len(request.cluster))
    speed = _speed(request, every)
    return sum(_longest(work, node_of[own], speed) for _, own, work in _stateful(request))


def _stateful(request: Request) -> Iterator[tuple[str, slice, FloatArray]]:
    """Each operator with state: where its partitions are among all instances, and their work."""
    cores = expand(request.topology, request.measurements).cpu_cores
    start = 0
    for operator in request.topology.operators:
        own = slice(start, start + operator.parallelism)
        start = own.stop
        if operator.kind is Kind.STATEFUL:
            yield operator.name, own, np.asarray(cores[own])


def _speed(request: Request, nodes: IntArray) -> FloatArray:
    return np.maximum(request.cluster.cpu_cores[nodes], 1e-6)


def _at_least(count: int, used: IntArray, request: Request) -> IntArray:
    """Add nodes that are there to those in use, the ones of the running plan first."""
    running = request.running.active if request.running is not None else ()
    names = request.cluster.names
    more = [at for at, name in enumerate(names) if at not in used and not is_spare(name)]
    more.sort(key=lambda at: names[at] not in running)
    return np.sort(np.concatenate([used, more[: max(0, count - len(used))]]).astype(np.int64))


def _reason(made: Mapping[str, Spread], before: float, after: float, moved: int) -> Reason:
    worst = max(made, key=lambda name: made[name].before - made[name].after)
    text = (
        f"the executor with the most work holds up {worst}: with {moved} state partitions "
        f"elsewhere, stages with state take {1 - after / before:.0%} less time"
    )
    return Reason(text, {"before": before, "after": after, "moved": moved})
