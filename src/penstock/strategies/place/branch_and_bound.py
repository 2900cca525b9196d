"""Branch and bound over the node of each instance: least cut, then fewest nodes, then least load.

What keeps the search small:

- Interchangeable instances take nodes in ascending order, and of nodes that are alike and empty
  only the first is tried. Both choose the lexicographically smallest of equal placements, so they
  may be used together.
- The bound on the cut that is still to come. An instance without a node loses at least what it
  exchanges with placed instances, less what it could keep on its best node with room; and half of
  what it exchanges with other instances without a node, less what could join it on that node even
  if the node were empty (a fractional knapsack in each resource). Halves, because the pair counts
  twice.

By hand because SciPy's ``milp`` takes 4 to 20 times as long: ``python benchmarks/exact.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.strategies.place.assignment_problem import Problem, joining

#: Differences of cut and load below this part of the total count as none.
NEGLIGIBLE = 1e-9


@dataclass(frozen=True, eq=False)
class Found:
    """What the search found.

    Parameters
    ----------
    node_of : array of int or None
        Node of each instance; None when no placement keeps the limits, or none was reached.
    cut : float
        Tuples per second across nodes.
    proved : bool
        Whether nothing better can exist: the search came to its end.
    ties_settled : bool
        Whether fewer nodes and a lower load were ruled out among equal cuts.
    steps : int
        Placements of one instance that were looked at.
    """

    node_of: IntArray | None
    cut: float
    proved: bool
    ties_settled: bool
    steps: int


def search(problem: Problem, steps: int) -> Found:
    """Find the best placement within a number of steps.

    First the least cut is proved, then the ties are searched with the steps that are left.
    """
    run = _Search(problem, steps)
    if not run.hopeless():
        run.explore(ties=False)
    if run.best is None:
        return Found(None, 0.0, not run.exhausted, True, run.steps)
    proved = not run.exhausted
    if proved:
        run.explore(ties=True)
    node_of = np.empty(len(problem.order), dtype=np.int64)
    node_of[problem.order] = run.best
    return Found(node_of, run.best_cut, proved, proved and not run.exhausted, run.steps)


class _Search:
    """State of one search."""

    def __init__(self, problem: Problem, steps: int) -> None:
        self.problem = problem
        self.allowed = steps
        self.steps = 0
        self.exhausted = False
        self.best: IntArray | None = None
        self.best_cut = np.inf
        self.best_nodes = 0
        self.best_load = np.inf
        n, m = len(problem.order), problem.capacity.shape[1]
        self.n, self.m = n, m
        self.joining = joining(problem)
        # What instances from depth d on exchange: with those before d, and half among themselves.
        upper = np.triu(problem.rates, 1)
        inside = np.array([upper[d:, d:].sum() for d in range(n + 1)])
        self.ahead = np.array([upper[:d, d:].sum() for d in range(n + 1)]) + inside
        total = float(upper.sum()) + sum(float(out.sum()) for _, out, _ in problem.local)
        self.slack = NEGLIGIBLE * total
        self.fewest, self.least_load = self._least()

    def hopeless(self) -> bool:
        """Whether some instance fits nowhere, or all together are too much."""
        problem = self.problem
        fits = np.all(problem.demand[:, :, None] <= problem.capacity[:, None, :], axis=0)
        total = problem.demand.sum(axis=1) > problem.capacity.sum(axis=1)
        return not bool(np.any(fits, axis=1).all()) or bool(total.any())

    def explore(self, *, ties: bool) -> None:
        """Search depth first, the most promising node first."""
        self.node = np.full(self.n, -1, dtype=np.int64)
        self.free = self.problem.capacity.copy()
        self.use = np.zeros_like(self.problem.capacity)
        self.held = np.zeros(self.m, dtype=np.int64)
        self.near = np.zeros((self.n, self.m))
        self.ties = ties
        self._visit(0, 0.0)

    def _visit(self, depth: int, cut: float) -> None:
        problem = self.problem
        if depth == self.n:
            self._record(cut)
            return
        met = float(problem.rates[depth, :depth].sum())
        need = problem.demand[:, depth]
        for node in self._candidates(depth):
            if self.steps >= self.allowed:
                self.exhausted = True
                return
            self.steps += 1
            after = cut + met - float(self.near[depth, node])
            # Kept as they are, because taking away what was added leaves rounding behind.
            kept = self.free[:, node].copy(), self.use[:, node].copy(), self.near[:, node].copy()
            self.node[depth] = node
            self.held[node] += 1
            self.free[:, node] -= need
            self.use[:, node] += need
            self.near[:, node] += problem.rates[:, depth]
            if self._promising(depth + 1, after):
                self._visit(depth + 1, after)
            self.free[:, node], self.use[:, node], self.near[:, node] = kept
            self.held[node] -= 1
            self.node[depth] = -1
            if self.exhausted:
                return

    def _candidates(self, depth: int) -> list[int]:
        """Nodes to try: with room, not a twin of an earlier choice, the nearest first."""
        problem = self.problem
        open_ = np.asarray(np.all(problem.demand[:, depth, None] <= self.free, axis=0))
        before = problem.previous[depth]
        if before >= 0:
            open_[: self.node[before]] = False
        empty = np.flatnonzero(self.held == 0)
        _, first = np.unique(problem.alike[empty], return_index=True)
        twins = np.delete(empty, first)
        open_[twins] = False
        if problem.must_use:
            missing = problem.must_use - int((self.held > 0).sum())
            if self.n - depth <= missing:
                open_ &= self.held == 0
        nodes = np.flatnonzero(open_)
        return [int(v) for v in nodes[np.argsort(-self.near[depth, nodes], kind="stable")]]

    def _promising(self, depth: int, cut: float) -> bool:
        """Whether what is left could still beat the best placement so far."""
        if self.best is None and depth == self.n:
            return True
        problem = self.problem
        least = cut + problem.local_cut(self.node, depth) if problem.local else cut
        if depth < self.n:
            fits = (problem.demand[:, depth:, None] <= self.free[:, None, :]).all(axis=0)
            kept = np.where(fits, self.near[depth:] + self.joining[depth, depth:], -np.inf)
            best = kept.max(axis=1)
            if np.isneginf(best).any():
                return False
            least += max(0.0, self.ahead[depth] - float(best.sum()))
        if self.best is None:
            return True
        if not self.ties:
            return least < self.best_cut - self.slack
        if least > self.best_cut + self.slack:
            return False
        used = max(int((self.held > 0).sum()), self.fewest)
        if used != self.best_nodes:
            return used < self.best_nodes
        load = max(float(problem.loads(self.use).max()), float(self.least_load[used]))
        return load < self.best_load - NEGLIGIBLE

    def _record(self, cut: float) -> None:
        problem = self.problem
        cut += problem.local_cut(self.node, self.n)
        nodes = int((self.held > 0).sum())
        load = float(problem.loads(self.use).max())
        if self.best is not None:
            if cut > self.best_cut + self.slack:
                return
            worse = (nodes, load) >= (self.best_nodes, self.best_load)
            if cut >= self.best_cut - self.slack and worse:
                return
        self.best = self.node.copy()
        self.best_cut, self.best_nodes, self.best_load = cut, nodes, load

    def _least(self) -> tuple[int, FloatArray]:
        """Fewest nodes that could hold everything, and the least load by number of nodes."""
        problem = self.problem
        total = problem.demand.sum(axis=1)
        fewest = max(problem.must_use, 1)
        for r in range(4):
            filled = np.cumsum(-np.sort(-problem.capacity[r]))
            fewest = max(fewest, int(np.searchsorted(filled, total[r])) + 1)
        load = np.zeros(self.m + 2)
        for r in range(3):
            whole = np.cumsum(-np.sort(-problem.load_unit[r]))
            load[1 : self.m + 1] = np.maximum(
                load[1 : self.m + 1], np.divide(total[r], whole, where=whole > 0, out=0 * whole)
            )
        return fewest, load
