"""What a keyed step is made of: its reduction or function, its windows, its split keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.model import Grouping, InvalidValue
from penstock.pipeline.keyed.custom import Merging
from penstock.pipeline.keyed.reduce import Aggregate, Mergeable, Reduce, Stateful, Worked
from penstock.pipeline.keyed.windowed import LATE, START, Windowed
from penstock.pipeline.keyed.windows import Window, microseconds
from penstock.pipeline.steps import BY_KEY, Hints, Keyed, Link, MapFunction, Step


@dataclass(frozen=True, eq=False)
class Keying:
    """The keywords of `Pipeline.keyed`, checked against each other."""

    name: str
    by: tuple[str, ...]
    reduce: Mapping[str, Aggregate] | Merging | None = None
    update: Callable[[pa.Table, pa.Table], Any] | None = None
    state: pa.Schema | None = None
    window: Window | None = None
    lateness: float | str = 0.0
    late: str = "drop"
    emit: str | None = None
    work: MapFunction | None = None
    split: bool = False

    def __post_init__(self) -> None:
        if (self.reduce is None) == (self.update is None):
            raise self._error("reduce", "given, or else update", self.reduce)
        if self.update is not None and self.state is None:
            raise self._error("state", "a schema, to go with update", None)
        for parameter in ("window", "work", "split"):
            if self.update is not None and getattr(self, parameter):
                raise self._error(parameter, "left out, because only reduce has it", True)
        if self.window is None and (self.emit is not None or self.lateness or self.late != "drop"):
            raise self._error("window", "given, to go with emit, late and lateness", None)
        if self.window is not None and not isinstance(self.window, Window):
            raise self._error("window", "made by tumbling or sliding", self.window)
        if self.window is not None and self.work is not None and not self.split:
            raise self._error("work", "a step before it, or with split, where windows are", True)
        if self.late not in LATE:
            raise self._error("late", "one of " + ", ".join(LATE), self.late)

    def keyed(self) -> Keyed:
        """Put together what holds the state."""
        if self.update is not None:
            assert self.state is not None
            return Stateful(self.by, self.state, self.update)
        reduce = self._reduction(self.by if self.window is None else (*self.by, START))
        if self.split and reduce.ordered:
            allowed = "of columns that do not go by arrival, where keys are split"
            raise self._error("reduce", allowed, self.reduce)
        if self.window is not None:
            lateness_us = microseconds(self.lateness, "lateness", f"step {self.name!r}")
            return Windowed(self.window, reduce, lateness_us, self.emit or "closed")
        return Worked(reduce, self.work) if self.work is not None and not self.split else reduce

    def steps(
        self,
        links: tuple[Link, ...],
        parallelism: int | None,
        merge_parallelism: int | None,
        hints: Hints,
    ) -> list[Step]:
        """Make the step; with split keys, and with late rows put aside, the one before it too."""
        keyed, made = self.keyed(), []
        for link in links:
            self._check_grouping(link)
        if self.split:
            parts = f"{self.name}-parts"
            made.append(
                Step(
                    parts,
                    links,
                    function=self.work or same,
                    parallelism=parallelism,
                    hints=Hints(hints.cpu_us_per_tuple, hints.mem_mb, hints.selectivity),
                    splittable=True,
                )
            )
            links = (Link(parts, Grouping.FIELDS, self.by),)
            parallelism = merge_parallelism or parallelism
            hints = Hints(state_mb=hints.state_mb, tuple_bytes=hints.tuple_bytes)
        elif merge_parallelism is not None:
            raise self._error("merge_parallelism", "left out without split", merge_parallelism)
        if self.late == "aside":
            sources = tuple(Link(source) for source in dict.fromkeys(k.source for k in links))
            made.append(Step(f"{self.name}-late", sources, late_for=self.name))
        made.append(Step(self.name, links, keyed=keyed, parallelism=parallelism, hints=hints))
        return made

    def _reduction(self, by: tuple[str, ...]) -> Mergeable:
        if isinstance(self.reduce, Merging):
            return self.reduce.keyed_by(by)
        if not isinstance(self.reduce, Mapping):
            raise self._error("reduce", "a mapping of columns, or made by merging", self.reduce)
        return Reduce(by, tuple(self.reduce.items()))

    def _check_grouping(self, link: Link) -> None:
        if self.split and link.grouping not in BY_KEY:
            allowed = "one of " + ", ".join(sorted(g.value for g in BY_KEY)) + ", with split"
            raise self._error("grouping", allowed, link.grouping.value)
        if not self.split and link.grouping in BY_KEY - {Grouping.FIELDS}:
            allowed = "one that keeps a key in one place, without split"
            raise self._error("grouping", allowed, link.grouping.value)

    def _error(self, parameter: str, allowed: str, got: Any) -> InvalidValue:
        return InvalidValue(parameter, f"step {self.name!r}", allowed, got)


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave the reduction to be the work."""
    return batch
