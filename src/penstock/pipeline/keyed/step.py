"""What a step with state by key is made of: its reduction, its windows, its split keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.common.keywords import class_keywords
from penstock.model import Grouping, InvalidValue, NotAllowed
from penstock.pipeline.keyed.aggregates import Aggregate
from penstock.pipeline.keyed.custom import CustomAggregate
from penstock.pipeline.keyed.panes import PanedWindows, in_panes
from penstock.pipeline.keyed.protocols import Keyed, Process
from penstock.pipeline.keyed.reduce import Mergeable, Reduce, WorkThenReduce
from penstock.pipeline.keyed.sessions import SessionWindowed
from penstock.pipeline.keyed.windowed import END, START, Windowed
from penstock.pipeline.keyed.windows import Session, Window
from penstock.pipeline.steps import BY_KEY, Hints, Link, MapFunction, Step


@class_keywords
@dataclass(frozen=True)
class Split:
    """How the tuples of a hot key are worked on in several instances; see `Pipeline.aggregate`.

    Parameters
    ----------
    grouping : Grouping or str
        Which instances work on a key: ``fields`` (a routing table), ``partial-key`` (the lighter
        of two) or ``hot-key`` (all of them, if the key is hot).
    merge_parallelism : int, optional
        Instances of the step that merges, where there is one; by default as many as work.
    """

    grouping: Grouping | str = Grouping.FIELDS
    merge_parallelism: int | None = None


@dataclass(frozen=True, eq=False)
class Aggregation:
    """The keywords of `Pipeline.aggregate`, checked against each other."""

    name: str
    by: tuple[str, ...]
    reduce: Mapping[str, Aggregate] | CustomAggregate
    window: Window | Session | None = None
    work: MapFunction | None = None
    split: Split | None = None

    def __post_init__(self) -> None:
        owner = f"step {self.name!r}"
        if not isinstance(self.reduce, (Mapping, CustomAggregate)):
            allowed = "a mapping of columns, or made by penstock.functions.custom"
            raise InvalidValue("reduce", owner, allowed, self.reduce)
        if isinstance(self.reduce, Mapping) and not self.reduce:
            raise NotAllowed(
                f"{owner} has nothing to aggregate; add a column, such as n=F.count() with "
                "penstock.functions imported as F"
            )
        if self.window is not None and not isinstance(self.window, (Window, Session)):
            raise InvalidValue("window", owner, "made by tumbling, sliding or session", self.window)
        if isinstance(self.window, Session) and self.split is not None:
            raise NotAllowed(
                f"{owner} has sessions, which are worked out where all rows of a key are; leave "
                "'split' out, or use tumbling or sliding windows"
            )
        if self.window is not None and self.work is not None and self.split is None:
            raise NotAllowed(
                f"{owner} has both 'window' and 'work', which go together only with 'split'; put "
                "the work into a map before it"
            )

    def keyed(self) -> Keyed | Process:
        """Put together what works on the state."""
        by = self.by
        if self.window is not None:
            by = (*by, START, END) if isinstance(self.window, Session) else (*by, START)
        reduce: Mergeable
        if isinstance(self.reduce, CustomAggregate):
            reduce = self.reduce.keyed_by(by)
        else:
            reduce = Reduce(by, tuple(self.reduce.items()))
        if self.split is not None and reduce.ordered:
            raise NotAllowed(
                f"step {self.name!r} splits keys and has a column that goes by the order of "
                "arrival, which split keys do not have; give first and last an order column, or "
                "leave 'split' out"
            )
        if isinstance(self.window, Session):
            return SessionWindowed(self.window, reduce)
        if self.window is not None and in_panes(self.window, reduce.ordered):
            return PanedWindows(self.window, reduce)
        if self.window is not None:
            return Windowed(self.window, reduce)
        if self.work is not None and self.split is None:
            return WorkThenReduce(reduce, self.work)
        return reduce

    def steps(self, links: tuple[Link, ...], parallelism: int | None, hints: Hints) -> list[Step]:
        """Make the step; with split keys, and with a side output, the one before it too."""
        keyed, made = self.keyed(), []
        for link in links:
            self._check_grouping(link)
        if self.split is not None:
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
            parallelism = self.split.merge_parallelism or parallelism
            hints = Hints(state_mb=hints.state_mb, tuple_bytes=hints.tuple_bytes)
        if self.window is not None and self.window.late == "side-output":
            sources = tuple(Link(source) for source in dict.fromkeys(k.source for k in links))
            made.append(Step(f"{self.name}-late", sources, late_for=self.name))
        made.append(Step(self.name, links, keyed=keyed, parallelism=parallelism, hints=hints))
        return made

    def _check_grouping(self, link: Link) -> None:
        by_key = ", ".join(sorted(grouping.value for grouping in BY_KEY))
        if self.split is not None and link.grouping not in BY_KEY:
            raise InvalidValue(
                "grouping", f"step {self.name!r} with split keys", f"one of {by_key}", link.grouping
            )
        if self.split is None:
            check_whole_keys(self.name, link)


def check_whole_keys(name: str, link: Link) -> None:
    """Refuse a grouping that would divide the state of a key."""
    if link.grouping in BY_KEY - {Grouping.FIELDS}:
        raise NotAllowed(
            f"step {name!r} is grouped by {link.grouping.value}, which sends a key to several "
            "instances and would divide its state; group by fields, or let an aggregate merge "
            f"what they made: split=Split({link.grouping.value!r})"
        )


def same(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave the reduction to be the work."""
    return batch
