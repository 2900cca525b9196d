"""Options and arguments that several commands share: one name, one meaning, one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

#: Nodes when the user names neither a cluster nor a number.
DEFAULT_NODES = 4

App = Annotated[
    str, typer.Argument(metavar="APP", help="Application, as 'penstock apps' lists them.")
]

# ---- what is planned, and where

Strategies = Annotated[
    str,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="Name of a strategy, several with commas between them, or 'all'.",
    ),
]

ClusterFile = Annotated[
    Path | None,
    typer.Option(
        "--cluster",
        metavar="FILE",
        help="Cluster, in YAML or JSON. Not together with --nodes.",
        show_default=False,
    ),
]

Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark master instead of an embedded cluster."),
]

EmbeddedNodes = Annotated[
    int, typer.Option("--nodes", metavar="N", help="Nodes of the embedded cluster.")
]

Parallelism = Annotated[
    int | None, typer.Option("--parallelism", metavar="N", help="Instances of every operator.")
]

# ---- what comes in

Rate = Annotated[
    str, typer.Option("--rate", metavar="PROFILE", help="Source tuples a second over time.")
]

Seconds = Annotated[float, typer.Option("--seconds", metavar="N", help="How long tuples come.")]

Zipf = Annotated[float, typer.Option("--zipf", metavar="Z", help="Skew of the keys, 0 to 2.")]

InputSeed = Annotated[int, typer.Option("--seed", metavar="N", help="Equal seeds, equal input.")]

# ---- what is printed

JsonAtEnd = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")]

JsonEach = Annotated[
    bool, typer.Option("--json", help="Print one JSON object a line for each strategy.")
]

JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON, an object a line.")]
