"""``penstock reproduce``: the papers' experiments, simulated, as pages."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.checks import check_folder
from penstock.cli.exits import clean_exit, say
from penstock.cli.options import JsonLines
from penstock.cli.progress import ProgressBar
from penstock.common.near_miss import near_miss
from penstock.model import InvalidValue

if TYPE_CHECKING:
    from penstock.experiments.papers.figure import Figure

HELP = """Simulate the experiments of the papers that Penstock implements.

Writes a page with plots for each paper: what the paper reports, what comes out here with one
physical model for all, and whether the order of the systems is the same. Takes minutes.

Exit codes: 0 fine, 2 bad input, 130 interrupted, 143 terminated.

\b
Examples:
  penstock reproduce ra
  penstock reproduce all --out docs/reproduce
  penstock reproduce ts --json
"""

PAPERS = ("ts", "sra", "sl", "ms", "ra")


def reproduce(
    paper: Annotated[
        str,
        typer.Argument(
            metavar="PAPER", help=f"One of {', '.join(PAPERS)}, all.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the pages go.")] = Path(
        "docs/reproduce"
    ),
    as_json: JsonLines = False,
) -> None:
    """Run a paper's experiments; see `HELP`."""
    with clean_exit():
        if paper not in (*PAPERS, "all"):
            known = (*PAPERS, "all")
            allowed, hint = f"one of {', '.join(known)}", near_miss(paper, known)
            raise InvalidValue("paper", "a reproduction", allowed, paper, hint)
        check_folder("--out", out, make=True)
        from penstock.experiments.papers.page import write

        names = PAPERS if paper == "all" else (paper,)
        with ProgressBar(len(names), doing="reproducing") as progress:
            for name in names:
                progress.now(name)
                module = importlib.import_module(f"penstock.experiments.papers.{name}")
                found = module.experiments(
                    lambda text, name=name: progress.detail(f"{name}: {text}")
                )
                page = write(found, out)
                for figure in found.figures:
                    if as_json:
                        typer.echo(json.dumps(_row(name, page, figure)))
                    elif figure.wrong:
                        say(f"{name} {figure.where}, {figure.what}: {figure.verdict}")
                if not as_json:
                    typer.echo(str(page))


def _row(paper: str, page: Path, figure: Figure) -> dict[str, Any]:
    """Return a figure as plain values: what the paper has, what came out, how they compare."""
    return {
        "paper": paper,
        "page": str(page),
        "figure": figure.where,
        "what": figure.what,
        "unit": figure.unit,
        "reported": dict(figure.paper),
        "here": dict(figure.here),
        "verdict": figure.verdict,
    }
