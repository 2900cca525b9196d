"""Steps that follow event time emit the same rows when they are moved, lost and restarted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.engine.streams import ROWS, STEPS, pipeline

from penstock.common.arrays import frozen_ints
from penstock.engine.driver.driver import Driver
from penstock.engine.job_graph import JobGraph
from penstock.model import Cluster, Plan
from penstock.pipeline import Memory
from penstock.runtimes.local import LocalBackend, run_locally
from penstock.state.config import StateConfig
from penstock.state.store import clear_cache
from penstock.strategies import Request, strategies
from penstock.testing.differential import table_counts

NODES, BATCH = 5, 40


class Streams:
    """A driver whose batches take so many rows of each stream."""

    def __init__(self, name: str, root: Path, mode: str) -> None:
        self.sink, self.root = Memory(), root
        self.job_graph = JobGraph.of(pipeline(name, self.sink))
        self.backend = LocalBackend(root / "nodes", Cluster.of(NODES).names)
        self.state_config = StateConfig(mode, every=1)
        self.start()

    def start(self) -> None:
        """Start a driver, for the first time or again."""
        clear_cache()
        plan = self.plan(0, 3)
        self.driver = Driver(
            self.job_graph, self.backend, self.root, plan, state_config=self.state_config
        )

    def plan(self, turn: int, instances: int) -> Plan:
        names = set(self.backend.nodes)
        cluster = Cluster(tuple(n for n in Cluster.of(NODES).nodes if n.name in names))
        topology = self.job_graph.topology(2).with_parallelism({"step": instances})
        made = strategies.make("even").plan(Request(topology, cluster))
        assert isinstance(made, Plan)
        nodes = (np.asarray(made.node_of) + turn) % len(cluster)
        return replace(made, node_of=frozen_ints(nodes), active=(), routing={})

    def batch(self) -> bool:
        """Run a batch; say whether there was anything to do."""
        at = self.driver.positions().get("left", (0,))[0]
        if at < ROWS:
            cut = ((at, min(at + BATCH, ROWS)),)
            self.driver.run_batch({"left": cut, "right": cut})
        elif self.driver.watermark_moved:
            self.driver.run_batch({})
        else:
            return False
        return True

    def result(self) -> Counter[Hashable]:
        while self.batch():
            pass
        self.driver.close()
        return table_counts(self.sink.table())


@cache
def undisturbed(name: str) -> Counter[Hashable]:
    sink = Memory()
    run_locally(pipeline(name, sink), range(BATCH, ROWS, BATCH))
    counts = table_counts(sink.table())
    assert counts.total() > 20
    return counts


@pytest.mark.parametrize(("mode", "inband"), [("peers", True), ("checkpoint", False)])
@pytest.mark.parametrize("name", STEPS)
def test_moved_and_repartitioned(tmp_path: Path, name: str, mode: str, inband: bool) -> None:
    run = Streams(name, tmp_path, mode)
    for turn, instances in enumerate((3, 3, 4, 7, 2, 1, 5)):
        run.driver.adopt(run.plan(turn, instances), inband=inband)
        if turn % 2:
            clear_cache()
        run.batch()
    assert run.result() == undisturbed(name)


@pytest.mark.parametrize("name", STEPS)
def test_lost_with_its_node_and_restored_from_peers(tmp_path: Path, name: str) -> None:
    run = Streams(name, tmp_path, "peers")
    for turn in range(3):
        for _ in range(2):
            run.batch()
        run.backend.lose(run.driver.plan.placement["step"][0].node)
        took = run.driver.adopt(run.plan(turn, 3))
        assert took.restored >= 1
    assert run.result() == undisturbed(name)


@pytest.mark.parametrize("name", STEPS)
def test_a_driver_that_starts_again(tmp_path: Path, name: str) -> None:
    run = Streams(name, tmp_path, "checkpoint")
    for _ in range(4):
        run.batch()
        run.driver.close()
        run.start()
    assert run.result() == undisturbed(name)
