"""The errors that a user can meet, and the one sentence they are told in."""

from __future__ import annotations


class PenstockError(Exception):
    """Root of every error that Penstock raises on purpose."""


class InvalidValue(PenstockError, ValueError):
    """A value outside what is allowed, told by the one template of the project.

    Examples
    --------
    >>> raise InvalidValue("parallelism", "operator 'split'", "a whole number of at least 1", 0)
    Traceback (most recent call last):
    ...
    penstock.common.errors.InvalidValue: parameter parallelism of operator 'split' must be \
a whole number of at least 1, got 0
    """

    def __init__(self, parameter: str, owner: str, allowed: str, got: object) -> None:
        super().__init__(f"parameter {parameter} of {owner} must be {allowed}, got {got!r}")
        self.parameter = parameter
        self.owner = owner
        self.allowed = allowed
        self.got = got

    def __reduce__(self) -> tuple[type[InvalidValue], tuple[str, str, str, object]]:
        return (InvalidValue, (self.parameter, self.owner, self.allowed, self.got))


class Refused(PenstockError):
    """A strategy that cannot plan this request says so, and what to ask instead."""
