"""The steps of a pipeline in the order of writing, and how one is added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.model import Grouping, InvalidValue, NotAllowed
from penstock.pipeline.checks import check_name, check_step
from penstock.pipeline.steps import ChooseFunction, Link, Step

if TYPE_CHECKING:
    from typing_extensions import Self

Upstream = str | Link | Sequence["str | Link"]


@dataclass(frozen=True, eq=False)
class StepList:
    """A name, and steps that fit each other."""

    name: str
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        check_name("pipeline", self.name)

    def __getitem__(self, name: str) -> Step:
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(name)

    def _with(self, step: Step) -> Self:
        check_step(self.name, self.steps, step)
        return replace(self, steps=(*self.steps, step))

    def _links(
        self,
        name: str,
        after: Upstream | None,
        grouping: Grouping | str,
        by: str | Sequence[str],
        choose: ChooseFunction | None,
    ) -> tuple[Link, ...]:
        if not self.steps:
            raise NotAllowed(
                f"step {name!r} has nothing to read from; begin pipeline {self.name!r} with a "
                "source"
            )
        if after is None:
            after = self.steps[-1].name
        given = [after] if isinstance(after, (str, Link)) else list(after)
        if not given:
            raise InvalidValue("after", f"step {name!r}", "at least one step", after)
        return tuple(a if isinstance(a, Link) else Link(a, grouping, by, choose) for a in given)
