"""State with timers and a time to live: when functions are called, with what, and what stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.driver import progress
from penstock.engine.driver.driver import Driver
from penstock.engine.job_graph import JobGraph
from penstock.model import Cluster, InvalidValue, NotAllowed, Plan
from penstock.pipeline import BatchTime, Memory, Pipeline, Rows
from penstock.runtimes.local import LocalBackend, run_locally
from penstock.strategies import Request, strategies

SECOND = 1_000_000
STATE = pa.schema([("n", pa.int64()), ("due", pa.int64())])


def rows(*pairs: tuple[str, int]) -> Rows:
    return Rows(pa.table({"k": [k for k, _ in pairs], "t": [s * SECOND for _, s in pairs]}))


def count(batch: pa.Table, state: pa.Table) -> tuple[None, pa.Table]:
    """Count rows of a key; it is due ten seconds after its first row."""
    known = {row["k"]: row for row in state.to_pylist()}
    for row in batch.to_pylist():
        held = known.setdefault(row["k"], {"k": row["k"], "n": 0, "due": row["t"] + 10 * SECOND})
        held["n"] += 1
    return None, pa.Table.from_pylist(list(known.values()), pa.schema([("k", pa.string()), *STATE]))


def tell(state: pa.Table, time: BatchTime) -> tuple[pa.Table, None]:
    told = state.select(["k", "n"])
    return told.append_column("at", pa.array([time.watermark_us] * told.num_rows)), None


def test_a_timer_is_called_once_when_the_watermark_reaches_it() -> None:
    source = rows(("a", 1), ("a", 5), ("b", 11), ("a", 12), ("b", 40))
    sink = Memory()
    made = (
        Pipeline("p")
        .source("rows", source)
        .stateful(
            "s", by="k", update=count, state=STATE, time="t", on_timer=tell, event_timer="due"
        )
        .sink("out", sink)
    )
    run_locally(made, [1, 2, 3, 4])
    found = sink.table().to_pylist()
    # The batch that brings the fourth row runs with the watermark of the third one.
    assert [(row["k"], row["n"], row["at"] // SECOND) for row in found] == [
        ("a", 3, 11),
        ("b", 2, 40),
    ]


def test_late_rows_are_dropped_and_the_time_is_told() -> None:
    times = list[BatchTime]()

    def note(batch: pa.Table, state: pa.Table, time: BatchTime) -> tuple[None, None]:
        times.append(time)
        return None, None

    source = rows(("a", 100), ("a", 200), ("a", 300), ("a", 50))
    made = (
        Pipeline("p")
        .source("rows", source)
        .stateful("s", by="k", update=note, state=STATE, time="t", lateness=10)
        .sink("out", Memory())
    )
    stats = run_locally(made, [1, 2, 3])
    assert [time.watermark_us // SECOND for time in times] == [0, 90, 190]
    assert all(time.clock_us > 10**15 for time in times)
    assert sum(s.late.get("s", 0) for batch in stats for s in batch.stats) == 1


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_us = 10**15
        monkeypatch.setattr(progress, "_clock_us", lambda: self.now_us)


def driver_of(made: Pipeline, root: Path) -> Driver:
    job_graph, cluster = JobGraph.of(made), Cluster.of(1)
    plan = strategies.make("even").plan(Request(job_graph.topology(1), cluster))
    assert isinstance(plan, Plan)
    return Driver(job_graph, LocalBackend(root / "nodes", cluster.names), root, plan)


def remind(batch: pa.Table, state: pa.Table, time: BatchTime) -> tuple[None, pa.Table]:
    keys = batch.column("k").unique()
    return None, pa.table(
        {"k": keys, "n": [1] * len(keys), "due": [time.clock_us + 100] * len(keys)}
    )


def test_a_timer_by_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sink = Clock(monkeypatch), Memory()
    made = (
        Pipeline("p")
        .source("rows", rows(("a", 1), ("b", 2)))
        .stateful("s", by="k", update=remind, state=STATE, on_timer=tell, processing_timer="due")
        .sink("out", sink)
    )
    driver = driver_of(made, tmp_path)
    driver.run_batch({"rows": ((0, 1),)})
    clock.now_us += 60
    driver.run_batch({"rows": ((1, 2),)})
    assert not driver.timer_due
    clock.now_us += 40
    assert driver.timer_due
    driver.run_batch({})
    assert sink.table().column("k").to_pylist() == ["a"]
    assert not driver.timer_due
    clock.now_us += 1000
    driver.run_batch({})
    assert sink.table().column("k").to_pylist() == ["a", "b"]
    assert not driver.timer_due


def test_a_batch_that_is_repeated_has_the_same_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, seen = Clock(monkeypatch), list[int]()

    def fail_once(batch: pa.Table, state: pa.Table, time: BatchTime) -> tuple[None, None]:
        seen.append(time.clock_us)
        if len(seen) == 1:
            raise ValueError("no")
        return None, None

    made = (
        Pipeline("p")
        .source("rows", rows(("a", 1), ("b", 2)))
        .stateful("s", by="k", update=fail_once, state=STATE, ttl=1)
        .sink("out", Memory())
    )
    driver = driver_of(made, tmp_path)
    with pytest.raises(Exception, match="no"):
        driver.run_batch({"rows": ((0, 1),)})
    clock.now_us += 500
    driver = driver_of(made, tmp_path)
    pending = driver.pending()
    assert pending is not None
    driver.run_batch(pending)
    assert seen == [10**15, 10**15]
    driver.run_batch({"rows": ((1, 2),)})
    assert seen[-1] == 10**15 + 500


def test_state_that_is_not_written_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, known = Clock(monkeypatch), list[list[str]]()

    def keep(batch: pa.Table, state: pa.Table, time: BatchTime) -> tuple[None, pa.Table]:
        known.append(sorted(state.column("k").to_pylist()))
        return remind(batch, state, time)

    source = rows(("a", 1), ("b", 2), ("a", 3), ("b", 4), ("b", 5))
    made = (
        Pipeline("p")
        .source("rows", source)
        .stateful("s", by="k", update=keep, state=STATE, ttl="80 us")
        .sink("out", Memory())
    )
    driver = driver_of(made, tmp_path)
    for start in range(5):
        driver.run_batch({"rows": ((start, start + 1),)})
        clock.now_us += 30 if start < 3 else 5000
    assert known == [[], [], ["a"], ["b"], []]


def test_what_is_refused() -> None:
    start = Pipeline("p").source("rows", rows(("a", 1)))

    def made(**options: Any) -> Pipeline:
        return start.stateful("s", **{"by": "k", "update": count, "state": STATE, **options})

    with pytest.raises(NotAllowed, match="'on_timer' and no timer"):
        made(on_timer=tell)
    with pytest.raises(NotAllowed, match="has a timer, and no function"):
        made(event_timer="due", time="t")
    with pytest.raises(NotAllowed, match="an event timer, which goes by the watermark"):
        made(event_timer="due", on_timer=tell)
    with pytest.raises(NotAllowed, match="no column of its state"):
        made(event_timer="dew", on_timer=tell, time="t")
    with pytest.raises(NotAllowed, match="goes by event time"):
        made(lateness=3)
    with pytest.raises(InvalidValue, match="parameter ttl of step 's' must be a positive time"):
        made(ttl=0)
