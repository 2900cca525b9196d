"""How faults are written: one grammar, for the kinds that each engine knows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.common.near_miss import near_miss
from penstock.model import InvalidValue


class ParsedFault(NamedTuple):
    """A text taken apart: what happens, when, and its settings by name."""

    kind: str
    moment: str
    settings: dict[str, str]


@dataclass(frozen=True)
class Grammar:
    """Reads and writes ``KIND@batch=N`` or ``KIND@batch=N:name=value,name=value``.

    Examples
    --------
    >>> grammar = Grammar("a run", "batch", "N", {"move": (), "scale": ("to",)})
    >>> told = grammar.read("scale@batch=5:to=7")
    >>> told.kind, told.moment, told.settings, grammar.write(*told)
    ('scale', '5', {'to': '7'}, 'scale@batch=5:to=7')
    >>> grammar.read("scale@batch=5:too=7")
    Traceback (most recent call last):
    ...
    penstock.common.errors.InvalidValue: parameter setting of fault scale must be one of to, got \
'too'; did you mean 'to'?

    Parameters
    ----------
    owner : str
        What the faults happen to, as errors name it.
    when, unit : str
        How the moment is named and counted.
    settings : mapping of str to collection of str
        Names of the settings that each kind takes.
    """

    owner: str
    when: str
    unit: str
    settings: Mapping[str, Collection[str]]

    def read(self, text: str) -> ParsedFault:
        """Take a text apart; its kind and its names are checked then, its values are not."""
        kind, _, rest = text.strip().partition("@")
        first, _, more = rest.partition(":")
        parts = [part.partition("=") for part in (first, *(more.split(",") if more else ()))]
        if parts[0][0].strip() != self.when or not all(equals for _, equals, _ in parts):
            form = f"KIND@{self.when}={self.unit}[:name=value,...]"
            allowed = f"{form} with KIND one of {', '.join(self.settings)}"
            raise InvalidValue("fault", self.owner, allowed, text)
        moment, *values = [value.strip() for _, _, value in parts]
        names = [name.strip() for name, _, _ in parts[1:]]
        self.check(kind, names)
        return ParsedFault(kind, moment, dict(zip(names, values, strict=True)))

    def check(self, kind: str, settings: Iterable[str]) -> None:
        """Raise unless there is such a kind, and it takes settings of these names."""
        if kind not in self.settings:
            raise InvalidValue(
                "kind",
                f"a fault of {self.owner}",
                "one of " + ", ".join(self.settings),
                kind,
                near_miss(kind, self.settings),
            )
        known = self.settings[kind]
        for name in settings:
            if name not in known:
                some = "one of " + ", ".join(known) if known else "left out"
                raise InvalidValue("setting", f"fault {kind}", some, name, near_miss(name, known))

    def write(self, kind: str, moment: object, settings: Mapping[str, str]) -> str:
        """Put a text together, such as `read` takes apart."""
        given = ",".join(f"{name}={value}" for name, value in settings.items())
        return f"{kind}@{self.when}={moment}" + (f":{given}" if given else "")


def whole(text: str, name: str, kind: str, least: int = 0) -> int:
    """Read a whole number of a fault."""
    if not text.isdecimal() or int(text) < least:
        allowed = f"a whole number of at least {least}"
        raise InvalidValue(name, f"fault {kind}", allowed, text)
    return int(text)
