"""Faults as values: what goes wrong, when and by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from penstock.faults.grammar import Grammar, whole
from penstock.model import InvalidValue


class SimulatedFaultKind(str, Enum):
    """What can happen to a node."""

    KILL_NODE = "kill-node"
    SLOW_NODE = "slow-node"
    HEAL_NODE = "heal-node"
    ADD_NODE = "add-node"


#: With the settings that each kind takes besides the time.
GRAMMAR = Grammar(
    "a simulation",
    "t",
    "SECONDS",
    {
        SimulatedFaultKind.KILL_NODE.value: ("node",),
        SimulatedFaultKind.SLOW_NODE.value: ("node", "factor"),
        SimulatedFaultKind.HEAL_NODE.value: ("node",),
        SimulatedFaultKind.ADD_NODE.value: ("count",),
    },
)


@dataclass(frozen=True)
class SimulatedFault:
    """One event of a script.

    Parameters
    ----------
    kind : SimulatedFaultKind
    at_s : float
        Virtual time, in seconds.
    node : str or None
        Name of the node; None: the busiest one then in use.
    factor : float
        Speed that a slow node has left, as a part of its own.
    count : int
        Nodes that are added.
    """

    kind: SimulatedFaultKind
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
        given = {} if self.node is None else {"node": self.node}
        if self.kind is SimulatedFaultKind.SLOW_NODE:
            given["factor"] = f"{self.factor:g}"
        if self.kind is SimulatedFaultKind.ADD_NODE:
            given["count"] = str(self.count)
        return GRAMMAR.write(self.kind.value, f"{self.at_s:g}", given)


def parse_fault(text: str) -> SimulatedFault:
    """Read a fault as it stands on the command line.

    Examples
    --------
    >>> parse_fault("slow-node@t=60:factor=0.25")
    SimulatedFault(kind=<SimulatedFaultKind.SLOW_NODE: 'slow-node'>, at_s=60.0, node=None, \
factor=0.25, count=1)
    >>> str(parse_fault("kill-node@t=60:node=node-3"))
    'kill-node@t=60:node=node-3'
    >>> parse_fault("kill-nod@t=60")
    Traceback (most recent call last):
    ...
    penstock.common.errors.InvalidValue: parameter kind of a fault of a simulation must be one of \
kill-node, slow-node, heal-node, add-node, got 'kill-nod'; did you mean 'kill-node'?
    """
    kind, moment, given = GRAMMAR.read(text)
    return SimulatedFault(
        SimulatedFaultKind(kind),
        _number(moment, "t", kind),
        given.get("node"),
        _number(given.get("factor", "0.5"), "factor", kind),
        whole(given.get("count", "1"), "count", kind, 1),
    )


def _number(text: str, name: str, kind: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidValue(name, f"fault {kind}", "a number", text) from None
