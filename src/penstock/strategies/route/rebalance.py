"""Move the smallest sufficient set of router partitions off the overloaded instances (Ms eq. 29).

Which set is smallest is a packing problem. It is taken greedily, the partition first that leaves
the least out of bounds, and where that may have taken too many and the case is small, searched.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, group_sums
from penstock.common.errors import InvalidValue
from penstock.model import PartitionMove, Reason, RoutingTable
from penstock.model.load import lit

#: Moves that are tried before a search for a smaller set gives up.
TRIALS = 5_000

#: Loads closer than this, relative to the mean, are equal.
ROUNDING = 1e-9


class Rebalanced(NamedTuple):
    """The table after the moves, the moves, and why."""

    table: RoutingTable
    moves: tuple[PartitionMove, ...]
    reasons: tuple[Reason, ...]


class _Bounds(NamedTuple):
    """What an instance may carry, so that LIT is at most chi."""

    low: float
    high: float

    def outside(self, loads: FloatArray) -> FloatArray:
        """How far each load is out of bounds."""
        return np.maximum(loads - self.high, 0.0) + np.maximum(self.low - loads, 0.0)


def rebalance(
    table: RoutingTable,
    partition_loads: FloatArray,
    instances: int,
    chi: float = 1.0,
    *,
    operator: str = "",
    other_loads: FloatArray | None = None,
) -> Rebalanced:
    """Bring the imbalance of an operator's instances down to `chi` with the fewest moves.

    Nothing moves while LIT (eq. 10) is at most `chi`. Above it, partitions go from overloaded
    instances to light ones until none carries more than ``(1 + chi) * mean`` (eq. 29) or less than
    ``(1 - chi) * mean``, which is LIT's other half. The fewest partitions that do it are moved, the
    lighter ones where it makes no difference; in large cases that is not proven. Where no set
    suffices, as with one key hotter than an instance, the moves that lower LIT most are kept; LIT
    never gets worse.

    Examples
    --------
    >>> done = rebalance(RoutingTable((0, 0, 0, 1, 2)), np.array([5., 3., 1., 0., 0.]), 3)
    >>> [(move.partition, move.origin, move.target) for move in done.moves]
    [(1, 0, 1)]

    Parameters
    ----------
    table : RoutingTable
    partition_loads : array
        Load of each partition, in any unit, without the split keys.
    instances : int
    chi : float
        Largest LIT that is left alone.
    operator : str
        Name that the moves carry.
    other_loads : array, optional
        What each instance carries besides, such as its part of split keys.
    """
    owner_of = np.array(table.partitions, dtype=np.int64)
    loads = np.asarray(partition_loads, dtype=np.float64)
    owner = "a rebalanced routing table"
    if loads.shape != owner_of.shape:
        raise InvalidValue("partition_loads", owner, f"{len(owner_of)} numbers", loads.shape)
    if not np.isfinite(loads).all() or (loads < 0).any():
        raise InvalidValue("partition_loads", owner, "finite and not negative", partition_loads)
    if chi < 0:
        raise InvalidValue("chi", owner, "a number of at least 0", chi)
    if owner_of.max() >= instances:
        raise InvalidValue("table", owner, f"of {instances} instances", int(owner_of.max()))
    base = np.zeros(instances) if other_loads is None else np.asarray(other_loads, dtype=float)
    instance_loads = base + group_sums(owner_of, loads, instances)
    before = lit(instance_loads)
    if before <= chi * (1 + ROUNDING):
        text = f"no partition moves: LIT {before:.3g} is within {chi:g}"
        return Rebalanced(table, (), (Reason(text, {"lit": before, "chi": chi}),))
    mean = float(instance_loads.mean())
    bounds = _Bounds((1 - chi) * mean, (1 + chi) * mean)
    moved = _greedy(owner_of, loads, instance_loads, bounds, mean * ROUNDING)
    enough = (
        bounds.outside(_after(moved, owner_of, loads, instance_loads)).sum() <= mean * ROUNDING * 10
    )
    floor = _fewest(owner_of, loads, instance_loads, bounds)
    hopeless = float(loads.max() + base.min()) > bounds.high + mean * ROUNDING
    if not hopeless and (not enough or len(moved) > floor):
        most = len(moved) - 1 if enough else len(owner_of)
        found = _search(owner_of, loads, instance_loads, bounds, floor, most, mean * ROUNDING)
        if found is not None:
            moved, enough = found, True
    if not enough:
        moved = _best_prefix(moved, owner_of, loads, instance_loads, before)
    after = lit(_after(moved, owner_of, loads, instance_loads))
    new = owner_of.copy()
    for partition, target in moved:
        new[partition] = target
    moves = tuple(
        PartitionMove(operator, partition, int(owner_of[partition]), int(new[partition]))
        for partition in np.flatnonzero(new != owner_of).tolist()
    )
    return Rebalanced(
        RoutingTable(tuple(new.tolist()), table.split) if moves else table,
        moves,
        _reasons(loads, bounds, moves, (before, after, chi), mean),
    )


def _greedy(
    owner_of: IntArray,
    loads: FloatArray,
    instance_loads: FloatArray,
    bounds: _Bounds,
    nothing: float,
) -> list[tuple[int, int]]:
    """Take the move that leaves the least out of bounds; of equal ones the lightest partition."""
    owner_of, instance_loads = owner_of.copy(), instance_loads.copy()
    moved: dict[int, int] = {}
    while True:
        outside = bounds.outside(instance_loads)
        if outside.sum() <= nothing:
            break
        over = instance_loads > bounds.high
        rows = np.flatnonzero((over[owner_of] if over.any() else True) & (loads > 0))
        if not len(rows):
            break
        origin, load = owner_of[rows], loads[rows]
        relief = outside[origin] - bounds.outside(instance_loads[origin] - load)
        burden = bounds.outside(instance_loads[None, :] + load[:, None]) - outside[None, :]
        gain = relief[:, None] - burden
        gain[np.arange(len(rows)), origin] = -np.inf
        best = float(gain.max(initial=-np.inf))
        if best <= nothing:
            break
        row, target = np.nonzero(gain >= best - nothing)
        # Of equal moves the lightest partition, and to where there is the most room.
        pick = int(np.lexsort((target, instance_loads[target], load[row]))[0])
        partition, to = int(rows[row[pick]]), int(target[pick])
        instance_loads[owner_of[partition]] -= loads[partition]
        instance_loads[to] += loads[partition]
        owner_of[partition] = to
        moved[partition] = to
    return list(moved.items())


def _fewest(
    owner_of: IntArray, loads: FloatArray, instance_loads: FloatArray, bounds: _Bounds
) -> int:
    """Partitions that must move at the least: those that cover each overload, the heaviest first.

    Every underload needs at least one partition too, and no move serves two of a kind.
    """
    shed = 0
    for instance in np.flatnonzero(instance_loads > bounds.high).tolist():
        heaviest = np.sort(loads[owner_of == instance])[::-1]
        excess = instance_loads[instance] - bounds.high
        shed += min(int(np.searchsorted(np.cumsum(heaviest), excess)) + 1, len(heaviest))
    return max(shed, int((instance_loads < bounds.low).sum()))


def _search(
    owner_of: IntArray,
    loads: FloatArray,
    instance_loads: FloatArray,
    bounds: _Bounds,
    fewest: int,
    most: int,
    nothing: float,
) -> list[tuple[int, int]] | None:
    """Look for a sufficient set of `fewest`, `fewest + 1`, ... up to `most` moves."""
    trials = TRIALS
    order = np.argsort(loads, kind="stable").tolist()
    order = [partition for partition in order if loads[partition] > 0]
    instance_loads = instance_loads.copy()

    def extend(start: int, left: int, chosen: list[tuple[int, int]]) -> bool:
        nonlocal trials
        if bounds.outside(instance_loads).sum() <= nothing:
            return True
        if left == 0:
            return False
        for at in range(start, len(order)):
            partition = order[at]
            origin, load = int(owner_of[partition]), loads[partition]
            for target in np.argsort(instance_loads, kind="stable").tolist():
                if target == origin:
                    continue
                trials -= 1
                if trials < 0:
                    return False
                instance_loads[origin] -= load
                instance_loads[target] += load
                chosen.append((partition, target))
                if extend(at + 1, left - 1, chosen):
                    return True
                chosen.pop()
                instance_loads[origin] += load
                instance_loads[target] -= load
        return False

    for size in range(max(fewest, 1), most + 1):
        chosen: list[tuple[int, int]] = []
        if extend(0, size, chosen):
            return chosen
        if trials < 0:
            return None
    return None


def _after(
    moved: list[tuple[int, int]], owner_of: IntArray, loads: FloatArray, instance_loads: FloatArray
) -> FloatArray:
    instance_loads = instance_loads.copy()
    for partition, target in moved:
        instance_loads[owner_of[partition]] -= loads[partition]
        instance_loads[target] += loads[partition]
    return instance_loads


def _best_prefix(
    moved: list[tuple[int, int]],
    owner_of: IntArray,
    loads: FloatArray,
    instance_loads: FloatArray,
    before: float,
) -> list[tuple[int, int]]:
    """As many of the moves as give the lowest LIT, or none where none lowers it."""
    best, length = before * (1 - ROUNDING), 0
    for size in range(1, len(moved) + 1):
        reached = lit(_after(moved[:size], owner_of, loads, instance_loads))
        if reached < best * (1 - ROUNDING):
            best, length = reached, size
    return moved[:length]


def _reasons(
    loads: FloatArray,
    bounds: _Bounds,
    moves: tuple[PartitionMove, ...],
    lits: tuple[float, float, float],
    mean: float,
) -> tuple[Reason, ...]:
    before, after, chi = lits
    figures = {"lit_before": before, "lit_after": after, "chi": chi, "moves": len(moves)}
    what = "1 partition moves" if len(moves) == 1 else f"{len(moves)} partitions move"
    text = f"{what}: LIT {before:.3g}, above {chi:g}, becomes {after:.3g}"
    if not moves:
        text = f"no partition moves, though LIT {before:.3g} is above {chi:g}: no move lowers it"
    reasons = [Reason(text, figures)]
    if after > chi * (1 + ROUNDING) and loads.max() > bounds.high:
        heaviest = int(np.argmax(loads))
        reasons.append(
            Reason(
                f"partition {heaviest} alone carries {loads[heaviest] / mean:.3g} times an "
                "instance's mean load: only splitting its hot key helps",
                {"partition": heaviest, "load": float(loads[heaviest]), "mean": mean},
            )
        )
    return tuple(reasons)
