"""The page of a paper: what it reports, what comes out here, and whether the order is the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.experiments.papers.figure import Figure
from penstock.experiments.papers.trial import (
    FINENESS,
    NOISE,
    SECONDS,
    SEED,
    SETTLED_S,
    WARM_S,
)
from penstock.model import PenstockError
from penstock.report.text import number


@dataclass(frozen=True)
class Paper:
    """The experiments of one paper.

    Parameters
    ----------
    name : str
        As on the command line.
    title : str
    setting : mapping of str to str
        Cluster, applications, rates and baselines, with what the paper leaves open.
    figures : tuple of Figure
    metrics : tuple of str
        Paragraphs at the end.
    """

    name: str
    title: str
    setting: Mapping[str, str]
    figures: tuple[Figure, ...]
    metrics: tuple[str, ...] = ()


def markdown(paper: Paper) -> str:
    """Write the page; drawings are linked by the names of `drawings`."""
    held = sum(not figure.wrong for figure in paper.figures if figure.claims)
    told = sum(bool(figure.claims) for figure in paper.figures)
    lines = [
        f"<!-- Written by `penstock reproduce {paper.name}`. -->",
        "",
        f"# {paper.title}, simulated",
        "",
        "Every system runs on the same [physical model](../simulator.md#the-papers-experiments), "
        f"which nobody tuned for any of them. Of {told} comparisons whose order the paper tells, "
        f"{held} come out in the same order here.",
        "",
        "| Setting | |",
        "|---|---|",
        *(f"| {name} | {text} |" for name, text in paper.setting.items()),
        f"| Trials | {SECONDS:g} s of virtual time, the first {WARM_S:g} s left out; the rate "
        f"varies by {NOISE:.0%} from second to second; seed {SEED}; every strategy with its "
        f"default parameters, asked every 10 s, those that plan at submission until "
        f"{SETTLED_S:g} s; maxima to {FINENESS:.0%} |",
        "",
        "| Figure | What | Better | Paper | Here | Improvement: theirs, ours | Order |",
        "|---|---|---|---|---|---|---|",
        *(_row(figure) for figure in paper.figures),
        "",
    ]
    for i, figure in enumerate(paper.figures):
        lines += [f"## {figure.where}: {figure.what}", ""]
        if figure.drawing:
            lines += [f"![{figure.what}]({_file(paper, i)})", ""]
        lines += _table(figure)
        if figure.note:
            lines += [figure.note, ""]
        if figure.wrong:
            pairs = "; ".join(
                f"{number(figure.paper[a])} at {a}" if figure.same else f"{a} before {b}"
                for a, b in figure.wrong
            )
            why = figure.why or "We have no explanation yet."
            lines += [f"**Not as in the paper** (which has {pairs}). {why}", ""]
    for note in paper.metrics:
        lines += [note, ""]
    return "\n".join(lines).rstrip() + "\n"


def drawings(paper: Paper) -> dict[str, str]:
    """Drawings of the page, by the name of their file."""
    return {_file(paper, i): f.drawing for i, f in enumerate(paper.figures) if f.drawing}


def write(paper: Paper, folder: Path) -> Path:
    """Write the page and its drawings.

    Raises
    ------
    PenstockError
        When the folder cannot be written to.
    """
    page = folder / f"{paper.name}.md"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{paper.name}-*.svg"):
            old.unlink()
        for name, text in drawings(paper).items():
            (folder / name).write_text(text, encoding="utf-8")
        page.write_text(markdown(paper), encoding="utf-8")
    except OSError as error:
        raise PenstockError(f"page {page} cannot be written: {error.strerror}") from None
    return page


def _file(paper: Paper, index: int) -> str:
    figure = paper.figures[index]
    short = re.sub(r"[^a-z0-9]+", "-", f"{figure.where} {figure.what}".lower()).strip("-")
    return f"{paper.name}-{index + 1:02d}-{short[:40].strip('-')}.svg"


def _row(figure: Figure) -> str:
    better = "higher" if figure.higher_is_better else "lower"
    gains = [
        f"{name}: {_times(figure.improvement(figure.paper, name))}, "
        f"{_times(figure.improvement(figure.here, name))}"
        for name in figure.here
        if (figure.own, name) in figure.claims and not figure.same
    ]
    cells = [
        figure.where,
        f"{figure.what}, {figure.unit}",
        better,
        _values(figure.paper) or "only drawn",
        _values(figure.here),
        "<br>".join(gains),
        figure.verdict,
    ]
    return "| " + " | ".join(cells) + " |"


def _table(figure: Figure) -> list[str]:
    lines = [
        f"| System | Paper, {figure.unit} | Here, {figure.unit} "
        f"| {figure.own} better by: paper | here |",
        "|---|---|---|---|---|",
    ]
    for name, value in figure.here.items():
        theirs = number(figure.paper[name]) if name in figure.paper else "-"
        gains = [figure.improvement(v, name) for v in (figure.paper, figure.here)]
        shown = ["", ""] if name == figure.own else [_times(gain) for gain in gains]
        lines.append(f"| {name} | {theirs} | {number(value)} | {shown[0]} | {shown[1]} |")
    return [*lines, ""]


def _values(values: Mapping[str, float]) -> str:
    return "<br>".join(f"{name} {number(value)}" for name, value in values.items())


def _times(gain: float | None) -> str:
    return "-" if gain is None else f"{gain:.2f}x"
