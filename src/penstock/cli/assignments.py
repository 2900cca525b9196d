"""``--set name=value``: parameters of application, strategy and engine, checked before Spark."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.common.near_miss import near_miss
from penstock.control.settings import Settings
from penstock.model import InvalidValue
from penstock.runtimes.spark.options import Options, QueueOptions, RecoveryOptions, StateOptions

#: Whose parameters there are besides the application's and the strategy's.
ENGINE: Mapping[str, type] = {
    "queue": QueueOptions,
    "state": StateOptions,
    "recovery": RecoveryOptions,
    "loop": Settings,
}

#: Parameters of the engine that have no subject.
PLAIN = ("interval_s", "on_error")

#: Parameters that an option of the command sets.
BY_OPTION = frozenset(
    {("state", n) for n in ("mode", "data", "parity", "backup_every")}
    | {("loop", n) for n in ("min_nodes", "max_nodes", "recommend_only")}
)


@dataclass(frozen=True)
class Assignments:
    """What ``--set`` was given, by whose it is: ``app``, ``strategy``, ``engine``, and subjects.

    Examples
    --------
    >>> def pipeline(keys: int = 10): ...
    >>> made = Assignments.of(["keys=20", "queue.size=500"], {"app": pipeline})
    >>> made.values
    {'app': {'keys': 20}, 'queue': {'size': 500}}
    """

    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Iterable[str], parts: Mapping[str, Callable[..., Any]]) -> Assignments:
        """Read ``name=value`` and ``part.name=value``.

        Parameters
        ----------
        given : iterable of str
        parts : mapping of str to callable
            The application and the strategy: classes, or functions, whose keywords may be set.

        Raises
        ------
        InvalidValue
            For a name that nothing has, or several have, and for a value of the wrong kind.
        """
        known = {
            (part, name): default
            for part, made in parts.items()
            for name, default in _defaults(made).items()
        }
        known |= {("engine", name): _defaults(Options)[name] for name in PLAIN}
        for subject, made in ENGINE.items():
            for name, default in _defaults(made).items():
                if (subject, name) not in BY_OPTION:
                    known[subject, name] = default
        values: dict[str, dict[str, Any]] = {}
        for text in given:
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise InvalidValue("--set", "the command", "name=value", text)
            part, own = _found(name.strip(), known)
            values.setdefault(part, {})[own] = _read(value.strip(), known[part, own], name)
        return cls(values)

    def part(self, name: str) -> dict[str, Any]:
        """Return the parameters of one part."""
        return dict(self.values.get(name, {}))


def _found(name: str, known: Mapping[tuple[str, str], Any]) -> tuple[str, str]:
    """Find whose parameter is meant."""
    part, dot, own = name.partition(".")
    if dot and (part, own) in known:
        return part, own
    owners = [key for key in known if key[1] == name]
    if len(owners) == 1:
        return owners[0]
    spelt = sorted(".".join(key) for key in known)
    if owners:
        allowed = "one of " + ", ".join(sorted(".".join(key) for key in owners))
        raise InvalidValue("--set", "the command", allowed, name)
    hint = near_miss(name, [*{own for _, own in known}, *spelt])
    raise InvalidValue("--set", "the command", "one of " + ", ".join(spelt), name, hint)


def _defaults(made: Callable[..., Any]) -> dict[str, Any]:
    """Return the keywords that something takes, with their defaults."""
    if dataclasses.is_dataclass(made) and isinstance(made, type):
        return {f.name: f.default for f in dataclasses.fields(made) if f.init}
    parameters = inspect.signature(made).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name: p.default for p in parameters if p.kind in kinds and p.name != "spark"}


def _read(text: str, default: Any, name: str) -> Any:
    """Read a value as the kind that the default has; without one, as what it looks like."""
    if isinstance(default, bool):
        truths = {"true": True, "1": True, "false": False, "0": False}
        if text.lower() not in truths:
            raise InvalidValue(name, "--set", "true or false", text)
        return truths[text.lower()]
    if isinstance(default, str):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if isinstance(default, (int, float)):
        raise InvalidValue(name, "--set", "a number", text)
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
