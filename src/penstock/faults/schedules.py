"""Schedules of faults that a run must survive, fixed and random; nothing is run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from penstock.common.near_miss import near_miss
from penstock.faults.fault import STANDALONE, Fault
from penstock.model import InvalidValue, NotAllowed
from penstock.state.config import StateConfig

#: Batches of a run, and those before which nothing happens: first there must be state.
BATCHES, QUIET = 10, 2

#: Most instances that a stateful operator is scaled to.
MOST = 7

#: Sources of a run, and what the queue does under ten times the load that a run can take.
SOURCES, LOADS = ("generator", "dataframe"), ("", "wait", "drop")

#: How the first driver ends under some faults; another one then goes on from its checkpoint.
ENDS: Mapping[str, str] = {
    "kill-driver": "killed",
    "pause-driver": "fenced",
    "disk-full": "failed",
    "read-only": "failed",
}


@dataclass(frozen=True)
class Schedule:
    """One run with faults.

    Parameters
    ----------
    name : str
        What tells it from others in a report.
    app : str
    faults : tuple of Fault
    state : str
        How state is kept.
    parity : int
        Fragments of a segment that may be missing.
    every : int
        Batches that the driver holds the changes of.
    source : str
        ``generator``, or ``dataframe``: Spark's own query reads files.
    load : str
        Ten times as many rows come as the run can take, and the queue lets the source ``wait`` or
        has rows ``drop``; empty: all rows are there from the start, and the source waits.
    """

    name: str
    app: str
    faults: tuple[Fault, ...] = ()
    state: str = "peers"
    parity: int = 1
    every: int = StateConfig.every
    source: str = "generator"
    load: str = ""

    def __post_init__(self) -> None:
        for what, allowed in (("source", SOURCES), ("load", LOADS)):
            if getattr(self, what) not in allowed:
                words = "one of " + ", ".join(one or "none" for one in allowed)
                raise InvalidValue(what, "a schedule", words, getattr(self, what))

    def __str__(self) -> str:
        faults = " ".join(map(str, self.faults)) or "no faults"
        kept = f"state {self.state}, parity {self.parity}, every {self.every}"
        source = "" if self.source == "generator" else f", source {self.source}"
        load = f", ten times the load with {self.load}" if self.load else ""
        return f"{self.name}: {self.app}, {kept}{source}{load}, {faults}"

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of its faults."""
        return frozenset(fault.kind for fault in self.faults)

    @property
    def first_driver(self) -> str:
        """How its first driver must end: killed, fenced or failed; empty if it must not."""
        ends = sorted({ENDS[kind] for kind in self.kinds if kind in ENDS})
        return ends[0] if ends else ""

    @property
    def standalone(self) -> bool:
        """Whether it takes a master and workers that are processes of their own."""
        return bool(self.kinds & STANDALONE)

    def undisturbed(self) -> Schedule:
        """Return the same without faults."""
        return replace(self, faults=())

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "faults": [str(fault) for fault in self.faults]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Schedule:
        """Make one of what `to_dict` returned."""
        return cls(**{**values, "faults": tuple(map(Fault.parse, values["faults"]))})


@dataclass(frozen=True)
class Row:
    """A row of the matrix: a schedule without an application.

    Parameters
    ----------
    faults : tuple of str
    app : str
        The one application that it is for; empty is any.
    settings : mapping of str to object
        Of the schedule.
    """

    faults: tuple[str, ...] = ()
    app: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def schedule(self, name: str, app: str) -> Schedule:
        """Make the schedule for an application."""
        return Schedule(name, app, tuple(map(Fault.parse, self.faults)), **self.settings)


_BOTH = {"state": "both"}

#: The faults that every application must end equal under, as one run each.
EVERY: Mapping[str, Row] = {
    "undisturbed": Row(),
    "kill-executor": Row(("kill-executor@batch=3",)),
    "kill-two": Row(("kill-executor@batch=3:count=2",), settings={"parity": 2, "every": 1}),
    "kill-in-move": Row(("kill-executor@batch=3:during=move", "move@batch=3")),
    "kill-worker": Row(("kill-worker@batch=3",)),
    "fragments": Row(
        (
            "corrupt-fragment@batch=4",
            "delete-fragment@batch=4:index=1",
            "kill-executor@batch=4",
        ),
        settings={"parity": 2, "every": 1},
    ),
    "scale": Row(("scale@batch=3:to=7", "scale@batch=6:to=3")),
    "kill-driver": Row(("kill-driver@batch=5",), settings=_BOTH),
}

#: The faults that take long or a cluster of their own: one application each, in turn.
ONCE: Mapping[str, Row] = {
    "kill-all": Row(("kill-executor@batch=3:count=all",), settings=_BOTH),
    "kill-in-backup": Row(("kill-executor@batch=2:during=backup",), settings={"every": 2}),
    "kill-while-split": Row(
        ("split@batch=4", "kill-executor@batch=4", "kill-worker@batch=5", "kill-executor@batch=6"),
        app="commcount",
        settings={"every": 1},
    ),
    "pause-executor": Row(("pause-executor@batch=3:seconds=5",), settings=_BOTH),
    "pause-executor-long": Row(("pause-executor@batch=3:seconds=60",), settings=_BOTH),
    "pause-worker": Row(("pause-worker@batch=3:seconds=5",)),
    "pause-worker-long": Row(("pause-worker@batch=3:seconds=60",)),
    "pause-driver": Row(("pause-driver@batch=5",), settings=_BOTH),
    "kill-driver-dataframe": Row(
        ("kill-driver@batch=5",), app="wordcount", settings={**_BOTH, "source": "dataframe"}
    ),
    "kill-node": Row(("kill-node@batch=3",), settings={"every": 1}),
    "kill-master": Row(("kill-master@batch=3", "kill-executor@batch=5"), settings={"every": 1}),
    "disk-full-executors": Row(("disk-full@batch=5",), settings=_BOTH),
    "disk-full-driver": Row(("disk-full@batch=5:where=driver",), settings=_BOTH),
    "read-only": Row(("read-only@batch=5",), settings=_BOTH),
    "clock-back": Row(("clock-back@batch=3", "kill-executor@batch=5")),
    "load-wait": Row(settings={"load": "wait"}),
    "load-drop": Row(settings={"load": "drop"}),
}


def matrix(apps: Sequence[str], only: str = "") -> list[Schedule]:
    """Every fault of `EVERY` for every application, and those of `ONCE` for one each.

    Examples
    --------
    >>> [(one.name, one.app) for one in matrix(["wordcount", "topn"], only="scale")]
    [('scale', 'wordcount'), ('scale', 'topn')]

    Parameters
    ----------
    apps : sequence of str
    only : str
        The name of one row; all by default.
    """
    names = (*EVERY, *ONCE)
    if only and only not in names:
        hint = near_miss(only, names)
        raise InvalidValue("kind", "chaos", "one of " + ", ".join(names), only, hint)
    made = [row.schedule(name, app) for app in apps for name, row in EVERY.items()]
    for number, (name, row) in enumerate(ONCE.items()):
        if not row.app or row.app in apps:
            made.append(row.schedule(name, row.app or apps[number % len(apps)]))
    chosen = [one for one in made if only in ("", one.name)]
    if not chosen:
        raise NotAllowed(f"{only} is a fault of application {ONCE[only].app} alone; name that one")
    return chosen


def schedules(seed: int, count: int, apps: Sequence[str], nodes: int = 4) -> list[Schedule]:
    """Make schedules that the state must survive; the n-th does not depend on how many there are.

    Examples
    --------
    >>> print(schedules(7, 1, ["wordcount"])[0])  # doctest: +ELLIPSIS
    seed 7/0: wordcount, state ...
    >>> schedules(7, 3, ["wordcount"])[:2] == schedules(7, 2, ["wordcount"])
    True

    Parameters
    ----------
    seed : int
    count : int
    apps : sequence of str
        Applications, taken in turn.
    nodes : int
        Nodes of the cluster, at least 3.
    """
    if nodes < 3:
        raise InvalidValue(
            "nodes", "chaos", "at least 3: one that owns state and two that back it up", nodes
        )
    return [_schedule(seed, number, apps[number % len(apps)], nodes) for number in range(count)]


def _schedule(seed: int, number: int, app: str, nodes: int) -> Schedule:
    rng = np.random.default_rng([seed, number])
    # More than one backup node less than there are makes a code of copies, which is a code, too.
    parity = int(rng.integers(1, min(2, nodes - 2) + 1))
    spoilt: set[int] = set()
    faults: list[Fault] = []
    for batch in range(QUIET, BATCHES - 1):
        if rng.random() < 0.35:
            continue
        faults += _strike(rng, batch, parity, spoilt, min(2, nodes - 2))
    state = "both" if rng.random() < 0.25 else "peers"
    every = int(rng.choice([1, 2, StateConfig.every]))
    return Schedule(f"seed {seed}/{number}", app, tuple(faults), state, parity, every)


def _strike(
    rng: np.random.Generator, batch: int, parity: int, spoilt: set[int], most: int
) -> list[Fault]:
    """Choose what happens to one batch, so that no more is lost at once than may be.

    Fragments that were spoilt stay so until they are coded anew, and an instance that has just
    moved may lie next to one of its fragments: each counts as one loss that is gone already.
    """
    found: list[Fault] = []
    kind = str(rng.choice(["move", "scale", "still"], p=[0.25, 0.25, 0.5]))
    if kind == "move":
        found.append(Fault("move", batch))
    elif kind == "scale":
        found.append(Fault("scale", batch, {"to": str(int(rng.integers(1, MOST + 1)))}))
    moved = int(kind != "still")
    if len(spoilt) < parity and rng.random() < 0.3:
        index = len(spoilt)
        spoilt.add(index)
        what = str(rng.choice(["corrupt-fragment", "delete-fragment"]))
        found.append(Fault(what, batch, {"index": str(index)}))
    bearable = parity + 1 - len(spoilt) - moved
    draw = rng.random()
    if draw < 0.5 and bearable >= 1:
        options = {"count": str(int(rng.integers(1, min(bearable, most) + 1)))}
        if kind == "move" and rng.random() < 0.5:
            options["during"] = "move"
        found.append(Fault("kill-executor", batch, options))
    elif draw < 0.65 or not found:
        found.append(Fault("kill-worker", batch))
    elif draw < 0.75:
        seconds = {"seconds": str(int(rng.integers(1, 6)))}
        found.append(Fault(str(rng.choice(["pause-executor", "pause-worker"])), batch, seconds))
    elif draw < 0.8:
        found.append(Fault("clock-back", batch))
    return found
