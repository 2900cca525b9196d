"""Which files of the package a steady batch enters: ``python -m tests.trace_batch``.

A word count runs in this process, with state in a checkpoint. After a few batches one more is
traced: a file counts if any of its functions is called.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType

import pyarrow as pa

import penstock
from penstock import functions as F
from penstock.engine.driver.driver import Driver
from penstock.engine.job_graph import JobGraph
from penstock.model import Cluster, Plan
from penstock.pipeline import Lines, Memory, Pipeline
from penstock.runtimes.local import LocalBackend
from penstock.state.config import StateConfig
from penstock.strategies import Request, strategies

PACKAGE = Path(penstock.__file__).parent

#: Batches before the one that is traced: what is made once is made by then.
BEFORE = 3

#: Lines of each batch.
LINES = 50


def split(batch: pa.RecordBatch) -> pa.RecordBatch:
    words = [word for line in batch.column("line").to_pylist() for word in line.split()]
    return pa.record_batch({"word": words})


def word_count() -> Pipeline:
    return (
        Pipeline("words")
        .source("lines", Lines(["a b", "b c"] * LINES * (BEFORE + 1)), parallelism=2)
        .map("split", split)
        .aggregate("count", by="word", n=F.count(), parallelism=2)
        .sink("out", Memory())
    )


def files_of_a_batch(root: Path, mode: str = "checkpoint") -> list[str]:
    """Run batches in a folder, and return the files that the last one entered."""
    job_graph, cluster = JobGraph.of(word_count()), Cluster.of(2)
    plan = strategies.make("even").plan(Request(job_graph.topology(2), cluster))
    assert isinstance(plan, Plan)
    backend = LocalBackend(root / "nodes", cluster.names)
    driver = Driver(job_graph, backend, root, plan, state_config=StateConfig(mode))
    for number in range(BEFORE):
        driver.run_batch({"lines": ((number * LINES, (number + 1) * LINES),)})
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        driver.run_batch({"lines": ((BEFORE * LINES, (BEFORE + 1) * LINES),)})
    finally:
        sys.setprofile(before)
        driver.close()
    return sorted(
        str(Path(name).relative_to(PACKAGE))
        for name in entered
        if Path(name).is_relative_to(PACKAGE)
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        files = files_of_a_batch(Path(root))
    print("\n".join(files))
    rooms = Counter(name.partition("/")[0] for name in files)
    print(f"\n{len(files)} files: " + ", ".join(f"{room} {n}" for room, n in rooms.items()))


if __name__ == "__main__":
    main()
