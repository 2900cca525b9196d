"""A streaming DataFrame with aggregations, read from its analysed plan as a pipeline.

1. From the top of the plan down to the first node with state, columns may be renamed, left out and
   filtered by comparisons; Penstock does that with the results.
2. The node with state is an ``Aggregate``, by columns and at most one window, or a ``Deduplicate``.
   Penstock's engine runs it.
3. All that stands below stays in Spark: reading, joins with tables, filters, columns. Also the keys
   and what is aggregated are worked out there, so that only columns that are needed are handed on.

A node that is not understood is refused by its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.classic.column import Column as ClassicColumn

from penstock import functions as F
from penstock.model import InvalidValue, NotAllowed
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.keyed.aggregates import Aggregate
from penstock.pipeline.keyed.windows import Session, Window, session
from penstock.pipeline.steps import Sink
from penstock.runtimes.spark.plan_checks import check_emitted, check_equality, check_watermark
from penstock.runtimes.spark.plan_conditions import condition_of, is_known
from penstock.runtimes.spark.plan_nodes import (
    PlanNotUnderstood,
    delay_of,
    id_of,
    kind_of,
    listed,
    type_of,
)
from penstock.runtimes.spark.plan_results import Made, Results

#: Nodes that keep state when they are part of a stream, besides joins of two streams.
STATEFUL = frozenset(
    {
        *("Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct"),
        *("FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState", "TransformWithState"),
        *("TransformWithStateInPySpark", "TransformWithStateInPandas"),
    }
)

#: Output modes, and what they say of windows: `Window.emit`.
MODES = {"update": "changes", "append": "closed"}

#: Aggregates that take a column, by Spark's name.
SIMPLE = {"sum": F.sum, "min": F.min, "max": F.max, "avg": F.avg}

_SLIDE, _SIZE, _START = (
    re.compile(text) for text in (r"% (\d+)L\)", r"\+ (\d+)L\)+$", r" - (-?\d+)L\) %")
)


#: The gap of a session, and seconds of its units.
_GAP = re.compile(r"cast\((\d+(?:\.\d+)?) (second|minute|hour)s? as interval\)")
_SECONDS = {"second": 1, "minute": 60, "hour": 3600}

#: How Spark marks the columns of windows.
WINDOW, SESSION = "spark.timeWindow", "spark.sessionWindow"


def pipeline_of(frame: DataFrame, sink: Sink, mode: str = "update") -> Pipeline:
    """Read a streaming DataFrame as a pipeline.

    Parameters
    ----------
    frame : DataFrame
    sink : Sink
        Where the results go.
    mode : str
        ``update``: what changed in a batch, with its new values; ``append``: a window once, when
        the watermark has closed it.
    """
    if not frame.isStreaming:
        raise InvalidValue("pipeline", "start", "a streaming DataFrame", "one that is not")
    again = sorted(name for name, times in Counter(frame.columns).items() if times > 1)
    if again:
        raise NotAllowed(
            f"the streaming DataFrame has two columns called {again[0]!r}; rename one of them"
        )
    if mode not in MODES:
        raise InvalidValue("mode", "start", "one of " + ", ".join(MODES), mode)
    return _Reading(frame, mode).pipeline().sink("out", sink)


@dataclass(eq=False)
class _Reading:
    """One plan that is being read."""

    frame: DataFrame
    mode: str
    names: dict[str, Any] = field(default_factory=dict)

    def pipeline(self) -> Pipeline:
        """Find the node with state, and put steps together around it."""
        above, node = [], self.frame._jdf.queryExecution().analyzed()
        while not _keeps_state(node):
            if not any(_keeps_state(below) for below in _below(node)):
                # Nothing here keeps state: Spark does all of it.
                node = None
                break
            if node.nodeName() not in ("Project", "Filter", "SubqueryAlias"):
                raise PlanNotUnderstood(node.nodeName(), "it stands behind a step with state")
            above.append(node)
            node = node.child()
        if node is None:
            return Pipeline("dataframe").source("rows", self.frame)
        for below in _below(node):
            if _keeps_state(below):
                why = f"it stands before another step with state, {node.nodeName()}"
                raise PlanNotUnderstood(below.nodeName(), why)
        name = node.nodeName()
        if name == "Aggregate":
            made, results = self._aggregate(node)
        elif name in ("Deduplicate", "DeduplicateWithinWatermark"):
            made, results = self._deduplicate(node, within=name != "Deduplicate")
        else:
            raise PlanNotUnderstood(name, "there is no step for it yet")
        for one in reversed(above):
            results = _above(one, results)
        return results.added_to(made)

    def _source(self, plan: Any, columns: dict[str, Column]) -> Pipeline:
        """Begin with what stays in Spark, and the columns that are handed on."""
        rows = self._rows(plan).select(*(made.alias(name) for name, made in columns.items()))
        return Pipeline("dataframe").source("rows", rows)

    def _rows(self, plan: Any) -> DataFrame:
        session: Any = self.frame.sparkSession
        dataset = _companion(session, "Dataset")
        return DataFrame(dataset.ofRows(session._jsparkSession, plan), session)

    def _column(self, expression: Any) -> Column:
        return ClassicColumn(
            _companion(self.frame.sparkSession, "ExpressionUtils").column(expression)
        )

    def _named(self, what: str, expression: Any) -> str:
        """Name a column by the text of its expression: a checkpoint is of the query that wrote it.

        An aggregate that stands elsewhere in the query keeps its state; another one is refused.
        """
        name = f"{what} {expression.sql()}"
        while True:
            known = self.names.setdefault(name, expression)
            if known is expression or known.semanticEquals(expression):
                return name
            name += "'"

    def _aggregate(self, node: Any) -> tuple[Pipeline, Results]:
        grouping = listed(node.groupingExpressions())
        check_equality("Aggregate", grouping)
        below, window, at = self._window(node, grouping)
        keys = {
            self._named("by", expression): expression
            for expression in grouping
            if window is None or not expression.semanticEquals(at)
        }
        columns = {name: self._column(expression) for name, expression in keys.items()}
        if window is not None:
            columns[window.column] = self._column(_only(at_references(below, at)))
            below = below.child()
            check_watermark("Aggregate", below)
        check_emitted(grouping, window, self.mode)
        if not keys:
            # All rows are of one key.
            columns["k"] = sf.lit(0)
        reduce: dict[str, Aggregate] = {}
        made: list[Made] = []
        for entry in listed(node.aggregateExpressions()):
            inner = entry.child() if kind_of(entry) == "Alias" else entry
            same = [name for name, e in keys.items() if e.semanticEquals(inner)]
            if same:
                made.append(Made(id_of(entry), entry.name(), same[0]))
            elif at is not None and at.semanticEquals(inner):
                made.append(Made(id_of(entry), entry.name(), "window"))
            elif kind_of(inner) == "AggregateExpression":
                name = self._named("of", inner)
                reduce[name], wanted = self._reducer(inner, name, entry.name())
                columns |= wanted
                made.append(Made(id_of(entry), entry.name(), name))
            else:
                why = f"its column {entry.name()!r} is not an aggregate alone"
                raise PlanNotUnderstood("Aggregate", why)
        if not reduce:
            reduce["n"] = F.count()
        # In one order, whatever the query's: so the state goes on when columns change places.
        reduce = dict(sorted(reduce.items()))
        begun = self._source(below, columns)
        stepped = begun.aggregate("aggregate", by=list(keys) or ["k"], reduce=reduce, window=window)
        return stepped, Results(tuple(made))

    def _reducer(
        self, expression: Any, name: str, shown: str
    ) -> tuple[Aggregate, dict[str, Column]]:
        """Return an aggregate, and the columns that Spark makes for it."""
        function = expression.aggregateFunction()
        what, inner = function.prettyName(), listed(function.children())
        if what != "count" or expression.isDistinct():
            check_equality("Aggregate", inner)
        chosen = expression.filter()
        kept = self._column(chosen.get()) if chosen.isDefined() else None
        if expression.isDistinct():
            if what != "count" or len(inner) != 1:
                raise PlanNotUnderstood("Aggregate", f"{shown!r} is of different values")
            value = self._column(inner[0])
            return F.count_distinct(name), {name: value if kept is None else sf.when(kept, value)}
        if what in ("count", "count_if"):
            counted = [e for e in inner if what == "count_if" or not is_known(e)]
            if not counted and kept is None:
                return F.count(), {}
            one = sf.lit(True) if kept is None else kept
            for each in counted:
                is_there = self._column(each)
                one = one & (is_there if what == "count_if" else is_there.isNotNull())
            return F.sum(name), {name: sf.coalesce(one, sf.lit(False)).cast("bigint")}
        if what not in SIMPLE or len(inner) != 1:
            known = ", ".join(sorted(("count", "count_if", *SIMPLE)))
            raise PlanNotUnderstood("Aggregate", f"of {shown!r} only {known} are known")
        if type_of(inner[0]) in ("struct", "array"):
            raise PlanNotUnderstood("Aggregate", f"{shown!r} is of a type without an order here")
        value = self._column(inner[0])
        return SIMPLE[what](name), {name: value if kept is None else sf.when(kept, value)}

    def _window(self, node: Any, grouping: list[Any]) -> tuple[Any, Window | Session | None, Any]:
        """Return what is below the aggregate, the window that it groups by, and its attribute."""
        windows = [e for e in grouping if kind_of(e) == "AttributeReference" and _marked(e)]
        if not windows:
            return node.child(), None, None
        at, below = windows[0], node.child()
        if len(windows) > 1:
            raise PlanNotUnderstood("Aggregate", "it groups by more than one window")
        while below.nodeName() == "Filter":
            below = below.child()
        if below.nodeName() not in ("Project", "Expand"):
            raise PlanNotUnderstood("Aggregate", "its window was made by an earlier select")
        delay_s = delay_of(at)
        if delay_s is None:
            raise PlanNotUnderstood("Aggregate", "its window has no watermark; use withWatermark")
        made = window_expression(below, at)
        time = self._named("at", _only(at_references(below, at)))
        if SESSION in at.metadata().json():
            return below, self._session(made, time, delay_s), at
        text = made.sql().removesuffix(f" AS {at.name()}")
        slide, size, begin = (pattern.search(text) for pattern in (_SLIDE, _SIZE, _START))
        if not (slide and size) or (begin and int(begin[1])):
            raise PlanNotUnderstood("Aggregate", "its window has a start of its own")
        sizes = int(size[1]), int(slide[1])
        lateness_us = round(delay_s * 1e6)
        return below, Window(time, *sizes, lateness_us, emit=MODES[self.mode]), at

    def _session(self, made: Any, time: str, delay_s: float) -> Session:
        gap = _GAP.search(made.toString())
        if gap is None:
            raise PlanNotUnderstood("Aggregate", "its session has a gap that is no fixed time")
        if self.mode != "append":
            raise PlanNotUnderstood("Aggregate", "sessions are emitted when they close: append")
        return session(time, float(gap[1]) * _SECONDS[gap[2]], lateness=delay_s)

    def _deduplicate(self, node: Any, *, within: bool) -> tuple[Pipeline, Results]:
        """Keep the first row of each key; its time bounds the state, as in Spark."""
        output = listed(node.child().output())
        keys = {id_of(key) for key in listed(node.keys())}
        check_equality(node.nodeName(), listed(node.keys()))
        names = {id_of(e): self._named("by" if id_of(e) in keys else "of", e) for e in output}
        begun = self._source(node.child(), {names[id_of(e)]: self._column(e) for e in output})
        by = [names[number] for number in names if number in keys]
        bound: dict[str, Any] = {}
        for e in output:
            delay_s = delay_of(e)
            if delay_s is not None and (within or id_of(e) in keys):
                bound = {"time": names[id_of(e)], "within" if within else "lateness": delay_s}
        if bound:
            check_watermark(node.nodeName(), node.child())
        stepped = begun.deduplicate("deduplicate", by=by, **bound)
        return stepped, Results(tuple(Made(id_of(e), e.name(), names[id_of(e)]) for e in output))


def _above(node: Any, results: Results) -> Results:
    """Take a node behind the one with state into account."""
    if node.nodeName() == "SubqueryAlias":
        return results
    if node.nodeName() == "Filter":
        condition = condition_of(node.condition(), results.find)
        if condition is None:
            raise PlanNotUnderstood("Filter", "after an aggregation, comparisons alone are known")
        return results.filtered(condition)
    kept = []
    for entry in listed(node.projectList()):
        inner = entry.child() if kind_of(entry) == "Alias" else entry
        found = results.find(inner)
        if found is None:
            why = f"after an aggregation, its column {entry.name()!r} is worked out"
            raise PlanNotUnderstood("Project", why)
        kept.append(Made(id_of(entry), entry.name(), found))
    return results.projected(tuple(kept))


def _keeps_state(node: Any) -> bool:
    if not node.isStreaming():
        return False
    if node.nodeName() == "Join":
        return bool(node.left().isStreaming() and node.right().isStreaming())
    return node.nodeName() in STATEFUL


def _below(node: Any) -> Iterator[Any]:
    for child in listed(node.children()):
        yield child
        yield from _below(child)


def window_expression(node: Any, at: Any) -> Any:
    """Return what a node makes a window by."""
    entries = node.projectList() if node.nodeName() == "Project" else node.projections().apply(0)
    if node.nodeName() == "Project":
        return next(e for e in listed(entries) if id_of(e) == id_of(at))
    return entries.apply(0)


def at_references(node: Any, at: Any) -> list[Any]:
    """Return the columns that a window is made of."""
    return listed(window_expression(node, at).references().toSeq())


def _only(found: list[Any]) -> Any:
    if len(found) != 1:
        raise PlanNotUnderstood("Aggregate", "its window is not of one column of times")
    return found[0]


def _marked(attribute: Any) -> bool:
    told = attribute.metadata().json()
    return WINDOW in told or SESSION in told


def _companion(session: Any, name: str) -> Any:
    """Return an object of Spark's that goes with a class."""
    package = session._jvm.org.apache.spark.sql.classic
    return getattr(getattr(package, f"{name}$"), "MODULE$")
