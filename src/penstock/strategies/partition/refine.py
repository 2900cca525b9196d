"""Local search under capacity limits, in the manner of Fiduccia and Mattheyses.

C. M. Fiduccia, R. M. Mattheyses: A linear-time heuristic for improving network partitions, DAC
1982. One instance moves at a time, the best move first, also when it makes the cut worse; an
instance that has moved stays for the rest of the pass; the best state seen is kept. Two things are
ours: instances of one class are moved without names (`class_state`), and a move may put a node over
its limit for a moment when the next moves take something else away from it, which is how two
instances swap places between full nodes.
"""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import BoolArray, FloatArray, IntArray
from penstock.model import Cluster, InstanceGraph
from penstock.strategies.partition.class_state import ClassState

#: Above this many (class, node) cells a pass looks at one instance at a time instead of at all.
TABLE_CELLS = 60_000

#: A gain must exceed this part of all traffic to count as one.
NOTHING = 1e-12


def refine(
    graph: InstanceGraph,
    cluster: Cluster,
    node_of: IntArray,
    limit: float = 1.0,
    *,
    passes: int = 8,
    keep_all: bool = False,
    real: bool = False,
) -> IntArray:
    """Lower the cross-node traffic of a placement without breaking a limit.

    What is over a limit at the start is repaired first, as far as it can be.

    Parameters
    ----------
    graph : InstanceGraph
    cluster : Cluster
    node_of : array of int
    limit : float
        Largest use of any resource of a node, as a fraction.
    passes : int
        Passes at the most; it stops at the first that brings nothing.
    keep_all : bool
        Leave no node empty that holds an instance.
    real : bool
        As in `ClassState`.

    Returns
    -------
    array of int
        A placement that crosses nodes with at most as many tuples as the (repaired) start.
    """
    state = ClassState(graph, cluster, node_of, limit, real=real)
    improve(state, passes=passes, keep_all=keep_all)
    return state.node_of(node_of)


def improve(state: ClassState, *, passes: int = 8, keep_all: bool = False) -> None:
    """`refine` on a state that is already built."""
    settle(state, keep_all)
    relieve_links(state, keep_all)
    threshold = NOTHING * max(float(state.rates.sum()), 1.0)
    table = state.classes * state.nodes <= TABLE_CELLS
    for _ in range(passes):
        before = state.internal
        if table:
            _pass(state, keep_all, threshold)
        else:
            _sweep(state, keep_all, threshold)
        relieve_links(state, keep_all)
        if state.internal <= before + threshold:
            return


def repair(
    graph: InstanceGraph,
    cluster: Cluster,
    node_of: IntArray,
    limit: float = 1.0,
    *,
    keep_all: bool = False,
) -> IntArray:
    """Move instances off nodes over a limit, those first that it costs least to move."""
    state = ClassState(graph, cluster, node_of, limit)
    settle(state, keep_all)
    return state.node_of(node_of)


def settle(state: ClassState, keep_all: bool = False) -> None:
    """`repair` on a state that is already built; ends, because every move lowers the excess."""
    over = state.overloaded()
    while len(over):
        step = _relief(state, over, keep_all)
        if step is None:
            return
        state.move(*step)
        over = state.overloaded()


def relieve_links(state: ClassState, keep_all: bool = False) -> None:
    """Move instances off the node whose link is furthest over, while that lowers the excess."""
    links = state.links
    while links is not None and links.excess() > 0:
        origin = links.worst()
        if keep_all and state.counts[:, origin].sum() <= 1:
            return
        open_ = state.fits() & (state.counts[:, origin] > 0)[:, None]
        change = np.where(open_, links.relief(), np.inf)
        what, target = divmod(int(np.argmin(change)), state.nodes)
        if not change[what, target] < -1e-9 * links.excess():
            return
        state.move(what, origin, target)


def _relief(state: ClassState, over: IntArray, keep_all: bool) -> tuple[int, int, int] | None:
    """Pick the cheapest move off the worst node that fits, or else lowers the excess most."""
    above = (np.maximum(state.load - state.allowed, 0.0) / state.scale)[:, over].sum(axis=0)
    fits, cheapest = state.fits(), None
    for origin in over[np.argsort(-above, kind="stable")].tolist():
        if keep_all and state.counts[:, origin].sum() <= 1:
            continue
        short = state.load[:, origin] > state.allowed[:, origin]
        movable = (state.counts[:, origin] > 0) & (state.demand[short] > 0).any(axis=0)
        open_ = fits & movable[:, None]
        open_[:, origin] = False
        if open_.any():
            gain = state.won() - (state.lost()[:, origin] - state.own)[:, None]
            score = np.where(open_, gain, -np.inf)
            what, target = divmod(int(np.argmax(score)), state.nodes)
            return what, origin, target
        cheapest = cheapest or _cheapest_targets(state)
        step = _least_excess(state, origin, movable, *cheapest)
        if step is not None:
            return step
    return None


def _cheapest_targets(state: ClassState) -> tuple[IntArray, FloatArray]:
    """Two nodes on which one more of each class adds least to the excess, and how much it adds."""
    standing = np.maximum(state.load - state.allowed, 0) / state.scale
    targets = np.zeros((state.classes, 2), dtype=np.int64)
    growth = np.zeros((state.classes, 2))
    for what in range(state.classes):
        grown = np.maximum(state.load + state.demand[:, what, None] - state.allowed, 0)
        added = (grown / state.scale - standing).sum(axis=0)
        two = np.argpartition(added, 1)[:2] if state.nodes > 2 else np.arange(state.nodes)
        targets[what] = two[np.argsort(added[two], kind="stable")][[0, -1]]
        growth[what] = added[targets[what]]
    return targets, growth


def _least_excess(
    state: ClassState, origin: int, movable: BoolArray, targets: IntArray, growth: FloatArray
) -> tuple[int, int, int] | None:
    """Pick the move off an overloaded node that lowers the excess most, if any lowers it."""
    load, allowed, scale = state.load[:, origin], state.allowed[:, origin], state.scale[:, 0]
    over = np.maximum(load - allowed, 0)
    without = np.maximum(load[:, None] - state.demand - allowed[:, None], 0)
    fallen = ((over[:, None] - without) / scale[:, None]).sum(axis=0)
    second = (targets[:, 0] == origin).astype(np.int64)
    rows = np.arange(state.classes)
    elsewhere = targets[rows, second]
    change = np.where(movable & (elsewhere != origin), growth[rows, second] - fallen, np.inf)
    what = int(np.argmin(change))
    if change[what] >= -1e-9 * state.excess():
        return None
    return what, origin, int(elsewhere[what])


def _pass(state: ClassState, keep_all: bool, threshold: float) -> None:
    """One pass over the whole table of moves; leaves the best state that it saw."""
    locked = np.zeros_like(state.counts)
    slack = state.demand.max(axis=1, keepdims=True)
    # What could not be repaired is not made worse, but does not hold up the pass either.
    given, sound = state.excess(), not len(state.overloaded())
    nowhere = np.empty(0, dtype=np.int64)
    patience = int(np.clip(state.counts.sum() // 8, 30, 400))
    gained, best_gain, best_counts, since = 0.0, 0.0, state.counts.copy(), 0
    overloaded = nowhere
    while since < patience:
        step = _best_move(state, locked, slack, overloaded, keep_all)
        if step is None:
            break
        what, origin, target, gain = step
        state.move(what, origin, target)
        locked[what, target] += 1
        gained += gain
        since += 1
        overloaded = state.overloaded() if sound else nowhere
        if gained > best_gain + threshold and not len(overloaded) and state.excess() <= given:
            best_gain, best_counts, since = gained, state.counts.copy(), 0
    state.set_counts(best_counts)


def _best_move(
    state: ClassState,
    locked: IntArray,
    slack: FloatArray,
    overloaded: IntArray,
    keep_all: bool,
) -> tuple[int, int, int, float] | None:
    """Best gain over all classes; from the overloaded node if there is one."""
    movable = state.counts > locked
    if keep_all:
        movable &= state.counts.sum(axis=0) > 1
    if len(overloaded):
        only = np.zeros(state.nodes, dtype=bool)
        only[overloaded] = True
        movable &= only
        fits = state.fits()
        # Taking something away from a full node may itself need a swap further on.
        if not (fits & ~only).any():
            fits = state.fits(slack)
        fits[:, overloaded] = False
    else:
        fits = state.fits(slack)
    stay = np.where(movable, state.lost(), np.inf)
    go = np.where(fits, state.won(), -np.inf)
    rows = np.arange(state.classes)
    origin = np.argmin(stay, axis=1)
    target = np.argmax(go, axis=1)
    clash = origin == target
    if clash.any():
        # The best node is the one it leaves: take the second best of either, whichever is better.
        go2, stay2 = go.copy(), stay.copy()
        go2[rows, origin] = -np.inf
        stay2[rows, target] = np.inf
        second_target, second_origin = np.argmax(go2, axis=1), np.argmin(stay2, axis=1)
        by_target = go[rows, second_target] - stay[rows, origin]
        by_target = np.where(second_target == origin, -np.inf, by_target)
        by_origin = go[rows, target] - stay[rows, second_origin]
        by_origin = np.where(second_origin == target, -np.inf, by_origin)
        use_target = clash & (by_target >= by_origin)
        use_origin = clash & ~use_target
        target = np.where(use_target, second_target, target)
        origin = np.where(use_origin, second_origin, origin)
    with np.errstate(invalid="ignore"):
        gains = go[rows, target] - stay[rows, origin] + state.own
    gains = np.where(np.isfinite(gains) & (origin != target), gains, -np.inf)
    what = int(np.argmax(gains))
    if not np.isfinite(gains[what]):
        return None
    return what, int(origin[what]), int(target[what]), float(gains[what])


def _sweep(state: ClassState, keep_all: bool, threshold: float) -> None:
    """Look at every instance once and move it where it talks most, if that gains and fits."""
    for what in range(state.classes):
        for origin in np.flatnonzero(state.counts[what]).tolist():
            for _ in range(int(state.counts[what, origin])):
                if keep_all and state.counts[:, origin].sum() <= 1:
                    break
                after = state.load + state.demand[:, what, None]
                gain = state.won()[what] - (state.lost()[what, origin] - state.own[what])
                gain = np.where((after <= state.allowed).all(axis=0), gain, -np.inf)
                gain[origin] = -np.inf
                target = int(np.argmax(gain))
                if gain[target] <= threshold:
                    break
                state.move(what, origin, target)
