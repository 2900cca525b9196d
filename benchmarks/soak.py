"""A long run at a steady rate: is memory flat, and does nothing pile up on disk? ``make soak``.

Every half minute the resident memory of the driver and of the Python workers is read, what is alive
in the heaps of Spark's JVMs, and the size of the run's folder. The JVMs are told to collect before
that (by ``jcmd``, which comes with a JDK): a heap fills with what nobody needs until it is
collected, so that its size alone tells nothing. After a third of the time, taken as warm-up, a
straight line is fitted to the memory: its slope over the rest of the run, relative to the mean, is
what grew. The files on disk are held to what retention says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from penstock import spark as engine
from penstock.apps import apps
from penstock.engine.driver.commit_log import KEPT
from penstock.pipeline import Discard
from penstock.state.versions import FAN

NOTE = Console(stderr=True)

#: Growth over the run, relative to the mean, that still counts as flat.
FLAT = 0.10


def main() -> None:
    """Run, sample, and say what grew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=2000.0, help="lines a second")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between samples")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if shutil.which("jcmd") is None:
        parser.error("jcmd was not found: it comes with a JDK, and tells what is alive in a heap")
    app = apps.make("wordcount")
    seconds = asked.minutes * 60
    rows = int(asked.rate * seconds)
    source = app.source(asked.rate, zipf=1.0, seed=9, rows=rows)
    samples: list[dict[str, float]] = []
    with (
        tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder,
        engine.cluster(engine.embedded(asked.nodes)) as spark,
    ):
        pipeline = app.pipeline(source, sinks={"counts": Discard()}, parallelism=asked.nodes)
        with engine.start(
            pipeline, spark, "even", checkpoint=folder, store=Path(folder) / "metrics.sqlite"
        ) as run:
            started = time.monotonic()
            while not run.await_termination(asked.every):
                samples.append(
                    {"s": time.monotonic() - started, **_memory(), **_disk(Path(folder))}
                )
                last = samples[-1]
                NOTE.print(
                    f"{last['s']:6.0f} s  driver {last['driver_mb']:.0f} MB, alive in JVMs "
                    f"{last['jvm_alive_mb']:.0f} of {last['jvm_resident_mb']:.0f} MB, workers "
                    f"{last['workers_mb']:.0f} MB, state "
                    f"{last['state_mb']:.1f} MB in {last['state_files']:.0f} files",
                    style="dim",
                )
            records = run.records()
    result: dict[str, Any] = {
        "minutes": asked.minutes,
        "rate": asked.rate,
        "batches": len(records.batches),
        "rows_in": sum(b.rows_in for b in records.batches),
        "rows_expected": rows,
        "rows_lost": records.run.rows_lost,
        "rows_duplicated": records.run.rows_duplicated,
        "honoured": sum(b.tasks_honoured for b in records.batches)
        / max(1, sum(b.tasks for b in records.batches)),
        "growth": {name: _growth(samples, name) for name in samples[0] if name != "s"},
    }
    memory = ("driver_mb", "jvm_alive_mb", "workers_mb")
    result["flat"] = all(result["growth"][name]["relative"] <= FLAT for name in memory)
    # The number of state files is a saw-tooth, so it is held to its bound and not to a line.
    most = {
        "state_files": asked.nodes * 4 * FAN,
        "commit_log_files": 2 * (KEPT + 2),
    }
    result["most_on_disk"] = {name: max(s[name] for s in samples) for name in most}
    result["retained"] = all(result["most_on_disk"][name] <= bound for name, bound in most.items())
    if asked.json:
        json.dump(result, sys.stdout, indent=1)
    else:
        Console().print_json(json.dumps(result))
    sys.exit(0 if result["flat"] and result["retained"] and result["rows_in"] == rows else 1)


def _growth(samples: list[dict[str, float]], name: str) -> dict[str, float]:
    """Fit a line to the last two thirds."""
    late = samples[len(samples) // 3 :]
    at = np.array([s["s"] for s in late])
    values = np.array([s[name] for s in late])
    slope = float(np.polyfit(at, values, 1)[0]) if len(late) > 2 else 0.0
    mean = float(values.mean())
    grown = slope * float(at[-1] - at[0])
    return {"mean": mean, "grown": grown, "relative": grown / mean if mean else 0.0}


def _memory() -> dict[str, float]:
    """Resident memory of this process and of everything below it, and live heaps, in MB."""
    kinds = {"driver_mb": 0.0, "jvm_resident_mb": 0.0, "jvm_alive_mb": 0.0, "workers_mb": 0.0}
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat[1])
    for pid in parents:
        if not _below(pid, os.getpid(), parents):
            continue
        try:
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
        except (OSError, IndexError):
            continue
        size = resident * os.sysconf("SC_PAGE_SIZE") / 1e6
        if pid == os.getpid():
            kinds["driver_mb"] += size
        elif command.endswith(b"java"):
            kinds["jvm_resident_mb"] += size
            kinds["jvm_alive_mb"] += _alive(pid)
        elif b"python" in command:
            kinds["workers_mb"] += size
    return kinds


def _alive(pid: int) -> float:
    """Have a JVM collect, and return what its heap then holds, in MB."""
    for command in ("GC.run", "GC.heap_info"):
        told = subprocess.run(
            ["jcmd", str(pid), command], capture_output=True, text=True, timeout=300, check=True
        ).stdout
    used = re.search(r"heap\s+total \d+K, used (\d+)K", told)
    if used is None:
        raise SystemExit(f"jcmd tells nothing of a heap: {told}")
    return int(used[1]) * 1024 / 1e6


def _below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = parents.get(pid, 0)
    return False


def _disk(folder: Path) -> dict[str, float]:
    state = [file for file in (folder / "state").rglob("*") if file.is_file()]
    commit_log = list((folder / "commit-log").rglob("*.json"))
    size = 0.0
    for file in state:
        try:
            size += file.stat().st_size / 1e6
        except FileNotFoundError:
            continue
    return {
        "state_mb": size,
        "state_files": float(len(state)),
        "commit_log_files": float(len(commit_log)),
    }


if __name__ == "__main__":
    main()
