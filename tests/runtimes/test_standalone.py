"""The engine on a standalone master with two workers, all processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.experiments.standalone_cluster import standalone

pytest.importorskip("pyspark")

WORKERS = 2

pytestmark = pytest.mark.spark


def test_a_plan_is_honoured_on_a_standalone_master(tmp_path: Path) -> None:
    with standalone(tmp_path, WORKERS) as master:
        checks = "tests.runtimes.cluster_checks"
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                checks,
                "pinned",
                "--master",
                master,
                "--executors",
                str(WORKERS),
            ],
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
            cwd=Path(__file__).parents[2],
            env={k: v for k, v in os.environ.items() if not k.startswith("SPARK")},
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-3000:] + done.stderr[-6000:]
    found = json.loads(lines[-1].removeprefix("RESULT "))["pinned"]
    assert all(found["equal"].values())
    assert found["honoured"] == found["tasks"] > 0
    assert len(found["executors"]) == WORKERS
    # Both executors are on one host, so Spark reads the other's blocks from its disk and calls them
    # local. Each stands for a node: they crossed nodes.
    assert found["near_bytes"] > 0
    assert found["remote_bytes"] > 0
    assert found["local_bytes"] > 0
    assert (found["lost"], found["duplicated"]) == (0, 0)
