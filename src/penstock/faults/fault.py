"""Faults as values: what goes wrong, when; scripted by tests and by ``penstock run --fault``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.faults.grammar import Grammar, whole
from penstock.model import InvalidValue

_PIECE = {"index": "0"}

#: What each kind does, and the options that it knows with their defaults.
KINDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "kill-executor": (
        "kill -9 the processes of so many executors, in the middle of the batch or of a move",
        {"count": "1", "during": "batch", "of": "state"},
    ),
    "kill-worker": ("kill -9 a Python worker in the middle of the batch", {}),
    "kill-driver": ("kill -9 the driver itself in the middle of the batch", {}),
    "corrupt-fragment": ("change a byte of one fragment of every run before the batch", _PIECE),
    "delete-fragment": ("remove one fragment of every run before the batch", _PIECE),
    "move": ("move every instance to the next node before the batch", {}),
    "scale": ("change the instances of an operator before the batch", {"to": "", "operator": ""}),
}

GRAMMAR = Grammar("a run", "batch", "N", {kind: tuple(known) for kind, (_, known) in KINDS.items()})

#: Options with few values.
CHOICES = {"of": ("state", "idle"), "during": ("batch", "move")}


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
        for name, least in (("count", 1), ("to", 1), ("index", 0)):
            if name in options:
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

    def __str__(self) -> str:
        known = KINDS[self.kind][1]
        given = {name: value for name, value in self.options.items() if value != known[name]}
        return GRAMMAR.write(self.kind, self.batch, given)
