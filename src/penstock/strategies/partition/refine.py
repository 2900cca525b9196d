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

from penstock.common.arrays import FloatArray, IntArray
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
    table = state.cells <= TABLE_CELLS
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
    """`repair` on a state that is already built; ends, because every move lowers the excess.

    Node by node, the worst first, and again while that helps. On large tables once, and only by
    moves that fit.
    """
    large = state.cells > TABLE_CELLS
    while len(over := state.overloaded()):
        above = (np.maximum(state.load - state.allowed, 0.0) / state.scale)[:, over].sum(axis=0)
        moved = False
        for origin in over[np.argsort(-above, kind="stable")].tolist():
            while (step := _relief(state, origin, keep_all, large)) is not None:
                state.move(*step)
                moved = True
        if large or not moved:
            return


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


def _relief(
    state: ClassState, origin: int, keep_all: bool, fitting: bool
) -> tuple[int, int, int] | None:
    """Pick the cheapest move off an overloaded node that fits, or else lowers the excess most."""
    short = state.load[:, origin] > state.allowed[:, origin]
    if not short.any() or (keep_all and state.counts[:, origin].sum() <= 1):
        return None
    rows = np.flatnonzero((state.counts[:, origin] > 0) & (state.demand[short] > 0).any(axis=0))
    if not len(rows):
        return None
    state.looked(len(rows) * state.nodes)
    # Nodes that are full even for the smallest demands need not be looked at for each class.
    least = state.demand[:, rows].min(axis=1, keepdims=True)
    roomy = (state.load + least <= state.allowed).all(axis=0)
    roomy[origin] = False
    nodes = np.flatnonzero(roomy)
    open_ = state.fits(rows=rows, nodes=nodes)
    if not open_.any():
        return None if fitting else _least_excess(state, origin, rows)
    lost = state.lost(rows)[:, origin] - state.own[rows]
    gain = np.where(open_, state.won(rows)[:, nodes] - lost[:, None], -np.inf)
    row, at = divmod(int(np.argmax(gain)), len(nodes))
    return int(rows[row]), origin, int(nodes[at])


def _least_excess(state: ClassState, origin: int, rows: IntArray) -> tuple[int, int, int] | None:
    """Pick the move off an overloaded node that lowers the excess most, if any lowers it."""
    scale, demand = state.scale[:, 0], state.demand[:, rows]
    room = state.allowed[:, origin] - state.load[:, origin]
    without = np.maximum(-room[:, None] - demand, 0)
    fallen = ((np.maximum(-room, 0)[:, None] - without) / scale[:, None]).sum(axis=0)
    standing = np.maximum(state.load - state.allowed, 0) / state.scale
    best, step = -1e-9 * state.excess(), None
    for at, what in enumerate(rows.tolist()):
        grown = np.maximum(state.load + demand[:, at, None] - state.allowed, 0) / state.scale
        added = (grown - standing).sum(axis=0)
        added[origin] = np.inf
        target = int(np.argmin(added))
        change = float(added[target] - fallen[at])
        if change < best:
            best, step = change, (what, origin, target)
    return step


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
    state.looked(state.classes * state.nodes)
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
    """Look at every class once, and move its instances where they talk most, if they fit there.

    What moves within a class changes none of its own gains, so that one look at the nodes serves
    all of it; a class that talks to itself, or prefers local targets, is looked at for each move.
    """
    for what in range(state.classes):
        alone = state.own[what] > 0 or state.local is not None
        for _ in range(int(state.counts[what].sum()) if alone else 1):
            if not _move_class(state, what, keep_all, threshold, once=alone):
                break


def _move_class(
    state: ClassState, what: int, keep_all: bool, threshold: float, *, once: bool
) -> bool:
    """Move instances of a class, or `once` one of them, while that gains; whether any moved.

    Those that lose least go first, to the node that wins most, until it is full.
    """
    state.looked(3 * state.nodes)
    rows = np.array([what])
    won, lost = state.won(rows)[0], state.lost(rows)[0] - state.own[what]
    targets = np.flatnonzero(state.fits(rows=rows)[0])
    targets = targets[np.argsort(-won[targets], kind="stable")].tolist()
    origins = np.flatnonzero(state.counts[what])
    needed, any_moved = state.demand[:, what] > 0, False
    demand = state.demand[needed, what]
    for origin in origins[np.argsort(lost[origins], kind="stable")].tolist():
        spare = int(state.counts[what, origin])
        if keep_all:
            spare = min(spare, int(state.counts[:, origin].sum()) - 1)
        at = 0
        while spare > 0 and at < len(targets) and won[targets[at]] - lost[origin] > threshold:
            target = targets[at]
            left = state.allowed[needed, target] - state.load[needed, target]
            count = min(spare, int((left / demand).min()))
            if target == origin or count < 1:
                at += 1
                continue
            state.move(what, origin, target, 1 if once else count)
            if once:
                return True
            any_moved, spare = True, spare - count
        # What is full stays full for those that come later; this node itself may take them.
        targets = [node for node in targets[:at] if node == origin] + targets[at:]
    return any_moved
