"""What a query of NEXMark is: streams, a pipeline, and the same question in Spark's SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.apps.api import latest
from penstock.common.near_miss import near_miss
from penstock.model import InvalidValue
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.sinks import Memory
from penstock.pipeline.steps import Sink

#: How much older than the newest event an event may be before windows close without it.
LATENESS_S = 4.0

#: Name of the sink of every query.
OUT = "out"


@dataclass(frozen=True)
class Streaming:
    """How a query is put to Structured Streaming.

    Parameters
    ----------
    sql : str
        Over streams of the names ``person``, ``auction`` and ``bid``, with watermarks.
    mode : str
        ``append``, or ``update`` where later rows replace earlier ones.
    after : str
        What is left to do with the rows of each batch, as the table ``batch``, for what Spark
        answers of tables and not of streams.
    """

    sql: str
    mode: str = "append"
    after: str = ""


@dataclass(frozen=True)
class NexmarkQuery:
    """One query.

    Parameters
    ----------
    name, summary : str
    reads : tuple of str
        Kinds of events that it reads; each is a source of that name.
    steps : callable
        Gets a pipeline with these sources and the number of instances, returns it with the steps.
    sql : str
        The question to Spark, with ``person``, ``auction`` and ``bid`` as tables.
    key : tuple of str
        Columns that tell rows of the result apart, where later rows replace earlier ones; empty
        where every row counts.
    open_until : str or None
        Column with the end of a window. Windows that no watermark has reached are not emitted: of
        Spark's answer, the rows count that end up to the watermark.
    streaming : Streaming or None
        How Structured Streaming is asked; None where its operators have no answer.
    """

    name: str
    summary: str
    reads: tuple[str, ...]
    steps: Callable[[Pipeline, int | None], Pipeline]
    sql: str
    key: tuple[str, ...] = ()
    open_until: str | None = None
    streaming: Streaming | None = None

    def pipeline(
        self, sources: Mapping[str, Any], sink: Sink | None = None, parallelism: int | None = None
    ) -> Pipeline:
        """Build the pipeline.

        Parameters
        ----------
        sources : mapping of str to Source or streaming DataFrame
            By kind of event; those that the query does not read are left alone.
        sink : Sink, optional
            Memory by default.
        parallelism : int, optional
            Instances of every source and step with state; by default as many as there are nodes.
        """
        made = Pipeline(f"nexmark-{self.name}")
        for kind in self.reads:
            made = made.source(kind, sources[kind], parallelism=parallelism)
        return self.steps(made, parallelism).sink(OUT, sink or Memory())

    def result(self, emitted: pa.Table) -> pa.Table:
        """Reduce all rows that the sink got to the result, in an order of its own."""
        if not emitted.num_rows:
            return emitted
        found = latest(emitted, self.key) if self.key else emitted
        return found.sort_by([(name, "ascending") for name in found.column_names])


_QUERIES: dict[str, NexmarkQuery] = {}


def register(query: NexmarkQuery) -> NexmarkQuery:
    """Add a query."""
    _QUERIES[query.name] = query
    return query


def queries() -> dict[str, NexmarkQuery]:
    """Return all queries by name, in their order."""
    from penstock.apps.nexmark import aggregations, joins, stateless

    _ = aggregations, joins, stateless
    return dict(sorted(_QUERIES.items(), key=lambda item: int(item[0][1:])))


def query(name: str) -> NexmarkQuery:
    """Return one query, or say which there are."""
    known = queries()
    if name not in known:
        allowed = "one of " + ", ".join(known)
        raise InvalidValue("name", "a NEXMark query", allowed, name, near_miss(name, known))
    return known[name]
