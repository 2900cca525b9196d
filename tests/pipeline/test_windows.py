"""Windows over event time: against plain Python, batch by batch, late rows and expiry included."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import functions as F
from penstock.engine.batch import BatchSpec
from penstock.engine.driver.driver import Driver
from penstock.engine.job_graph import JobGraph
from penstock.model import Cluster, InvalidValue, NotAllowed, Plan
from penstock.pipeline import Memory, Pipeline, Rows, sliding, tumbling
from penstock.pipeline.keyed.reduce import Reduce
from penstock.pipeline.keyed.timed import advanced_watermarks, routed_by
from penstock.pipeline.keyed.windowed import START, Windowed
from penstock.pipeline.keyed.windows import Window, event_times, microseconds
from penstock.runtimes.local import LocalBackend, run_locally
from penstock.strategies import Request, strategies

#: The parts that are run by the engine, where it carries watermarks from batch to batch.
wired = pytest.mark.skipif(
    "watermarks" not in BatchSpec.__dataclass_fields__, reason="the engine has no watermarks"
)

shapes = st.integers(1, 12).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size)))
rows = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-20, 60)), min_size=1, max_size=25)


def counting(size: int, slide: int, **options: Any) -> Windowed:
    reduce = Reduce(("k", START), (("n", F.count()), ("m", F.avg("t"))))
    return Windowed(Window("t", size, slide, **options), reduce)


def batch(tuples: list[tuple[str, int]]) -> pa.RecordBatch:
    return pa.record_batch(
        {"k": [k for k, _ in tuples], "t": pa.array([t for _, t in tuples], pa.int64())}
    )


def holding(time: int, size: int, slide: int) -> list[int]:
    return [s * slide for s in range(-100, 100) if s * slide <= time < s * slide + size]


@given(shapes, rows)
def test_rows_are_in_all_windows_that_hold_them(
    shape: tuple[int, int], tuples: list[tuple[str, int]]
) -> None:
    wanted = Counter((k, start) for k, t in tuples for start in holding(t, *shape))
    arrived = counting(*shape).arrive(batch(tuples), None)
    assert arrived.parts is not None
    found = {(row["k"], row[START]): row["n"] for row in arrived.parts.to_pylist()}
    assert found == wanted
    assert (arrived.late, arrived.latest_us) == (0, max(t for _, t in tuples))
    times = np.array([t for _, t in tuples])
    assert Window("t", *shape).earliest(times).tolist() == [min(holding(t, *shape)) for t in times]


@given(shapes, rows, st.integers(-20, 60))
def test_what_is_late_is_left_out_counted_and_found(
    shape: tuple[int, int], tuples: list[tuple[str, int]], mark: int
) -> None:
    size, slide = shape
    late = [(k, t) for k, t in tuples if min(holding(t, size, slide)) + size <= mark]
    wanted = Counter((k, s) for k, t in tuples for s in holding(t, size, slide) if s + size > mark)
    windowed = counting(size, slide)
    arrived = windowed.arrive(batch(tuples), mark)
    parts = [] if arrived.parts is None else arrived.parts.to_pylist()
    assert {(row["k"], row[START]): row["n"] for row in parts} == wanted
    assert arrived.late == len(late)
    aside = windowed.late_rows(batch(tuples), mark).to_pylist()
    assert [(row["k"], row["t"]) for row in aside] == late


@given(shapes, st.lists(st.integers(-60, 60), min_size=1, max_size=20), st.integers(-60, 90))
def test_windows_close_when_the_watermark_passes_their_end(
    shape: tuple[int, int], numbers: list[int], mark: int
) -> None:
    size, slide = shape
    starts = sorted({n * slide for n in numbers})
    state = pa.table(
        {
            "k": ["a"] * len(starts),
            START: starts,
            "n": [1] * len(starts),
            "m__sum": [3] * len(starts),
            "m__count": [2] * len(starts),
        }
    )
    done = [s for s in starts if s + size <= mark]
    emitted, gone = counting(size, slide).close(state, mark)
    if not done:
        assert (emitted, gone) == (None, None)
        return
    assert emitted is not None
    assert gone is not None
    assert gone.to_pylist() == [{"k": "a", START: s} for s in done]
    assert emitted.to_pylist() == [
        {"k": "a", START: s, "window_end": s + size, "n": 1, "m": 1.5} for s in done
    ]
    changes = counting(size, slide, emit="changes").close(state, mark)
    assert changes == (None, gone)


@given(shapes, st.integers(-60, 60), st.integers(0, 30))
def test_the_state_is_searched_only_when_a_window_may_have_closed(
    shape: tuple[int, int], before: int, more: int
) -> None:
    size, slide = shape
    windowed = counting(size, slide)
    ends = [s * slide + size for s in range(-100, 100)]
    assert windowed.crossed(before, before + more) == any(before < e <= before + more for e in ends)


def test_watermarks_only_go_forward() -> None:
    pipeline = (
        Pipeline("p")
        .source("rows", Rows(pa.table({"k": ["a"], "t": [0]})))
        .aggregate("w", by="k", n=F.count(), window=tumbling("t", 1, lateness="2 s"))
        .aggregate("other", by="k", n=F.count(), after="rows")
    )
    assert advanced_watermarks(pipeline.steps, {}, [{}]) == {"w": 0}
    first = advanced_watermarks(pipeline.steps, {}, [{"w": 9_000_000}, {"w": 5_000_000}, {}])
    assert first == {"w": 7_000_000}
    assert advanced_watermarks(pipeline.steps, first, [{"w": 1}]) == first
    assert routed_by(pipeline["w"].keyed) == ("k",)
    assert routed_by(pipeline["other"].keyed) == ("k",)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_may_be_timestamps(unit: str) -> None:
    zone = timezone.utc
    at = [datetime(1969, 12, 31, 23, 59, 59, tzinfo=zone), datetime(2024, 1, 1, tzinfo=zone), None]
    column = pa.array(at, pa.timestamp(unit, "UTC"))
    times, missing = event_times(column)
    assert times.tolist() == [-1_000_000, 1704067200 * 10**6, 0]
    assert missing.tolist() == [False, False, True]
    windowed = counting(10 * 10**6, 10 * 10**6)
    windowed = Windowed(windowed.window, Reduce(("k", START), (("n", F.count()),)))
    arrived = windowed.arrive(pa.record_batch({"k": list("aaa"), "t": column}), None)
    assert arrived.late == 1
    assert arrived.parts is not None
    emitted = windowed.emitted(arrived.parts).to_pylist()
    assert [row["window_start"] for row in emitted] == [
        datetime(1969, 12, 31, 23, 59, 50, tzinfo=zone),
        datetime(2024, 1, 1, tzinfo=zone),
    ]
    assert all(row["window_end"] - row["window_start"] == timedelta(seconds=10) for row in emitted)


def test_lengths_of_time() -> None:
    owner = ("size", "a window")
    assert [microseconds(v, *owner) for v in ("10 s", "1.5min", "2 d", 0.25, "500 ms")] == [
        10_000_000,
        90_000_000,
        172_800_000_000,
        250_000,
        500_000,
    ]
    for wrong in ("10", "ten s", "5 weeks", "-1 s", True, float("nan")):
        with pytest.raises(InvalidValue, match="parameter size of a window must be seconds"):
            microseconds(wrong, *owner)


def test_what_windows_refuse() -> None:
    source = Pipeline("p").source("rows", Rows(pa.table({"k": ["a"], "t": [0]})))
    second = tumbling("t", 1)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"n": F.count(), "window": 5}, "made by tumbling"),
        ({START: F.count(), "window": second}, "rename"),
        ({"n": F.count(), "window": second, "work": event_times}, "a map before it"),
    ]
    for options, told in cases:
        with pytest.raises(NotAllowed, match=told):
            source.aggregate("w", by="k", **options)
    with pytest.raises(InvalidValue, match="one of closed, changes"):
        tumbling("t", 1, emit="twice")
    with pytest.raises(InvalidValue, match="one of drop, side-output"):
        sliding("t", 2, 1, late="keep")
    with pytest.raises(InvalidValue, match="seconds, or a number"):
        tumbling("t", 1, lateness="soon")
    with pytest.raises(InvalidValue, match="at least 0"):
        tumbling("t", 1, lateness=-1)
    with pytest.raises(InvalidValue, match="a positive time"):
        tumbling("t", 0)
    with pytest.raises(InvalidValue, match="at most the size"):
        sliding("t", 1, 2)
    with pytest.raises(InvalidValue, match="timestamps or of int64"):
        counting(1, 1).arrive(pa.record_batch({"k": ["a"], "t": ["noon"]}), None)


# ---- in the engine


def windows_of(
    tuples: list[tuple[str, int]], cuts: list[int], window: Window, **options: Any
) -> tuple[Pipeline, list[Any]]:
    data = pa.table({"k": [k for k, _ in tuples], "t": [t for _, t in tuples]})
    pipeline = (
        Pipeline("p")
        .source("rows", Rows(data), parallelism=2)
        .aggregate("w", by="k", n=F.count(), window=window, parallelism=2, **options)
    )
    if window.late == "side-output":
        pipeline = pipeline.sink("late", Memory(), after="w-late")
    pipeline = pipeline.sink("out", Memory(), after="w")
    return pipeline, run_locally(pipeline, cuts)


def simulated(
    tuples: list[tuple[str, int]], cuts: list[int], size: int, slide: int, lateness: int
) -> tuple[list[tuple[str, int, int]], list[tuple[str, int]]]:
    """Closed windows and late rows, worked out a row at a time."""
    mark = passed = 0
    state: Counter[tuple[str, int]] = Counter()
    closed, late = [], []
    # The last one has no data: it closes what the one before moved the watermark past.
    bounds = [0, *sorted({c for c in cuts if 0 < c < len(tuples)}), len(tuples), len(tuples)]
    for a, b in itertools.pairwise(bounds):
        for k, t in tuples[a:b]:
            held = holding(t, size, slide)
            if held[0] + size <= passed:
                late.append((k, t))
            state.update((k, s) for s in held if s + size > passed)
        done = [key for key in state if key[1] + size <= mark]
        closed += [(k, s, state.pop((k, s))) for k, s in done]
        passed, mark = mark, max([mark, *(t - lateness for _, t in tuples[a:b])])
    return sorted(closed), sorted(late)


@wired
@settings(max_examples=60, deadline=None)
@given(shapes, rows, st.lists(st.integers(1, 24), max_size=6), st.integers(0, 10))
def test_the_engine_closes_each_window_once(
    shape: tuple[int, int], tuples: list[tuple[str, int]], cuts: list[int], lateness: int
) -> None:
    window = Window("t", *shape, lateness_us=lateness, late="side-output")
    closed, late = simulated(tuples, cuts, *shape, lateness)
    pipeline, batches = windows_of(tuples, cuts, window)
    sink, aside = pipeline["out"].sink, pipeline["late"].sink
    assert isinstance(sink, Memory)
    assert isinstance(aside, Memory)
    emitted = sorted((r["k"], r[START], r["n"]) for r in sink.table().to_pylist())
    assert emitted == closed
    assert sorted((r["k"], r["t"]) for r in aside.table().to_pylist()) == late
    assert sum(sum(s.late.values()) for b in batches for s in b.stats) == len(late)


@wired
def test_changes_are_emitted_as_they_come() -> None:
    tuples = [("a", 1), ("a", 2), ("a", 12), ("a", 40), ("a", 3)]
    pipeline, _ = windows_of(tuples, [1, 2, 3, 4], Window("t", 10, 10, emit="changes"))
    sink = pipeline["out"].sink
    assert isinstance(sink, Memory)
    found = [(r[START], r["window_end"], r["n"]) for r in sink.table().to_pylist()]
    assert found == [(0, 10, 1), (0, 10, 2), (10, 20, 1), (40, 50, 1)]


@wired
def test_windows_behind_split_keys() -> None:
    tuples = [("a", t) for t in range(40)] + [("b", 60)]
    pipeline, _ = windows_of([*tuples, ("b", 61)], [41], Window("t", 10, 10), split=True)
    sink = pipeline["out"].sink
    assert isinstance(sink, Memory)
    assert sorted(r["n"] for r in sink.table().to_pylist()) == [10, 10, 10, 10]


@wired
def test_windows_stay_with_their_key_when_instances_change(tmp_path: Path) -> None:
    keys, at = [f"k{i % 9}" for i in range(90)], list(range(90))
    sink = Memory()
    pipeline = (
        Pipeline("p")
        .source("rows", Rows(pa.table({"k": keys, "t": at})), parallelism=1)
        .aggregate("w", by="k", n=F.count(), window=Window("t", 40, 40))
        .sink("out", sink)
    )
    job_graph = JobGraph.of(pipeline)

    def plan(instances: int) -> Plan:
        topology = job_graph.topology(2).with_parallelism({"w": instances})
        made = strategies.make("penstock").plan(Request(topology, Cluster.of(2, slots=100)))
        assert isinstance(made, Plan)
        return made

    driver = Driver(job_graph, LocalBackend(tmp_path / "nodes", plan(2).nodes), tmp_path, plan(2))
    for number, instances in enumerate((2, 5, 3, 4, 1, 6)):
        driver.adopt(plan(instances))
        driver.run_batch({"rows": ((number * 15, number * 15 + 15),)})
    found = Counter[int]()
    for row in sink.table().to_pylist():
        found[row[START]] += row["n"]
    assert found == {0: 40}
    assert sink.table().num_rows == 9


def test_arrival_order_within_windows() -> None:
    reduce = Reduce(("k", START), (("v", F.last("v")),))
    windowed = Windowed(Window("t", 10, 5), reduce)
    made = windowed.arrive(
        pa.record_batch({"k": ["a"] * 3, "t": [7, 6, 1], "v": [1, 2, 3]}), None
    ).parts
    assert made is not None
    assert {row[START]: row["v"] for row in made.to_pylist()} == {5: 2, 0: 3, -5: 3}
