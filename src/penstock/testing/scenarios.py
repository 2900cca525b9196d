"""Requests that a strategy must take or refuse politely, each with a name that says what is odd."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from penstock.model import (
    Cluster,
    Edge,
    Grouping,
    Kind,
    Measurements,
    Node,
    Operator,
    Topology,
)
from penstock.strategies import Request

Scenario = Callable[[int], Request]


def wordcount(parallelism: int = 2, rate_per_s: float | None = 1000.0) -> Topology:
    """Make lines -> split -> count with its usual demands."""
    return Topology(
        "wordcount",
        (
            Operator(
                "lines", Kind.SOURCE, 1, cpu_us_per_tuple=50, mem_mb=64, rate_per_s=rate_per_s
            ),
            Operator(
                "split", parallelism=parallelism, cpu_us_per_tuple=80, mem_mb=64, selectivity=5
            ),
            Operator(
                "count", Kind.STATEFUL, parallelism, cpu_us_per_tuple=20, mem_mb=64, state_mb=64
            ),
        ),
        (Edge("lines", "split"), Edge("split", "count", Grouping.FIELDS)),
    )


def every_grouping() -> Topology:
    """Make one source that feeds an operator through each grouping, and a sink behind them."""
    branches = tuple(
        Operator(grouping.value, Kind.STATELESS, 2, cpu_us_per_tuple=10, mem_mb=16)
        for grouping in Grouping
    )
    return Topology(
        "groupings",
        (
            Operator("in", Kind.SOURCE, 2, mem_mb=16, rate_per_s=500),
            *branches,
            Operator("out", Kind.STATEFUL, 3, mem_mb=16, state_mb=30),
        ),
        tuple(Edge("in", g.value, g) for g in Grouping)
        + tuple(Edge(b.name, "out", Grouping.FIELDS, (0.7, 0.2, 0.1)) for b in branches),
    )


def mixed_cluster() -> Cluster:
    """Make three unlike nodes with several processes, two of them in one rack."""
    return Cluster(
        (
            Node("big", cpu_cores=8, mem_mb=4096, processes=3, slots=8),
            Node("small", cpu_cores=2, mem_mb=2048, processes=1, slots=16),
            Node("far", cpu_cores=4, mem_mb=4096, rack="rack-1", processes=2, slots=8),
        )
    )


def _scenario(
    topology: Topology, cluster: Cluster, measurements: Measurements | None = None
) -> Scenario:
    def make(seed: int) -> Request:
        return Request(topology, cluster, measurements, rng=np.random.default_rng(seed))

    return make


_SPOUT = Operator("in", Kind.SOURCE, mem_mb=10, cpu_us_per_tuple=10, rate_per_s=100)
_STEP = Operator("step", parallelism=3, mem_mb=10, cpu_us_per_tuple=10)
_LATER = Operator("later", parallelism=2, mem_mb=10, cpu_us_per_tuple=10)
_CYCLE = Topology(
    "cycle",
    (_SPOUT, _STEP, _LATER),
    (Edge("in", "step"), Edge("step", "later"), Edge("later", "step")),
    relaxed=True,
)
_LOOPS = Topology(
    "loops",
    (_SPOUT, _STEP, _LATER),
    (
        Edge("in", "step"),
        Edge("in", "step", Grouping.ALL),
        Edge("step", "step", Grouping.FIELDS),
        Edge("step", "later", Grouping.LOCAL_OR_SHUFFLE),
        Edge("step", "later", Grouping.GLOBAL),
    ),
    relaxed=True,
)
_MEASURED = Measurements(
    source_rates={"lines": 700.0},
    rates={
        ("split", "count"): np.array([[900.0, 0.0], [100.0, 40.0]]),
        # From before a change of parallelism, to be passed over.
        ("lines", "split"): np.ones((1, 5)),
    },
    tuples_per_s={"count": np.array([1000.0, 40.0])},
    cpu_cores={"count": np.array([0.6, 0.05])},
    rate_cv=0.1,
)

#: Requests that any strategy should be able to plan.
PLAIN: Mapping[str, Scenario] = {
    "a small case": _scenario(wordcount(1), Cluster.of(2)),
    "wordcount": _scenario(wordcount(), Cluster.of(3, processes=2, slots=4)),
    "every grouping": _scenario(every_grouping(), mixed_cluster()),
    "measured rates": _scenario(wordcount(), mixed_cluster(), _MEASURED),
}

#: Requests with something degenerate in them.
DEGENERATE: Mapping[str, Scenario] = {
    "one node": _scenario(wordcount(3), Cluster.of(1, processes=2)),
    "one operator": _scenario(Topology("one", (Operator("in", Kind.SOURCE, 4),)), Cluster.of(3)),
    "a single instance": _scenario(Topology("one", (_SPOUT,)), Cluster.of(2, processes=2)),
    "zero rates": _scenario(wordcount(3, rate_per_s=0.0), Cluster.of(3)),
    "no demands": _scenario(
        Topology("free", (Operator("in", Kind.SOURCE, 3), Operator("b")), (Edge("in", "b"),)),
        Cluster.of(2),
    ),
    "no edges": _scenario(
        Topology("apart", tuple(Operator(f"in-{i}", Kind.SOURCE, 2) for i in range(3))),
        Cluster.of(3),
    ),
    "more instances than slots": _scenario(wordcount(6), Cluster.of(2, processes=2, slots=2)),
    "a node without memory": _scenario(
        wordcount(3), Cluster((Node("a"), Node("empty", mem_mb=0), Node("c")))
    ),
    "a node without CPU": _scenario(
        wordcount(3), Cluster((Node("stopped", cpu_cores=0), Node("b"), Node("c")))
    ),
    "nothing anywhere": _scenario(
        wordcount(), Cluster(tuple(Node(n, cpu_cores=0, mem_mb=0, io_mb_s=0) for n in "ab"))
    ),
    "an instance that fits nowhere": _scenario(
        Topology(
            "huge",
            (_SPOUT, Operator("huge", cpu_pct=10_000, mem_mb=1e6), _STEP),
            (Edge("in", "huge"), Edge("huge", "step")),
        ),
        Cluster.of(3),
    ),
    "many more nodes than instances": _scenario(wordcount(1), Cluster.of(40)),
    "a cycle": _scenario(_CYCLE, Cluster.of(2)),
    "parallel edges and a loop": _scenario(_LOOPS, Cluster.of(3, processes=2)),
    "an operator that nothing reaches": _scenario(
        Topology("stray", (_SPOUT, _STEP, _LATER), (Edge("in", "step"),), relaxed=True),
        Cluster.of(2),
    ),
}

#: All of them.
SCENARIOS: Mapping[str, Scenario] = {**PLAIN, **DEGENERATE}
