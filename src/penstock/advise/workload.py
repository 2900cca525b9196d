"""The queries of an application as a topology, a cluster and a stream that can be planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.advise.application import Application, LoggedBatch, LoggedStage
from penstock.advise.evidence import Evidence, usual
from penstock.common.arrays import FloatArray
from penstock.model import Cluster, Edge, Grouping, Kind, Operator, TierCosts, Topology
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.sim import CostProfile

#: Instances that a node may hold: Spark has no limit.
SLOTS = 100_000

#: Pieces of constant rate that a recorded stream has at the most.
MOST_PIECES = 2000


@dataclass(frozen=True)
class Recorded:
    """What was recorded, in the planner's and the simulator's terms.

    Parameters
    ----------
    topology : Topology
        A stage of a query is an operator, a partition an instance.
    cluster : Cluster
        A node is an executor; as many as were there at the same time at the most.
    rates : mapping of str to Profile
        Of each source, from `start_ms` on.
    costs : CostProfile
    start_ms, seconds : float
        From the start of the first batch that counts to the end of the last.
    cycle_s : float
        From one batch to the next.
    """

    topology: Topology
    cluster: Cluster
    rates: Mapping[str, Profile]
    costs: CostProfile
    start_ms: float
    seconds: float
    cycle_s: float


def recorded(application: Application) -> Recorded | None:
    """Make a workload of all queries; None when no batch ran or no executor is known."""
    queries = [
        (query, evidence)
        for query in application.queries
        if (evidence := Evidence(application, query)).stages and evidence.total_ms > 0
    ]
    if not queries or not application.executors:
        return None
    start_ms = min(e.span_ms[0] for _, e in queries)
    end_ms = max(e.span_ms[1] for _, e in queries)
    operators: list[Operator] = []
    edges: list[Edge] = []
    rates: dict[str, Profile] = {}
    for number, (query, evidence) in enumerate(queries):
        prefix = f"{query.title}: " if len(queries) > 1 else ""
        if any(o.name.startswith(prefix) for o in operators) and prefix:
            prefix = f"{query.title} {number}: "
        made, joined, read = _operators(evidence, prefix)
        operators += made
        edges += joined
        total = sum(read.values())
        for name, rows in read.items():
            part = rows / total if total else 1.0 / len(read)
            rates[name] = _profile(evidence.batches, part, start_ms)
    if not rates:
        return None
    name = application.name or application.id or "application"
    topology = Topology(name, tuple(operators), tuple(edges), relaxed=True)
    if topology.warnings:
        return None
    return Recorded(
        topology,
        _cluster(application, queries[0][1]),
        rates,
        _costs([evidence for _, evidence in queries]),
        start_ms,
        max(1.0, (end_ms - start_ms) / 1e3),
        max(0.1, usual(e.cycle_ms for _, e in queries) / 1e3),
    )


def _operators(
    evidence: Evidence, prefix: str
) -> tuple[list[Operator], list[Edge], dict[str, float]]:
    """Operators and edges of a query, and the rows that each source read in a batch."""
    batches = [evidence.query.stages_of[b.id] for b in evidence.batches]
    shape = Counter(_shape(stages) for stages in batches).most_common(1)[0][0]
    alike = [stages for stages in batches if _shape(stages) == shape]
    names: list[str] = []
    for name, _, _ in shape:
        plain = prefix + name
        names.append(plain if plain not in names else f"{plain} {len(names)}")
    state_mb = sum(o.stored_bytes for o in evidence.batches[-1].state) / 1e6
    stateful = sum(stages_at(alike, i)[0].stateful for i in range(len(shape)))
    operators, edges, read = [], [], {}
    for i, (_, parents, count) in enumerate(shape):
        stages = stages_at(alike, i)
        rows = float(np.mean([_rows_in(s, evidence) for s in stages]))
        out = float(np.mean([sum(t.written_rows for t in s.tasks) for s in stages]))
        work = _work_ms(stages, count)
        around_ms = float(np.mean([t.overhead_ms for s in stages for t in s.tasks]))
        keeps = stages[0].stateful and bool(parents)
        kind = Kind.STATEFUL if keeps else Kind.STATELESS if parents else Kind.SOURCE
        sent = sum(t.written_bytes for s in stages for t in s.tasks)
        written = sum(t.written_rows for s in stages for t in s.tasks)
        operators.append(
            Operator(
                names[i],
                kind,
                count,
                cpu_us_per_tuple=float(work.sum()) * 1e3 / rows if rows else 0.0,
                cpu_pct=100.0 * around_ms / evidence.cycle_ms,
                selectivity=out / rows if rows else 1.0,
                state_mb=state_mb / stateful if keeps and stateful else 0.0,
                tuple_bytes=sent / written if written else 100.0,
                rate_per_s=rows / (evidence.cycle_ms / 1e3) if kind is Kind.SOURCE else None,
            )
        )
        if kind is Kind.SOURCE:
            read[names[i]] = rows
        shares = tuple((work / work.sum()).tolist()) if work.sum() > 0 else None
        edges += [Edge(names[p], names[i], Grouping.FIELDS, shares) for p in parents]
    return operators, edges, read


def stages_at(batches: Sequence[tuple[LoggedStage, ...]], position: int) -> list[LoggedStage]:
    """Stage at one position of every batch."""
    return [stages[position] for stages in batches]


def _shape(stages: tuple[LoggedStage, ...]) -> tuple[tuple[str, tuple[int, ...], int], ...]:
    """Names, stages before, and numbers of tasks of a batch: equal for batches of one plan."""
    at = {stage.id: i for i, stage in enumerate(stages)}
    return tuple((s.name, tuple(at[p] for p in s.parents if p in at), len(s.tasks)) for s in stages)


def _rows_in(stage: LoggedStage, evidence: Evidence) -> float:
    """Rows that a stage reads; sources that do not count them read the batch's."""
    rows = sum(t.read_rows for t in stage.tasks)
    if rows or stage.parents:
        return rows
    return next((b.rows for b in evidence.batches if b.id == stage.batch), 0.0)


def _work_ms(stages: Sequence[LoggedStage], count: int) -> FloatArray:
    """Time of each partition's rows in a batch, on average."""
    total = np.zeros(count)
    for stage in stages:
        total += [max(0.0, t.took_ms - t.overhead_ms) for t in stage.tasks]
    return total / len(stages)


def _profile(batches: Sequence[LoggedBatch], part: float, start_ms: float) -> Profile:
    """Rows a second that came from one batch to the next, in at most `MOST_PIECES` pieces."""
    size = max(1, -(-len(batches) // MOST_PIECES))
    steps: list[tuple[float, float]] = []
    before_s = (batches[0].start_ms - start_ms) / 1e3
    if before_s > 0:
        steps.append((0.0, before_s))
    for low in range(0, len(batches), size):
        some = batches[low : low + size]
        after = batches[low + size] if low + size < len(batches) else None
        end_ms = after.start_ms if after is not None else some[-1].end_ms
        length_s = (end_ms - some[0].start_ms) / 1e3
        if length_s > 0:
            steps.append((part * sum(b.rows for b in some) / length_s, length_s))
    return Profile.steps(steps)


def _cluster(application: Application, evidence: Evidence) -> Cluster:
    cores = usual(e.cores for e in application.executors)
    return Cluster.of(
        most_executors(application),
        cpu_cores=float(cores),
        mem_mb=evidence.memory_bytes / 1e6,
        slots=SLOTS,
    )


def most_executors(application: Application) -> int:
    """Executors that were there at the same time, at the most."""
    changes = sorted(
        [(e.added_ms, 1) for e in application.executors]
        + [(e.removed_ms, -1) for e in application.executors if e.removed_ms is not None]
    )
    there = most = 0
    for _, change in changes:
        there += change
        most = max(most, there)
    return max(1, most)


def _costs(queries: Sequence[Evidence]) -> CostProfile:
    """Costs of Spark's batches as they were recorded.

    What a row costs is in the operators, hops included.
    """
    batch_ms = usual(
        b.took_ms - sum(s.took_ms for s in e.query.stages_of[b.id])
        for e in queries
        for b in e.batches
    )
    nothing = TierCosts(0.0, 0.0, 0.0)
    return CostProfile(
        hop_cpu_us=nothing,
        hop_us=nothing,
        batch_s=max(0.05, usual(e.cycle_ms for e in queries) / 1e3),
        batch_ms=max(0.0, batch_ms),
        task_ms=usual(t.overhead_ms for e in queries for s in e.stages for t in s.tasks),
        restart_s=0.0,
        state="checkpoint",
    )
