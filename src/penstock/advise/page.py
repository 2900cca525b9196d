"""The advice as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from penstock.advise.advice import Advice, QueryAdvice, rows_per_s
from penstock.advise.elastic import Elastic, executor_time
from penstock.advise.findings import Finding
from penstock.planning import PlanOutcome
from penstock.report.html import html_page, write_page
from penstock.report.svg import Axes, Line, line_chart
from penstock.report.text import escape, milliseconds, moment, number, share, whole

#: Phases of a batch that have a line of their own, and what they are called.
PHASES = (
    ("addBatch", "running it"),
    ("latestOffset", "asking for offsets"),
    ("queryPlanning", "planning"),
    ("walCommit", "log of offsets"),
    ("commitOffsets", "log of commits"),
)

#: Characters of a table's cell that stay on one line.
SHORT = 24

#: Reasons of a plan that are shown.
MOST_REASONS = 3


def render_advice(advice: Sequence[Advice]) -> str:
    """Write the advice on some applications as one HTML page."""
    names = [a.application.name or a.application.id or a.application.origin for a in advice]
    title = f"Advice for {', '.join(names)}" if len(names) <= 3 else f"Advice for {len(names)} logs"
    body = "\n".join(_application(one) for one in advice)
    return html_page(title, [f"<h1>{escape(title)}</h1>", body])


def write_advice(advice: Sequence[Advice], path: str | Path) -> None:
    """Write the page into a file.

    Raises
    ------
    PenstockError
        When the file cannot be written.
    """
    write_page(path, render_advice(advice))


def _application(advice: Advice) -> str:
    application = advice.application
    began = moment(application.start_ms / 1e3)
    parts = [
        f"<h2>{escape(application.name or application.id or application.origin)}</h2>",
        f'<p class="sub">{escape(application.origin)} \u00b7 Spark {escape(application.spark)} '
        f"\u00b7 {began} \u00b7 {len(application.executors)} executors</p>",
        f"<p>{escape(advice.verdict)}</p>",
        _list(application.notes),
        *(_query(query) for query in advice.queries),
        _elastic(advice.elastic),
        _plans(advice.plans),
    ]
    return "\n".join(part for part in parts if part)


def _query(query: QueryAdvice) -> str:
    seen = query.evidence
    cards = (
        ("Batches", whole(len(seen.query.batches)), f"{len(seen.batches)} counted"),
        ("A batch takes", milliseconds(seen.batch_ms), f"every {milliseconds(seen.cycle_ms)}"),
        ("Rows", f"{number(rows_per_s(seen))}", "a second"),
        ("Cores", whole(seen.cores), f"{seen.executors} executors"),
        ("No batch runs", share(seen.waiting_share), "of the time"),
    )
    drawn = "".join(
        f"<div><dl><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(small)}</small></dd>"
        "</dl></div>"
        for name, value, small in cards
    )
    found = "".join(_finding(i, f) for i, f in enumerate(query.findings, 1))
    none = '<p class="none">Nothing that the log shows.</p>'
    failure = f'<p class="bad">It ended with: {escape(seen.query.failure)}</p>'
    settings = _table(("Setting", "Now", "To"), ((s.name, s.now, s.to) for s in query.settings))
    return "\n".join(
        (
            f"<h2>What holds {escape(query.title)} back</h2>",
            f'<div class="cards">{drawn}</div>',
            failure if seen.query.failure else "",
            found or none,
            f"<h2>Settings to change</h2>{settings}" if query.settings else "",
            _charts(query),
        )
    )


def _finding(place: int, finding: Finding) -> str:
    settings = tuple(f"set {setting}" for setting in finding.settings)
    return (
        f'<div class="box finding"><p class="sub">{place} \u00b7 {share(finding.share)} of '
        f"{finding.gain.value}</p><b>{escape(finding.text)}</b>{_list(finding.evidence)}"
        f"{_list((*settings, *finding.actions), 'What to do:')}</div>"
    )


def _charts(query: QueryAdvice) -> str:
    batches = query.evidence.query.batches
    if not batches:
        return ""
    start_ms = batches[0].start_ms
    axes = Axes(max(1.0, (batches[-1].end_ms - start_ms) / 1e3))
    at_s = [(b.start_ms - start_ms) / 1e3 for b in batches]
    phases = [
        Line(label, tuple((at, b.phases.get(name)) for at, b in zip(at_s, batches, strict=True)))
        for name, label in PHASES
        if any(name in b.phases for b in batches)
    ]
    whole_batch = Line(
        "whole batch", tuple((a, b.took_ms) for a, b in zip(at_s, batches, strict=True))
    )
    rows = Line("rows", tuple((a, b.rows) for a, b in zip(at_s, batches, strict=True)))
    state = Line(
        "rows of state",
        tuple((a, sum(s.rows for s in b.state)) for a, b in zip(at_s, batches, strict=True)),
    )
    charts = [
        line_chart("Time of a batch", [whole_batch, *phases], axes, show=milliseconds),
        line_chart("Rows in a batch", [rows], axes),
    ]
    if any(b.state for b in batches):
        charts.append(line_chart("Rows of state", [state], axes))
    return f'<div class="charts">{"".join(charts)}</div>'


def _elastic(elastic: Elastic | None) -> str:
    if elastic is None:
        return ""
    rows = (
        (
            moment(hour.start_ms / 1e3),
            number(hour.rows_per_s),
            number(hour.executors),
            share(hour.busy_share),
            number(hour.elastic),
        )
        for hour in elastic.hours
    )
    told = (
        f"Recorded: {executor_time(elastic.static_s)}. Elastic executors under the control loop, "
        f"simulated on the recorded rates: {executor_time(elastic.executor_s)}, with a p95 "
        f"latency of {milliseconds(elastic.p95_ms)} instead of "
        f"{milliseconds(elastic.static_p95_ms)} (simulated, too)."
    )
    head = ("Hour from", "Rows a second", "Executors", "Cores busy", "Elastic executors")
    return (
        f"<h2>Executors by hour</h2><p>{escape(told)}</p>{_table(head, rows)}"
        f"{_list(elastic.decisions)}"
    )


def _plans(plans: Sequence[PlanOutcome]) -> str:
    if not plans:
        return ""
    rows = []
    for outcome in plans:
        plan = outcome.plan
        if plan is None:
            rows.append((outcome.strategy, "refused", "", "", "", "; ".join(outcome.declined)))
            continue
        rows.append(
            (
                outcome.strategy,
                "fits" if plan.feasible else "does not fit",
                whole(plan.after.nodes_used),
                share(plan.after.cut_share),
                share(plan.after.max_node_load),
                "; ".join(str(reason) for reason in plan.reasons[:MOST_REASONS]),
            )
        )
    head = ("Strategy", "Plan", "Executors", "Rows across", "Busiest executor", "Why")
    return f"<h2>The plan that each strategy would choose</h2>{_table(head, rows)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="box"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(text: str) -> str:
    """Keep figures and names on one line, and let sentences fill the rest."""
    return f'<td class="{"wide" if len(text) > SHORT else "n"}">{escape(text)}</td>'


def _list(lines: Sequence[str], title: str = "") -> str:
    if not lines:
        return ""
    listed = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"{f'<p>{escape(title)}</p>' if title else ''}<ul>{listed}</ul>"
