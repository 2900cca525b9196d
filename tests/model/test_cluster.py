from __future__ import annotations

from typing import Any

import pytest

from penstock.model import Cluster, InvalidValue, Node


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Node(""), "parameter name of a node must be a non-empty string, got ''"),
        *(
            (
                lambda name=name, value=value: Node("n", **{name: value}),
                f"parameter {name} of node 'n' must be a finite number of at least 0, got {value}",
            )
            for name in ("cpu_cores", "mem_mb", "io_mb_s", "bandwidth_mb_s")
            for value in (-1, float("nan"), float("inf"), True)
        ),
        *(
            (
                lambda name=name, value=value: Node("n", **{name: value}),
                f"parameter {name} of node 'n' must be a whole number of at least 1, got {value}",
            )
            for name in ("processes", "slots")
            for value in (0, 1.5, True)
        ),
        (lambda: Cluster(()), "parameter nodes of a cluster must be at least one node, got ()"),
        (
            lambda: Cluster((Node("a"), Node("b"), Node("a"))),
            "parameter nodes of a cluster must be uniquely named, got 'a'",
        ),
        *(
            (
                lambda count=count: Cluster.of(count),
                f"parameter nodes of a cluster must be a whole number of at least 1, got {count}",
            )
            for count in (0, -1, 2.0, True)
        ),
    ],
)
def test_every_error_says_what_is_allowed(make: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        make()
    assert str(caught.value) == message


def test_columns_follow_the_nodes() -> None:
    cluster = Cluster(
        (
            Node("a", cpu_cores=2, mem_mb=10, io_mb_s=1, bandwidth_mb_s=7, processes=3, slots=4),
            Node("b", cpu_cores=4, mem_mb=20, io_mb_s=2, bandwidth_mb_s=8, rack="r"),
            Node("c", processes=2),
        )
    )
    assert len(cluster) == 3
    assert cluster.names == ("a", "b", "c")
    assert dict(cluster.index) == {"a": 0, "b": 1, "c": 2}
    assert cluster.cpu_cores.tolist() == [2, 4, 4]
    assert cluster.mem_mb.tolist() == [10, 20, 8192]
    assert cluster.io_mb_s.tolist() == [1, 2, 500]
    assert cluster.bandwidth_mb_s.tolist() == [7, 8, 125]
    assert cluster.processes.tolist() == [3, 1, 2]
    assert cluster.slots.tolist() == [4, 64, 64]
    assert cluster.first_process.tolist() == [0, 3, 4]
    assert cluster.rack.tolist() == [0, 1, 0]


def test_columns_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Cluster.of(2).cpu_cores[0] = 1


def test_equal_nodes_sort_by_name_as_by_number() -> None:
    names = Cluster.of(11).names
    assert names[0] == "node-00"
    assert list(names) == sorted(names)
