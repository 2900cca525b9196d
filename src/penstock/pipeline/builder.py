"""A pipeline as the user writes it: a frozen value that an engine runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.errors import UnknownKeyword
from penstock.common.keywords import known_keywords, step_keywords
from penstock.common.near_miss import near_miss
from penstock.model import Grouping, InvalidValue, NotAllowed
from penstock.pipeline.checks import check_count, check_key, check_name, check_step
from penstock.pipeline.expressions import Columns, EachRow, Filter, Select
from penstock.pipeline.keyed.aggregates import Aggregate
from penstock.pipeline.keyed.custom import CustomAggregate
from penstock.pipeline.keyed.reduce import CustomUpdate
from penstock.pipeline.keyed.step import Aggregation, Split, check_whole_keys
from penstock.pipeline.keyed.windows import Window
from penstock.pipeline.steps import ChooseFunction, Hints, Link, MapFunction, Sink, Step

if TYPE_CHECKING:
    from typing_extensions import Unpack

Upstream = str | Link | Sequence["str | Link"]


class MapOptions(TypedDict, total=False):
    """The options of `Pipeline.map`, for methods that hand them on."""

    after: Upstream | None
    grouping: Grouping | str
    by: str | Sequence[str]
    choose: ChooseFunction | None
    parallelism: int | None
    chain: bool
    hints: Hints | None


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Sources, functions over Arrow batches, keyed state and sinks, in the order of writing.

    Every method returns a new pipeline with one step more. A step reads from the one before it
    unless `after` says otherwise.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.compute as pc
    >>> from penstock import functions as F
    >>> from penstock.pipeline import Lines, Memory, Pipeline
    >>> def split(batch):
    ...     words = pc.split_pattern(batch.column("line"), " ")
    ...     return pa.record_batch({"word": pc.list_flatten(words)})
    >>> words = (
    ...     Pipeline("wordcount")
    ...     .source("lines", Lines(["to be or", "not to be"]))
    ...     .map("split", split)
    ...     .aggregate("count", by="word", n=F.count(), parallelism=2)
    ...     .sink("out", Memory())
    ... )
    >>> [step.name for step in words.steps]
    ['lines', 'split', 'count', 'out']
    """

    name: str
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        check_name("pipeline", self.name)

    @step_keywords
    def source(
        self,
        name: str,
        stream: Any,
        *,
        parallelism: int | None = None,
        hints: Hints | None = None,
    ) -> Pipeline:
        """Add a source.

        Parameters
        ----------
        name : str
        stream : Source or streaming DataFrame
            A `penstock.pipeline` source, or any streaming DataFrame of Spark.
        parallelism : int, optional
            Instances; by default as many as the cluster has nodes.
        hints : Hints, optional
            What the first plan may assume, such as ``Hints(rate_per_s=1000)``.
        """
        read = callable(getattr(type(stream), "read", None))
        if not (read or hasattr(type(stream), "isStreaming")):
            allowed = "a source of penstock.pipeline or a streaming DataFrame"
            raise InvalidValue("stream", f"step {name!r}", allowed, stream)
        return self._with(
            Step(name, source=stream, parallelism=parallelism, hints=hints or Hints())
        )

    @step_keywords
    def map(
        self,
        name: str,
        function: MapFunction,
        *,
        after: Upstream | None = None,
        grouping: Grouping | str = Grouping.SHUFFLE,
        by: str | Sequence[str] = (),
        choose: ChooseFunction | None = None,
        parallelism: int | None = None,
        chain: bool = True,
        hints: Hints | None = None,
    ) -> Pipeline:
        """Add a stateless function over Arrow batches.

        Parameters
        ----------
        name : str
        function : callable
            Gets a `pyarrow.RecordBatch` with all tuples that one instance has in a micro-batch, and
            returns a batch, a table, or None. It is called once for each step that it reads from;
            if it has a second parameter, that gets the name of the step.
        after : str, Link or sequence of them, optional
            Where it reads from.
        grouping, by, choose
            How tuples are distributed over its instances, unless a `Link` says it.
        parallelism : int, optional
            Instances. Without it, and behind a single step with shuffle or local grouping, the
            function runs inside the instances of that step.
        chain : bool
            False gives it instances of its own in any case.
        hints : Hints, optional
            What the first plan may assume.
        """
        if not callable(function):
            raise InvalidValue("function", f"step {name!r}", "a function", function)
        links = self._links(name, after, grouping, by, choose)
        return self._with(
            Step(
                name,
                links,
                function=function,
                parallelism=parallelism,
                chain=chain,
                hints=hints or Hints(),
            )
        )

    def rows(
        self,
        name: str,
        function: Callable[[dict[str, Any]], Any],
        schema: pa.Schema,
        **options: Unpack[MapOptions],
    ) -> Pipeline:
        """Add a function that is called for every row: easy to write, and slow.

        It gets a dict and returns a dict, a list of dicts, or None. A row costs one to several
        microseconds for the call and the conversions alone, some tens of times an Arrow function's.
        Options are those of `map`.
        """
        return self.map(name, EachRow(function, schema), **options)

    def select(self, name: str, columns: Columns, **options: Unpack[MapOptions]) -> Pipeline:
        """Add a step that makes columns by Arrow expressions.

        Parameters
        ----------
        name : str
        columns : mapping of str to expression or str, or sequence of str
            New columns by name, such as ``{"m": pc.field("n") + 1, "word": "word"}``; a name alone
            takes that column as it is.
        **options
            As in `map`.
        """
        return self.map(name, Select.of(columns, f"step {name!r}"), **options)

    def filter(
        self, name: str, condition: pc.Expression, **options: Unpack[MapOptions]
    ) -> Pipeline:
        """Add a step that keeps the rows an Arrow expression is true of; options as in `map`."""
        return self.map(name, Filter.of(condition, f"step {name!r}"), **options)

    def aggregate(
        self,
        name: str,
        /,
        *,
        by: str | Sequence[str],
        reduce: Mapping[str, Aggregate] | CustomAggregate | None = None,
        window: Window | None = None,
        work: MapFunction | None = None,
        split: Split | bool = False,
        after: Upstream | None = None,
        parallelism: int | None = None,
        hints: Hints | None = None,
        **columns: Aggregate,
    ) -> Pipeline:
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
        window : Window, optional
            From `tumbling` or `sliding`; results are by key and window.
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
        update: Callable[[pa.Table, pa.Table], Any],
        state: pa.Schema,
        after: Upstream | None = None,
        parallelism: int | None = None,
        hints: Hints | None = None,
    ) -> Pipeline:
        """Add a function of your own over state by key.

        Parameters
        ----------
        name : str
        by : str or sequence of str
            Columns of the key.
        update : callable
            Gets the tuples and the state of their keys as tables, returns what to emit and the
            state rows (key columns included) that changed, and, if it likes, the keys whose state
            is removed.
        state : pyarrow.Schema
            Columns of the state besides the key.
        after, parallelism, hints
            As in `map`. A `Link` in `after` has its own grouping.
        """
        owner = f"step {name!r}"
        key = check_key(owner, by)
        if not callable(update):
            raise InvalidValue("update", owner, "a function", update)
        if not isinstance(state, pa.Schema):
            raise InvalidValue("state", owner, "a pyarrow.Schema", state)
        links = self._links(name, after, Grouping.FIELDS, key, None)
        for link in links:
            check_whole_keys(name, link)
        keyed = CustomUpdate(key, state, update)
        return self._with(
            Step(name, links, keyed=keyed, parallelism=parallelism, hints=hints or Hints())
        )

    @step_keywords
    def sink(self, name: str, sink: Sink, *, after: Upstream | None = None) -> Pipeline:
        """Add a sink: where results go."""
        if isinstance(sink, type) or not isinstance(sink, Sink):
            allowed = "a sink such as Memory() or parquet(path)"
            raise InvalidValue("sink", f"step {name!r}", allowed, sink)
        links = self._links(name, after, Grouping.SHUFFLE, (), None)
        return self._with(Step(name, links, sink=sink))

    def __getitem__(self, name: str) -> Step:
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(name)

    def _with(self, step: Step) -> Pipeline:
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
        known = known_keywords(Pipeline.aggregate)
        if near_miss(column, known):
            raise UnknownKeyword(column, owner, known)
        raise NotAllowed(
            f"column {column!r} of {owner} must be made by penstock.functions, such as F.count(); "
            f"got {made!r}"
        )
