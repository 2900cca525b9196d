"""Options of ``penstock run``: what comes in, where it runs, who decides, what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.apps import apps
from penstock.apps.api import App as Application
from penstock.cli.checks import (
    check_checkpoint,
    check_file,
    check_master,
    check_nodes,
    check_store,
)
from penstock.cli.job_file import JobFile, made, wants_spark
from penstock.control.settings import Settings
from penstock.faults.fault import STANDALONE, Fault
from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.sinks import Discard
from penstock.pipeline.sources.rates import Profile
from penstock.pipeline.steps import Sink
from penstock.state.config import StateConfig

# ---- what the command line takes

Strategy = Annotated[
    str, typer.Option("--strategy", metavar="NAME", help="Strategy that plans it.")
]

Processes = Annotated[
    int,
    typer.Option(
        "--processes", metavar="N", help="Executor processes of each node of the embedded cluster."
    ),
]

Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="FOLDER",
        help="Keep commit log and state in this folder or address, and go on from it.",
    ),
]

Store = Annotated[
    str | None,
    typer.Option("--store", metavar="STORE", help="Metrics: a SQLite file or a postgresql:// URL."),
]

Report = Annotated[
    Path, typer.Option("--report", metavar="FILE", help="Where the HTML report goes.")
]

MinNodes = Annotated[
    int,
    typer.Option(
        "--min-nodes",
        metavar="N",
        help="Nodes that are never released; 0: as many as state by peers needs.",
    ),
]

MaxNodes = Annotated[
    int,
    typer.Option(
        "--max-nodes", metavar="N", help="Nodes that are never exceeded; 0: as at the start."
    ),
]

RecommendOnly = Annotated[
    bool,
    typer.Option("--recommend-only", help="Show what would be decided, and change nothing."),
]

Adapt = Annotated[
    bool, typer.Option("--adapt/--no-adapt", help="Plan again while it runs, or not.")
]

StateMode = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="MODE",
        help="Who keeps state safe: peers, checkpoint or both. By default peers, and the "
        "checkpoint, too, if one is given.",
    ),
]

DataFragments = Annotated[
    int,
    typer.Option(
        "--data-fragments",
        metavar="N",
        help="Fragments that a piece of state is cut into for peers.",
    ),
]

ParityFragments = Annotated[
    int,
    typer.Option(
        "--parity-fragments",
        metavar="N",
        help="More fragments, so that any N of all may be missing.",
    ),
]

BackupEvery = Annotated[
    int,
    typer.Option(
        "--backup-every",
        metavar="N",
        help="Batches that the driver holds changes of state for before peers get them; with "
        "1, every batch waits until they have them.",
    ),
]

Faults = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        metavar="FAULT",
        help="Let something go wrong, such as kill-executor@batch=7; may be given again.",
    ),
]

Job = Annotated[
    str,
    typer.Argument(
        metavar="APP|JOB.py",
        help="Application, as 'penstock apps' lists them, or a script with a pipeline of your "
        "own: JOB.py, or JOB.py:NAME.",
    ),
]

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A parameter of the application, the strategy or the engine, such as polish=0 or "
        "queue.size=5000; may be given again.",
    ),
]

Verbose = Annotated[
    bool,
    typer.Option("--verbose", help="Show the whole traceback of a run that fails, Spark's too."),
]


# ---- what it becomes, checked before Spark is started


@dataclass(frozen=True)
class Input:
    """What comes in: the application, and its rows over time; or a script of the user's own."""

    app: str
    rate: str
    seconds: float
    zipf: float
    seed: int
    parallelism: int | None

    @cached_property
    def part(self) -> Any:
        """The application's class; of a script, its pipeline or the function that makes it."""
        job = JobFile.of(self.app)
        return apps.get(self.app) if job is None else job.load()

    def takes(self) -> dict[str, Any]:
        """Say what has parameters that may be set."""
        return {} if isinstance(self.part, Pipeline) else {"app": self.part}

    def pipeline(self, values: Mapping[str, Any]) -> Pipeline | Callable[[Any], Pipeline]:
        """Make the pipeline, or say what is wrong with what was asked for.

        What a script makes when it has the session comes back as a function of that.
        """
        if JobFile.of(self.app) is None:
            return self._application(values)
        if wants_spark(self.part):
            return lambda spark: made(self.part, spark=spark, **values)
        return made(self.part, **values)

    def _application(self, values: Mapping[str, Any]) -> Pipeline:
        chosen: Application = apps.make(self.app, **values)
        if not self.seconds > 0:
            raise InvalidValue("seconds", "a run", "more than 0", self.seconds)
        if self.seed < 0:
            raise InvalidValue("seed", "a run", "a whole number of at least 0", self.seed)
        profile = Profile.parse(self.rate)
        rows = profile.position(self.seconds)
        source = chosen.source(profile, zipf=self.zipf, seed=self.seed, rows=rows)
        # What comes out is counted; keeping it would fill the memory of a long run.
        sinks: dict[str, Sink] = {name: Discard() for name in chosen.keys}
        return chosen.pipeline(source, sinks, parallelism=self.parallelism)


@dataclass(frozen=True)
class Nodes:
    """Where it runs: a master of Spark, or an embedded cluster."""

    master: str | None
    count: int
    processes: int = 1

    def check(self) -> None:
        """Refuse what cannot be reached or does not fit this machine."""
        check_master(self.master)
        if self.processes < 1 or (self.master is not None and self.processes > 1):
            allowed = "a whole number of at least 1" if self.master is None else "1"
            owner = "an embedded cluster" if self.master is None else "a run on a given --master"
            raise InvalidValue("processes", owner, allowed, self.processes)
        if self.master is None:
            check_nodes(self.count * self.processes)

    def __str__(self) -> str:
        each = f" with {self.processes} executors each" if self.processes > 1 else ""
        return self.master or f"an embedded cluster of {self.count} nodes{each}"


@dataclass(frozen=True)
class Control:
    """Who decides, and within which bounds."""

    strategy: str
    min_nodes: int
    max_nodes: int
    recommend_only: bool
    adapt: bool

    def settings(self, values: Mapping[str, Any]) -> Settings | None:
        """Return the settings of the loop, with what --set gave; None when the first plan stays."""
        settings = Settings(
            min_nodes=self.min_nodes,
            max_nodes=self.max_nodes,
            recommend_only=self.recommend_only,
            **values,
        )
        if values and not self.adapt:
            allowed = "left out with --no-adapt: nothing is decided"
            raise InvalidValue(f"loop.{next(iter(values))}", "a run", allowed, "--set")
        return settings if self.adapt else None


@dataclass(frozen=True)
class StateArguments:
    """How state is kept, and what is to go wrong with it."""

    checkpoint: str | None
    mode: str | None
    data: int
    parity: int
    backup_every: int
    faults: tuple[str, ...]

    def check(self, master: str | None) -> tuple[Fault, ...]:
        """Refuse what cannot work, and return the faults."""
        faults = tuple(Fault.parse(text) for text in self.faults)
        for one in faults:
            if one.kind in STANDALONE and not (master or "").startswith("spark://"):
                raise NotAllowed(
                    f"fault {one.kind} ends a process of a standalone cluster; name it with "
                    "--master spark://HOST:PORT"
                )
        if self.checkpoint is None and any(one.kind == "kill-driver" for one in faults):
            raise NotAllowed(
                "fault kill-driver needs --checkpoint: without one there is nothing to go on from"
            )
        StateConfig(
            self.mode or "peers", data=self.data, parity=self.parity, every=self.backup_every
        )
        check_checkpoint(self.checkpoint)
        return faults


@dataclass(frozen=True)
class Output:
    """What is left of it: metrics, a report, a line of JSON."""

    store: str | None
    report: Path
    as_json: bool

    def check(self) -> None:
        """Refuse what cannot be written."""
        check_file("--report", self.report)
        check_store(self.store)
