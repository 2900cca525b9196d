"""A scenario in the simulator, as an entry of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.control.explain import headline
from penstock.engine.job_graph import JobGraph
from penstock.experiments.compare.scenario import Scenario, Tell
from penstock.model import Cluster, Topology
from penstock.report.comparison import DecisionNote, Entry, Instant
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.keys import KeySpace
from penstock.runtimes.sim.moments import Moment
from penstock.runtimes.sim.simulate import SimulatedRun, simulate
from penstock.runtimes.sim.workload import Workload
from penstock.strategies import strategies

#: Points that a series has at the most.
MOST_POINTS = 240

#: A node of the embedded cluster: an executor of one core that holds any number of instances.
CORES, MEMORY_MB, SLOTS = 1.0, 1024.0, 10_000

#: How often the loop evaluates, in batches of a second; on Spark it is as many batches.
EVERY_S = 5.0


def simulated(scenario: Scenario, strategy: str, tell: Tell) -> Entry:
    """Run a scenario in virtual time, with the costs of micro-batches on Spark."""
    topology, cluster, workload = prepared(scenario)
    run = simulate(
        topology,
        cluster,
        strategies.make(strategy),
        workload,
        seconds=scenario.seconds,
        every_s=EVERY_S,
        costs=CostProfile.spark(),
        seed=scenario.seed,
        watch=lambda at_s: tell(f"at {at_s:,.0f} s of {scenario.seconds:,.0f} s"),
    )
    return entry_of(run)


def prepared(scenario: Scenario) -> tuple[Topology, Cluster, Workload]:
    """Make the topology, the stream, and nodes like those of the embedded cluster."""
    app, profile = scenario.made, scenario.profile
    pipeline = app.pipeline(app.source(profile, zipf=scenario.zipf, seed=scenario.seed))
    topology = JobGraph.of(pipeline).topology(max(2, scenario.nodes))
    topology.require_runnable()
    cluster = Cluster.of(
        scenario.nodes, cpu_cores=CORES, mem_mb=MEMORY_MB, processes=1, slots=SLOTS
    )
    keys = KeySpace(zipf=scenario.zipf, seed=scenario.seed)
    return topology, cluster, Workload.even(topology, profile, keys)


def entry_of(run: SimulatedRun) -> Entry:
    """Make an entry of a simulation. A fluid loses nothing but what is dropped."""
    summary = run.summary()
    latency = summary["latency_ms"] or {}
    return Entry(
        run.strategy,
        seconds=summary["seconds"],
        throughput_per_s=summary["throughput_per_s"],
        p50_ms=latency.get("p50"),
        p95_ms=latency.get("p95"),
        p99_ms=latency.get("p99"),
        nodes=summary["nodes"],
        most_nodes=summary["most_nodes"],
        node_seconds=summary["node_seconds"],
        remote_share=summary["remote_share"],
        lit=summary["lit"],
        lin=summary["lin"],
        moves=summary["moves"],
        silent_s=_longest_silence(run.moments),
        decisions=len(run.decisions),
        rows_lost=round(summary["dropped"]),
        rows_duplicated=0,
        series=_series(run.moments),
        told=tuple(DecisionNote(event.now_s, headline(event)) for event in run.decisions),
    )


def _longest_silence(moments: Sequence[Moment]) -> float:
    longest = silent = 0.0
    for moment in moments:
        due = moment.arriving_per_s > 0 or moment.queued > 0
        silent = silent + moment.seconds if due and moment.output_per_s <= 0 else 0.0
        longest = max(longest, silent)
    return longest


def _series(moments: Sequence[Moment]) -> tuple[Instant, ...]:
    """One instant for each stretch of moments, their mean."""
    size = max(1, -(-len(moments) // MOST_POINTS))
    found = []
    for low in range(0, len(moments), size):
        some = moments[low : low + size]

        def mean(name: str, some: Sequence[Moment] = some) -> float:
            return float(sum(getattr(m, name) for m in some)) / len(some)

        flowing = [m.percentiles_ms for m in some if m.throughput_per_s > 0]
        p50, p95, p99 = (
            (sum(own[i] for own in flowing) / len(flowing) for i in range(3))
            if flowing
            else (None, None, None)
        )
        found.append(
            Instant(
                some[-1].at_s,
                mean("arriving_per_s"),
                mean("throughput_per_s"),
                p50,
                p95,
                p99,
                mean("nodes"),
                mean("remote_share"),
                mean("lin"),
                mean("lit"),
                some[-1].queued,
            )
        )
    return tuple(found)
