"""The errors that a user can meet, and the one sentence they are told in."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.common.near_miss import near_miss


class PenstockError(Exception):
    """Root of every error that Penstock raises on purpose."""


class NotAllowed(PenstockError, ValueError):
    """Something that cannot be done, told in a sentence: what, what is allowed, what to do."""


class InvalidValue(NotAllowed):
    """A value outside what is allowed, told by the one template of the project.

    `allowed` goes on after "must be", and a `hint` of `near_miss` may follow. What does not fit the
    template is a `NotAllowed` with a sentence of its own.

    Examples
    --------
    >>> raise InvalidValue("parallelism", "operator 'split'", "a whole number of at least 1", 0)
    Traceback (most recent call last):
    ...
    penstock.common.errors.InvalidValue: parameter parallelism of operator 'split' must be \
a whole number of at least 1, got 0
    """

    def __init__(
        self, parameter: str, owner: str, allowed: str, got: object, hint: str = ""
    ) -> None:
        super().__init__(f"parameter {parameter} of {owner} must be {allowed}, got {got!r}{hint}")
        self.parameter = parameter
        self.owner = owner
        self.allowed = allowed
        self.got = got
        self.hint = hint

    def __reduce__(self) -> tuple[type[InvalidValue], tuple[str, str, str, object, str]]:
        return (InvalidValue, (self.parameter, self.owner, self.allowed, self.got, self.hint))


class UnknownKeyword(PenstockError, TypeError):
    """A keyword that nobody knows, with the one that was probably meant.

    Examples
    --------
    >>> print(UnknownKeyword("colour", "step 'count'", ["by", "parallelism"]))
    unknown keyword 'colour' of step 'count'; the keywords are by, parallelism
    """

    def __init__(self, keyword: str, owner: str, known: Iterable[str]) -> None:
        names = tuple(known)
        hint = near_miss(keyword, names) or f"; the keywords are {', '.join(names)}"
        super().__init__(f"unknown keyword {keyword!r} of {owner}{hint}")
        self.keyword = keyword
        self.owner = owner
        self.known = names

    def __reduce__(self) -> tuple[type[UnknownKeyword], tuple[str, str, tuple[str, ...]]]:
        return (UnknownKeyword, (self.keyword, self.owner, self.known))


class Refused(PenstockError):
    """A strategy that cannot plan this request says so, and what to ask instead."""
