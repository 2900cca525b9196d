"""Measures what tuples, hops and tasks cost on the Spark at hand, for the simulator to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.apps.api import App
from penstock.experiments.calibrate.fit import Trial, fit, measured
from penstock.model import Cluster, Plan, Reason, Topology
from penstock.pipeline.sinks import Discard
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.sim.batches import BatchTimes
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.keys import KeySpace
from penstock.runtimes.sim.simulate import simulate
from penstock.runtimes.sim.wiring import wire
from penstock.runtimes.sim.workload import Workload
from penstock.runtimes.spark.batch_loop import BatchLoop
from penstock.runtimes.spark.execution import Execution
from penstock.runtimes.spark.monitor import Observed
from penstock.runtimes.spark.options import Options, QueueOptions
from penstock.runtimes.spark.query import Query, launch
from penstock.runtimes.spark.session import SparkSession
from penstock.store.histogram import Histogram
from penstock.strategies import Request
from penstock.strategies.api import make_plan
from penstock.strategies.route.two_tier import TwoTier

#: Placements that are tried: all on one node, in turn, and neighbours always apart.
PLACEMENTS = ("together", "even", "apart")

#: Batches of each size that are run, and those at the start of a run that are not counted.
BATCHES, WARM = 6, 3

#: Part of a checked run that is not compared, at its start.
WARM_PART = 0.25


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
class CheckedPlacement:
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
    # Workers that just started take several times as long: a first run is not counted.
    say("warming up")
    source = app.source(1e9, zipf=zipf, seed=1, rows=sizes[0] * 2 * BATCHES)
    _run(spark, app, source, Fixed("even"), [], parallelism, sizes=sizes[:1])
    trials: list[Trial] = []
    run: Execution | None = None
    for placement in PLACEMENTS:
        say(f"placed {placement}, batches of {', '.join(f'{size:,}' for size in sizes)} rows")
        seen: list[Observed] = []
        source = app.source(1e9, zipf=zipf, seed=1, rows=sum(sizes) * BATCHES + sizes[0] * WARM)
        run = _run(spark, app, source, Fixed(placement), seen, parallelism, sizes=sizes)
        instances: dict[str, list[tuple[int, int, float]]] = {}
        # The last batch may be what was left of another size.
        counted = [one for one in seen[WARM:] if one.batch.rows_in in sizes]
        for one in (one for observed in counted for one in observed.instances):
            figures = (one.tuples_in, one.tuples_out, (one.run_ms or 0.0) / 1000.0)
            instances.setdefault(one.operator, []).append(figures)
        rows = [one.batch.rows_in for one in counted]
        seconds = [one.batch.duration_ms / 1000.0 for one in counted]
        trials.append(Trial(run.plan, rows, seconds, instances))
    assert run is not None
    topology, cluster = measured(run.topology, trials), run.executors.cluster
    keys = KeySpace(zipf=zipf)
    return Calibration(fit(topology, cluster, trials, keys, batch_s), topology, cluster)


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
) -> tuple[CheckedPlacement, ...]:
    """Run every placement at a rate, simulate the same, and set both side by side.

    Both are looked at over the same part of the stream: from `WARM_PART` of the time to its end,
    without what is still worked off afterwards.
    """
    answers = []
    since_s = WARM_PART * seconds
    for placement in PLACEMENTS:
        say(f"placed {placement}, {rate_per_s:,.0f} rows/s, run and simulated")
        seen: list[Observed] = []
        profile = Profile.constant(rate_per_s)
        source = app.source(profile, zipf=zipf, seed=2, rows=profile.position(seconds))
        interval_s = found.profile.batch_s
        _run(spark, app, source, Fixed(placement), seen, parallelism, interval_s=interval_s)
        real_per_s, real_p50_ms = _ran(seen, since_s, seconds)
        workload = Workload.even(found.topology, rate_per_s, KeySpace(zipf=zipf))
        simulated = simulate(
            found.topology,
            found.cluster,
            Fixed(placement),
            workload,
            seconds=seconds,
            every_s=0.0,
            costs=found.profile,
        ).summary(since_s)
        answers.append(
            CheckedPlacement(
                placement,
                real_per_s,
                float(simulated["throughput_per_s"]),
                real_p50_ms,
                float(simulated["latency_ms"]["p50"]),
            )
        )
    return tuple(answers)


def capacity_per_s(found: Calibration, placement: str, zipf: float = 0.0) -> float:
    """Rows a second that a placement can work on, by what was found: batches of any size."""
    topology = found.topology
    plan = Fixed(placement).plan(Request(topology, found.cluster))
    parts = {o.name: 1.0 / len(topology.sources) for o in topology.sources}
    keys = KeySpace(zipf=zipf)
    wiring = wire(topology, plan, found.cluster, keys, found.profile, parts)
    return 1.0 / BatchTimes.of(wiring, found.cluster, found.profile).per_tuple_s


def _ran(seen: Sequence[Observed], since_s: float, until_s: float) -> tuple[float, float]:
    """Rows a second, and the median latency, of the batches that were worked on in some time."""
    begun_s = seen[0].batch.started_at_s
    rows = 0.0
    latencies = []
    for one in seen:
        start_s = one.batch.started_at_s - begun_s
        length_s = max(one.batch.duration_ms / 1000.0, 1e-9)
        # A batch that is only partly within that time counts with that part of its rows.
        inside_s = min(start_s + length_s, until_s) - max(start_s, since_s)
        if inside_s > 0:
            rows += one.batch.rows_in * inside_s / length_s
        if since_s <= start_s < until_s:
            latencies.append(one.batch.latency)
    p50_ms = Histogram.merged(latencies or [seen[-1].batch.latency]).percentile(50)
    assert p50_ms is not None
    return rows / (until_s - since_s), p50_ms


def _run(
    spark: SparkSession,
    app: App,
    source: Any,
    strategy: Fixed,
    seen: list[Observed],
    parallelism: int | None,
    *,
    interval_s: float = 0.0,
    sizes: Sequence[int] = (),
) -> Execution:
    """Run to the end; with `sizes`, some batches of each size in turn."""
    pipeline = app.pipeline(source, {name: Discard() for name in app.keys}, parallelism=parallelism)

    begun: list[BatchLoop] = []

    def listen(observed: Observed) -> None:
        seen.append(observed)
        turn = max(0, len(seen) - WARM) // BATCHES
        for queue in begun[0].execution.queues.values() if begun and sizes else ():
            queue.queue = sizes[min(turn, len(sizes) - 1)]

    queue = QueueOptions(size=sizes[0]) if sizes else QueueOptions()
    options = Options(control=None, interval_s=interval_s, queue=queue)
    begun.append(launch(pipeline, spark, strategy, options, listen))
    with Query(begun[0]) as run:
        run.await_termination(600)
    return begun[0].execution
