"""Drawings that stand by themselves: bars by system, and lines over time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from penstock.report.svg import (
    BOTTOM,
    COLOURS,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axes,
    Line,
    line_chart,
)
from penstock.report.text import escape, number, ticks

_COLOURS = ("#0072b2", "#d55e00", "#008a68", "#b0568f", "#8a6d00", "#3b7ea1")

#: A drawing in a file of its own brings its colours along; they are readable on light and dark.
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#6b7683}.y{text-anchor:end}.x,.tag{text-anchor:"
    "middle}.grid{stroke:#9aa5b344;fill:none}.axis{stroke:#6b7683;fill:none}"
    ".line{fill:none;stroke-width:1.75}.mark{stroke:#6b768388;fill:none}"
    + "".join(
        f".s{i}{{stroke:{c}}}.f{i}{{fill:{c}}}.dot.s{i}{{fill:{c};stroke:none}}"
        for i, c in enumerate(_COLOURS)
    )
)

#: Room for the legend above a drawing.
_LEGEND = 18.0


def bars(title: str, values: Mapping[str, Mapping[str, float]]) -> str:
    """Draw groups of bars: a group for each case, a bar in it for each system.

    Parameters
    ----------
    title : str
    values : mapping of str to mapping of str to float
        Value of each system, by case.
    """
    systems = list(dict.fromkeys(name for case in values.values() for name in case))
    scale = ticks(max(v for case in values.values() for v in case.values()))
    bottom, room = HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM
    parts = []
    for value in scale:
        y = bottom - room * value / scale[-1]
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="y" x="{LEFT - 6}" y="{y + 4:.1f}">{number(value)}</text>')
    wide = (WIDTH - LEFT - RIGHT) / max(len(values), 1)
    bar = wide * 0.8 / max(len(systems), 1)
    for g, (case, group) in enumerate(values.items()):
        left = LEFT + g * wide + wide * 0.1
        for s, name in enumerate(systems):
            if name not in group:
                continue
            high = room * group[name] / scale[-1]
            parts.append(
                f'<rect class="f{s % COLOURS}" x="{left + s * bar:.1f}" y="{bottom - high:.1f}" '
                f'width="{bar * 0.9:.1f}" height="{high:.1f}"><title>{escape(name)}: '
                f"{group[name]:.4g}</title></rect>"
            )
        parts.append(
            f'<text class="x" x="{left + wide * 0.4:.1f}" y="{bottom + 17:.1f}">'
            f"{escape(case)}</text>"
        )
    return _alone(title, "".join(parts), systems)


def over_time(title: str, lines: Sequence[Line], *, step: bool = False) -> str:
    """Draw values over time."""
    end_s = max(at for line in lines for at, _ in line.points)
    drawn = line_chart(title, lines, Axes(end_s), step=step)
    inner = re.search(r"<svg xmlns[^>]*>(.*)</svg>", drawn, re.DOTALL)
    assert inner is not None
    return _alone(title, inner[1], [line.name for line in lines])


def _alone(title: str, body: str, names: Sequence[str]) -> str:
    keys, x = [], LEFT
    for i, name in enumerate(names):
        keys.append(
            f'<rect class="f{i % COLOURS}" x="{x:.0f}" y="4" width="10" height="10"/>'
            f'<text x="{x + 14:.0f}" y="13">{escape(name)}</text>'
        )
        x += 30 + 6.6 * len(name)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT + _LEGEND:g}" '
        f'role="img" aria-label="{escape(title)}"><style>{_STYLE}</style>{"".join(keys)}'
        f'<g transform="translate(0 {_LEGEND:g})">{body}</g></svg>\n'
    )
