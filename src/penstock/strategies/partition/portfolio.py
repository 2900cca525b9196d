"""The best of several cheap starts, refined, shaken and refined again.

Iterated local search (Lourenço, Martin, Stützle, Handbook of Metaheuristics, 2003): throw a few
instances somewhere else, refine, keep what is better. The effort is counted by what is looked
at and moved, so that equal seeds give equal plans on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.common.arrays import IntArray
from penstock.model import Cluster, InstanceGraph
from penstock.strategies.loads import CHEAP_PAIRS, capacity_shares, dominant, pairs_of
from penstock.strategies.partition.annealing import slices
from penstock.strategies.partition.class_state import ClassState
from penstock.strategies.partition.growing import Growing
from penstock.strategies.partition.metis import Metis
from penstock.strategies.partition.refine import TABLE_CELLS, improve
from penstock.strategies.place.assignment_problem import Problem
from penstock.strategies.place.branch_and_bound import search
from penstock.strategies.place.longest_first import longest_first
from penstock.strategies.place.spread import use_all

#: Seconds of an ordinary core that a throw takes besides what it moves and looks at.
TURN_S = 8e-4

#: Largest number of instance pairs for which METIS is run twice.
TWICE_PAIRS = 300_000

#: Largest number of instances that are searched exactly, and the steps that it may take.
PROVABLE, PROOF_STEPS = 32, 1500


def best_placement(
    graph: InstanceGraph,
    cluster: Cluster,
    limit: float,
    rng: np.random.Generator,
    *,
    effort_s: float,
    keep_all: bool = False,
    starts: Sequence[IntArray] = (),
) -> IntArray:
    """Search for the placement that crosses nodes least and keeps every limit.

    Parameters
    ----------
    graph : InstanceGraph
    cluster : Cluster
    limit : float
        Largest use of any resource of a node, as a fraction.
    rng : numpy.random.Generator
    effort_s : float
        Seconds that the search may take on an ordinary core, told by what it looks at.
    keep_all : bool
        Use every node.
    starts : sequence of array of int
        Placements to start from besides the others. As many instances as possible are left where
        the last one has them.
    """
    if len(cluster) == 1:
        return np.zeros(len(graph), dtype=np.int64)
    tried = [longest_first(graph, cluster), *_partitions(graph, cluster, rng), *starts]
    if any(flow.is_local for flow in graph.flows):
        # A slice of every operator on each node: what prefers local targets finds one everywhere.
        tried.append(slices(graph, dominant(graph, cluster), capacity_shares(graph, cluster)))
    if keep_all:
        tried = [use_all(graph, cluster, placement) for placement in tried]
    state = ClassState(graph, cluster, tried[0], limit, real=True)
    best: tuple[float, float, IntArray] | None = None
    for placement in tried:
        state.stand(placement)
        improve(state, keep_all=keep_all)
        found = (state.excess(), -state.internal, state.counts.copy())
        if best is None or found[:2] < best[:2]:
            best = found
    assert best is not None
    state.set_counts(best[2])
    if state.cells <= TABLE_CELLS:
        shake(state, rng, effort_s, keep_all)
    if len(graph) <= PROVABLE:
        _prove(state, graph, cluster, limit, keep_all)
    return state.node_of(starts[-1] if starts else tried[0])


def _prove(
    state: ClassState, graph: InstanceGraph, cluster: Cluster, limit: float, keep_all: bool
) -> None:
    """Search a small case exactly, within bounds, and take what is better."""
    found = search(Problem.of(graph, cluster, limit, use_every_node=keep_all), PROOF_STEPS)
    if found.node_of is None:
        return
    standing = (state.excess(), -state.internal, state.counts.copy())
    state.stand(found.node_of)
    if (state.excess(), -state.internal) >= standing[:2]:
        state.set_counts(standing[2])


def _partitions(graph: InstanceGraph, cluster: Cluster, rng: np.random.Generator) -> list[IntArray]:
    """Partition over the nodes that have a share of the load to take."""
    weights, shares = dominant(graph, cluster), capacity_shares(graph, cluster)
    usable = np.flatnonzero(shares > 0)
    share = shares[usable] / shares[usable].sum()
    found = [usable[Growing().partition(graph, weights, share, rng)]]
    if pairs_of(graph) <= CHEAP_PAIRS:
        # A seed of its own, so that the first is the partition that `exact_limit` was measured on.
        schemes = ("advised", "bisection") if pairs_of(graph) <= TWICE_PAIRS else ("advised",)
        for scheme in schemes:
            metis = Metis(scheme=scheme)
            found.append(usable[metis.partition(graph, weights, share, np.random.default_rng(0))])
    return found


def shake(state: ClassState, rng: np.random.Generator, effort_s: float, keep_all: bool) -> None:
    """Spend an effort on throwing a few instances about and refining again."""
    best = (state.excess(), -state.internal, state.counts.copy())
    total = int(state.counts.sum())
    usual = int(np.clip(total // 15, 2, 20))
    until_s, turn = state.work_s + effort_s, 0
    while state.work_s < until_s:
        # Now and then a throw that is large enough to leave the valley altogether.
        turn += 1
        most = usual if turn % 4 else max(usual, total // 2)
        for _ in range(int(rng.integers(2, most + 1))):
            cells = np.flatnonzero(state.counts)
            what, origin = divmod(int(cells[rng.integers(len(cells))]), state.nodes)
            target = int(rng.integers(state.nodes))
            if target != origin and not (keep_all and state.counts[:, origin].sum() <= 1):
                state.move(what, origin, target)
        improve(state, passes=3, keep_all=keep_all)
        # Also a throw that could not be made costs its time.
        state.work_s += TURN_S
        found = (state.excess(), -state.internal, state.counts.copy())
        if found[:2] < best[:2]:
            best = found
        else:
            state.set_counts(best[2])
    state.set_counts(best[2])
