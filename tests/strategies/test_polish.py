"""Strategies that polish their plan: no limit is broken for it, and no traffic is added."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.model import Cluster, Plan
from penstock.strategies import Request
from penstock.strategies.loads import exact_limit, max_load_inside
from penstock.strategies.sl import SlStream
from penstock.strategies.ts import TsStream
from penstock.testing.partitioner_checks import streams
from penstock.testing.scenarios import every_grouping, wordcount

POLISHED = pytest.mark.parametrize("strategy", [SlStream, TsStream])


@POLISHED
@pytest.mark.parametrize("polish", [0, 8])
def test_exact_nodes(strategy: type[SlStream | TsStream], polish: int) -> None:
    request = Request(streams(5, 8), Cluster.of(6, processes=2), exact_nodes=True)
    plan = strategy(polish=polish).plan(request)
    assert isinstance(plan, Plan)
    assert plan.after.nodes_used == 6
    reached = max_load_inside(request.graph, request.cluster, plan.node_of)
    assert reached <= exact_limit(request) + 1e-9


@POLISHED
def test_polish_does_not_add_traffic(strategy: type[SlStream | TsStream]) -> None:
    for topology in (streams(4, 6), every_grouping(), wordcount(8)):
        plain, polished = (
            strategy(polish=passes).plan(
                Request(topology, Cluster.of(4), exact_nodes=True, rng=np.random.default_rng(1))
            )
            for passes in (0, 8)
        )
        assert isinstance(plain, Plan)
        assert isinstance(polished, Plan)
        assert polished.after.across_per_s <= plain.after.across_per_s * (1 + 1e-9)
