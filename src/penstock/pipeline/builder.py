"""A pipeline as the user writes it: a frozen value that an engine runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.keywords import step_keywords
from penstock.model import Grouping, InvalidValue
from penstock.pipeline.checks import check_own_folder
from penstock.pipeline.expressions import Columns, EachRow, Filter, Select
from penstock.pipeline.keyed_steps import KeyedSteps
from penstock.pipeline.step_list import Upstream
from penstock.pipeline.steps import ChooseFunction, Hints, MapFunction, Sink, Step

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
class Pipeline(KeyedSteps):
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

    @step_keywords
    def sink(self, name: str, sink: Sink, *, after: Upstream | None = None) -> Pipeline:
        """Add a sink: where results go."""
        if isinstance(sink, type) or not isinstance(sink, Sink):
            allowed = "a sink such as Memory() or parquet(path)"
            raise InvalidValue("sink", f"step {name!r}", allowed, sink)
        check_own_folder(name, sink, self.steps)
        links = self._links(name, after, Grouping.SHUFFLE, (), None)
        return self._with(Step(name, links, sink=sink))
