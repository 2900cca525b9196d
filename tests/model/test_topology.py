from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given

from penstock.model import Edge, Grouping, InvalidValue, Kind, Operator, Topology
from penstock.testing.generate import topologies

SOURCE = Operator("s", Kind.SOURCE)


def named(*names: str) -> tuple[Operator, ...]:
    return tuple(Operator(name) for name in names)


NUMBERS = (
    "cpu_us_per_tuple",
    "cpu_pct",
    "mem_mb",
    "io_bytes_per_tuple",
    "selectivity",
    "state_mb",
    "tuple_bytes",
    "complexity",
)


@pytest.mark.parametrize("parameter", NUMBERS)
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "3", True, None])
def test_numbers_of_an_operator(parameter: str, value: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        Operator("a", Kind.STATEFUL, **{parameter: value})
    assert str(caught.value) == (
        f"parameter {parameter} of operator 'a' must be a finite number of at least 0, "
        f"got {value!r}"
    )


@pytest.mark.parametrize("value", [0, -3, 1.5, "2", True, None])
def test_parallelism(value: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        Operator("a", parallelism=value)
    assert str(caught.value) == (
        f"parameter parallelism of operator 'a' must be a whole number of at least 1, got {value!r}"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Operator(""),
            "parameter name of an operator must be a non-empty string, got ''",
        ),
        (
            lambda: Operator("a", rate_per_s=5),
            "parameter rate_per_s of operator 'a' must be left out, because only a source has one, "
            "got 5",
        ),
        (
            lambda: Operator("a", Kind.SOURCE, rate_per_s=-5),
            "parameter rate_per_s of operator 'a' must be a finite number of at least 0, got -5",
        ),
        (
            lambda: Operator("a", state_mb=5),
            "parameter state_mb of operator 'a' must be 0 unless the operator is stateful, got 5",
        ),
        (
            lambda: Operator("a", Kind.SOURCE, splittable=True),
            "parameter splittable of operator 'a' must be false for a source, got True",
        ),
        (
            lambda: Operator("a", splittable="no"),  # type: ignore[arg-type]
            "parameter splittable of operator 'a' must be true or false, got 'no'",
        ),
        (
            lambda: Edge("a", "b", Grouping.SHUFFLE, (1.0,)),
            "parameter shares of edge 'a' -> 'b' must be left out unless the grouping is custom, "
            "direct, fields, got (1.0,)",
        ),
        (
            lambda: Edge("a", "b", Grouping.FIELDS, (0.5, 0.4)),
            "parameter shares of edge 'a' -> 'b' must be numbers that sum to 1, got (0.5, 0.4)",
        ),
        (
            lambda: Edge("a", "b", Grouping.FIELDS, (1.5, -0.5)),
            "parameter shares of edge 'a' -> 'b' must be a finite number of at least 0, got -0.5",
        ),
        (
            lambda: Topology("t", ()),
            "parameter operators of topology 't' must be at least one operator, got ()",
        ),
        (
            lambda: Topology("t", (SOURCE, *named("a", "a"))),
            "parameter operators of topology 't' must be uniquely named, got 'a'",
        ),
        (
            lambda: Topology("t", (SOURCE, *named("a")), (Edge("s", "b"),)),
            "parameter edges of topology 't' must be between a, s, got 'b'",
        ),
        (
            lambda: Topology("t", (SOURCE, *named(*"abcdefghi")), (Edge("x", "a"),)),
            "parameter edges of topology 't' must be between a, b, c, d, e, f, g, h, ... "
            "(10 in all), got 'x'",
        ),
        (
            lambda: Topology("t", (SOURCE, *named("a")), (Edge("s", "a"), Edge("a", "s"))),
            "parameter edges of topology 't' must be without an edge into a source, got 'a -> s'",
        ),
        (
            lambda: Topology(
                "t", (SOURCE, *named("a")), (Edge("s", "a", Grouping.FIELDS, (0.5, 0.5)),)
            ),
            "parameter shares of edge 's' -> 'a' must be one number for each of the 1 instances, "
            "got (0.5, 0.5)",
        ),
        (
            lambda: Topology("t", named("a", "b"), (Edge("a", "b"),)),
            "parameter operators of topology 't' must be a set with at least one source, "
            "got 'a, b'",
        ),
        (
            lambda: Topology(
                "t",
                (SOURCE, *named("a", "b", "c")),
                (Edge("s", "a"), Edge("a", "b"), Edge("b", "c"), Edge("c", "a")),
            ),
            "parameter edges of topology 't' must be without a cycle, got 'a -> b -> c -> a'",
        ),
        (
            lambda: Topology("t", (SOURCE, *named("a")), (Edge("s", "a"), Edge("a", "a"))),
            "parameter edges of topology 't' must be without a cycle, got 'a -> a'",
        ),
        (
            lambda: Topology("t", (SOURCE, *named("a", "b", "c")), (Edge("s", "a"),)),
            "parameter operators of topology 't' must be all reachable from a source, got 'b, c'",
        ),
    ],
)
def test_every_error_says_what_is_allowed(make: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        make()
    assert str(caught.value) == message


def test_an_error_survives_a_process_boundary() -> None:
    error = InvalidValue("k", "a part", "at least 1", 0)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert (copy.parameter, copy.owner, copy.allowed, copy.got) == ("k", "a part", "at least 1", 0)
    assert isinstance(copy, ValueError)


def test_layers_are_longest_paths() -> None:
    topology = Topology(
        "t",
        (*named("sink", "mid", "early"), SOURCE, Operator("s2", Kind.SOURCE)),
        (
            Edge("s", "early"),
            Edge("s", "sink"),
            Edge("early", "mid"),
            Edge("s2", "mid"),
            Edge("mid", "sink"),
            Edge("mid", "sink", Grouping.ALL),
        ),
    )
    assert topology.layers == (("s", "s2"), ("early",), ("mid",), ("sink",))
    assert topology.order == ("s", "s2", "early", "mid", "sink")

    assert topology.upstream("sink") == ("s", "mid")
    assert topology.warnings == ()


def test_a_relaxed_topology_tells_its_problems() -> None:
    topology = Topology(
        "t",
        (SOURCE, *named("a", "b", "lost")),
        (Edge("s", "a"), Edge("a", "b"), Edge("b", "a"), Edge("b", "b")),
        relaxed=True,
    )
    assert topology.cycle == ("a", "b", "a")
    assert [(e.source, e.target) for e in topology.feedback] == [("b", "a"), ("b", "b")]
    assert [(e.source, e.target) for e in topology.forward_edges] == [("s", "a"), ("a", "b")]
    assert topology.layers == (("s", "lost"), ("a",), ("b",))
    assert topology.warnings == (
        "parameter edges of topology 't' must be without a cycle, got 'a -> b -> a'",
        "parameter operators of topology 't' must be all reachable from a source, got 'lost'",
    )
    with pytest.raises(InvalidValue, match="without a cycle"):
        topology.require_runnable()


def test_a_cycle_that_no_source_reaches_is_found() -> None:
    topology = Topology(
        "t", (SOURCE, *named("a", "b")), (Edge("a", "b"), Edge("b", "a")), relaxed=True
    )
    assert topology.cycle == ("a", "b", "a")
    assert topology.unreachable == ("a", "b")


def test_other_parallelism_drops_shares_of_instances_that_are_gone() -> None:
    topology = Topology(
        "t",
        (SOURCE, Operator("a", parallelism=2), Operator("b", parallelism=2)),
        (Edge("s", "a", Grouping.FIELDS, (0.9, 0.1)), Edge("s", "b", Grouping.FIELDS, (0.8, 0.2))),
    )
    assert topology.with_parallelism({"a": 2}) is topology
    changed = topology.with_parallelism({"a": 3})
    assert dict(changed.parallelism) == {"s": 1, "a": 3, "b": 2}
    assert [edge.shares for edge in changed.edges] == [None, (0.8, 0.2)]


@given(topologies(cyclic=True))
def test_order_puts_every_forward_edge_downhill(topology: Topology) -> None:
    assert sorted(topology.order) == sorted(topology.parallelism)
    depth = {name: i for i, layer in enumerate(topology.layers) for name in layer}
    for edge in topology.forward_edges:
        assert depth[edge.source] < depth[edge.target]
    for name, own in depth.items():
        feeding = [depth[e.source] for e in topology.forward_edges if e.target == name]
        assert own == max(feeding, default=-1) + 1
