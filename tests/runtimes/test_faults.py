"""Faults on an embedded cluster: results are equal to the row, whatever was killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.runtimes.fault_checks import ROWS

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """All runs, on one cluster, in a process of their own: a process has one Spark at most."""
    script = Path(__file__).with_name("fault_checks.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith("SPARK")},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-3000:] + done.stderr[-6000:]
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return found


@pytest.mark.parametrize(
    "name", ["kills_and_scaling", "two_at_once_and_fragments", "kill_during_a_move"]
)
def test_results_are_equal_under_faults(results: dict[str, Any], name: str) -> None:
    found = results[name]
    assert found["passed"], found
    text = "\n".join(found["happened"])
    for fault in found["faults"]:
        if not fault.startswith(("move", "scale")):
            assert f"{fault}: " in text, "it happened"
    assert "the run ended before" not in text


def test_lost_state_was_restored_from_fragments(results: dict[str, Any]) -> None:
    for name in ("kills_and_scaling", "two_at_once_and_fragments"):
        text = "\n".join(results[name]["happened"])
        assert re.search(r"[1-9]\d* restored elsewhere", text)
        assert "state survives any" in text


def test_a_node_that_only_kept_fragments_may_be_lost(results: dict[str, Any]) -> None:
    found = results["backup_node"]
    assert found["passed"], found
    lost = [text for text in found["happened"] if "lost executors" in text]
    assert len(lost) == 1
    text = "\n".join(found["happened"])
    assert not re.search(r"[1-9]\d* restored elsewhere", text), "no state was there"


@pytest.mark.parametrize("name", list(ROWS))
def test_rows_of_the_matrix_are_survived(results: dict[str, Any], name: str) -> None:
    assert results[name]["passed"], results[name]


@pytest.mark.parametrize("number", range(2))
def test_random_schedules_are_survived(results: dict[str, Any], number: int) -> None:
    found = results["random"][number]
    assert found["passed"], found
