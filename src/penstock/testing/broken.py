"""How a contract check fails."""

from __future__ import annotations


class ContractBroken(AssertionError):
    """A part does not keep what its contract promises."""


def require(condition: object, problem: str) -> None:
    """Raise `ContractBroken` with `problem` unless `condition` holds."""
    if not condition:
        raise ContractBroken(problem)
