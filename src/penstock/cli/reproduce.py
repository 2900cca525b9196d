"""``penstock reproduce``: the papers' experiments, simulated, as pages."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.exits import clean_exit, say
from penstock.cli.progress import Progress
from penstock.model import InvalidValue

HELP = """Simulate the experiments of the papers that Penstock implements.

Writes a page with plots for each paper: what the paper reports, what comes out here with one
physical model for all, and whether the order of the systems is the same. Takes minutes.

\b
Examples:
  penstock reproduce ra
  penstock reproduce all --out docs/reproduce
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
) -> None:
    """Run a paper's experiments; see `HELP`."""
    with clean_exit():
        if paper not in (*PAPERS, "all"):
            allowed = f"one of {', '.join(PAPERS)}, all"
            raise InvalidValue("paper", "a reproduction", allowed, paper)
        from penstock.experiments.papers.page import write

        names = PAPERS if paper == "all" else (paper,)
        with Progress(len(names), doing="reproducing") as progress:
            for name in names:
                progress.now(name)
                module = importlib.import_module(f"penstock.experiments.papers.{name}")
                found = module.experiments(
                    lambda text, name=name: progress.detail(f"{name}: {text}")
                )
                page = write(found, out)
                for figure in found.figures:
                    if figure.wrong:
                        say(f"{name} {figure.where}, {figure.what}: {figure.verdict}")
                typer.echo(str(page))
