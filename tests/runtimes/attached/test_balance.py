"""Heavy state partitions are spread, as well as the best order would, and only where that pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from tests.runtimes.attached.test_runtime import Noted, made
from tests.runtimes.attached.texts import JOIN, SAVE

from penstock.model import (
    Cluster,
    Edge,
    Grouping,
    Keep,
    Kind,
    Measurements,
    Node,
    Operator,
    Plan,
    Reason,
    Topology,
    Utilisation,
)
from penstock.runtimes.attached.balance import balanced, spread
from penstock.runtimes.attached.unchanged import Unchanged
from penstock.runtimes.attached.work import WorkTimes
from penstock.store.records import InstanceRecord
from penstock.strategies import Request, make_plan, strategies

WORK = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=24)


@given(WORK, st.integers(1, 5), st.integers(0, 2**31))
def test_a_spread_is_never_worse_and_close_to_the_bound(
    work: list[float], nodes: int, seed: int
) -> None:
    weights = np.array(work)
    node_of = np.random.default_rng(seed).integers(0, nodes, len(work))
    found = spread(weights, node_of, np.ones(nodes))
    assert found.after <= found.before + 1e-9
    loads = np.bincount(found.node_of, weights=weights, minlength=nodes)
    assert found.after == pytest.approx(loads.max())
    bound = max(weights.max(), weights.sum() / nodes)
    # No partition of the busiest node can go to the least busy one: within twice the bound.
    assert found.after <= 2 * bound + 1e-9


def test_a_slow_node_gets_less() -> None:
    found = spread(np.ones(9), np.arange(9) % 3, np.array([1.0, 1.0, 0.5]))
    assert np.bincount(found.node_of).tolist() == [4, 3, 2]


def request(save: tuple[float, float]) -> Request:
    runtime = made(Noted())
    plan = runtime.plan
    onto = plan.node_of.copy()
    onto[-2:] = 1
    running = replace(plan, node_of=onto, active=runtime.cluster.names)
    cores = {JOIN: np.array([0.1, 0.1]), SAVE: np.array(save)}
    zero = {name: np.zeros(2) for name in ("source-0", "source-1")}
    seen = Measurements(
        source_rates={"source-0": 10.0, "source-1": 10.0},
        tuples_per_s={name: np.full(2, 10.0) for name in (*cores, *zero)},
        cpu_cores={**cores, **zero},
        nodes={name: Utilisation(cpu=0.3) for name in runtime.cluster.names},
    )
    return Request(runtime.topology, runtime.cluster, seen, running)


def test_two_heavy_partitions_do_not_stay_on_one_executor() -> None:
    asked = request((0.4, 0.3))
    assert asked.running is not None
    found = balanced(asked.running, asked)
    assert found is not None
    assert len({spot.node for spot in found.placement[SAVE]}) == 2
    assert SAVE in found.reasons[0].text


def test_what_saves_too_little_stays() -> None:
    asked = request((0.4, 0.01))
    assert asked.running is not None
    assert balanced(asked.running, asked) is None


def test_only_the_own_strategy_is_balanced_beyond_its_plan() -> None:
    asked = request((0.4, 0.3))
    keeps = Unchanged(strategies.make("even")).plan(asked)
    assert isinstance(keeps, (Keep, Plan))
    found = Unchanged(strategies.make("penstock"), balance=True).plan(asked)
    assert isinstance(found, Plan)


def measured(work: list[float], node_of: list[int], nodes: int) -> Request:
    """Ask about one stateful operator, with the work of its partitions in cores."""
    count = Operator("count", Kind.STATEFUL, len(work))
    edge = Edge("source", "count", Grouping.FIELDS)
    topology = Topology("counts", (Operator("source", Kind.SOURCE, 1), count), (edge,))
    cluster = Cluster(tuple(Node(f"n{i}", cpu_cores=1.0, mem_mb=1e4) for i in range(nodes)))
    seen = Measurements(
        source_rates={"source": 10.0},
        tuples_per_s={"source": np.full(1, 10.0), "count": np.full(len(work), 10.0)},
        cpu_cores={"source": np.zeros(1), "count": np.array(work)},
    )
    zeros = np.zeros(len(work) + 1, dtype=np.int64)
    spots, why = np.array([node_of[0], *node_of]), Reason("it runs so")
    running = make_plan(Request(topology, cluster), "even", spots, zeros, [why])
    return Request(topology, cluster, seen, running)


def test_nodes_that_stay_are_used() -> None:
    asked = measured([4.0, 3, 2, 1], [0, 0, 0, 0], nodes=3)
    assert asked.running is not None
    alone = balanced(asked.running, asked)
    assert alone is None, "the plan uses one node, and nothing is gained on it"
    found = balanced(asked.running, asked, least_nodes=3)
    assert found is not None
    assert len(found.active) == 3


@pytest.mark.parametrize(("idle_share", "nodes"), [(0.5, 1), (0.0, 3)])
def test_batches_without_a_pause_keep_their_nodes(idle_share: float, nodes: int) -> None:
    asked = measured([0.08] * 6, [0, 0, 1, 1, 2, 2], nodes=3)
    own = strategies.make("penstock")
    found = Unchanged(own, balance=True, idle_share=idle_share).plan(asked)
    kept = asked.running if isinstance(found, Keep) else found
    assert kept is not None
    assert len(kept.active) == nodes
    if isinstance(found, Keep):
        assert "without a pause" in found.reasons[0].text


def test_little_work_needs_no_pause_to_be_packed() -> None:
    asked = measured([0.01] * 6, [0, 0, 1, 1, 2, 2], nodes=3)
    found = Unchanged(strategies.make("penstock"), balance=True, idle_share=0.0).plan(asked)
    assert isinstance(found, Plan)
    assert len(found.active) == 1


def answers(weights: np.ndarray[Any, Any], noise: float, seed: int) -> tuple[bool, bool]:
    """Whether partitions move whose work varies: by all of it, and by halves of the batches."""
    draw = np.random.default_rng(seed)
    count, nodes = len(weights), 4
    times = WorkTimes({"count": count})
    total = np.zeros(count)
    for _ in range(8):
        work = weights * draw.lognormal(0.0, noise, count)
        total += work
        rows = [
            InstanceRecord("run", 0, "count", at, "n0", run_ms=float(own))
            for at, own in enumerate(work)
        ]
        times.add(rows)
    asked = measured((total / 8).tolist(), [at % nodes for at in range(count)], nodes)
    assert asked.running is not None
    believed = balanced(asked.running, asked, nodes)
    checked = balanced(asked.running, asked, nodes, {"count": times.halves("count")})
    return believed is not None, checked is not None


def test_partitions_that_differ_by_chance_stay() -> None:
    found = [answers(np.full(24, 0.1), 0.7, seed) for seed in range(40)]
    assert sum(believed for believed, _ in found) >= 20, "so often there seems to be something"
    assert sum(checked for _, checked in found) <= 4


def test_partitions_that_are_heavy_in_every_batch_move() -> None:
    skewed = 0.4 / np.arange(1, 25)
    found = [answers(skewed, 0.2, seed) for seed in range(20)]
    assert all(checked for _, checked in found)
