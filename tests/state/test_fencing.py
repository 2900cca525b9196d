"""Two drivers on one checkpoint: the one that came last goes on, the other stops and says why."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.engine.driver.commit_log import CommitLog, Fenced
from penstock.engine.driver.driver import Driver
from penstock.engine.job_graph import JobGraph
from penstock.model import Cluster, Plan
from penstock.pipeline import Pipeline, Rows, parquet
from penstock.runtimes.local import LocalBackend, run_to_end
from penstock.state.config import StateConfig
from penstock.state.store import clear_cache
from penstock.strategies import Request, strategies

ROWS = 400
CUTS = list(range(10, ROWS, 10))


def driver_on(root: Path) -> Driver:
    pipeline = (
        Pipeline("copy")
        .source("rows", Rows(pa.table({"v": list(range(ROWS))})), parallelism=2)
        .sink("out", parquet(root / "out"))
    )
    graph = JobGraph.of(pipeline)
    plan = strategies.make("even").plan(Request(graph.topology(1), Cluster.of(1)))
    assert isinstance(plan, Plan)
    backend = LocalBackend(root / "nodes", Cluster.of(1).names)
    return Driver(graph, backend, root / "checkpoint", plan, state_config=StateConfig(sync=False))


def rows_written(root: Path) -> Counter[int]:
    found: Counter[int] = Counter()
    for path in (root / "out").glob("batch=*/*.parquet"):
        found.update(pq.read_table(path, partitioning=None).column("v").to_pylist())
    return found


def test_the_driver_that_comes_last_wins_at_every_batch(tmp_path: Path) -> None:
    for batches in range(1, 5):
        clear_cache()
        root = tmp_path / str(batches)
        first = driver_on(root)
        for number in range(batches):
            first.run_batch({"rows": ((number * 10, number * 10 + 10),)})
        second = driver_on(root)
        sentence = rf"another driver has taken over .*: process {os.getpid()} on .*, since 20.*Z?"
        with pytest.raises(Fenced, match=sentence):
            first.run_batch({"rows": ((batches * 10, batches * 10 + 10),)})
        run_to_end(second, CUTS)
        assert rows_written(root) == Counter(range(ROWS))


def test_a_driver_that_is_overtaken_between_its_tasks_and_its_commit_stops(tmp_path: Path) -> None:
    first = driver_on(tmp_path)
    first.run_batch({"rows": ((0, 10),)})
    overtaken: list[Driver] = []
    run = first.backend.run

    def slow(*arguments: object) -> object:
        frames = list(run(*arguments))  # type: ignore[arg-type]
        overtaken.append(driver_on(tmp_path))
        return frames

    first.backend.run = slow  # type: ignore[method-assign, assignment]
    with pytest.raises(Fenced):
        first.run_batch({"rows": ((10, 20),)})
    assert rows_written(tmp_path) == Counter(range(10)), "nothing of it is visible"
    run_to_end(overtaken[0], CUTS)
    assert rows_written(tmp_path) == Counter(range(ROWS))


@pytest.mark.parametrize("address", [False, True])
def test_of_drivers_that_start_at_once_each_has_its_own_epoch(
    tmp_path: Path, address: bool
) -> None:
    root = f"file://{tmp_path}" if address else str(tmp_path)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(CommitLog(root).take_epoch()))
        for _ in range(1 if address else 16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(1, len(threads) + 1))


def test_one_attempt_is_committed_once(tmp_path: Path) -> None:
    first, second = CommitLog(tmp_path), CommitLog(tmp_path)
    first.take_epoch()
    second.epoch = first.epoch  # As if the file system had let both have it.
    assert (first.begin(0, {}), second.begin(0, {})) == (0, 1)
    first.commit(0, {"batch": 0})
    with pytest.raises(Fenced, match="another driver uses the checkpoint"):
        second.commit(0, {"batch": 0})


PROCESS = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_fencing import CUTS, driver_on
from penstock.engine.driver.commit_log import Fenced
from penstock.runtimes.local import run_to_end
root, ready = Path(sys.argv[1]), Path(sys.argv[3])
driver = driver_on(root)
run = driver.backend.run
def slow(*arguments):
    frames = list(run(*arguments))
    time.sleep(float(sys.argv[4]))
    ready.touch()
    return frames
driver.backend.run = slow
try:
    run_to_end(driver, CUTS)
except Fenced as error:
    print("fenced:", error)
else:
    print("done")
"""


def test_of_two_processes_one_ends_and_no_row_is_missing_or_doubled(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)

    def start(name: str, pause_s: float) -> subprocess.Popen[str]:
        ready = str(tmp_path / name)
        command = [sys.executable, "-c", PROCESS, str(tmp_path), here, ready, str(pause_s)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    first = start("first", 1.0)
    while not (tmp_path / "first").exists():
        assert first.poll() is None
    second = start("second", 0.001)
    said = [process.communicate(timeout=120)[0].strip() for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0)
    assert said[1] == "done", said
    assert f"process {second.pid} on" in said[0], said
    assert rows_written(tmp_path) == Counter(range(ROWS))
