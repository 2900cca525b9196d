"""Branch and bound against SciPy's ``milp`` (HiGHS) on the exact placement problem.

Both get the same `Problem`: least tuples across nodes within all limits. For ``milp`` a binary says
which node an instance is on, and a variable for each pair that exchanges tuples says whether the
pair is apart; interchangeable nodes and instances stay symmetric, which is what costs it its time.

    python benchmarks/exact.py
"""

from __future__ import annotations

import time

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from penstock.model import Cluster, expand
from penstock.model.sizing import sized_for
from penstock.strategies.place.assignment_problem import Problem
from penstock.strategies.place.branch_and_bound import search
from penstock.testing.scenarios import wordcount

#: Seconds that each may take for a case, and steps that stand for them in branch and bound.
LIMIT_S, STEPS = 30.0, 50_000

#: Instances of each operator, and nodes.
CASES = ((1, 2), (2, 2), (2, 3), (3, 3), (3, 4), (4, 4), (6, 4))


def main() -> None:
    """Print what both find, and how long they take."""
    print("instances nodes | search: cut proved s | milp: cut proved s")
    for parallelism, nodes in CASES:
        graph = expand(wordcount(parallelism))
        problem = Problem.of(graph, sized(graph, nodes), 1.0, use_every_node=True)
        started = time.perf_counter()
        found = search(problem, STEPS)
        searched_s = time.perf_counter() - started
        cut, proved, solved_s = solved(problem)
        print(
            f"{len(graph):9} {nodes:5} | {found.cut:11.1f} {found.proved!s:>6} {searched_s:6.2f} "
            f"| {cut:9.1f} {proved!s:>6} {solved_s:6.2f}",
            flush=True,
        )


def sized(graph: object, nodes: int) -> Cluster:
    """Return equal nodes that the graph fills to a good part."""
    return sized_for(graph, nodes)  # type: ignore[arg-type]


def solved(problem: Problem) -> tuple[float, bool, float]:
    """Return the cut that ``milp`` finds, whether it proved it, and the seconds that it took."""
    n, m = len(problem.order), problem.capacity.shape[1]
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if problem.rates[i, j] > 0]
    width = n * m + len(pairs)
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    low: list[float] = []
    high: list[float] = []

    def constrain(terms: list[tuple[int, float]], least: float, most: float) -> None:
        for column, value in terms:
            rows.append(len(low))
            columns.append(column)
            values.append(value)
        low.append(least)
        high.append(most)

    for i in range(n):
        constrain([(i * m + v, 1.0) for v in range(m)], 1.0, 1.0)
    for v in range(m):
        for r in range(4):
            terms = [(i * m + v, float(problem.demand[r, i])) for i in range(n)]
            constrain(terms, -np.inf, float(problem.capacity[r, v]))
        if problem.must_use == m:
            constrain([(i * m + v, 1.0) for i in range(n)], 1.0, np.inf)
    for p, (i, j) in enumerate(pairs):
        for v in range(m):
            constrain([(n * m + p, 1.0), (i * m + v, -1.0), (j * m + v, 1.0)], 0.0, np.inf)
    cost = np.zeros(width)
    cost[n * m :] = [problem.rates[i, j] for i, j in pairs]
    integrality = np.zeros(width)
    integrality[: n * m] = 1
    matrix = coo_array((values, (rows, columns)), shape=(len(low), width)).tocsr()
    started = time.perf_counter()
    result = milp(
        cost,
        integrality=integrality,
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, low, high),
        options={"time_limit": LIMIT_S},
    )
    took = time.perf_counter() - started
    cut = float(result.fun) if result.x is not None else float("nan")
    return cut, result.status == 0, took


if __name__ == "__main__":
    main()
