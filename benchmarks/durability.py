"""What checksums and flushing to the disk cost: of one save, one load, one commit, one whole run.

``python benchmarks/durability.py --folder /var/tmp`` measures the disk that the folder is on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from penstock import functions as F
from penstock.engine.driver.commit_log import CommitLog
from penstock.pipeline import Pipeline, Rows
from penstock.pipeline.sinks import Discard
from penstock.runtimes.local import run_locally
from penstock.state.config import StateConfig
from penstock.state.files.local import LocalSegments
from penstock.state.store import clear_cache
from penstock.state.versions import Segment


def timed_ms(work: Callable[[], object], times: int) -> float:
    """Return the median of some runs, in milliseconds."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(1000 * (time.perf_counter() - started))
    return median(found)


def segment(rows: int) -> pa.Table:
    """Make rows as state has them: a key of 20 bytes and two counters."""
    numbers = np.arange(rows)
    keys = pa.array([f"user{number:015d}-" for number in numbers])
    return pa.table({"key": keys, "a": numbers, "b": numbers})


def files(folder: Path, rows: int, times: int) -> list[str]:
    """Time one segment."""
    table, part = segment(rows), Segment(0, 0)
    cells = []
    for sync in (False, True):
        log = LocalSegments(str(folder / f"segments-{sync}"), sync)
        cells.append(timed_ms(partial(log.write, "op", 0, part, table), times))
    path = log.path("op", 0, part)
    content = path.read_bytes()
    checksum = timed_ms(lambda: zlib.crc32(content), times)
    load = timed_ms(lambda: log.load("op", 0, ("key",), 0), times)
    return [f"{len(content) / 1e6:.2f}", *(f"{cell:.2f}" for cell in (*cells, checksum, load))]


def commits(folder: Path, times: int) -> dict[bool, float]:
    """Time the two entries of one batch in the commit log."""
    found = {}
    for sync in (False, True):
        log = CommitLog(folder / f"commits-{sync}", sync)
        log.take_epoch()
        numbers = iter(range(10_000))

        def batch(log: CommitLog = log, numbers: object = numbers) -> None:
            number = log.begin(next(numbers), {"ranges": {}})  # type: ignore[call-overload]
            log.commit(number, {"batch": number})

        found[sync] = timed_ms(batch, times)
    return found


def run_ms(folder: Path, sync: bool, batches: int) -> float:
    """Return the milliseconds of one batch of a run in this process, with two instances."""
    rows = 2000 * batches
    table = pa.table({"k": np.arange(rows) * 7919 % 5000, "v": np.arange(rows)})
    pipeline = (
        Pipeline("sums")
        .source("rows", Rows(table), parallelism=1)
        .aggregate("sum", by="k", t=F.sum("v"), parallelism=2)
        .sink("out", Discard())
    )
    root = Path(tempfile.mkdtemp(dir=folder))
    clear_cache()
    started = time.perf_counter()
    run_locally(pipeline, range(2000, rows, 2000), root=root, state_config=StateConfig(sync=sync))
    return 1000 * (time.perf_counter() - started) / batches


def main() -> None:
    """Print the figures, in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--times", type=int, default=9)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="durability-", dir=asked.folder))
    try:
        print(f"{os.cpu_count()} cores, {asked.times} times each, medians in milliseconds\n")
        print("| segment MB | write | write, flushed | its checksum | load and verify |")
        print("|---:|---:|---:|---:|---:|")
        for rows in asked.rows:
            print("| " + " | ".join(files(folder, rows, asked.times)) + " |", flush=True)
        both = commits(folder, 5 * asked.times)
        print(f"\ncommit log, one batch: {both[False]:.2f}; flushed: {both[True]:.2f}")
        plain = median(run_ms(folder, False, 40) for _ in range(3))
        flushed = median(run_ms(folder, True, 40) for _ in range(3))
        print(f"local run, one batch: {plain:.1f}; flushed: {flushed:.1f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
