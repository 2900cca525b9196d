"""Random schedules of faults that state must survive: made from a seed, nothing is run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.faults.fault import Fault
from penstock.model import InvalidValue
from penstock.state.config import StateConfig

#: Batches of a run, and those before which nothing happens: first there must be state.
BATCHES, QUIET = 10, 2

#: Most instances that a stateful operator is scaled to.
MOST = 7


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
        Fragments of a run that may be missing.
    every : int
        Batches that the driver holds the changes of.
    """

    name: str
    app: str
    faults: tuple[Fault, ...] = ()
    state: str = "peers"
    parity: int = 1
    every: int = StateConfig.every

    def __str__(self) -> str:
        faults = " ".join(map(str, self.faults)) or "no faults"
        kept = f"state {self.state}, parity {self.parity}, every {self.every}"
        return f"{self.name}: {self.app}, {kept}, {faults}"


#: The faults that every application must end equal under, as one run each, after fragments that may
#: be missing and batches that the driver holds; its own death takes a process and is not here.
MATRIX: Mapping[str, tuple[int, int, tuple[str, ...]]] = {
    "undisturbed": (1, StateConfig.every, ()),
    "kill-executor": (1, StateConfig.every, ("kill-executor@batch=3",)),
    "kill-two": (2, 1, ("kill-executor@batch=3:count=2",)),
    "kill-in-move": (1, StateConfig.every, ("kill-executor@batch=3:during=move", "move@batch=3")),
    "kill-worker": (1, StateConfig.every, ("kill-worker@batch=3",)),
    "fragments": (
        2,
        1,
        (
            "corrupt-fragment@batch=4",
            "delete-fragment@batch=4:index=1",
            "kill-executor@batch=4",
        ),
    ),
    "scale": (1, StateConfig.every, ("scale@batch=3:to=7", "scale@batch=6:to=3")),
}


def matrix(apps: Sequence[str]) -> list[Schedule]:
    """Every fault of `MATRIX` for every application."""
    return [
        Schedule(name, app, tuple(map(Fault.parse, faults)), parity=parity, every=every)
        for app in apps
        for name, (parity, every, faults) in MATRIX.items()
    ]


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
    elif draw < 0.7 or not found:
        found.append(Fault("kill-worker", batch))
    return found
