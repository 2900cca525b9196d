"""The report is one well-formed page that loads nothing, whatever the run was like."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.errors import PenstockError
from penstock.model import Cluster, Plan
from penstock.report import render_report, summarise, write_report
from penstock.report.series import MOST_POINTS, Strip, points_of, strips_of
from penstock.report.svg import MOST_STRIPS, Axes, EventMark, Line, heat_strip, line_chart
from penstock.report.text import escape, number, share, ticks, time_ticks
from penstock.store import (
    DECISION,
    BatchRecord,
    EventRecord,
    Histogram,
    InstanceRecord,
    PlanRecord,
    RunRecord,
    RunRecords,
    RunStatus,
    Totals,
)
from penstock.strategies import Request, strategies
from penstock.testing.metrics_examples import ODD_NAMES, a_batch, a_run
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


def parsed(page: str) -> ElementTree.Element:
    doctype, _, rest = page.partition("\n")
    assert doctype == "<!DOCTYPE html>"
    return ElementTree.fromstring(rest)


def charts(page: ElementTree.Element) -> Iterator[tuple[str, ElementTree.Element]]:
    for figure in page.iter(f"{HTML}figure"):
        title = figure.find(f"{HTML}figcaption")
        assert title is not None
        yield (title.text or "").strip(), figure


def words(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


@pytest.mark.parametrize("batches", [0, 1, 2, 5, 700])
def test_the_page_is_well_formed(batches: int) -> None:
    page = parsed(render_report(records(batches, events=3)))
    titles = [title for title, _ in charts(page)]
    assert titles == [
        "Rows per second",
        "Latency",
        "Nodes in use",
        "Shuffle bytes across nodes",
        "Imbalance",
        "Rows waiting at the sources",
        "Rows written per second",
        "CPU of each instance" if batches else "Busy time of each instance",
    ]
    for _, figure in charts(page):
        drawings = list(figure.iter(f"{SVG}svg"))
        assert len(drawings) == (1 if batches else 0)
        if not batches:
            assert "Nothing was measured." in words(figure)


def test_it_loads_nothing_and_runs_nothing() -> None:
    text = render_report(records(3, events=2))
    names = {"http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"}
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) == names
    page = parsed(text)
    tags = {element.tag.rpartition("}")[2] for element in page.iter()}
    assert not tags & {"link", "img", "iframe", "object", "embed", "use", "image", "audio"}
    scripts = list(page.iter(f"{HTML}script"))
    assert [s.get("type") for s in scripts] == ["application/json"]
    for element in page.iter():
        assert not [a for a in element.attrib if a.startswith("on") or a in {"src", "href"}]
    policies = [m.get("content") or "" for m in page.iter(f"{HTML}meta") if m.get("http-equiv")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "url(" not in text
    assert "@import" not in text


def test_the_summary_is_in_the_page() -> None:
    known = records(4, events=3)
    page = parsed(render_report(known))
    (script,) = page.iter(f"{HTML}script")
    assert json.loads(script.text or "") == json.loads(json.dumps(summarise(known)))
    cards = words(page.findall(f".//{HTML}div[@class='cards']")[0])
    for word in ("Rows in", "1,000", "Placement honoured", "75 %", "Decisions", "p95", "300 ms"):
        assert word in cards


HOSTILE = [
    *ODD_NAMES,
    "</script><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "]]> <!-- --> & &amp; &#0;",
    "\x01\x08\x1b\ufffe",
    "\"' onmouseover='alert(1)",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_user_strings_are_escaped(name: str) -> None:
    known = records(2, events=1)
    odd = RunRecords(
        run=RunRecord(name, name, name, 0.0, config={name: name}),
        batches=tuple(replace(b, run=name, lit={name: 1.0, "other": 2.0}) for b in known.batches),
        instances=tuple(
            replace(i, run=name, operator=name, node=name) for i in known.instances[:1]
        ),
        plans=known.plans,
        events=(EventRecord(name, 0, 1.0, name, name, {name: name}),),
    )
    text = render_report(odd)
    page = parsed(text)
    plain = parsed(render_report(known))
    assert "alert(1)" not in [s.text for s in page.iter(f"{HTML}script")]
    assert len(list(page.iter(f"{HTML}script"))) == len(list(plain.iter(f"{HTML}script"))) == 1
    assert not list(page.iter(f"{HTML}img"))
    (script,) = page.iter(f"{HTML}script")
    assert json.loads(script.text or "")["run"] == name
    (heading,) = page.iter(f"{HTML}h1")
    assert "".join(heading.itertext()).startswith(re.sub("[\x01\x08\x1b\ufffe]", "\ufffd", name))


@given(st.text(max_size=30))
def test_any_text_survives(text: str) -> None:
    element = ElementTree.fromstring(f'<a b="{escape(text)}">{escape(text)}</a>')
    assert len(element.text or "") <= len(text)
    assert not list(element)


def test_one_batch_shows_a_point() -> None:
    page = parsed(render_report(records(1)))
    found = dict(charts(page))
    assert len(list(found["Latency"].iter(f"{SVG}circle"))) == 3
    assert len(list(found["Nodes in use"].iter(f"{SVG}circle"))) == 0
    assert list(found["Nodes in use"].iter(f"{SVG}path"))


def test_a_run_without_anything() -> None:
    page = parsed(render_report(RunRecords(a_run())))
    text = words(page)
    for word in ("not ended", "running", "None was recorded.", "None."):
        assert word in text


def test_events_are_marked_and_listed() -> None:
    page = parsed(render_report(records(5, events=4)))
    for _, figure in charts(page):
        marks = [p for p in figure.iter(f"{SVG}path") if "mark" in (p.get("class") or "")]
        assert [("decision" in (m.get("class") or "")) for m in marks] == [False, True, False, True]
        assert "event 3" in words(marks[3])
    rows = [words(row) for row in page.iter(f"{HTML}tr")]
    assert any(row.startswith("3 0:03") or "event 3" in row for row in rows)


def test_the_plan_is_a_table_of_nodes() -> None:
    plan = a_plan(nodes=3)
    page = parsed(render_report(replace(records(1), plans=(PlanRecord("r1", 0, plan),) * 2)))
    text = words(page)
    for name in plan.nodes:
        assert name in text
    assert plan.reasons[0].text in text
    assert "the last of 2" in text


def test_nodes_that_sleep_are_said_to() -> None:
    plan = a_plan(nodes=2)
    only = replace(plan, node_of=plan.node_of * 0, active=(plan.nodes[0],))
    text = words(parsed(render_report(replace(records(1), plans=(PlanRecord("r1", 0, only),)))))
    assert "asleep" in text
    spare = replace(only, active=plan.nodes)
    text = words(parsed(render_report(replace(records(1), plans=(PlanRecord("r1", 0, spare),)))))
    assert "kept in reserve" in text


def test_lost_rows_and_wrong_places_are_shown_in_red() -> None:
    known = records(1)
    bad = replace(known, run=replace(known.run, rows_lost=2))
    page = parsed(render_report(bad))
    red = [words(e) for e in page.iter(f"{HTML}dd") if e.get("class") == "bad"]
    assert red == ["2", "1by a full queue", "75 %"]


def test_a_report_is_written(tmp_path: Path) -> None:
    write_report(records(2), tmp_path / "report.html")
    assert parsed((tmp_path / "report.html").read_text(encoding="utf-8")).tag == f"{HTML}html"
    with pytest.raises(PenstockError, match="cannot be written"):
        write_report(records(2), tmp_path / "no" / "report.html")


def test_a_long_run_stays_small() -> None:
    assert len(render_report(records(3000))) < 400_000


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


def test_strips_share_the_time_of_their_batches() -> None:
    batches = [a_batch("r1", n)[0] for n in (0, 1)]
    points = points_of(batches, 1000.0)
    instances = [
        InstanceRecord("r1", 0, "b", 1, "n", cpu_ms=1000.0),
        InstanceRecord("r1", 1, "b", 1, "n", cpu_ms=None),
        InstanceRecord("r1", 1, "b", 0, "n", cpu_ms=250.0),
        InstanceRecord("r1", 9, "b", 0, "n", cpu_ms=250.0),
        InstanceRecord("r1", 0, "a", 0, "n"),
    ]
    strips = strips_of(points, instances, lambda i: i.cpu_ms)
    assert strips == (
        Strip("b", 0, ((2.0, 2.5, 0.5),)),
        Strip("b", 1, ((0.0, 2.0, 0.5),)),
        Strip("a", 0, ()),
    )


def test_batches_without_time_or_latency() -> None:
    batch = BatchRecord("r1", 0, 1000.0, 0.0)
    known = RunRecords(a_run(), (batch, replace(batch, batch=1, latency=Histogram.of([5.0]))))
    found = dict(charts(parsed(render_report(known))))
    assert "Nothing was measured." in words(found["Rows per second"])
    assert len(list(found["Latency"].iter(f"{SVG}circle"))) == 3


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


def test_only_the_busiest_instances_are_drawn() -> None:
    strips = [Strip("op", i, ((0.0, 1.0, float(i)),)) for i in range(MOST_STRIPS + 10)]
    text = heat_strip("t", strips, Axes(1.0))
    assert f"The {MOST_STRIPS} busiest of {MOST_STRIPS + 10} instances." in text
    ElementTree.fromstring(text)


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
