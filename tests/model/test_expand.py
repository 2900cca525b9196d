"""What was measured takes the place of what was declared, at the parallelism of now."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penstock.model import Edge, Grouping, Kind, Measurements, Operator, Topology, expand
from penstock.model.links import link_mb_s

SEEN = Measurements(
    source_rates={"in": 1000.0},
    tuples_per_s={"in": np.array([1000.0]), "count": np.array([600.0, 400.0])},
    cpu_cores={"count": np.array([0.3, 0.2])},
    mem_mb={"count": np.array([80.0, 20.0])},
    state_mb={"count": np.array([60.0, 10.0])},
    io_mb_s={"count": np.array([5.0, 5.0])},
    tuple_bytes={"in": 500.0, "elsewhere": 1.0},
)


def topology(parallelism: int = 2) -> Topology:
    return Topology(
        "t",
        (
            Operator("in", Kind.SOURCE, rate_per_s=1000, mem_mb=7.0),
            Operator(
                "count",
                Kind.STATEFUL,
                parallelism,
                cpu_us_per_tuple=1.0,
                mem_mb=5.0,
                state_mb=8.0,
                io_bytes_per_tuple=1.0,
            ),
        ),
        (Edge("in", "count", Grouping.FIELDS),),
    )


def test_measured_figures_of_instances_win() -> None:
    graph = expand(topology(), SEEN)
    count = graph.span("count")
    assert graph.cpu_cores[count].tolist() == [0.3, 0.2]
    assert graph.mem_mb[count].tolist() == [80.0, 20.0]
    assert graph.state_mb[count].tolist() == [60.0, 10.0]
    assert graph.io_mb_s[count].tolist() == [5.0, 5.0]
    assert graph.mem_mb[0] == 7.0, "what was not measured stays as declared"


def test_links_carry_tuples_of_the_size_that_was_seen() -> None:
    nodes = np.array([0, 1, 1])
    declared, seen = (link_mb_s(expand(topology(), m), nodes, 2)[0] for m in (None, SEEN))
    assert declared[0] == pytest.approx(0.1)
    assert seen[0] == pytest.approx(0.5)


def test_another_parallelism_keeps_the_cost_of_a_tuple_and_all_state() -> None:
    graph = expand(topology(4), SEEN)
    count = graph.span("count")
    assert graph.cpu_cores[count].tolist() == pytest.approx([0.125] * 4)
    assert graph.io_mb_s[count].tolist() == pytest.approx([2.5] * 4)
    assert graph.state_mb[count].tolist() == [17.5] * 4
    assert graph.mem_mb[count].tolist() == [25.0] * 4


def test_measured_state_counts_where_memory_was_not_measured() -> None:
    graph = expand(topology(), replace(SEEN, mem_mb={}))
    assert graph.mem_mb[graph.span("count")].tolist() == [65.0, 15.0]


def test_idle_instances_of_another_parallelism_are_as_declared() -> None:
    idle = replace(SEEN, tuples_per_s={"count": np.zeros(2), "in": np.array([1000.0])})
    graph = expand(topology(4), idle)
    assert graph.cpu_cores[graph.span("count")].tolist() == pytest.approx([250e-6] * 4)
