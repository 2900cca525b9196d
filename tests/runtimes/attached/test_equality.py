"""Attached queries whose state is moved all the time write what unattached ones write.

A sample; ``make attach-faults`` disturbs every kind of query in every way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

pytestmark = pytest.mark.spark

SCRIPT = Path(__file__).with_name("equality_checks.py")
KINDS = ("aggregation", "join")


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """All of them, on one cluster in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *KINDS, "--trouble", "move", "--files", "6"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={k: v for k, v in os.environ.items() if not k.startswith("SPARK")},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-3000:] + done.stderr[-6000:]
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_as_without_penstock(results: dict[str, Any], kind: str) -> None:
    found = results[kind]
    assert found["rows"] > 0
    assert found["equal"], (found["missing"], found["added"])
    assert found["done"]["move"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_run_where_they_are_to_run(results: dict[str, Any], kind: str) -> None:
    found = results[kind]
    # What is reported between two batches is followed in the next one, or in the one after it.
    assert found["honoured"] >= 0.75 * found["tasks"] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_behind(results: dict[str, Any], kind: str) -> None:
    found = results[kind]
    assert found["threads"] == []
    assert found["wait"] == ""
    assert found["jars"] == ""
    assert found["events"] == ["the query has ended"]
