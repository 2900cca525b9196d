"""Registries of parts: a new file in the package, or an entry point, is enough to join."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from penstock.common.errors import InvalidValue, NotAllowed
from penstock.common.keywords import known_keywords, refuse_unknown
from penstock.common.near_miss import near_miss

Part = TypeVar("Part", bound=type[Any])


class Registry(Generic[Part]):
    """Parts of one kind by name.

    Parameters
    ----------
    kind : str
        What the parts are, for messages.
    package : str
        Package whose modules are imported when the registry is first read.
    group : str
        Entry point group through which other distributions add parts. An entry point names a class
        with the same attributes as a registered one.
    """

    def __init__(self, kind: str, package: str, group: str) -> None:
        self.kind = kind
        self._package = package
        self._group = group
        self._parts: dict[str, Part] = {}
        self._loaded = False

    def register(self, part: Part) -> Part:
        """Add a part under its ``name``; usable as a decorator."""
        known = self._parts.get(part.name)
        if known is not None and known is not part:
            raise NotAllowed(
                f"the name {part.name!r} of {self.kind} {part.__qualname__} is in use by "
                f"{known.__qualname__}; choose another name"
            )
        self._parts[part.name] = part
        return part

    def names(self) -> tuple[str, ...]:
        """Names of all parts, sorted."""
        self._load()
        return tuple(sorted(self._parts))

    def get(self, name: str) -> Part:
        """Return the part of that name, or say which names there are."""
        self._load()
        if name not in self._parts:
            article = "an" if self.kind[0] in "aeiou" else "a"
            allowed = "one of " + ", ".join(self.names())
            hint = near_miss(name, self.names())
            raise InvalidValue("name", f"{article} {self.kind}", allowed, name, hint)
        return self._parts[name]

    def make(self, name: str, **parameters: Any) -> Any:
        """Make a part with its parameters."""
        part = self.get(name)
        refuse_unknown(f"{self.kind} {name!r}", parameters, known_keywords(part))
        return part(**parameters)

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__):
            if not module.ispkg:
                importlib.import_module(f"{self._package}.{module.name}")
        for entry in entry_points(group=self._group):
            self.register(entry.load())


def registry(kind: str, package: str, group: str) -> tuple[Registry[Any], Callable[[Part], Part]]:
    """Make a registry and its decorator."""
    made: Registry[Any] = Registry(kind, package, group)
    return made, made.register
