"""Runs `cluster_checks` in a process of its own: a process has one Spark at most."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def checked(*arguments: str) -> dict[str, Any]:
    """Return what the named checks found; all by default."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtimes.cluster_checks", *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd=Path(__file__).parents[2],
        env={k: v for k, v in os.environ.items() if not k.startswith("SPARK")},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stdout[-3000:] + done.stderr[-6000:]
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return {**found, "stderr": done.stderr}
