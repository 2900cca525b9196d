"""Triggers: whether the running plan is to be replaced, with the figures that decided.

A trigger is a frozen dataclass with `check`; one a file, registered with ``@register``. It is pure:
how long something has lasted is read from `Request.now_s` and the measured window, never from a
clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from penstock.common.registry import registry
from penstock.model import InvalidValue, Plan, Reason
from penstock.strategies.api import Request


@dataclass(frozen=True)
class Verdict:
    """Whether to plan anew, and why or why not."""

    fires: bool
    reasons: tuple[Reason, ...]

    def __post_init__(self) -> None:
        if not self.reasons:
            raise InvalidValue("reasons", "a verdict", "at least one reason", ())


@runtime_checkable
class Trigger(Protocol):
    """Something that says when to plan anew."""

    name: ClassVar[str]
    summary: ClassVar[str]
    origin: ClassVar[str]

    def check(self, request: Request, proposal: Plan | None = None) -> Verdict:
        """Look at the measurements and the running plan.

        Parameters
        ----------
        request : Request
            With a running plan; without one every trigger fires.
        proposal : Plan or None
            The plan that would replace it, for triggers that compare the two. A trigger that needs
            none ignores it; one that needs it and gets None fires, so that one is made.
        """
        ...


triggers, register = registry("trigger", "penstock.strategies.trigger", "penstock.triggers")
