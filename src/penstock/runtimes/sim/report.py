"""The report of simulations: one HTML file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.report.html import html_page, write_page
from penstock.report.svg import Axes, EventMark, Line, line_chart
from penstock.report.text import clock, escape, milliseconds, number, share
from penstock.runtimes.sim.moments import PERCENTILES, Moment
from penstock.runtimes.sim.simulate import SimulatedRun

#: Points that a line has at the most.
MOST_POINTS = 240

#: Figures of a summary: how the table calls them, where they stand, and how they are written.
FIGURES: tuple[tuple[str, Callable[[Mapping[str, Any]], Any], Callable[[Any], str]], ...] = (
    ("throughput /s", lambda s: s["throughput_per_s"], number),
    ("latency mean", lambda s: (s["latency_ms"] or {}).get("mean"), milliseconds),
    ("p50", lambda s: (s["latency_ms"] or {}).get("p50"), milliseconds),
    ("p95", lambda s: (s["latency_ms"] or {}).get("p95"), milliseconds),
    ("p99", lambda s: (s["latency_ms"] or {}).get("p99"), milliseconds),
    ("nodes", lambda s: s["nodes"], number),
    ("node-seconds", lambda s: s["node_seconds"], number),
    ("CPU use", lambda s: s["cpu_use"], share),
    ("across nodes", lambda s: s["remote_share"], share),
    ("LIN", lambda s: s["lin"], number),
    ("LIT", lambda s: s["lit"], number),
    ("plans", lambda s: s["plans"], number),
    ("moves", lambda s: s["moves"], number),
    ("no output", lambda s: s["seconds_without_output"], clock),
    ("waiting", lambda s: s["queued"], number),
    ("dropped", lambda s: s["dropped"], number),
)

#: Charts with a line for each run: title, value of a moment, and how it is written.
CHARTS: tuple[tuple[str, Callable[[Moment], float], Callable[[float], str]], ...] = (
    ("Latency p95", lambda m: m.percentiles_ms[1], milliseconds),
    ("Nodes in use", lambda m: m.nodes, number),
    ("CPU use of the nodes in use", lambda m: m.cpu_use, share),
    ("Tuples across nodes", lambda m: m.remote_share, share),
    ("Imbalance of nodes (LIN)", lambda m: m.lin, number),
    ("Imbalance of instances (LIT)", lambda m: m.lit, number),
    ("Tuples that wait", lambda m: m.queued, number),
)


def rows(runs: Sequence[SimulatedRun]) -> list[list[str]]:
    """Cells of the summary table: a heading, then one row for each run."""
    table = [["strategy", *(name for name, _, _ in FIGURES)]]
    for run in runs:
        summary = run.summary()
        table.append([run.strategy, *(show(value(summary)) for _, value, show in FIGURES)])
    return table


def charts(runs: Sequence[SimulatedRun]) -> list[str]:
    """Draw the figures of runs over time."""
    end_s = max(run.moments[-1].at_s for run in runs)
    marks = _marks(runs[0]) if len(runs) == 1 else ()
    frame = Axes(end_s, marks)
    arriving = Line("arriving", _points(runs[0], lambda m: m.arriving_per_s))
    through = [Line(run.strategy, _points(run, lambda m: m.throughput_per_s)) for run in runs]
    drawn = [line_chart("Source tuples a second", [arriving, *through], frame)]
    if len(runs) == 1:
        lines = [
            Line(f"p{p}", _points(runs[0], lambda m, i=i: m.percentiles_ms[i]))  # type: ignore[misc]
            for i, p in enumerate(PERCENTILES)
        ]
        drawn.append(line_chart("Latency", lines, frame, show=milliseconds))
    for title, value, show in CHARTS[1 if len(runs) == 1 else 0 :]:
        lines = [Line(run.strategy, _points(run, value)) for run in runs]
        drawn.append(line_chart(title, lines, frame, show=show, step="Nodes" in title))
    return drawn


def render(title: str, runs: Sequence[SimulatedRun], settings: Mapping[str, Any]) -> str:
    """Write simulations of the same stream as one HTML page.

    Parameters
    ----------
    title : str
    runs : sequence of SimulatedRun
    settings : mapping
        What was asked for, to be printed.
    """
    head, *body = rows(runs)
    table = (
        '<div class="box"><table><thead><tr>'
        + "".join(f"<th>{escape(cell)}</th>" for cell in head)
        + "</tr></thead>"
        + "".join(
            "<tr>" + "".join(f'<td class="n">{escape(cell)}</td>' for cell in row) + "</tr>"
            for row in body
        )
        + "</table></div>"
    )
    events = [(run.strategy, event) for run in runs for event in run.events]
    listed = "".join(
        f"<li>{clock(event.at_s)} {escape(name)}: {escape(event.text)}</li>"
        for name, event in events
    )
    asked = escape(json.dumps(settings, indent=1, default=str))
    parts = [
        f"<h1>{escape(title)}</h1>",
        '<p class="sub">Simulated, not measured.</p>',
        table,
        "<h2>Over time</h2>",
        f'<div class="charts">{"".join(charts(runs))}</div>',
        f"<h2>Events</h2>\n<ul>{listed}</ul>" if listed else "",
        f'<h2>Settings</h2>\n<div class="box"><pre>{asked}</pre></div>',
    ]
    return html_page(title, parts)


def write(
    path: str | Path, title: str, runs: Sequence[SimulatedRun], settings: Mapping[str, Any]
) -> None:
    """Write the page into a file.

    Raises
    ------
    PenstockError
        When the file cannot be written.
    """
    write_page(path, render(title, runs, settings))


def _points(
    run: SimulatedRun, value: Callable[[Moment], float]
) -> tuple[tuple[float, float | None], ...]:
    """One point for each stretch of moments, their mean."""
    moments = run.moments
    size = max(1, -(-len(moments) // MOST_POINTS))
    found: list[tuple[float, float | None]] = []
    for low in range(0, len(moments), size):
        some = moments[low : low + size]
        found.append((some[-1].at_s, sum(value(m) for m in some) / len(some)))
    return tuple(found)


def _marks(run: SimulatedRun) -> tuple[EventMark, ...]:
    return tuple(
        EventMark(event.at_s, i, event.text, event.decision)
        for i, event in enumerate(run.events, 1)
    )
