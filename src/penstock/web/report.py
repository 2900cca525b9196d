"""The report of a run: the live page with its data in it, one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.common.errors import PenstockError
from penstock.report.html import html_page, write_page
from penstock.report.summary import summarise
from penstock.store.records import BatchRecord, RunRecords
from penstock.web import STATIC
from penstock.web.frame import STATE_WINDOW, WINDOW, Detail, frame_of
from penstock.web.reader import TOPOLOGY, brief, told
from penstock.web.series import series_of

#: Moments of the run that the report holds, and rows of its series.
MOST_FRAMES, MOST_POINTS = 40, 400

#: JSON between script tags must not close them.
_IN_SCRIPT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def render_report(records: RunRecords) -> str:
    """Write the report of a run as one HTML page, which loads nothing.

    Parameters
    ----------
    records : RunRecords
        As `MetricsStore.read` gives them. A run without batches has a report too.
    """
    run = records.run
    config = {key: value for key, value in run.config.items() if key != TOPOLOGY}
    batches = records.batches
    held = {
        "run": {
            **brief(run),
            "config": config,
            "summary": summarise(records),
            "first_batch": batches[0].batch if batches else None,
            "last_batch": batches[-1].batch if batches else None,
            "plans": [plan.from_batch for plan in records.plans],
        },
        "series": series_of(batches, run.started_at_s, MOST_POINTS),
        "events": [told(event, run.started_at_s) for event in records.events],
        "frames": _frames(records),
    }
    return _page(f"{run.topology} under {run.strategy}", held)


def write_report(records: RunRecords, path: str | Path) -> None:
    """Write the report of a run into a file.

    Raises
    ------
    PenstockError
        When the file cannot be written.
    """
    write_page(path, render_report(records))


def _frames(records: RunRecords) -> list[dict[str, Any]]:
    """Show the run at some moments: evenly over its time, and where decisions took effect."""
    batches = records.batches
    outline = records.run.config.get(TOPOLOGY, {})
    instances, edges = _by_batch(records.instances), _by_batch(records.edges)
    nodes, operators = _by_batch(records.nodes), _by_batch(records.operators)
    frames = []
    for at in _moments(batches, [plan.from_batch for plan in records.plans]):
        window = batches[max(0, at - WINDOW + 1) : at + 1]
        shown = [b.batch for b in window]
        recent = range(batches[at].batch - STATE_WINDOW + 1, batches[at].batch + 1)
        detail = Detail(
            window,
            batches[at - WINDOW] if at >= WINDOW else None,
            [one for number in shown for one in instances.get(number, ())],
            [one for number in shown for one in edges.get(number, ())],
            [one for number in shown for one in nodes.get(number, ())],
            [one for number in recent for one in operators.get(number, ())],
        )
        frames.append(frame_of(detail, records.plans, outline, records.run.started_at_s))
    return frames


def _moments(batches: Sequence[BatchRecord], changed: Sequence[int]) -> list[int]:
    """Choose positions of batches: the last, evenly many before it, and those of new plans."""
    last = len(batches) - 1
    if last < MOST_FRAMES:
        return list(range(last + 1))
    chosen = {round(last * i / (MOST_FRAMES - 1)) for i in range(MOST_FRAMES)}
    number = {b.batch: at for at, b in enumerate(batches)}
    chosen |= {number[batch] for batch in changed[-MOST_FRAMES:] if batch in number}
    return sorted(chosen)


def _by_batch(records: Sequence[Any]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for one in records:
        found.setdefault(one.batch, []).append(one)
    return found


def _page(title: str, held: dict[str, Any]) -> str:
    """Put the page's own style and script around the data; the policy allows these two alone."""
    style, script = _static("app.css"), _static("app.js")
    if "</style" in style or "</script" in script:
        raise PenstockError("the built page cannot be put into a report; run: make page")
    data = json.dumps(held, allow_nan=False).translate(_IN_SCRIPT)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = (
        '<div id="app"><p>Loading.</p></div>',
        f'<script type="application/json" id="penstock-data">{data}</script>',
        f"<script>{script}</script>",
    )
    schemes = '<meta name="color-scheme" content="light dark"/>\n'
    return html_page(title, parts, head=schemes, style=style, policy=policy)


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return how a policy names an inline script or style."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
