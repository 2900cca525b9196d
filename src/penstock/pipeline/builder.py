"""A pipeline as the user writes it: a frozen value that an engine runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.model import Grouping, InvalidValue
from penstock.pipeline.expressions import Columns, Filter, Select
from penstock.pipeline.keyed.custom import Merging
from penstock.pipeline.keyed.reduce import Aggregate
from penstock.pipeline.keyed.step import Keying
from penstock.pipeline.keyed.windows import Window
from penstock.pipeline.steps import ChooseFunction, Hints, Link, MapFunction, Sink, Step

Upstream = str | Link | Sequence["str | Link"]


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Sources, functions over Arrow batches, keyed state and sinks, in the order of writing.

    Every method returns a new pipeline with one step more. A step reads from the one before it
    unless `after` says otherwise.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.compute as pc
    >>> from penstock.pipeline import Lines, Memory, Pipeline, count
    >>> def split(batch):
    ...     words = pc.split_pattern(batch.column("line"), " ")
    ...     return pa.record_batch({"word": pc.list_flatten(words)})
    >>> words = (
    ...     Pipeline("wordcount")
    ...     .source("lines", Lines(["to be or", "not to be"]))
    ...     .map("split", split)
    ...     .keyed("count", by="word", reduce={"n": count()}, parallelism=2)
    ...     .sink("out", Memory())
    ... )
    >>> [step.name for step in words.steps]
    ['lines', 'split', 'count', 'out']
    """

    name: str
    steps: tuple[Step, ...] = ()

    def source(
        self,
        name: str,
        stream: Any,
        *,
        parallelism: int | None = None,
        rate_per_s: float | None = None,
        **hints: float,
    ) -> Pipeline:
        """Add a source.

        Parameters
        ----------
        name : str
        stream : Source or streaming DataFrame
            A `penstock.pipeline` source, or any streaming DataFrame of Spark.
        parallelism : int, optional
            Instances; by default as many as the cluster has nodes.
        rate_per_s : float, optional
            Expected rate, for the first plan.
        **hints
            `Hints` for the first plan.
        """
        return self._with(
            Step(
                name,
                source=stream,
                parallelism=parallelism,
                hints=Hints(rate_per_s=rate_per_s, **hints),
            )
        )

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
        **hints: float,
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
            How tuples are dealt to its instances, unless a `Link` says it.
        parallelism : int, optional
            Instances. Without it, and behind a single step with shuffle or local grouping, the
            function runs inside the instances of that step.
        chain : bool
            False gives it instances of its own in any case.
        **hints
            `Hints` for the first plan.
        """
        links = self._links(after, grouping, by, choose)
        return self._with(
            Step(
                name,
                links,
                function=function,
                parallelism=parallelism,
                chain=chain,
                hints=Hints(**hints),
            )
        )

    def rows(
        self,
        name: str,
        function: Callable[[dict[str, Any]], Any],
        schema: pa.Schema,
        **options: Any,
    ) -> Pipeline:
        """Add a function that is called for every row: easy to write, and slow.

        It gets a dict and returns a dict, a list of dicts, or None. A row costs one to several
        microseconds for the call and the conversions alone, some tens of times an Arrow function's.
        """

        def each(batch: pa.RecordBatch) -> pa.Table:
            made: list[dict[str, Any]] = []
            for row in batch.to_pylist():
                out = function(row)
                made.extend([] if out is None else [out] if isinstance(out, dict) else out)
            return pa.Table.from_pylist(made, schema=schema)

        return self.map(name, each, **options)

    def select(self, name: str, columns: Columns, **options: Any) -> Pipeline:
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

    def filter(self, name: str, condition: pc.Expression, **options: Any) -> Pipeline:
        """Add a step that keeps the rows an Arrow expression is true of; options as in `map`."""
        return self.map(name, Filter.of(condition, f"step {name!r}"), **options)

    def keyed(
        self,
        name: str,
        *,
        by: str | Sequence[str],
        reduce: Mapping[str, Aggregate] | Merging | None = None,
        update: Callable[[pa.Table, pa.Table], Any] | None = None,
        state: pa.Schema | None = None,
        window: Window | None = None,
        lateness: float | str = 0.0,
        late: str = "drop",
        emit: str | None = None,
        work: MapFunction | None = None,
        split: bool = False,
        after: Upstream | None = None,
        grouping: Grouping | str = Grouping.FIELDS,
        parallelism: int | None = None,
        merge_parallelism: int | None = None,
        **hints: float,
    ) -> Pipeline:
        """Add a stateful step: state by key, kept where its instance runs.

        Parameters
        ----------
        name : str
        by : str or sequence of str
            Columns of the key.
        reduce : mapping of str to Aggregate, or Merging, optional
            Columns and how they come about, such as ``{"n": count()}``, or what `merging` made.
            What changed is emitted. Tuples are reduced before they are sent, too.
        update : callable, optional
            Instead of `reduce`: gets the tuples and the state of their keys as tables, returns what
            to emit and the state rows (key columns included) that changed, and, if it likes, the
            keys whose state is removed.
        state : pyarrow.Schema, optional
            Columns of the state besides the key, for `update`.
        window : Window, optional
            With `reduce`: from `tumbling` or `sliding`; results are by key and window.
        lateness : float or str
            How much older than the newest row a row may be before its windows close.
        late : str
            ``drop`` counts late rows; ``aside`` also sends them on as the step ``<name>-late``.
        emit : str, optional
            Of a window: ``closed``, once when it closes, or ``changes``.
        work : callable, optional
            With `reduce`: a function as in `map` that is applied to the tuples where they arrive,
            so that they are sent one by one. It must leave the key as it is.
        split : bool
            Let the tuples of a hot key be worked on in several instances: the step
            ``<name>-parts`` does `work` and reduces, and this one merges. The state stays whole.
            Where only sinks read the results, keys are dealt by ``fields`` and there is no window,
            both run as one, without a layer that merges.
        after, parallelism, **hints
            As in `map`; of a split step they are those of its parts.
        grouping : Grouping or str
            As in `map`. ``partial-key`` and ``hot-key`` only with `split`.
        merge_parallelism : int, optional
            Instances of the layer that merges, with `split`, where there is one; by default as many
            as there are parts.
        """
        key = (by,) if isinstance(by, str) else tuple(by)
        keying = Keying(name, key, reduce, update, state, window, lateness, late, emit, work, split)
        links = self._links(after, grouping, key, None)
        made = self
        for step in keying.steps(links, parallelism, merge_parallelism, Hints(**hints)):
            made = made._with(step)
        return made

    def sink(self, name: str, sink: Sink, *, after: Upstream | None = None) -> Pipeline:
        """Add a place where results go."""
        links = self._links(after, Grouping.SHUFFLE, (), None)
        return self._with(Step(name, links, sink=sink))

    def __getitem__(self, name: str) -> Step:
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(name)

    def _with(self, step: Step) -> Pipeline:
        owner = f"pipeline {self.name!r}"
        known = {s.name for s in self.steps}
        if not step.name or not isinstance(step.name, str):
            raise InvalidValue("name", "a step", "a non-empty string", step.name)
        if step.name in known:
            raise InvalidValue("name", owner, "of a step that is not there yet", step.name)
        for link in step.links:
            if link.source not in known:
                allowed = "one of " + ", ".join(sorted(known)) if known else "a source first"
                raise InvalidValue("after", f"step {step.name!r}", allowed, link.source)
            if self[link.source].sink is not None:
                raise InvalidValue("after", f"step {step.name!r}", "not a sink", link.source)
        count = step.parallelism
        if count is not None and (
            isinstance(count, bool) or not isinstance(count, int) or count < 1
        ):
            raise InvalidValue(
                "parallelism", f"step {step.name!r}", "a whole number of at least 1", count
            )
        return replace(self, steps=(*self.steps, step))

    def _links(
        self,
        after: Upstream | None,
        grouping: Grouping | str,
        by: str | Sequence[str],
        choose: ChooseFunction | None,
    ) -> tuple[Link, ...]:
        if not self.steps:
            raise InvalidValue("steps", f"pipeline {self.name!r}", "begun with a source", ())
        if after is None:
            after = self.steps[-1].name
        given = [after] if isinstance(after, (str, Link)) else list(after)
        if not given:
            raise InvalidValue("after", f"pipeline {self.name!r}", "at least one step", after)
        key = (by,) if isinstance(by, str) else tuple(by)
        try:
            how = Grouping(grouping)
        except ValueError:
            allowed = "one of " + ", ".join(g.value for g in Grouping)
            raise InvalidValue("grouping", f"pipeline {self.name!r}", allowed, grouping) from None
        return tuple(a if isinstance(a, Link) else Link(a, how, key, choose) for a in given)
