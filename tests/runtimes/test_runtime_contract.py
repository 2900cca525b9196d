"""A run on Spark as the control loop sees it: the contract, and a loop that only recommends.

Nodes that follow a rate take minutes on a busy machine: ``cluster_checks elastic`` by itself.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.runtimes.checked import checked

from penstock.runtimes.spark.session import NOISY
from penstock.testing import RUNTIME_CHECKS

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """All of them, on one cluster."""
    return checked("recommend_only", "contract")


@pytest.mark.parametrize("name", RUNTIME_CHECKS)
def test_spark_keeps_the_contract(results: dict[str, Any], name: str) -> None:
    assert results["contract"]["broken"][name] == ""


def test_recommending_changes_nothing(results: dict[str, Any]) -> None:
    found = results["recommend_only"]
    assert {status for status, _ in found["decisions"]} == {"recommended"}
    assert found["nodes"][-1] == 3
    assert not found["changed"]
    assert (found["equal"], found["lost"], found["duplicated"]) == (True, 0, 0)


def test_executors_that_are_released_are_no_errors(results: dict[str, Any]) -> None:
    told = tuple(f" ERROR {name.rpartition('.')[2]}:" for name in NOISY)
    assert [line for line in results["stderr"].splitlines() if any(t in line for t in told)] == []
