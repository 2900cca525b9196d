"""Summaries, points of plots, and what draws them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Cluster, Plan
from penstock.report import summarise
from penstock.report.series import MOST_POINTS, points_of
from penstock.report.svg import Axes, EventMark, Line, line_chart
from penstock.report.text import number, share, ticks, time_ticks
from penstock.store import (
    DECISION,
    EventRecord,
    PlanRecord,
    RunRecords,
    RunStatus,
    Totals,
)
from penstock.strategies import Request, strategies
from penstock.testing.metrics_examples import a_batch, a_run
from penstock.testing.scenarios import wordcount

HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"


def a_plan(nodes: int = 2) -> Plan:
    made = strategies.make("even").plan(Request(wordcount(3), Cluster.of(nodes)))
    assert isinstance(made, Plan)
    return made


def records(batches: int, *, events: int = 0) -> RunRecords:
    made = [a_batch("r1", number) for number in range(batches)]
    return RunRecords(
        run=replace(a_run(), ended_at_s=2000.0, status=RunStatus.FINISHED, rows_lost=0),
        batches=tuple(b[0] for b in made),
        instances=tuple(i for b in made for i in b[1]),
        plans=(PlanRecord("r1", 0, a_plan()),),
        events=tuple(
            EventRecord("r1", n, 1000.0 + n, DECISION if n % 2 else "note", f"event {n}", {"n": n})
            for n in range(events)
        ),
    )


def test_summary_of_a_run() -> None:
    summary = summarise(records(4, events=5))
    assert summary["rows_in"] == 1000
    assert summary["rows_out"] == 200
    assert summary["rows_lost"] == 0
    assert summary["rows_duplicated"] is None
    assert summary["rows_dropped"] == 4
    assert summary["seconds"] == 6.5
    assert summary["throughput"] == pytest.approx(1000 / 6.5)
    assert summary["batches"] == 4
    assert summary["placement_honoured"] == 0.75
    assert (summary["local_bytes"], summary["remote_bytes"]) == (40, 120)
    assert summary["nodes_used"] == 2
    assert summary["decisions"] == 2
    latency = summary["latency_ms"]
    assert latency is not None
    assert latency["p50"] == pytest.approx(2.0, rel=0.03)
    assert latency["max"] == 300.0
    json.dumps(summary, allow_nan=False)


def test_summary_of_nothing() -> None:
    summary = summarise(RunRecords(a_run()))
    for key in ("seconds", "throughput", "latency_ms", "placement_honoured"):
        assert summary[key] is None
    assert summary["batches"] == summary["nodes_used"] == summary["decisions"] == 0


def test_summary_from_totals_that_were_kept() -> None:
    known = records(4)
    assert summarise(replace(known, batches=()), Totals.of(known.batches)) == summarise(known)


def test_points_of_a_long_run_lose_nothing() -> None:
    batches = [replace(a_batch("r1", n)[0], queue_length=n, dropped=0) for n in range(1000)]
    points = points_of(batches, 1000.0)
    assert len(points) <= MOST_POINTS
    assert points[0].first == 0
    assert points[-1].last == 999
    assert sum(p.latency.count for p in points) == 3000
    spans = [points[0].last * 2 + 0.5] + [2.0 * (p.last - p.first + 1) for p in points[1:]]
    taken = sum((p.taken_per_s or 0) * s for p, s in zip(points, spans, strict=True))
    assert taken == pytest.approx(sum(b.rows_in for b in batches))
    offered = sum((p.offered_per_s or 0) * s for p, s in zip(points, spans, strict=True))
    assert offered == pytest.approx(taken + 999)


def test_gaps_break_a_line() -> None:
    line = Line("x", ((0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 4.0), (4.0, 5.0), (5.0, None)))
    drawn = ElementTree.fromstring(line_chart("t", [line], Axes(5.0)).replace("&", "&amp;"))
    paths = [p.get("d") or "" for p in drawn.iter(f"{SVG}path") if "line" in (p.get("class") or "")]
    assert [p.count("M") for p in paths] == [2]


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.none() | st.floats(0, 1e15)), max_size=30),
    st.floats(0, 1e6),
    st.booleans(),
)
def test_any_line_can_be_drawn(
    points: list[tuple[float, float | None]], end_s: float, step: bool
) -> None:
    frame = Axes(end_s, (EventMark(end_s / 2, 1, "<mark>"),))
    text = line_chart("<title>", [Line("&", tuple(points))], frame, step=step)
    figure = ElementTree.fromstring(text)
    for value in re.findall(r' (?:cx|x|cy|y)="([^"]*)"', text):
        assert -1 <= float(value) <= 500
    assert "nan" not in text.lower()
    assert figure.tag == "figure"


@given(st.floats(1e-9, 1e15))
def test_ticks_are_few_and_reach_the_top(high: float) -> None:
    found = ticks(high)
    assert 2 <= len(found) <= 7
    assert found[0] == 0
    assert found[-1] >= high * (1 - 1e-6)
    assert len({number(t) for t in found}) == len(found)


@given(st.floats(0, 1e8))
def test_time_ticks_are_few(end_s: float) -> None:
    found = time_ticks(end_s)
    assert 1 <= len(found) <= 8
    assert all(0 <= t <= end_s for t in found)


@given(st.floats(0, 1))
def test_only_what_is_complete_is_100_percent(value: float) -> None:
    assert (share(value) == "100 %") == (value == 1)
    assert np.isfinite(float(share(value).split()[0]))
