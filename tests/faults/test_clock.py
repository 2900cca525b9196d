"""A clock that is set back changes no result: nothing that makes results reads it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock

ROOT = Path(penstock.__file__).parent

#: What makes results: batches, tasks, state, sinks, and what runs in workers.
FOLDERS = ("engine", "state", "pipeline", "model", "strategies", "common", "control")
WORKERS = ("runtimes/spark/worker.py", "runtimes/spark/job.py", "runtimes/spark/watch.py",
           "runtimes/spark/recovery.py", "runtimes/spark/backend.py")  # fmt: skip

#: Reads of the clock on the wall that only tell people a time, and the one that processing-time
#: timers go by: it is written down with a batch and never goes back.
TOLD = {("engine/driver/commit_log.py", "now"), ("engine/driver/progress.py", "time_ns")}


def reads_of_the_clock(tree: ast.AST) -> Iterator[str]:
    """Yield the names of calls that read the clock on the wall."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner == "time" and node.attr in ("time", "time_ns", "localtime", "gmtime"):
                yield node.attr
            if owner in ("datetime", "date") and node.attr in ("now", "utcnow", "today"):
                yield node.attr


def test_nothing_that_makes_results_reads_the_clock_on_the_wall() -> None:
    files = [path for name in FOLDERS for path in (ROOT / name).rglob("*.py")]
    files += [ROOT / name for name in WORKERS]
    assert len(files) > 100
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in files
        for name in reads_of_the_clock(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == TOLD


def test_reads_are_found() -> None:
    text = "import time\nx = time.time()\ny = datetime.now()\nz = time.monotonic()"
    assert sorted(reads_of_the_clock(ast.parse(text))) == ["now", "time"]
