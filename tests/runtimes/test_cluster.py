"""The engine on an embedded cluster of several processes: placement, equality, `kill -9`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from penstock.apps import apps


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """All checks, on one cluster, in a process of their own: a process has one Spark at most."""
    script = Path(__file__).with_name("cluster_checks.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith("SPARK")},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-3000:] + done.stderr[-6000:]
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return found


@pytest.mark.parametrize("app", apps.names())
def test_every_application_gives_what_it_must(results: dict[str, Any], app: str) -> None:
    found = results["applications"][app]
    assert all(found["equal"].values()), found["equal"]
    assert (found["lost"], found["duplicated"]) == (0, 0)
    assert found["tasks"] == found["honoured"] > 0
    assert found["batches"] >= 5


def test_placement_uses_real_processes(results: dict[str, Any]) -> None:
    spread = results["applications"][apps.names()[0]]
    assert len(spread["executors"]) == 3
    assert spread["remote_bytes"] > 0


def test_the_engine_can_be_left_to_itself(results: dict[str, Any]) -> None:
    assert all(results["unpinned"]["equal"].values())
    assert results["unpinned"]["tasks"] == 0


def test_a_wrong_placement_is_noticed(results: dict[str, Any]) -> None:
    assert results["noticed"]["tasks"] > 0
    assert results["noticed"]["honoured"] == 0


@pytest.mark.parametrize("check", ["kill_worker", "kill_executor"])
def test_a_kill_leaves_no_trace_in_the_result(results: dict[str, Any], check: str) -> None:
    found = results[check]
    assert found["killed"] == 1
    assert all(found["equal"].values())
    assert (found["lost"], found["duplicated"]) == (0, 0)
    if check == "kill_executor":
        assert any("lost executors" in text for text in found["events"])
