"""A run that dies, fails or loses power at any file operation ends as one that nothing happened to.

The pipelines keep their state in a checkpoint and write their results to files. Every schedule
starts one, lets one thing happen at one file operation, starts it again from the same folders
until it ends, and compares what a reader of the results sees with the undisturbed run, to the row.
Some schedules hit the second start, too. `make faults` runs thousands:
``PENSTOCK_CRASHES=2000``.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine.streams import all_steps

from penstock import functions as F
from penstock.pipeline import Pipeline, Rows, parquet
from penstock.runtimes.local import run_locally
from penstock.state.config import StateConfig
from penstock.state.store import clear_cache
from penstock.testing.crash_points import CrashPoints, crash_everywhere

#: Schedules of one run of this file; a batch of them is one test.
SCHEDULES = int(os.environ.get("PENSTOCK_CRASHES", "200"))
GROUPS = 10
SEED = int(os.environ.get("PENSTOCK_SEED", "20261118"))

CUTS = (20, 60, 61)

#: Steps of the second pipeline.
IN_CRASHES = ("join", "full join", "deduplicate", "session", "timers")

#: A file system in memory, where there is one: a sync costs nothing there.
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def streams(folder: Path) -> Pipeline:
    """Steps that follow event time, behind the same sources."""
    return all_steps({name: parquet(folder / name) for name in IN_CRASHES}, size=100)


def sums(folder: Path) -> Pipeline:
    rows = [{"k": f"key {i * i % 7}", "v": i} for i in range(100)]
    return (
        Pipeline("crashes")
        .source("rows", Rows(pa.Table.from_pylist(rows)), parallelism=2)
        .aggregate("sums", by="k", n=F.count(), v=F.sum("v"), parallelism=2)
        .sink("out", parquet(folder / "out"))
        .sink("again", parquet(folder / "again"), after="rows")
    )


#: Pipelines, and the part of the schedules that each has.
PIPELINES = {"sums": (sums, 0.9), "streams": (streams, 0.1)}


def run(name: str, folder: Path) -> None:
    """Start a pipeline in a new process, as far as the engine can tell."""
    clear_cache()
    run_locally(
        PIPELINES[name][0](folder),
        CUTS,
        root=folder / "checkpoint",
        state_config=StateConfig("checkpoint"),
    )


def results(folder: Path) -> dict[str, list[dict[str, object]]]:
    """What a reader of the committed batches sees."""
    found = {}
    for batch in sorted(folder.glob("*/batch=*")):
        parts = [pq.read_table(file) for file in sorted(batch.glob("*.parquet"))]
        rows = pa.concat_tables(parts).to_pylist() if parts else []
        found[f"{batch.parent.name}/{batch.name}"] = sorted(rows, key=str)
    return found


@cache
def undisturbed(name: str) -> tuple[dict[str, list[dict[str, object]]], int]:
    """Results, and how many file operations it takes."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        with CrashPoints([Path(scratch)]) as points:
            run(name, Path(scratch))
        return results(Path(scratch)), points.count


def schedules(name: str) -> Iterator[tuple[int, str, int | None]]:
    """Every operation in turn, and what happens there; a second death in every third one."""
    rng = random.Random(SEED)
    total_count = undisturbed(name)[1]
    faults = ("die", "lose", "tear", "fail", "delay")
    count = int(SCHEDULES * PIPELINES[name][1])
    for number in range(count):
        again = rng.randrange(total_count) if number % 3 == 2 else None
        yield number * total_count // count, faults[rng.randrange(len(faults))], again


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("name", PIPELINES)
def test_the_results_are_those_of_an_undisturbed_run(name: str, group: int) -> None:
    expected, _ = undisturbed(name)
    assert len(expected) > 4
    for at, fault, again in list(schedules(name))[group::GROUPS]:
        with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
            folder = Path(scratch)
            start = partial(run, name, folder)
            hit = [crash_everywhere(start, [folder], at=at, fault=fault, seed=at)]
            if again is not None:
                hit.append(crash_everywhere(start, [folder], at=again))
            start()
            told = ", then ".join(f"{fault} at {points.happened}" for points in hit)
            assert results(folder) == expected, f"PENSTOCK_SEED={SEED}: {told}"
