"""Instances of a node into its processes: who talks most together, each with its part of work."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.common.arrays import IntArray
from penstock.model import Cluster, Edge, Grouping, InstanceGraph, Kind, Node, Operator, Topology
from penstock.model import expand as expanded
from penstock.strategies.place.processes import (
    fill_in_order,
    fill_processes,
    gather_pairs,
    stay_in_place,
)


def pairs(count: int = 4, cpu_pct: float = 0.0) -> InstanceGraph:
    """Make senders and receivers of which only those of equal number talk."""
    operators = [
        Operator(f"in-{i}", Kind.SOURCE, rate_per_s=100, cpu_pct=cpu_pct) for i in range(count)
    ]
    operators += [Operator(f"out-{i}", cpu_pct=10) for i in range(count)]
    edges = [Edge(f"in-{i}", f"out-{i}", Grouping.SHUFFLE) for i in range(count)]
    return expanded(Topology("pairs", tuple(operators), tuple(edges)))


def one(processes: int, *, slots: int = 10_000, own_cores: bool = True) -> Cluster:
    return Cluster((Node("n", processes=processes, slots=slots, own_cores=own_cores),))


def sizes(process_of: IntArray, processes: int) -> list[int]:
    return sorted(np.bincount(process_of, minlength=processes).tolist())


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_executors_share_the_work_and_keep_pairs_together(processes: int) -> None:
    graph, cluster = pairs(4, cpu_pct=10), one(processes)
    process_of = gather_pairs(graph, cluster, np.zeros(8, dtype=np.int64))
    assert sizes(process_of, processes) == [8 // processes] * processes
    assert (process_of[:4] == process_of[4:]).all()


def test_processes_that_may_use_all_cores_are_filled_one_by_one() -> None:
    cluster = one(2, own_cores=False)
    for fill in (gather_pairs, fill_processes):
        assert not fill(pairs(), cluster, np.zeros(8, dtype=np.int64)).any()
    assert not fill_in_order(cluster, np.zeros(8, dtype=np.int64)).any()


def test_work_and_not_numbers_is_shared() -> None:
    topology = Topology(
        "t",
        (
            Operator("in", Kind.SOURCE, 1, rate_per_s=1, cpu_pct=60),
            Operator("out", Kind.STATELESS, 6, cpu_pct=10),
        ),
        (Edge("in", "out"),),
    )
    process_of = gather_pairs(expanded(topology), one(2), np.zeros(7, dtype=np.int64))
    assert sizes(process_of, 2) == [1, 6]


def test_in_order_means_equal_numbers() -> None:
    cluster = Cluster((Node("a", processes=2, own_cores=True), Node("b", processes=3, slots=1)))
    node_of = np.array([0, 1, 0, 1, 0, 1, 0])
    assert fill_in_order(cluster, node_of).tolist() == [0, 0, 0, 1, 1, 2, 1]


def test_few_slots_hold_everything_all_the_same() -> None:
    graph = pairs(4, cpu_pct=50)
    process_of = gather_pairs(graph, one(4, slots=2), np.zeros(8, dtype=np.int64))
    assert sizes(process_of, 4) == [2, 2, 2, 2]


def test_without_any_load_numbers_are_shared() -> None:
    topology = Topology("t", (Operator("in", Kind.SOURCE, 6),))
    process_of = gather_pairs(expanded(topology), one(3), np.zeros(6, dtype=np.int64))
    assert sizes(process_of, 3) == [2, 2, 2]


def test_newcomers_do_not_crowd_one_executor() -> None:
    graph, cluster = pairs(4, cpu_pct=10), one(2)
    current = np.array([0, 0, -1, -1, 0, 0, -1, -1])
    before = np.zeros(8, dtype=np.int64)
    process_of = stay_in_place(graph, cluster, np.zeros(8, dtype=np.int64), current, before)
    assert (process_of[[0, 1, 4, 5]] == 0).all(), "who stays, stays"
    assert sizes(process_of, 2) == [4, 4]
