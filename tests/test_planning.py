"""The function for notebooks."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.model import Cluster, InvalidValue, Plan
from penstock.model.sizing import sized_for
from penstock.planning import chosen, request
from penstock.strategies import strategies
from penstock.strategies.even import Even

EXAMPLES = Path(__file__).parents[1] / "examples"
WORDS = EXAMPLES / "wordcount.yaml"


def test_files_values_and_numbers_are_taken() -> None:
    base = request(WORDS, 3)
    by_number = penstock.plan(WORDS, 3, "even")
    by_value = penstock.plan(base.topology, sized_for(base.graph, 3), Even())
    assert by_number == by_value
    assert isinstance(penstock.plan(str(WORDS), EXAMPLES / "lab.yaml"), Plan)


def test_the_default_is_penstock() -> None:
    made = penstock.plan(WORDS, 3)
    assert isinstance(made, Plan)
    assert made.strategy == "penstock"
    assert made == penstock.plan(WORDS, 3, "penstock")


def test_parameters_reach_the_strategy() -> None:
    with pytest.raises(InvalidValue, match="memory_weight"):
        penstock.plan(WORDS, 3, "rstorm", memory_weight=-1)
    with pytest.raises(InvalidValue, match="one of memory_weight"):
        penstock.plan(WORDS, 3, "rstorm", weight=1)
    with pytest.raises(InvalidValue, match="left out when the strategy is made already"):
        penstock.plan(WORDS, 3, Even(), weight=1)


@pytest.mark.parametrize("seed", [-1, True, 1.5, None])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    with pytest.raises(InvalidValue, match="seed"):
        penstock.plan(WORDS, 3, seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, -1, True, 100_001])
def test_a_number_of_nodes_is_checked(count: int) -> None:
    with pytest.raises(InvalidValue, match="nodes"):
        penstock.plan(WORDS, count)


def test_names_are_chosen() -> None:
    assert chosen("all") == strategies.names()
    assert chosen("even,all") == strategies.names()
    assert chosen(" rstorm,even, rstorm") == ("rstorm", "even")


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'plann'"):
        _ = penstock.plann  # type: ignore[attr-defined]


def test_a_topology_that_needs_nothing_gets_nodes_that_are_not_empty(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("operators: [{name: a, kind: source}]")
    cluster: Cluster = request(file, 2).cluster
    assert cluster.cpu_cores.min() > 0
    assert cluster.mem_mb.min() > 0


def test_disk_traffic_is_sized_too(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "operators: [{name: a, kind: source, rate_per_s: 1e6, io_bytes_per_tuple: 1e4}]"
    )
    made = penstock.plan(file, 2)
    assert isinstance(made, Plan)
    assert made.feasible
