"""The state benchmark measures what it says, on folders that stand for nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.experiments.state_bench.bench import StateBench, coding
from penstock.model import Cluster
from penstock.runtimes.local import LocalBackend
from penstock.state.store import clear_cache


@pytest.fixture
def bench(tmp_path: Path) -> StateBench:
    clear_cache()
    nodes = Cluster.of(6)
    backend = LocalBackend(tmp_path / "nodes", nodes.names)
    return StateBench(backend, nodes, str(tmp_path / "shared"), data=3, parity=2, repeats=1)


def test_all_experiments_come_back_with_what_was_saved(bench: StateBench) -> None:
    bench.warm_up()
    (one,) = bench.sizes([0.2])
    assert one["code"] == "3+2"
    assert one["recover_s_ratio"] == one["recover_s_checkpoint"] / one["recover_s_peers"]
    moved, lost = bench.moved([1, 8], 0.1, 0.2), bench.lost([3], 0.1)
    assert [row["instances"] for row in moved + lost] == [1, 8, 3]
    assert [row["missing"] for row in bench.missing(0.2)] == [0, 1, 2]
    assert all(value > 0 for row in moved + lost for key, value in row.items() if "_s_" in key)


def test_nothing_is_left_behind(bench: StateBench, tmp_path: Path) -> None:
    bench.sizes([0.1])
    assert not [path for path in (tmp_path / "nodes").rglob("*") if path.is_file()]


def test_the_code_is_timed_for_every_figure_of_the_paper() -> None:
    rows = coding(size_mb=0.2, repeats=1)
    assert {row["experiment"] for row in rows} >= {
        "data fragments",
        "parity fragments",
        "missing fragments",
    }
    assert all(row["missing"] <= row["c"] for row in rows)
