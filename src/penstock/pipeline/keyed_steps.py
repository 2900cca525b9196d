"""The steps of a pipeline that keep state by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.errors import UnknownKeyword
from penstock.common.keywords import known_keywords, step_keywords
from penstock.common.near_miss import near_miss
from penstock.model import Grouping, InvalidValue, NotAllowed
from penstock.pipeline.checks import check_count, check_key, columns_of
from penstock.pipeline.keyed.aggregates import Aggregate
from penstock.pipeline.keyed.custom import CustomAggregate
from penstock.pipeline.keyed.deduplicate import Deduplicate
from penstock.pipeline.keyed.join_step import (
    check_joined,
    join_keys,
    joined,
    joined_with_table,
)
from penstock.pipeline.keyed.stateful_step import stateful_update
from penstock.pipeline.keyed.step import Aggregation, Split, check_whole_keys
from penstock.pipeline.keyed.time_bound import TimeBound
from penstock.pipeline.keyed.windows import Session, Window, microseconds
from penstock.pipeline.static_join import Static
from penstock.pipeline.step_list import StepList, Upstream
from penstock.pipeline.steps import Hints, Link, MapFunction, Step

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, eq=False)
class KeyedSteps(StepList):
    """Aggregations, functions and joins over state by key; see `Pipeline`."""

    def aggregate(
        self,
        name: str,
        /,
        *,
        by: str | Sequence[str],
        reduce: Mapping[str, Aggregate] | CustomAggregate | None = None,
        window: Window | Session | None = None,
        work: MapFunction | None = None,
        split: Split | bool = False,
        after: Upstream | None = None,
        parallelism: int | None = None,
        hints: Hints | None = None,
        **columns: Aggregate,
    ) -> Self:
        """Add an aggregation by key: what changed in a batch is emitted with its new values.

        Tuples are aggregated before they are sent, too.

        Parameters
        ----------
        name : str
        by : str or sequence of str
            Columns of the key.
        **columns : Aggregate
            Columns that are emitted besides the key, and how they come about, such as
            ``n=F.count(), best=F.max("eur")`` with `penstock.functions` imported as ``F``.
        reduce : mapping of str to Aggregate, or CustomAggregate, optional
            Instead of these: columns whose names are worked out, or are those of keywords here; or
            a reduction by functions of your own, made by ``F.custom``.
        window : Window or Session, optional
            From `tumbling`, `sliding` or `session`; results are by key and window.
        work : callable, optional
            A function as in `map` that is applied to the tuples where they arrive, so that they
            are sent one by one. It must leave the key as it is.
        split : bool or Split
            Let the tuples of a hot key be worked on in several instances: the step
            ``<name>-parts`` does `work` and aggregates, and this one merges. The state stays whole.
            Where only sinks read the results, keys go by ``fields`` and there is no window, both
            run as one, without a layer that merges. `Split` has more options.
        after, parallelism, hints
            As in `map`; of a split step they are those of its parts. A `Link` in `after` has its
            own grouping.
        """
        owner = f"step {name!r}"
        if reduce is not None and columns:
            raise NotAllowed(
                f"{owner} has both 'reduce' and the columns {', '.join(columns)}; put all columns "
                "into one of the two"
            )
        what = columns if reduce is None else reduce
        _check_aggregates(owner, what if isinstance(what, Mapping) else {})
        key, how = check_key(owner, by), _checked_split(owner, split)
        aggregation = Aggregation(name, key, what, window, work, how)
        links = self._links(name, after, how.grouping if how else Grouping.FIELDS, key, None)
        made_so_far = self
        for step in aggregation.steps(links, parallelism, hints or Hints()):
            made_so_far = made_so_far._with(step)
        return made_so_far

    @step_keywords
    def stateful(
        self,
        name: str,
        *,
        by: str | Sequence[str],
        update: Callable[..., Any],
        state: pa.Schema,
        time: str | None = None,
        lateness: float | str = 0.0,
        on_timer: Callable[..., Any] | None = None,
        event_timer: str | None = None,
        processing_timer: str | None = None,
        ttl: float | str | None = None,
        after: Upstream | None = None,
        parallelism: int | None = None,
        hints: Hints | None = None,
    ) -> Self:
        """Add a function of your own over state by key.

        Parameters
        ----------
        name : str
        by : str or sequence of str
            Columns of the key.
        update : callable
            Gets the tuples and the state of their keys as tables, returns what to emit and the
            state rows (key columns included) that changed, and, if it likes, the keys whose state
            is removed. If it has a third parameter, that gets a `BatchTime`: the watermark, and the
            clock of the batch.
        state : pyarrow.Schema
            Columns of the state besides the key.
        time : str, optional
            Column with the event time: a timestamp, or int64 microseconds. Late rows are dropped.
        lateness : float or str
            How much older than the newest row a row may be.
        on_timer : callable, optional
            Gets the state of the keys whose timer is due, and returns what `update` does; a second
            parameter gets a `BatchTime`. A timer that was due is cleared, unless the key is
            returned as changed.
        event_timer, processing_timer : str, optional
            Columns of the state that say when a key is due: by the watermark, or by the clock of
            the batch. A null is never. With a processing timer, a batch without data is run when a
            key is due.
        ttl : float or str, optional
            State of a key that was not written for so long, by the clock, is removed.
        after, parallelism, hints
            As in `map`. A `Link` in `after` has its own grouping.
        """
        owner = f"step {name!r}"
        key = check_key(owner, by)
        keyed = stateful_update(
            name,
            key,
            update,
            state,
            time=time,
            lateness=lateness,
            on_timer=on_timer,
            event_timer=event_timer,
            processing_timer=processing_timer,
            ttl=ttl,
        )
        links = self._links(name, after, Grouping.FIELDS, key, None)
        for link in links:
            check_whole_keys(name, link)
        return self._with(
            Step(name, links, keyed=keyed, parallelism=parallelism, hints=hints or Hints())
        )

    @step_keywords
    def join(
        self,
        name: str,
        right: str | Link | pa.Table | Static,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: str = "inner",
        time: TimeBound | None = None,
        where: pc.Expression | None = None,
        suffix: str = "_right",
        after: str | Link | None = None,
        parallelism: int | None = None,
        hints: Hints | None = None,
    ) -> Self:
        """Add a join of two streams: pairs of rows with equal keys, each pair once.

        An outer join also emits rows that found no match, with nulls for the other side, when no
        match can come any more. It emits the columns of the key, then the other columns of the left
        side, then those of the right side. Rows whose key is null match nothing, as in SQL.

        Parameters
        ----------
        name : str
        right : str or Link, or pyarrow.Table or Static
            The step on the right side; the left side is `after`. Or a table, as it is or made by
            `static`: then nothing is kept, rows stay where they are, and `how` is ``inner`` or
            ``left``.
        on : str, sequence of str, or mapping of str to str
            Columns of the key; where they have different names, left name to right name. Their
            types must be equal.
        how : str
            ``inner``, ``left``, ``right`` or ``full``. An outer join needs `time`, bound so that
            rows of its outer side can be over: with `upper` for the left side, `lower` for the
            right. The columns of the other side must be known while the pipeline is built.
        time : TimeBound, optional
            Made by `between`: how far apart the event times may be, and how late rows may come. As
            the watermark passes, rows that can match nothing any more are removed. Without it all
            rows are kept for good.
        where : pyarrow.compute.Expression, optional
            What else must be true of a pair, over the columns that are emitted.
        suffix : str
            Behind the name of a column of the right side that the left side has, too.
        after, parallelism, hints
            As in `map`.
        """
        keys = join_keys(name, on)
        if isinstance(right, (pa.Table, Static)):
            function = joined_with_table(name, keys, right, how, time, where, suffix)
            links = self._links(name, after, Grouping.SHUFFLE, (), None)
            return self._with(
                Step(
                    name, links, function=function, parallelism=parallelism, hints=hints or Hints()
                )
            )
        links = (
            *self._links(name, after, Grouping.FIELDS, tuple(keys), None),
            *self._links(name, right, Grouping.FIELDS, tuple(keys.values()), None),
        )
        known = {step.name: step for step in self.steps}
        check_joined(name, links, known)
        schemas = [columns_of(known, link.source) for link in links]
        keyed = joined(name, keys, schemas, how=how, time=time, where=where, suffix=suffix)
        return self._with(
            Step(name, links, keyed=keyed, parallelism=parallelism, hints=hints or Hints())
        )

    @step_keywords
    def deduplicate(
        self,
        name: str,
        *,
        by: str | Sequence[str],
        time: str | None = None,
        within: float | str | None = None,
        lateness: float | str | None = None,
        after: Upstream | None = None,
        parallelism: int | None = None,
        hints: Hints | None = None,
    ) -> Self:
        """Add a step that keeps the first row of each key and drops the others.

        Parameters
        ----------
        name : str
        by : str or sequence of str
            Columns of the key.
        time : str, optional
            Column with the event time: a timestamp, or int64 microseconds. If it is part of the
            key, a key is forgotten when the watermark has reached it.
        within : float or str, optional
            How long a key is remembered after the time of the row that was kept: seconds, or a
            number with a unit. Without it, and without the time in the key, keys are kept for good.
        lateness : float or str, optional
            How much older than the newest row a row may be; later ones are dropped. By default as
            long as `within`, as in Spark's ``dropDuplicatesWithinWatermark``.
        after, parallelism, hints
            As in `map`.
        """
        owner = f"step {name!r}"
        key = check_key(owner, by)
        if time is None and (within is not None or lateness is not None):
            given = "within" if within is not None else "lateness"
            raise NotAllowed(
                f"{owner} has {given!r}, which goes by event time; name its column with 'time'"
            )
        span = None if within is None else microseconds(within, "within", owner)
        late = span or 0
        if lateness is not None:
            late = microseconds(lateness, "lateness", owner)
        for parameter, value in (("within", span), ("lateness", late)):
            if value is not None and value < 0:
                raise InvalidValue(parameter, owner, "at least 0", f"{value} us")
        links = self._links(name, after, Grouping.FIELDS, key, None)
        for link in links:
            check_whole_keys(name, link)
        keyed = Deduplicate(key, time, span, late)
        return self._with(
            Step(name, links, keyed=keyed, parallelism=parallelism, hints=hints or Hints())
        )


def _checked_split(owner: str, split: Split | bool) -> Split | None:
    how = Split() if split is True else split or None
    if how is not None:
        if not isinstance(how, Split):
            raise InvalidValue("split", owner, "true, false or a Split", split)
        check_count("merge_parallelism", owner, how.merge_parallelism)
    return how


def _check_aggregates(owner: str, columns: Mapping[str, Any]) -> None:
    """Refuse what is no aggregate: most likely a keyword that was mistyped."""
    for column, made in columns.items():
        if isinstance(made, Aggregate):
            continue
        known = known_keywords(KeyedSteps.aggregate)
        if near_miss(column, known):
            raise UnknownKeyword(column, owner, known)
        raise NotAllowed(
            f"column {column!r} of {owner} must be made by penstock.functions, such as F.count(); "
            f"got {made!r}"
        )
