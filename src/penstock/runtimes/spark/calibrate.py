"""Measures what tuples, hops and tasks cost on the Spark at hand, for the simulator to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pyspark.sql import SparkSession

from penstock.apps.api import App
from penstock.model import Cluster, Plan, Reason, Topology
from penstock.pipeline.profile import Profile
from penstock.pipeline.sinks import Discard
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.drive import simulate
from penstock.runtimes.sim.fit import Trial, fit, measured
from penstock.runtimes.sim.keys import KeySpace
from penstock.runtimes.sim.workload import Workload
from penstock.runtimes.spark.monitor import Observed
from penstock.runtimes.spark.run import Run, start
from penstock.store.histogram import Histogram
from penstock.strategies import Request
from penstock.strategies.api import make_plan
from penstock.strategies.route.two_tier import TwoTier

#: Placements that are tried: all in one place, dealt in turn, and neighbours always apart.
PLACEMENTS = ("together", "even", "apart")

#: Batches of each size that are run, and those at the start of each that are not counted.
BATCHES, WARM = 8, 3


@dataclass(frozen=True)
class Fixed:
    """A strategy that places instances in a fixed way, whatever they cost."""

    name: ClassVar[str] = "fixed"
    summary: ClassVar[str] = "a fixed placement, to measure by"
    origin: ClassVar[str] = "Penstock"

    placement: str

    def plan(self, request: Request) -> Plan:
        """Place everything as told."""
        count, nodes = len(request.graph), len(request.cluster)
        operator = np.repeat(
            np.arange(len(request.topology.operators)),
            [o.parallelism for o in request.topology.operators],
        )
        node_of = {
            "together": np.zeros(count, dtype=np.int64),
            "even": np.arange(count) % nodes,
            "apart": operator % nodes,
        }[self.placement]
        tables = {
            o.name: TwoTier().table(o.parallelism) for o in request.topology.operators if o.routed
        }
        return make_plan(
            request,
            self.name,
            node_of,
            np.zeros(count, dtype=np.int64),
            (Reason(f"placed {self.placement} to measure"),),
            routing=tables,
        )


@dataclass(frozen=True, eq=False)
class Calibration:
    """What was found.

    Parameters
    ----------
    profile : CostProfile
    topology : Topology
        With the selectivities that were seen.
    cluster : Cluster
    """

    profile: CostProfile
    topology: Topology
    cluster: Cluster


@dataclass(frozen=True)
class Checked:
    """One placement at one rate, run and simulated.

    Parameters
    ----------
    placement : str
    real_per_s, simulated_per_s : float
    real_p50_ms, simulated_p50_ms : float
    """

    placement: str
    real_per_s: float
    simulated_per_s: float
    real_p50_ms: float
    simulated_p50_ms: float

    @property
    def errors(self) -> tuple[float, float]:
        """Relative errors of throughput and latency."""
        return (
            self.simulated_per_s / self.real_per_s - 1.0,
            self.simulated_p50_ms / self.real_p50_ms - 1.0,
        )


def calibrate(
    spark: SparkSession,
    app: App,
    *,
    sizes: Sequence[int] = (500, 2000, 6000),
    parallelism: int | None = None,
    batch_s: float = 0.5,
    zipf: float = 0.0,
    say: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """Run an application in batches of several sizes under several placements, and fit its costs.

    Parameters
    ----------
    sizes : sequence of int
        Rows of the batches.
    batch_s : float
        Batch interval that the profile is for.
    say : callable
        Told what is being done.
    """
    trials: list[Trial] = []
    run: Run | None = None
    for placement in PLACEMENTS:
        rows: list[int] = []
        seconds: list[float] = []
        instances: dict[str, list[tuple[int, int, float]]] = {}
        for size in sizes:
            say(f"placed {placement}, batches of {size:,} rows")
            seen: list[Observed] = []
            source = app.source(1e9, zipf=zipf, seed=1, rows=size * BATCHES)
            run = _run(spark, app, source, Fixed(placement), seen, parallelism, queue=size)
            for observed in seen[WARM:]:
                rows.append(observed.batch.rows_in)
                seconds.append(observed.batch.duration_ms / 1000.0)
                for one in observed.instances:
                    figures = (one.tuples_in, one.tuples_out, (one.run_ms or 0.0) / 1000.0)
                    instances.setdefault(one.operator, []).append(figures)
        assert run is not None
        trials.append(Trial(run.plan, rows, seconds, instances))
    assert run is not None
    topology = measured(run.topology, trials)
    keys = KeySpace(zipf=zipf)
    return Calibration(fit(topology, run.cluster, trials, keys, batch_s), topology, run.cluster)


def check(
    spark: SparkSession,
    app: App,
    found: Calibration,
    rate_per_s: float,
    *,
    seconds: float = 15.0,
    parallelism: int | None = None,
    zipf: float = 0.0,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Checked, ...]:
    """Run every placement at a rate, simulate the same, and set both side by side."""
    answers = []
    for placement in PLACEMENTS:
        say(f"placed {placement}, {rate_per_s:,.0f} rows/s, run and simulated")
        seen: list[Observed] = []
        profile = Profile.constant(rate_per_s)
        source = app.source(profile, zipf=zipf, seed=2, rows=profile.position(seconds))
        interval_s = found.profile.batch_s
        _run(spark, app, source, Fixed(placement), seen, parallelism, interval_s=interval_s)
        later = seen[WARM:]
        # Up to the last start: how long the last batch took is not part of what was offered.
        span_s = later[-1].batch.started_at_s - later[0].batch.started_at_s
        rows = sum(one.batch.rows_in for one in later[:-1])
        latency = Histogram.merged(one.batch.latency for one in later).percentile(50)
        workload = Workload.even(found.topology, rate_per_s, KeySpace(zipf=zipf))
        simulated = simulate(
            found.topology,
            found.cluster,
            Fixed(placement),
            workload,
            seconds=seconds,
            every_s=0.0,
            costs=found.profile,
        ).summary(since_s=min(5.0, seconds / 3))
        assert latency is not None
        answers.append(
            Checked(
                placement,
                rows / max(span_s, 1e-9),
                float(simulated["throughput_per_s"]),
                latency,
                float(simulated["latency_ms"]["p50"]),
            )
        )
    return tuple(answers)


def _run(
    spark: SparkSession,
    app: App,
    source: Any,
    strategy: Fixed,
    seen: list[Observed],
    parallelism: int | None,
    *,
    interval_s: float = 0.0,
    **options: Any,
) -> Run:
    pipeline = app.pipeline(source, {name: Discard() for name in app.keys}, parallelism=parallelism)
    with start(
        pipeline,
        spark,
        strategy,
        listener=seen.append,
        control=None,
        interval_s=interval_s,
        **options,
    ) as run:
        run.await_end(600)
    return run
