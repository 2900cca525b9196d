"""The report of a run: one HTML file that needs nothing else.

The page is HTML that is well-formed XML too, it loads nothing, and it runs no script.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from penstock.model import Plan
from penstock.report.html import html_page, write_page
from penstock.report.series import Point, points_of, strips_of
from penstock.report.summary import Latency, Summary, latency_of, summarise
from penstock.report.svg import Axes, EventMark, Line, heat_strip, line_chart
from penstock.report.text import (
    UNKNOWN,
    clock,
    data_size,
    escape,
    milliseconds,
    moment,
    number,
    ranges,
    share,
    whole,
)
from penstock.store.records import DECISION, EventRecord, InstanceRecord, PlanRecord, RunRecords

#: Reasons of a plan that are shown.
MOST_REASONS = 8


def render_report(records: RunRecords) -> str:
    """Write the report of a run as one HTML page.

    Parameters
    ----------
    records : RunRecords
        As `MetricsStore.read` gives them. A run without batches has a report too.
    """
    run = records.run
    summary = summarise(records)
    origin_s = min([run.started_at_s, *(b.started_at_s for b in records.batches[:1])])
    title = f"{run.topology} under {run.strategy}"
    ended = moment(run.ended_at_s) if run.ended_at_s is not None else "not ended"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">Run {escape(run.id)} \u00b7 {escape(run.status.value)} \u00b7 '
        f"{moment(run.started_at_s)} to {ended}</p>",
        _cards(summary),
        "<h2>Over time</h2>",
        _HINT if records.events else "",
        _charts(records, origin_s),
        _events(records.events, origin_s),
        _plans(records.plans),
        _config(records),
    ]
    data = json.dumps(summary, indent=1).translate(_IN_SCRIPT)
    head = f'<script type="application/json" id="summary">{data}</script>\n'
    return html_page(title, parts, head=head)


def write_report(records: RunRecords, path: str | Path) -> None:
    """Write the report of a run into a file.

    Raises
    ------
    PenstockError
        When the file cannot be written.
    """
    write_page(path, render_report(records))


_HINT = (
    '<p class="sub">Vertical lines are events, numbered as in the list below; '
    "those in colour are decisions.</p>"
)

#: JSON between script tags must not close them, nor hold what XML would read as markup.
_IN_SCRIPT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&"}


def _cards(summary: Summary) -> str:
    latency = summary["latency_ms"]
    shuffled = sum(summary[k] for k in ("local_bytes", "host_local_bytes", "remote_bytes"))
    remote = summary["remote_bytes"] / shuffled if shuffled else None
    honoured = summary["placement_honoured"]
    seconds = summary["seconds"]
    cards = [
        ("Rows in", whole(summary["rows_in"]), "", ""),
        ("Rows out", whole(summary["rows_out"]), "", ""),
        ("Rows lost", *_checked(summary["rows_lost"]), ""),
        ("Rows duplicated", *_checked(summary["rows_duplicated"]), ""),
        ("Throughput", f"{number(summary['throughput'])}", "", "rows/s"),
        (
            "Latency p50",
            milliseconds(latency["p50"] if latency else None),
            "",
            _percentiles(latency) if latency else "",
        ),
        (
            "Batches",
            whole(summary["batches"]),
            "",
            f"in {clock(seconds)}" if seconds is not None else "",
        ),
        (
            "Placement honoured",
            share(honoured),
            "" if honoured is None else "good" if honoured == 1 else "bad",
            "",
        ),
        (
            "Bytes across nodes",
            data_size(summary["remote_bytes"]),
            "",
            f"{share(remote)} of the shuffle" if remote is not None else "",
        ),
        (
            "Bytes kept local",
            data_size(summary["local_bytes"]),
            "",
            f"and {data_size(summary['host_local_bytes'])} in the node",
        ),
        ("Nodes used", whole(summary["nodes_used"]), "", "at most"),
        ("Decisions", whole(summary["decisions"]), "", ""),
    ]
    if summary["rows_dropped"]:
        cards.insert(4, ("Rows dropped", whole(summary["rows_dropped"]), "bad", "by a full queue"))
    return f'<div class="cards">{"".join(_card(*card) for card in cards)}</div>'


def _percentiles(latency: Latency) -> str:
    values = (("p95", latency["p95"]), ("p99", latency["p99"]), ("max", latency["max"]))
    # A name and its figure stay on one line.
    return " \u00b7 ".join(f"{k} {milliseconds(v)}".replace(" ", "\u00a0") for k, v in values)


def _card(name: str, value: str, tone: str, small: str) -> str:
    tag = f'<dd class="{tone}">' if tone else "<dd>"
    below = f"<small>{escape(small)}</small>" if small else ""
    return f"<div><dl><dt>{escape(name)}</dt>{tag}{escape(value)}{below}</dd></dl></div>"


def _checked(rows: int | None) -> tuple[str, str]:
    """Write a number that should be 0, and in which tone."""
    return whole(rows), "" if rows is None else "bad" if rows else "good"


def _charts(records: RunRecords, origin_s: float) -> str:
    points = points_of(records.batches, origin_s)
    times = [p.end_s for p in points] + [e.at_s - origin_s for e in records.events]
    marks = tuple(
        EventMark(e.at_s - origin_s, e.number, e.text, e.kind == DECISION)
        for e in sorted(records.events, key=lambda e: (e.at_s, e.number))
    )
    frame = Axes(max([1.0, *times]), marks)
    charts = [*_speed_charts(points, frame), *_node_charts(points, frame)]
    charts += _row_charts(points, frame)
    charts.append(_heat(points, records.instances, frame))
    return f'<div class="charts">{"".join(charts)}</div>'


def _speed_charts(points: Sequence[Point], frame: Axes) -> list[str]:
    """Rows and latency over time."""
    latencies = [latency_of(p.latency) for p in points]
    return [
        line_chart(
            "Rows per second",
            [
                Line("offered", _over(points, [p.offered_per_s for p in points])),
                Line("processed", _over(points, [p.taken_per_s for p in points])),
            ],
            frame,
            note="at the sources",
        ),
        line_chart(
            "Latency",
            [
                Line("p50", _over(points, [v["p50"] if v else None for v in latencies])),
                Line("p95", _over(points, [v["p95"] if v else None for v in latencies])),
                Line("p99", _over(points, [v["p99"] if v else None for v in latencies])),
            ],
            frame,
            show=milliseconds,
        ),
    ]


def _node_charts(points: Sequence[Point], frame: Axes) -> list[str]:
    """Nodes, what crosses them, and how even they are loaded, over time."""
    operators = tuple(dict.fromkeys(name for p in points for name in p.lit))
    return [
        line_chart(
            "Nodes in use",
            [Line("nodes", _over(points, [p.nodes_used for p in points], to_end=True))],
            frame,
            step=True,
        ),
        line_chart(
            "Shuffle bytes across nodes",
            [Line("remote", _over(points, [p.remote_share for p in points]))],
            frame,
            show=share,
        ),
        line_chart(
            "Imbalance",
            [
                Line("LIN, nodes", _over(points, [p.lin for p in points])),
                *(
                    Line(f"LIT, {name}", _over(points, [p.lit.get(name) for p in points]))
                    for name in operators
                ),
            ],
            frame,
            note="0 is even",
        ),
    ]


def _row_charts(points: Sequence[Point], frame: Axes) -> list[str]:
    """Rows that wait, and rows that were written, over time."""
    return [
        line_chart(
            "Rows waiting at the sources",
            [Line("queue", _over(points, [p.queue_length for p in points]))],
            frame,
        ),
        line_chart(
            "Rows written per second",
            [Line("written", _over(points, [p.written_per_s for p in points]))],
            frame,
        ),
    ]


def _over(
    points: Sequence[Point], values: Sequence[float | None], *, to_end: bool = False
) -> tuple[tuple[float, float | None], ...]:
    pairs = [(p.start_s, value) for p, value in zip(points, values, strict=True)]
    if to_end and pairs:
        pairs.append((points[-1].end_s, pairs[-1][1]))
    return tuple(pairs)


def _heat(points: Sequence[Point], instances: Sequence[InstanceRecord], frame: Axes) -> str:
    strips = strips_of(points, instances, lambda i: i.cpu_ms)
    if any(strip.cells for strip in strips):
        return heat_strip("CPU of each instance", strips, frame, note="cores")
    strips = strips_of(points, instances, lambda i: i.run_ms)
    return heat_strip("Busy time of each instance", strips, frame, note="part of the time")


def _events(events: Sequence[EventRecord], origin_s: float) -> str:
    if not events:
        return '<h2>Events</h2><p class="none">None.</p>'
    rows = "".join(
        f'<tr><td class="n">{e.number}</td><td class="n">{clock(e.at_s - origin_s)}</td>'
        f'<td>{escape(e.kind)}</td><td class="wide">{escape(e.text)}{_figures(e)}</td></tr>'
        for e in events
    )
    head = "<tr><th>No.</th><th>At</th><th>Kind</th><th>What and why</th></tr>"
    table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
    return f'<h2>Events</h2><div class="box">{table}</div>'


def _figures(event: EventRecord) -> str:
    if not event.figures:
        return ""
    text = json.dumps(event.figures, indent=1, ensure_ascii=False)
    return f"<details><summary>figures</summary><pre>{escape(text)}</pre></details>"


def _plans(plans: Sequence[PlanRecord]) -> str:
    if not plans:
        return '<h2>Plan</h2><p class="none">None was recorded.</p>'
    latest = plans[-1]
    plan = latest.plan
    head = f"<h2>Plan from batch {latest.from_batch}"
    head += f", the last of {len(plans)}</h2>" if len(plans) > 1 else "</h2>"
    on_node: dict[str, list[tuple[int, str, int]]] = {name: [] for name in plan.nodes}
    for operator, spots in plan.placement.items():
        for index, spot in enumerate(spots):
            on_node[spot.node].append((spot.process, operator, index))
    rows = "".join(_node_row(plan, name, held) for name, held in on_node.items())
    columns = "<tr><th>Node</th><th>Load</th><th>Process</th><th>Instances</th></tr>"
    table = f"<table><thead>{columns}</thead><tbody>{rows}</tbody></table>"
    reasons = "".join(f"<li>{escape(r.text)}</li>" for r in plan.reasons[:MOST_REASONS])
    more = len(plan.reasons) - MOST_REASONS
    if more > 0:
        reasons += f"<li>and {more} more</li>"
    return f'{head}<div class="box">{table}</div><ul>{reasons}</ul>'


def _node_row(plan: Plan, node: str, held: list[tuple[int, str, int]]) -> str:
    name, load = escape(node), share(plan.after.node_load.get(node))
    if not held:
        state = "kept in reserve" if node in plan.active else "asleep"
        cells = f'<td class="n">{UNKNOWN}</td><td class="n">{UNKNOWN}</td><td>{state}</td>'
        return f'<tr><td class="n">{name}</td>{cells}</tr>'
    groups = [(p, list(members)) for p, members in groupby(sorted(held), key=lambda h: h[0])]
    rows = []
    for i, (process, members) in enumerate(groups):
        first = (
            f'<td rowspan="{len(groups)}" class="n">{name}</td>'
            f'<td rowspan="{len(groups)}" class="n">{load}</td>'
            if i == 0
            else ""
        )
        text = ", ".join(
            f"{operator}[{ranges([index for _, _, index in own])}]"
            for operator, own in groupby(members, key=lambda h: h[1])
        )
        rows.append(
            f'<tr>{first}<td class="n">{process}</td><td class="wide">{escape(text)}</td></tr>'
        )
    return "".join(rows)


def _config(records: RunRecords) -> str:
    if not records.run.config:
        return ""
    text = json.dumps(records.run.config, indent=1, ensure_ascii=False)
    return (
        '<h2>Configuration</h2><details class="box"><summary>as the run began</summary>'
        f"<pre>{escape(text)}</pre></details>"
    )
