"""How a contract check fails."""

from __future__ import annotations


class ContractBroken(AssertionError):
    """A part does not keep what its contract promises."""


def require(condition: object, problem: str) -> None:
    """Raise `ContractBroken` with `problem` unless `condition` holds."""
    if not condition:
        raise ContractBroken(problem)


def require_described(part: object) -> None:
    """Raise `ContractBroken` unless a part has a name, a summary and an origin."""
    for attribute in ("name", "summary", "origin"):
        value = getattr(part, attribute)
        require(isinstance(value, str) and value.strip(), f"{attribute} must say something")
