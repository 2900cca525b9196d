"""Faults as values: what goes wrong, when; scripted by tests and by ``penstock run --fault``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
        if self.kind not in KINDS:
            raise InvalidValue("kind", "a fault", "one of " + ", ".join(KINDS), self.kind)
        known = KINDS[self.kind][1]
        for name in self.options:
            if name not in known:
                allowed = "one of " + ", ".join(known) if known else "left out"
                raise InvalidValue("option", f"fault {self.kind}", allowed, name)
        if self.batch < 0:
            raise InvalidValue("batch", f"fault {self.kind}", "at least 0", self.batch)
        options = {**known, **self.options}
        for name in ("count", "to"):
            if name in options and not (options[name].isdigit() and int(options[name]) >= 1):
                allowed = "a whole number of at least 1"
                raise InvalidValue(name, f"fault {self.kind}", allowed, options[name])
        if not options.get("index", "0").isdigit():
            allowed = "the number of a fragment, from 0"
            raise InvalidValue("index", f"fault {self.kind}", allowed, options["index"])
        if options.get("of", "state") not in ("state", "idle"):
            raise InvalidValue("of", f"fault {self.kind}", "state or idle", options["of"])
        if options.get("during", "batch") not in ("batch", "move"):
            raise InvalidValue("during", f"fault {self.kind}", "batch or move", options["during"])
        object.__setattr__(self, "options", options)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Read ``KIND@batch=N`` or ``KIND@batch=N:option=value,option=value``."""
        kind, _, rest = text.partition("@")
        when, _, more = rest.partition(":")
        name, _, number = when.partition("=")
        if name != "batch" or not number.isdigit():
            raise InvalidValue(
                "fault", "a run", "like kill-executor@batch=7 or scale@batch=5:to=7", text
            )
        pairs = [pair.partition("=") for pair in more.split(",") if pair]
        return cls(kind, int(number), {key: value for key, _, value in pairs})

    def __str__(self) -> str:
        known = KINDS[self.kind][1]
        given = [f"{k}={v}" for k, v in self.options.items() if v != known[k]]
        return f"{self.kind}@batch={self.batch}" + (":" + ",".join(given) if given else "")
