"""Attaches running queries: one listener and one thread for each Spark application."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.control.events import Event
from penstock.control.settings import Settings
from penstock.model import Plan
from penstock.runtimes.attached.query import AttachedQuery, Watching
from penstock.runtimes.attached.support import in_real_time, why_not_query, why_not_session
from penstock.runtimes.attached.watch import Watch
from penstock.runtimes.spark.monitor import Observed
from penstock.strategies import Strategy, strategies

#: Seconds after which the thread looks whether it is to end.
LOOK_S = 0.5

#: Runs of queries that a session remembers: a script may start one every minute, for weeks.
RUNS = 100

_ATTACHED: WeakKeyDictionary[SparkContext, Attachment] = WeakKeyDictionary()
_MAKING = threading.Lock()


class Attachment:
    """All that is attached in one Spark application.

    Parameters
    ----------
    spark : SparkSession
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.watch = Watch(spark)
        self.queries: dict[str, AttachedQuery] = {}
        self._runs: dict[str, str] = {}
        self._all: Watching | None = None
        self._found: Callable[[AttachedQuery], None] | None = None
        self._refused: Callable[[str], None] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="penstock-attach", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it still listens."""
        return self._thread.is_alive() and not self._over.is_set()

    def add(self, query: StreamingQuery, watching: Watching) -> AttachedQuery:
        """Attach a query, or return what is attached of it."""
        key, run = str(query.id), str(query.runId)
        known = self.queries.get(key)
        if known is not None and known.attached:
            if self._runs[key] == run:
                return known
            # It was stopped and started again before its end was heard of.
            known.terminated()
        self._runs[key] = run
        name = query.name or f"query-{key[:8]}"
        made = AttachedQuery(
            key,
            name,
            self.watch,
            watching,
            fixed_nodes=self._fixed_nodes,
            leave=self._left,
            real_time=in_real_time(query),
        )
        self.queries[key] = made
        self.watch.follow(query)
        return made

    def add_all(
        self,
        watching: Watching,
        found: Callable[[AttachedQuery], None],
        refused: Callable[[str], None],
    ) -> None:
        """Attach the queries that run, and those that are started later."""
        self._all, self._found, self._refused = watching, found, refused
        for query in self._spark.streams.active:
            self._consider(query)

    def end(self) -> None:
        """Leave everything alone: no thread, no listener and no setting stays."""
        self._all = None
        for query in list(self.queries.values()):
            query.detach()
        self._end()

    def _end(self) -> None:
        self._over.set()
        self.watch.end()
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * LOOK_S)

    def _left(self, key: str) -> None:
        ended = self.queries.get(key)
        if ended is not None and not ended.attached:
            del self.queries[key]
        if not self.watch.stopped:
            self.watch.leave(key)
        if self._all is None and not any(query.attached for query in self.queries.values()):
            self._end()

    def _fixed_nodes(self) -> str:
        conf = self._spark.sparkContext.getConf()
        if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
            return "Spark's dynamic allocation decides on the number of executors"
        if sum(query.attached for query in self.queries.values()) > 1:
            return "several attached queries share the executors, whose number stays as it is"
        return ""

    # ---- the thread

    def _listen(self) -> None:
        try:
            while not self._over.is_set():
                text = self.watch.next(LOOK_S)
                if text is not None:
                    self._dispatch(text)
        except (Py4JError, OSError) as error:
            if not (self._over.is_set() or self.watch.stopped):
                self._failed(error)
        except BaseException as error:  # noqa: BLE001 - told; the queries must not notice
            self._failed(error)
        finally:
            self._over.set()

    def _failed(self, error: BaseException) -> None:
        """Leave all queries alone: nobody would hear what became of a plan."""
        self._all = None
        for query in list(self.queries.values()):
            if query.attached:
                query.left_alone(error)
        self._end()

    def _dispatch(self, text: str) -> None:
        kind, _, rest = text.partition("\n")
        key, _, more = rest.partition("\n")[0].partition("\t")
        query = self.queries.get(key)
        if kind == "progress" and query is not None:
            query.batch(text)
        elif kind == "submitted" and query is not None:
            batch, _, tasks = more.partition("\t")
            query.submitted(batch, int(tasks))
        elif kind == "failed" and query is not None:
            query.failed(RuntimeError(more))
        elif kind == "terminated" and query is not None:
            run, _, failure = more.partition("\t")
            if self._runs.get(key) == run:
                query.terminated(failure)
        elif kind == "removed":
            for one in list(self.queries.values()):
                one.lost(key, more)
        elif kind == "started" and self._all is not None:
            self._started(key, self._refused)

    def _started(self, key: str, refused: Callable[[str], None] | None) -> None:
        """Consider a query that has just started, under an id that may be known from before."""
        try:
            started: Any = self._spark.streams.get(key)
            if started is not None:
                self._consider(started)
        except Exception as error:  # noqa: BLE001 - told; the query must not notice
            if refused is not None and not self.watch.stopped:
                refused(f"a query runs as it is: {type(error).__name__}: {error}")

    def _consider(self, query: StreamingQuery) -> None:
        if self._all is None or self._found is None or self._refused is None:
            return
        why = why_not_query(query)
        if why:
            self._refused(why)
        else:
            self._found(self.add(query, self._all))


class AttachedSession:
    """All streaming queries of a session, attached as they start.

    Attributes
    ----------
    queries : dict of str to AttachedQuery
        By name, or by the first part of the id where a query has no name: the latest run of each.
    runs : deque of AttachedQuery
        The last `RUNS` of them, ended ones too: a query that is started again is another run.
    """

    def __init__(self, attachment: Attachment, watching: Watching) -> None:
        self._attachment = attachment
        self.queries: dict[str, AttachedQuery] = {}
        self.runs: deque[AttachedQuery] = deque(maxlen=RUNS)
        self.events: list[str] = []
        attachment.add_all(watching, self._found, self.events.append)

    def _found(self, query: AttachedQuery) -> None:
        self.queries[query.name] = query
        if query not in self.runs:
            self.runs.append(query)

    @property
    def attached(self) -> bool:
        """Whether queries that start are attached."""
        return self._attachment.alive

    @property
    def decisions(self) -> list[Event]:
        """Decisions of all queries."""
        return [event for query in self.runs for event in query.decisions]

    @property
    def plan(self) -> dict[str, Plan]:
        """Plan of every query of which a batch was seen."""
        plans = {name: query.plan for name, query in self.queries.items()}
        return {name: plan for name, plan in plans.items() if plan is not None}

    def explain(self) -> str:
        """Tell what was decided for every query, and why."""
        told = [f"{query.name}:\n{query.explain()}" for query in self.runs]
        return "\n".join([*told, *self.events])

    def detach(self) -> None:
        """Leave all queries alone from now on; no thread, listener or setting stays."""
        self._attachment.end()


@dataclass(frozen=True)
class NotAttached:
    """What stands for a query that cannot be attached, and runs as it is.

    Parameters
    ----------
    reason : str
    """

    reason: str
    attached: bool = False
    plan: None = None

    @property
    def decisions(self) -> list[Event]:
        """None are made."""
        return []

    def explain(self) -> str:
        """Say why it is not attached."""
        return self.reason

    def detach(self) -> None:
        """Do nothing: nothing is attached."""


def attach(
    target: SparkSession | StreamingQuery,
    strategy: str | Strategy = "penstock",
    *,
    recommend_only: bool = False,
    adapt: bool = True,
    min_nodes: int = 0,
    max_nodes: int = 0,
    control: Settings | None = None,
    store: str | Path | None = None,
    seed: int = 0,
    on_batch: Callable[[Observed], None] | None = None,
    on_decision: Callable[[Event], None] | None = None,
) -> AttachedQuery | AttachedSession | NotAttached:
    """Measure, explain, place and scale Structured Streaming queries that run unchanged.

    Results, checkpoint and offsets stay Spark's own. If anything of Penstock fails, the query goes
    on where Spark puts it.

    Parameters
    ----------
    target : SparkSession or StreamingQuery
        One query, or all that a session runs and starts from now on.
    strategy : str or Strategy
        Who plans.
    recommend_only : bool
        Compute and show every decision, and change nothing.
    adapt : bool
        Plan at all; False: measure only.
    min_nodes, max_nodes : int
        Nodes that are never released and never exceeded; 0: one, and as many as at the start.
    control : Settings, optional
        All settings of the loop, instead of the three above.
    store : str or path, optional
        Where every batch and decision is recorded: a SQLite file or a ``postgresql://`` URL.
    seed : int
        Of the strategy's randomness.
    on_batch, on_decision : callable, optional
        Told every batch and every decision, in Penstock's own thread.

    Returns
    -------
    AttachedQuery or AttachedSession or NotAttached
        With ``decisions``, ``plan``, ``explain()`` and ``detach()``. `NotAttached`, with a warning
        that says why, where Spark does not let queries be steered.
    """
    made = strategies.make(strategy) if isinstance(strategy, str) else strategy
    settings = control or Settings(
        min_nodes=min_nodes, max_nodes=max_nodes, recommend_only=recommend_only
    )
    watching = Watching(made, settings if adapt else None, store, seed, on_batch, on_decision)
    session = isinstance(target, SparkSession)
    problems: Iterable[str] = (
        (why_not_session(target),) if session else (why_not_session(target), why_not_query(target))
    )
    why = next((text for text in problems if text), "")
    if why:
        warnings.warn(why, RuntimeWarning, stacklevel=2)
        return NotAttached(why)
    if isinstance(target, SparkSession):
        return AttachedSession(attachment_of(target), watching)
    classic: Any = target
    spark: Any = SparkSession(_context(), classic._jsq.sparkSession())
    return attachment_of(spark).add(target, watching)


def _context() -> SparkContext:
    return SparkContext.getOrCreate()


def attachment_of(spark: SparkSession) -> Attachment:
    """Return what is attached in a session's application, begun when there is nothing yet."""
    with _MAKING:
        known = _ATTACHED.get(spark.sparkContext)
        if known is None or not known.alive:
            known = _ATTACHED[spark.sparkContext] = Attachment(spark)
        return known
