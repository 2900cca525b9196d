"""Faults as values: what goes wrong, when; scripted by tests and by ``penstock run --fault``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.faults.grammar import Grammar, whole
from penstock.model import InvalidValue

_PIECE = {"index": "0"}

#: Every executor, as `count` of a fault says it.
ALL = "all"

#: Kinds that need the processes of a standalone cluster.
STANDALONE = frozenset({"kill-node", "kill-master"})

#: What each kind does, and the options that it knows with their defaults.
KINDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "kill-executor": (
        "kill -9 the processes of so many executors, or of all, in the middle of the batch, of a "
        "move, or while backup nodes are given state",
        {"count": "1", "during": "batch", "of": "state"},
    ),
    "kill-worker": ("kill -9 a Python worker in the middle of the batch", {}),
    "kill-driver": ("kill -9 the driver itself in the middle of the batch", {}),
    "kill-node": (
        "kill -9 the Worker process of a standalone cluster, with which its executors end",
        {},
    ),
    "kill-master": ("kill -9 the Master process of a standalone cluster", {}),
    "pause-executor": (
        "stop the processes of so many executors in the middle of the batch, and let them go on "
        "some seconds later",
        {"count": "1", "seconds": "5"},
    ),
    "pause-worker": (
        "stop a Python worker in the middle of the batch, and let it go on some seconds later",
        {"seconds": "5"},
    ),
    "pause-driver": (
        "stop the driver in the middle of the batch, until somebody else lets it go on",
        {},
    ),
    "disk-full": (
        "let every write to a file fail, in the Python processes of all executors or of the "
        "driver, from the batch to the end of the run",
        {"where": "executors"},
    ),
    "read-only": (
        "make the checkpoint read-only in the middle of the batch, to the end of the run",
        {},
    ),
    "clock-back": (
        "set the clock that the driver sees back before the batch, to the end of the run",
        {"seconds": "3600"},
    ),
    "corrupt-fragment": ("change a byte of one fragment of every segment before the batch", _PIECE),
    "delete-fragment": ("remove one fragment of every segment before the batch", _PIECE),
    "move": ("move every instance to the next node before the batch", {}),
    "scale": ("change the instances of an operator before the batch", {"to": "", "operator": ""}),
    "split": ("split the hottest keys that were measured before the batch", {"keys": "2"}),
}

GRAMMAR = Grammar("a run", "batch", "N", {kind: tuple(known) for kind, (_, known) in KINDS.items()})

#: Options with few values.
CHOICES = {
    "of": ("state", "idle"),
    "during": ("batch", "move", "backup"),
    "where": ("executors", "driver"),
}

#: Options that are whole numbers, and the least that each may be.
WHOLE = {"count": 1, "to": 1, "index": 0, "seconds": 1, "keys": 1}


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong once.

    Examples
    --------
    >>> fault = Fault.parse("kill-executor@batch=7:count=2")
    >>> fault.kind, fault.batch, fault.options["count"], str(fault)
    ('kill-executor', 7, '2', 'kill-executor@batch=7:count=2')

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    batch : int
        Number of the batch that it happens in, or before.
    options : mapping of str to str
    """

    kind: str
    batch: int
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        GRAMMAR.check(self.kind, self.options)
        if self.batch < 0:
            raise InvalidValue("batch", f"fault {self.kind}", "at least 0", self.batch)
        options = {**KINDS[self.kind][1], **self.options}
        for name, least in WHOLE.items():
            if name in options and not (name == "count" and options[name] == ALL):
                whole(options[name], name, self.kind, least)
        for name, allowed in CHOICES.items():
            if options.get(name, allowed[0]) not in allowed:
                raise InvalidValue(name, f"fault {self.kind}", " or ".join(allowed), options[name])
        object.__setattr__(self, "options", options)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read ``KIND@batch=N`` or ``KIND@batch=N:option=value,option=value``."""
        told = GRAMMAR.read(text)
        return cls(told.kind, whole(told.moment, "batch", told.kind), told.settings)

    def count(self, there: int) -> int:
        """Return how many of those that are there it happens to.

        Examples
        --------
        >>> Fault.parse("kill-executor@batch=7:count=all").count(there=4)
        4
        """
        wanted = self.options["count"]
        return there if wanted == ALL else min(int(wanted), there)

    def __str__(self) -> str:
        known = KINDS[self.kind][1]
        given = {name: value for name, value in self.options.items() if value != known[name]}
        return GRAMMAR.write(self.kind, self.batch, given)
