"""Hypothesis strategies for topologies, clusters, measurements and requests.

Examples
--------
>>> from hypothesis import given, settings
>>> @settings(max_examples=5, database=None)
... @given(topologies())
... def has_a_source(topology):
...     assert topology.sources
>>> has_a_source()
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

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
from penstock.model.operator import SHAREABLE
from penstock.strategies import Request

try:
    from hypothesis import HealthCheck, settings
    from hypothesis import strategies as st
except ImportError as missing:  # pragma: no cover
    raise ImportError(
        "penstock.testing.generate needs hypothesis; install it with: pip install hypothesis"
    ) from missing

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

#: How the contract suites draw requests: few of them, because each is planned.
FEW = settings(
    max_examples=15,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def topologies(
    draw: DrawFn, *, max_layers: int = 4, max_parallelism: int = 5, cyclic: bool = False
) -> Topology:
    """Layered graphs with all groupings, skewed shares, several sources and parallel edges.

    Parameters
    ----------
    max_layers : int
        Layers, the sources' included; each has at most three operators.
    max_parallelism : int
    cyclic : bool
        Add loops and edges that lead back, in a relaxed topology.
    """
    widths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=max_layers))
    layers = [
        [
            draw(_operators(f"o{depth}{chr(97 + i)}", depth == 0, max_parallelism))
            for i in range(width)
        ]
        for depth, width in enumerate(widths)
    ]
    edges: list[Edge] = []
    for depth in range(1, len(layers)):
        earlier = [operator for layer in layers[:depth] for operator in layer]
        for target in layers[depth]:
            # Drawn with repetition: two operators may be joined by several edges.
            feeding = draw(st.lists(st.sampled_from(earlier), min_size=1, max_size=3))
            edges += [draw(_edges(source, target)) for source in feeding]
    later = [operator for layer in layers[1:] for operator in layer]
    if cyclic and later:
        for _ in range(draw(st.integers(1, 2))):
            ends = draw(st.tuples(st.sampled_from(later), st.sampled_from(later)))
            edges.append(draw(_edges(*ends)))
    operators = tuple(operator for layer in layers for operator in layer)
    return Topology("generated", operators, tuple(edges), relaxed=cyclic)


@st.composite
def clusters(draw: DrawFn, *, max_nodes: int = 5) -> Cluster:
    """Unlike nodes with several processes, slots and racks."""
    count = draw(st.integers(1, max_nodes))
    return Cluster(
        tuple(
            Node(
                f"n{i}",
                cpu_cores=draw(st.sampled_from([0.5, 1.0, 4.0, 16.0])),
                mem_mb=draw(st.sampled_from([256.0, 1024.0, 8192.0])),
                io_mb_s=draw(st.sampled_from([10.0, 500.0])),
                bandwidth_mb_s=draw(st.sampled_from([12.5, 125.0, 1250.0])),
                rack=f"rack-{draw(st.integers(0, 1))}",
                processes=draw(st.integers(1, 3)),
                slots=draw(st.integers(1, 8)),
            )
            for i in range(count)
        )
    )


@st.composite
def measurements(draw: DrawFn, topology: Topology) -> Measurements:
    """Draw measurements of some operators and edges of a topology, as a window would give them."""
    rate = st.integers(0, 500).map(float)

    def row(operator: str, values: st.SearchStrategy[float]) -> np.ndarray[tuple[int], np.dtype]:
        count = topology[operator].parallelism
        return np.array(draw(st.lists(values, min_size=count, max_size=count)))

    some_edges = {(e.source, e.target) for e in topology.edges if draw(st.booleans())}
    names = [operator.name for operator in topology.operators]
    return Measurements(
        source_rates={s.name: draw(rate) for s in topology.sources if draw(st.booleans())},
        rates={
            (source, target): np.array(
                [row(target, rate) for _ in range(topology[source].parallelism)]
            )
            for source, target in sorted(some_edges)
        },
        tuples_per_s={name: row(name, rate) for name in names if draw(st.booleans())},
        cpu_cores={
            name: row(name, st.integers(0, 20).map(lambda tenths: tenths / 10))
            for name in names
            if draw(st.booleans())
        },
    )


@st.composite
def requests(
    draw: DrawFn, *, cyclic: bool | None = None, exact_nodes: bool | None = False
) -> Request:
    """Draw first requests, with and without measurements. None for a flag: either.

    The random generator is fresh and seeded with the drawn integer; `again` makes an equal request.
    """
    topology = draw(topologies(cyclic=draw(st.booleans()) if cyclic is None else cyclic))
    return Request(
        topology,
        draw(clusters()),
        draw(st.none() | measurements(topology)),
        rng=np.random.default_rng(draw(st.integers(0, 1000))),
        exact_nodes=draw(st.booleans()) if exact_nodes is None else exact_nodes,
    )


def again(request: Request, seed: int) -> Request:
    """Return the same request with a fresh generator."""
    return replace(request, rng=np.random.default_rng(seed))


@st.composite
def placements(draw: DrawFn, request: Request) -> tuple[np.ndarray, np.ndarray]:
    """Any placement of a request's instances: their nodes and processes."""
    nodes, processes = [], []
    for _ in range(len(request.graph)):
        node = draw(st.integers(0, len(request.cluster) - 1))
        nodes.append(node)
        processes.append(draw(st.integers(0, request.cluster.nodes[node].processes - 1)))
    return np.array(nodes, dtype=np.int64), np.array(processes, dtype=np.int64)


@st.composite
def _operators(draw: DrawFn, name: str, source: bool, max_parallelism: int) -> Operator:
    kind = Kind.SOURCE if source else draw(st.sampled_from([Kind.STATELESS, Kind.STATEFUL]))
    return Operator(
        name,
        kind,
        draw(st.integers(1, max_parallelism)),
        cpu_us_per_tuple=draw(st.sampled_from([0.0, 10.0, 500.0])),
        cpu_pct=draw(st.sampled_from([0.0, 0.0, 30.0])),
        mem_mb=draw(st.sampled_from([0.0, 32.0, 400.0])),
        io_bytes_per_tuple=draw(st.sampled_from([0.0, 1000.0])),
        selectivity=draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])),
        state_mb=draw(st.sampled_from([0.0, 100.0])) if kind is Kind.STATEFUL else 0.0,
        rate_per_s=draw(st.sampled_from([None, 0.0, 10.0, 1000.0])) if source else None,
    )


@st.composite
def _edges(draw: DrawFn, source: Operator, target: Operator) -> Edge:
    grouping = draw(st.sampled_from(Grouping))
    shares = None
    if grouping in SHAREABLE and draw(st.booleans()):
        parts = [draw(st.integers(0, 20)) for _ in range(target.parallelism)]
        parts[0] += 0 if sum(parts) else 1
        shares = tuple(part / sum(parts) for part in parts)
    return Edge(source.name, target.name, grouping, shares)
