"""Faults as values: what goes wrong, when and by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from penstock.files.document import near_miss
from penstock.model import InvalidValue

FORM = "KIND@t=SECONDS[:name=value,...]"


class FaultKind(str, Enum):
    """What can happen to a node."""

    KILL_NODE = "kill-node"
    SLOW_NODE = "slow-node"
    HEAL_NODE = "heal-node"
    ADD_NODE = "add-node"


#: Settings that each kind takes besides the time.
SETTINGS = {
    FaultKind.KILL_NODE: ("node",),
    FaultKind.SLOW_NODE: ("node", "factor"),
    FaultKind.HEAL_NODE: ("node",),
    FaultKind.ADD_NODE: ("count",),
}


@dataclass(frozen=True)
class Fault:
    """One event of a script.

    Parameters
    ----------
    kind : FaultKind
    at_s : float
        Virtual time, in seconds.
    node : str or None
        Name of the node; None: the busiest one then in use.
    factor : float
        Speed that a slow node has left, as a part of its own.
    count : int
        Nodes that are added.
    """

    kind: FaultKind
    at_s: float
    node: str | None = None
    factor: float = 0.5
    count: int = 1

    def __post_init__(self) -> None:
        owner = f"fault {self.kind.value}"
        if not (math.isfinite(self.at_s) and self.at_s >= 0):
            raise InvalidValue("t", owner, "a number of seconds of at least 0", self.at_s)
        if not 0 < self.factor <= 1:
            raise InvalidValue("factor", owner, "above 0 and at most 1", self.factor)
        if self.count < 1:
            raise InvalidValue("count", owner, "at least 1", self.count)

    def __str__(self) -> str:
        text = f"{self.kind.value}@t={self.at_s:g}"
        extra = []
        if self.node is not None:
            extra.append(f"node={self.node}")
        if self.kind is FaultKind.SLOW_NODE:
            extra.append(f"factor={self.factor:g}")
        if self.kind is FaultKind.ADD_NODE:
            extra.append(f"count={self.count}")
        return text + (":" + ",".join(extra) if extra else "")


def parse_fault(text: str) -> Fault:
    """Read a fault as it stands on the command line.

    Examples
    --------
    >>> parse_fault("slow-node@t=60:factor=0.25")
    Fault(kind=<FaultKind.SLOW_NODE: 'slow-node'>, at_s=60.0, node=None, factor=0.25, count=1)
    >>> str(parse_fault("kill-node@t=60:node=node-3"))
    'kill-node@t=60:node=node-3'
    >>> parse_fault("kill-nod@t=60")
    Traceback (most recent call last):
    ...
    penstock.model.errors.InvalidValue: parameter fault of a simulation must be \
KIND@t=SECONDS[:name=value,...] with KIND one of kill-node, slow-node, heal-node, add-node; did \
you mean 'kill-node'?, got 'kill-nod@t=60'
    """
    word, at, rest = text.strip().partition("@")
    kinds = {kind.value: kind for kind in FaultKind}
    if not at or word not in kinds:
        hint = near_miss(word, kinds) if word not in kinds else ""
        allowed = f"{FORM} with KIND one of {', '.join(kinds)}{hint}"
        raise InvalidValue("fault", "a simulation", allowed, text)
    kind = kinds[word]
    moment, _, settings = rest.partition(":")
    name, _, seconds = moment.partition("=")
    if name.strip() != "t":
        raise InvalidValue("fault", "a simulation", FORM, text)
    given: dict[str, str] = {}
    for part in settings.split(",") if settings else []:
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or key not in SETTINGS[kind]:
            allowed = "name=value with a name from " + ", ".join(SETTINGS[kind])
            raise InvalidValue("setting", f"fault {word}", allowed, part)
        given[key] = value.strip()
    return Fault(
        kind,
        _number(seconds, "t", word),
        given.get("node"),
        _number(given.get("factor", "0.5"), "factor", word),
        _whole(given.get("count", "1"), "count", word),
    )


def _number(text: str, name: str, word: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidValue(name, f"fault {word}", "a number", text) from None


def _whole(text: str, name: str, word: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidValue(name, f"fault {word}", "a whole number", text) from None
