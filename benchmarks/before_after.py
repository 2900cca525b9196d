"""Is a benchmark the same before and after a change? Runs one of this folder for two revisions.

``before_after.py --before 5cf5d1c`` runs ``engine.py rate`` with small batches for that revision
and for this one in turn: each revision's own copy of the benchmark, because interfaces differ, in a
process of its own that imports that revision's sources. Another benchmark, or other options, stand
behind ``--``; both revisions must know them: ``before_after.py --before 5cf5d1c -- loop.py pause``.

Shown are medians, the smallest and the largest, and the ratio of the medians. Where the spreads
overlap the runs do not tell the revisions apart. What does not depend on Penstock, such as Spark's
own aggregation, shows how much the machine itself varies. Leave the machine alone meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from io import BytesIO
from pathlib import Path
from typing import Any

from rich.console import Console
from tables import tell

ROOT = Path(__file__).resolve().parents[1]

#: Lines a second of a word count. Spark's Python state, which is slow, has the first size only.
COMMAND = ["engine.py", "rate", "--sizes", "200,10000", "--batches", "12", "--nodes", "2"]

#: Longest time that one run may take.
LIMIT_S = 900

#: By what was measured: the value of each run.
Measured = dict[str, list[float]]

NOTE = Console(stderr=True)


def sources(revision: str, folder: Path) -> Path:
    """Write the files of a revision into a folder."""
    command = ["git", "-C", str(ROOT), "archive", revision]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def run(tree: Path, command: list[str], measured: Measured) -> None:
    """Run a benchmark of some sources, and add what it measured."""
    script, *options = command
    done = subprocess.run(
        [sys.executable, f"benchmarks/{script}", *options, "--json"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{script} failed in {tree.name}:\n{done.stderr[-3000:]}")
    for name, value in numbers(json.loads(done.stdout)).items():
        measured[name].append(value)


def numbers(found: Any) -> dict[str, float]:
    """Return all numbers of a benchmark's JSON, by the keys and the texts that stand beside them.

    The second of one name ends with ``#2``.
    >>> numbers({"rate": [{"engine": "ours", "batch_s": 2}, {"engine": "Spark", "batch_s": 3}]})
    {'rate: ours: batch_s': 2.0, 'rate: Spark: batch_s': 3.0}
    """
    made: dict[str, float] = {}

    def walk(value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, dict):
            texts = [text for text in value.values() if isinstance(text, str)]
            for key, inner in value.items():
                walk(inner, (*path, *texts, key))
        elif isinstance(value, list):
            for inner in value:
                walk(inner, path)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            name = ": ".join(path)
            again = sum(known.partition(" #")[0] == name for known in made)
            made[f"{name} #{again + 1}" if again else name] = float(value)

    walk(found, ())
    return made


def compared(before: Measured, after: Measured) -> list[dict[str, Any]]:
    """Return a row for all that both revisions measured, without what never varies."""
    rows = []
    for name in before:
        old, new = before[name], after.get(name, [])
        if not new or len({*old, *new}) == 1:
            continue
        middle, now = statistics.median(old), statistics.median(new)
        apart = min(new) > max(old) or min(old) > max(new)
        rows.append(
            {
                "measured": name,
                "before": middle,
                "spread before": f"{min(old):.3f} to {max(old):.3f}",
                "after": now,
                "spread after": f"{min(new):.3f} to {max(new):.3f}",
                "ratio": now / middle if middle else float("nan"),
                "spreads": "are apart" if apart else "overlap",
            }
        )
    return rows


def main() -> None:
    """Run a benchmark for two revisions in turn, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", required=True, help="revision")
    parser.add_argument("--after", default="HEAD", help="revision; HEAD by default")
    parser.add_argument("--runs", type=int, default=3, help="of each revision")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("command", nargs="*", default=COMMAND, help="benchmark and its options")
    asked = parser.parse_args()
    command = asked.command or COMMAND
    measured: dict[str, Measured] = {"before": defaultdict(list), "after": defaultdict(list)}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        trees = {
            "before": sources(asked.before, Path(folder) / "before"),
            "after": sources(asked.after, Path(folder) / "after"),
        }
        for number in range(asked.runs):
            # In turn, and the other one first every other time: a machine that slows down slows
            # both alike.
            for which in sorted(trees, reverse=number % 2 == 0):
                NOTE.print(f"run {number + 1} of {asked.runs}: {which}", style="dim")
                run(trees[which], command, measured[which])
    rows = compared(measured["before"], measured["after"])
    tell(" ".join(command), rows, as_json=asked.json)


if __name__ == "__main__":
    main()
