"""Line charts and step charts as inline SVG: pure functions from values to text.

Colours come from the classes ``s0``, ``s1``, ... of the page, so that one drawing serves the light
and the dark scheme. Widths are in units of the drawing, which scales to the room that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.report.text import clock, escape, number, ticks, time_ticks

WIDTH = 480.0
HEIGHT = 210.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 10.0, 18.0, 24.0

#: Classes with a colour of their own; further series begin anew.
COLOURS = 6

#: Room that the number of an event takes above a chart.
TAG_ROOM = 26.0


@dataclass(frozen=True)
class Line:
    """One series of a chart: its name and points; a value of None leaves a gap."""

    name: str
    points: tuple[tuple[float, float | None], ...]


@dataclass(frozen=True)
class EventMark:
    """An event: when it happened, its number in the list, whether it was a decision."""

    at_s: float
    number: int
    text: str
    decision: bool = True


@dataclass(frozen=True)
class Axes:
    """The times that all charts of a report show, and the events on them."""

    end_s: float
    marks: tuple[EventMark, ...] = ()

    def x(self, at_s: float) -> float:
        """Horizontal position of a time; what is outside goes to the edge."""
        part = at_s / self.end_s if self.end_s > 0 else 0.0
        return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, max(0.0, part))


def line_chart(
    title: str,
    lines: Sequence[Line],
    frame: Axes,
    *,
    step: bool = False,
    show: Callable[[float], str] = number,
    least: float = 0.0,
    note: str = "",
) -> str:
    """Draw values over time, from 0 up.

    Parameters
    ----------
    title : str
    lines : sequence of Line
    frame : Axes
    step : bool
        Hold each value until the next instead of joining them.
    show : callable
        Writes a value at the axis.
    least : float
        The axis reaches at least this far.
    note : str
        Small print after the title.
    """
    known = [v for line in lines for _, v in line.points if v is not None]
    if not known:
        return _figure(title, note, "", '<p class="none">Nothing was measured.</p>')
    scale = ticks(max(least, *known))
    bottom, room = HEIGHT - BOTTOM, HEIGHT - TOP - BOTTOM

    def y(value: float) -> float:
        return bottom - room * value / scale[-1]

    parts = [_time_axis(frame, HEIGHT)]
    for value in scale:
        at = y(value)
        parts.append(f'<path class="grid" d="M{LEFT:.1f} {at:.1f}H{WIDTH - RIGHT:.1f}"/>')
        label = escape(show(value))
        parts.append(f'<text x="{LEFT - 6:.1f}" y="{at + 4:.1f}" class="y">{label}</text>')
    parts.append(_marks(frame, HEIGHT))
    for i, line in enumerate(lines):
        parts.append(_line(line, i % COLOURS, frame, y, step))
    legend = _legend(lines) if len(lines) > 1 else ""
    return _figure(title, note, legend, _svg(title, HEIGHT, parts))


def _line(line: Line, colour: int, frame: Axes, y: Callable[[float], float], step: bool) -> str:
    commands: list[str] = []
    lone: list[tuple[float, float]] = []
    run: list[tuple[float, float]] = []

    def finish() -> None:
        if len(run) == 1 and not step:
            lone.append(run[0])
        elif run:
            if step and len(run) == 1:
                run.append((min(run[0][0] + 6.0, WIDTH - RIGHT), run[0][1]))
            commands.append(f"M{run[0][0]:.1f} {run[0][1]:.1f}")
            for ax, ay in run[1:]:
                commands.append(f"H{ax:.1f}V{ay:.1f}" if step else f"L{ax:.1f} {ay:.1f}")
        run.clear()

    for at_s, value in line.points:
        if value is None:
            finish()
        else:
            run.append((frame.x(at_s), y(value)))
    finish()
    drawn = f'<path class="line s{colour}" d="{"".join(commands)}"/>' if commands else ""
    # A single point between gaps has no line to show it.
    dots = "".join(
        f'<circle class="dot s{colour}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in lone
    )
    return drawn + dots


def _time_axis(frame: Axes, height: float) -> str:
    bottom = height - BOTTOM
    parts = [f'<path class="axis" d="M{LEFT:.1f} {bottom:.1f}H{WIDTH - RIGHT:.1f}"/>']
    for at_s in time_ticks(frame.end_s):
        x = frame.x(at_s)
        parts.append(f'<path class="axis" d="M{x:.1f} {bottom:.1f}v4"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 17:.1f}" class="x">{clock(at_s)}</text>')
    return "".join(parts)


def _marks(frame: Axes, height: float) -> str:
    parts: list[str] = []
    tags: list[tuple[float, list[int]]] = []
    for mark in frame.marks:
        x = frame.x(mark.at_s)
        kind = "mark decision" if mark.decision else "mark"
        label = f"{mark.number} \u00b7 {clock(mark.at_s)} \u00b7 {mark.text}"
        parts.append(
            f'<path class="{kind}" d="M{x:.1f} {TOP - 4:.1f}V{height - BOTTOM:.1f}">'
            f"<title>{escape(label)}</title></path>"
        )
        # Numbers that would touch share one tag.
        if tags and x - tags[-1][0] < TAG_ROOM:
            tags[-1][1].append(mark.number)
        else:
            tags.append((x, [mark.number]))
    for x, numbers in tags:
        low, high = min(numbers), max(numbers)
        tag = f"{low}" if low == high else f"{low}\u2013{high}"
        parts.append(f'<text x="{x:.1f}" y="{TOP - 7:.1f}" class="tag">{tag}</text>')
    return "".join(parts)


def _legend(lines: Sequence[Line]) -> str:
    keys = "".join(
        f'<span><svg class="key" viewBox="0 0 24 8" aria-hidden="true">'
        f'<path class="line s{i % COLOURS}" d="M1 4H23"/></svg>{escape(line.name)}</span>'
        for i, line in enumerate(lines)
    )
    return f'<div class="legend">{keys}</div>'


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    # The name space lets the drawing be saved and opened by itself.
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" role="img" '
        f'aria-label="{escape(title)}">' + "".join(parts) + "</svg>"
    )


def _figure(title: str, note: str, legend: str, body: str) -> str:
    small = f" <small>{escape(note)}</small>" if note else ""
    return f"<figure><figcaption>{escape(title)}{small}</figcaption>{legend}{body}</figure>"
