"""Misspelt keywords, answered with the one that was probably meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from penstock.common.errors import UnknownKeyword

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=type[Any])


def known_keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Keywords that a function takes, ``**`` not counted."""
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters
    return tuple(name for name, p in parameters.items() if p.kind in by_name and name != "self")


def refuse_unknown(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise for the first keyword that is not known.

    Examples
    --------
    >>> refuse_unknown("step 'count'", ["paralelism"], ["by", "parallelism"])
    Traceback (most recent call last):
    ...
    penstock.common.errors.UnknownKeyword: unknown keyword 'paralelism' of step 'count'; \
did you mean 'parallelism'?
    """
    names = tuple(known)
    for name in given:
        if name not in names:
            raise UnknownKeyword(name, owner, names)


def step_keywords(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method whose first argument is a step's name answer misspelt keywords."""
    known = known_keywords(method)

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        if any(name not in known for name in kwargs):
            owner = f"step {args[1]!r}" if len(args) > 1 else f"{method.__name__}()"
            refuse_unknown(owner, kwargs, known)
        return method(*args, **kwargs)

    return called


def function_keywords(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function answer misspelt keywords."""
    known = known_keywords(function)

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_unknown(f"{function.__name__}()", kwargs, known)
        return function(*args, **kwargs)

    return called


def class_keywords(part: T) -> T:
    """Let a class answer misspelt keywords of its constructor."""
    made: Callable[..., None] = part.__init__
    known = known_keywords(made)

    @functools.wraps(made)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        refuse_unknown(part.__name__, kwargs, known)
        made(self, *args, **kwargs)

    part.__init__ = checked
    return part
