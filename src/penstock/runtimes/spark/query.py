"""A pipeline that runs on Spark, as its user sees it; and how it is started."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.common.keywords import function_keywords
from penstock.control.events import Event
from penstock.control.explain import explain, headline
from penstock.control.settings import Settings
from penstock.faults.fault import Fault
from penstock.model import InvalidValue, Plan
from penstock.pipeline.builder import Pipeline
from penstock.pipeline.steps import Sink
from penstock.runtimes.spark.batch_loop import BatchLoop, Listener
from penstock.runtimes.spark.execution import Execution
from penstock.runtimes.spark.options import Options, QueueOptions, RecoveryOptions, StateOptions
from penstock.runtimes.spark.plan_reader import pipeline_of
from penstock.store.records import RunRecords
from penstock.strategies import Strategy, strategies


@dataclass(frozen=True)
class QueryStatus:
    """How a run is.

    Parameters
    ----------
    active : bool
        Whether it still runs.
    batch : int
        The last batch that was committed; -1 before the first.
    elapsed_s : float
        Time of the stream, in seconds.
    nodes, nodes_used : int
        Nodes that are there, and nodes that the plan uses.
    waiting : int
        Rows that wait at the sources.
    retries : int
        Times that something was tried again because a source or a sink failed.
    rows_lost, rows_duplicated : int
        Rows that went astray between instances.
    """

    active: bool
    batch: int
    elapsed_s: float
    nodes: int
    nodes_used: int
    waiting: int
    retries: int
    rows_lost: int
    rows_duplicated: int


class Query:
    """One pipeline that runs on one Spark session; made by `start`.

    Use it in a ``with`` block, or call `close` in the end. All methods may be called from any
    thread.
    """

    def __init__(self, loop: BatchLoop) -> None:
        self._loop = loop
        self._execution = loop.execution

    @property
    def id(self) -> str:
        """Of this run, in the metrics store."""
        return self._execution.id

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self._execution.name

    @property
    def plan(self) -> Plan:
        """The plan of the next batch."""
        return self._execution.plan

    @property
    def decisions(self) -> tuple[Event, ...]:
        """Decisions of the control loop so far, each as it was last told."""
        return self._execution.recorder.decisions

    @property
    def is_active(self) -> bool:
        """Whether it still runs."""
        return not self._loop.over.is_set()

    @property
    def exception(self) -> BaseException | None:
        """What it failed with; None while it runs and after a good end."""
        return self._loop.failure

    @property
    def status(self) -> QueryStatus:
        """How it is now."""
        execution = self._execution
        return QueryStatus(
            self.is_active,
            execution.driver.batch,
            execution.elapsed_s,
            len(execution.executors.cluster),
            len(set(execution.plan.node_of.tolist())),
            sum(queue.waiting for queue in execution.queues.values()),
            execution.recorder.retries,
            execution.recorder.lost,
            execution.recorder.duplicated,
        )

    def explain(self, number: int | None = None) -> str:
        """Tell in plain words what was decided and why.

        Parameters
        ----------
        number : int or None
            One decision, counted from 1; None: the plan's own reasons, and a line for each.
        """
        decisions = self.decisions
        if number is None:
            reasons = [f"  - {reason}" for reason in self.plan.reasons]
            lines = [f"  {n}. {headline(event)}" for n, event in enumerate(decisions, 1)]
            told = ["Decisions:", *lines] if lines else ["No decision changed the first plan."]
            return "\n".join([f"The plan of {self.name} by {self.plan.strategy}:", *reasons, *told])
        if not 1 <= number <= len(decisions):
            allowed = f"from 1 to {len(decisions)}" if decisions else "left out: there is none yet"
            raise InvalidValue("number", "a decision", allowed, number)
        return explain(decisions[number - 1], number)

    def records(self) -> RunRecords:
        """All that the metrics store has of this run; a `StoreError` if it cannot be read."""
        return self._execution.recorder.records()

    def scale(self, operator: str, instances: int) -> bool:
        """Change the number of an operator's instances after the batch that is running.

        Returns whether the plan has that many now: a strategy may keep the plan that it has, and an
        event says why.
        """
        return self._execution.mailbox.ask(lambda: self._execution.scale(operator, instances))

    def replace_plan(self, plan: Plan, why: str = "asked for") -> None:
        """Use another plan after the batch that is running."""
        self._execution.mailbox.ask(lambda: self._execution.change(plan, why))

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait until the run is over; return whether it is, and raise what it failed with."""
        over = self._loop.over.wait(timeout_s)
        if over and self._loop.failure is not None:
            raise self._loop.failure
        return over

    def stop(self, timeout_s: float = 120.0) -> None:
        """Stop after the batch that is running, and wait for that."""
        self._loop.stop(timeout_s)

    def close(self) -> None:
        """Stop, close the metrics store, and remove the run's own folder if it has one."""
        self._loop.close()

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@function_keywords
def start(
    pipeline: Pipeline | DataFrame,
    spark: SparkSession,
    strategy: str | Strategy = "penstock",
    *,
    checkpoint: str | Path | None = None,
    store: str | Path | None = None,
    interval_s: float = 0.2,
    available_now: bool = False,
    on_error: str = "stop",
    seed: int = 0,
    state: StateOptions | None = None,
    queue: QueueOptions | None = None,
    recovery: RecoveryOptions | None = None,
    control: Settings | None = Settings(),  # noqa: B008 - frozen
    rename: Mapping[str, str] | None = None,
    forget: Collection[str] = (),
    listener: Listener | None = None,
    on_decision: Callable[[Event], None] | None = None,
    sink: Sink | None = None,
    mode: str = "update",
) -> Query:
    """Run a pipeline on Spark.

    Parameters
    ----------
    pipeline : Pipeline or DataFrame
        A streaming DataFrame, such as ``words.groupBy("word").count()``, is read from its analysed
        plan: see `penstock.runtimes.spark.plan_reader`.
    spark : SparkSession
        Best made by `penstock.spark.session`; any session with adaptive execution off will do.
    strategy : str or Strategy
        Makes the plans.
    checkpoint : str, path or None
        Folder of the commit log and the state, which all executors must reach, or an address as
        ``hdfs://host/folder`` that Arrow can open on all of them. With it, a run that was stopped
        or killed goes on where it was. None: a folder of its own that is removed at the end.
    store : str, path or None
        Metrics store: a file or a ``postgresql://`` URL; None: in the checkpoint's folder. It never
        stops a run.
    interval_s : float
        Least time from the start of one batch to that of the next.
    available_now : bool
        For streaming DataFrames: take what is there at the start, and end.
    on_error : str
        ``stop``: a function that fails ends the run; ``skip``: the rows that it fails on are left
        out and counted.
    seed : int
        Of the strategy's randomness.
    state : StateOptions, optional
        How state is kept.
    queue : QueueOptions, optional
        How many rows may wait at a source.
    recovery : RecoveryOptions, optional
        Time limits and retries.
    control : Settings or None
        How the control loop behaves that keeps the plan fitting; None: the first plan stays, until
        an executor is lost.
    rename : mapping of str to str, optional
        New name by old name of sources and steps with state, where a pipeline goes on from the
        checkpoint of an earlier version of itself.
    forget : collection of str
        Sources and steps that go on without the offset or the state that the checkpoint has.
    listener : callable, optional
        Called with every batch that was committed, in the thread that runs them.
    on_decision : callable, optional
        Called with every decision of the control loop, and again when more is known of it.
    sink : Sink, optional
        Of a DataFrame: where its results go.
    mode : str
        Of a DataFrame: ``update`` emits what changed in a batch, ``append`` windows that closed.
    """
    if isinstance(pipeline, DataFrame):
        if sink is None:
            allowed = "given with a DataFrame, such as Memory() or parquet(path)"
            raise InvalidValue("sink", "start", allowed, sink)
        pipeline = pipeline_of(pipeline, sink, mode)
    elif sink is not None:
        raise InvalidValue("sink", "start", "left out: the pipeline has its own", sink)
    options = Options(
        checkpoint=checkpoint,
        store=store,
        interval_s=interval_s,
        available_now=available_now,
        on_error=on_error,
        seed=seed,
        state=state or StateOptions(),
        queue=queue or QueueOptions(),
        recovery=recovery or RecoveryOptions(),
        control=control,
        rename=rename,
        forget=forget,
    )
    return Query(launch(pipeline, spark, strategy, options, listener, on_decision))


def launch(
    pipeline: Pipeline,
    spark: SparkSession,
    strategy: str | Strategy,
    options: Options,
    listener: Listener | None = None,
    on_decision: Callable[[Event], None] | None = None,
    faults: Sequence[Fault] = (),
) -> BatchLoop:
    """Start a run and return its inner parts: for trials with faults, and for benchmarks."""
    loop = prepare(pipeline, spark, strategy, options, listener, on_decision, faults)
    try:
        return loop.begin()
    except BaseException:
        loop.close()
        raise


def prepare(
    pipeline: Pipeline,
    spark: SparkSession,
    strategy: str | Strategy,
    options: Options,
    listener: Listener | None = None,
    on_decision: Callable[[Event], None] | None = None,
    faults: Sequence[Fault] = (),
    first: Plan | None = None,
) -> BatchLoop:
    """Put a run together that has not begun."""
    require_fixed_plans(spark)
    made = strategies.make(strategy) if isinstance(strategy, str) else strategy
    execution = Execution(pipeline, spark, made, options, first)
    return BatchLoop(execution, listener, on_decision, faults)


def require_fixed_plans(spark: SparkSession) -> None:
    """Raise unless Spark leaves the plans of its own jobs as they are."""
    if str(spark.conf.get("spark.sql.adaptive.enabled")).lower() != "false":
        raise InvalidValue(
            "spark.sql.adaptive.enabled", "the session", "false, or a batch would run twice", "true"
        )
