"""How several pipelines are started on one session, planned together from the first plan on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from penstock.common.keywords import function_keywords
from penstock.control.events import Event
from penstock.control.joint.join import join_topologies, split_plan
from penstock.control.rollout import priced
from penstock.control.settings import Settings
from penstock.engine.job_graph import JobGraph
from penstock.model import PenstockError, Plan
from penstock.pipeline.builder import Pipeline
from penstock.runtimes.spark.batch_loop import BatchLoop, Listener
from penstock.runtimes.spark.group import Group
from penstock.runtimes.spark.jvm import jvm_of
from penstock.runtimes.spark.monitor import Observed
from penstock.runtimes.spark.nodes import cluster_of, executors_a_node
from penstock.runtimes.spark.options import Options, QueueOptions, RecoveryOptions, StateOptions
from penstock.runtimes.spark.query import prepare, require_fixed_plans
from penstock.strategies import Request, Strategy, strategies


@function_keywords
def start_together(
    pipelines: Mapping[str, Pipeline],
    spark: SparkSession,
    strategy: str | Strategy = "penstock",
    *,
    checkpoint: str | Path | None = None,
    store: str | Path | None = None,
    interval_s: float = 0.2,
    on_error: str = "stop",
    seed: int = 0,
    state: StateOptions | None = None,
    queue: QueueOptions | None = None,
    recovery: RecoveryOptions | None = None,
    control: Settings | None = Settings(),  # noqa: B008 - frozen
    listener: Callable[[str, Observed], None] | None = None,
    on_decision: Callable[[Event], None] | None = None,
) -> Group:
    """Run several pipelines on one Spark session, planned together from the start.

    When executors are lost, each run plans for itself at once, and the loop for all later on.

    Parameters
    ----------
    pipelines : mapping of str to Pipeline
        By names that tell them apart, without ``/``.
    spark : SparkSession
    strategy : str or Strategy
        It sees all topologies as one, with operators called ``name/operator``.
    checkpoint : path, optional
        Each run uses the folder of its name in it.
    store, interval_s, on_error, seed, state, queue, recovery
        Of every run, as in `start`.
    control : Settings or None
        Of the loop over all; None: the first plans stay, until an executor is lost.
    listener : callable, optional
        Called with the name of a run and every batch that it committed, in the run's own thread.
    on_decision : callable, optional
        Called with every decision, and again when more is known of it.
    """
    require_fixed_plans(spark)
    made = strategies.make(strategy) if isinstance(strategy, str) else strategy
    plans = first_plans(pipelines, spark, made, seed)
    runs: dict[str, BatchLoop] = {}
    waiting: list[Group] = []

    def heard(name: str) -> Listener:
        def hear(observed: Observed) -> None:
            if listener is not None:
                listener(name, observed)
            for group in waiting:
                group.committed()

        return hear

    try:
        for name, pipeline in pipelines.items():
            own = Options(
                checkpoint=None if checkpoint is None else Path(checkpoint) / name,
                store=store,
                interval_s=interval_s,
                on_error=on_error,
                seed=seed,
                state=state or StateOptions(),
                queue=queue or QueueOptions(),
                recovery=recovery or RecoveryOptions(),
                control=None,
            )
            runs[name] = prepare(pipeline, spark, made, own, heard(name), first=plans[name])
        settings = None if control is None else _bounded(control, runs)
        group = Group(runs, made, settings, seed=seed, on_decision=on_decision)
        waiting.append(group)
        return group.begin()
    except BaseException:
        for run in runs.values():
            run.close()
        raise


def _bounded(control: Settings, runs: Mapping[str, BatchLoop]) -> Settings:
    """Fill in the bounds that were left open, for all runs."""
    losses = max(run.execution.driver.registry.losses() for run in runs.values())
    nodes = max(len(run.execution.executors.cluster) for run in runs.values())
    return control.starting_with(nodes, losses)


def first_plans(
    pipelines: Mapping[str, Pipeline], spark: SparkSession, strategy: Strategy, seed: int
) -> dict[str, Plan]:
    """Plan all pipelines at once on the executors that are there."""
    jvm = jvm_of(spark.sparkContext)
    executors = jvm.executors()
    cluster = cluster_of(executors, executors_a_node(executors, jvm.processes))
    count = max(2, len(cluster))
    topologies = {name: JobGraph.of(p).topology(count) for name, p in pipelines.items()}
    joined = join_topologies(topologies)
    answer = strategy.plan(Request(joined, cluster, rng=np.random.default_rng(seed)))
    if not isinstance(answer, Plan):
        raise PenstockError(f"no plan for {joined.name}: {answer.reasons[0]}")
    parts = split_plan(answer, topologies)
    return {n: priced(part, topologies[n], cluster, None) for n, part in parts.items()}
