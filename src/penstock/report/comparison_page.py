"""The page of a comparison: one HTML file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.report.comparison import FIGURES, Entry, Instant
from penstock.report.html import html_page, write_page
from penstock.report.svg import Axes, Line, line_chart
from penstock.report.text import clock, escape, milliseconds, number, share

#: Charts with a line for each strategy: title, value, how it is written, whether it holds.
CHARTS: tuple[tuple[str, Callable[[Instant], float | None], Callable[[float], str], bool], ...] = (
    ("Latency p50", lambda i: i.p50_ms, milliseconds, False),
    ("Latency p95", lambda i: i.p95_ms, milliseconds, False),
    ("Latency p99", lambda i: i.p99_ms, milliseconds, False),
    ("Nodes in use", lambda i: i.nodes, number, True),
    ("Sent across nodes", lambda i: i.remote_share, share, False),
    ("Imbalance of instances (LIT)", lambda i: i.lit, number, False),
    ("Imbalance of nodes (LIN)", lambda i: i.lin, number, False),
    ("Tuples that wait", lambda i: i.waiting, number, False),
)


def render_comparison(
    title: str, entries: Sequence[Entry], settings: Mapping[str, Any], note: str = ""
) -> str:
    """Write a comparison as one HTML page.

    Parameters
    ----------
    title : str
    entries : sequence of Entry
    settings : mapping
        What was asked for, to be printed.
    note : str
        Small print under the title.
    """
    asked = escape(json.dumps(settings, indent=1, default=str))
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="sub">{escape(note)}</p>' if note else "",
        _table(entries),
        _failures(entries),
        _charts(entries),
        _decisions(entries),
        f'<h2>Settings</h2><div class="box"><pre>{asked}</pre></div>',
    ]
    return html_page(title, parts)


def write_comparison(
    path: str | Path,
    title: str,
    entries: Sequence[Entry],
    settings: Mapping[str, Any],
    note: str = "",
) -> None:
    """Write the page into a file.

    Raises
    ------
    PenstockError
        When the file cannot be written.
    """
    write_page(path, render_comparison(title, entries, settings, note))


def _table(entries: Sequence[Entry]) -> str:
    best = {figure.name: figure.best(entries) for figure in FIGURES}
    head = "".join(f"<th>{escape(f.label)}</th>" for f in FIGURES)
    body = ""
    for entry in entries:
        cells = f"<td>{escape(entry.strategy)}</td>"
        if entry.failure and not entry.series:
            cells += f'<td class="bad wide" colspan="{len(FIGURES)}">failed</td>'
        else:
            for figure in FIGURES:
                good = " good" if entry.strategy in best[figure.name] else ""
                text = escape(figure.show(figure.value(entry)))
                cells += f'<td class="n{good}">{text}</td>'
        body += f"<tr>{cells}</tr>"
    return (
        f'<div class="box"><table><thead><tr><th>strategy</th>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _failures(entries: Sequence[Entry]) -> str:
    failed = [e for e in entries if e.failure]
    listed = "".join(f"<li>{escape(e.strategy)}: {escape(e.failure)}</li>" for e in failed)
    return f'<h2>Failed</h2><ul class="bad">{listed}</ul>' if failed else ""


def _charts(entries: Sequence[Entry]) -> str:
    drawn = [entry for entry in entries if entry.series]
    if not drawn:
        return ""
    frame = Axes(max(1.0, *(max(e.seconds or 0.0, e.series[-1].at_s) for e in drawn)))
    came = Line("arriving", _points(drawn[0], lambda i: i.arriving_per_s))
    taken = [Line(e.strategy, _points(e, lambda i: i.throughput_per_s)) for e in drawn]
    charts = [line_chart("Source tuples a second", [*taken, came], frame)]
    for title, value, show, step in CHARTS:
        lines = [Line(entry.strategy, _points(entry, value)) for entry in drawn]
        charts.append(line_chart(title, lines, frame, show=show, step=step))
    return f'<h2>Over time</h2><div class="charts">{"".join(charts)}</div>'


def _points(
    entry: Entry, value: Callable[[Instant], float | None]
) -> tuple[tuple[float, float | None], ...]:
    return tuple((instant.at_s, value(instant)) for instant in entry.series)


def _decisions(entries: Sequence[Entry]) -> str:
    listed = "".join(
        f'<tr><td>{escape(entry.strategy)}</td><td class="n">{clock(told.at_s)}</td>'
        f'<td class="wide">{escape(told.text)}</td></tr>'
        for entry in entries
        for told in entry.told
    )
    if not listed:
        return '<h2>Decisions</h2><p class="none">None.</p>'
    head = "<tr><th>Strategy</th><th>At</th><th>What and why</th></tr>"
    table = f"<table><thead>{head}</thead><tbody>{listed}</tbody></table>"
    return f'<h2>Decisions</h2><div class="box">{table}</div>'
