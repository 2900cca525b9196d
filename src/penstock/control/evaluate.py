"""From what was observed to what it means for the running plan. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.common.arrays import group_sums
from penstock.control.runtime import Observation
from penstock.model import Cluster, Cost, Kind, Measurements, Plan, Topology, expand
from penstock.model.cost import evaluate as cost_of
from penstock.model.load import lit

#: The rate has moved when it changed by more than this part over so many batches.
MOVED, OVER_BATCHES = 0.15, 5

#: Evaluations after a move of the rate in which the window still mixes two levels.
MIXED = 4

#: What others take of a node is noticed from this part of its CPU on, and told in such steps.
NOTICED, STEP = 0.15, 0.05

#: A node of which others take so much is slow, until they take no more than the second.
SLOW, SOUND = 0.5, 0.25


@dataclass(frozen=True, eq=False)
class Assessment:
    """What an observation says about the running plan.

    Parameters
    ----------
    observation : Observation
    demand : Measurements or None
        What was measured, brought to the rate at which tuples come now.
    cluster : Cluster
        The live nodes, each with the CPU that others leave it.
    cost : Cost or None
        Of the running plan at that demand; None when a node of it is gone or nothing was measured.
    lit : mapping of str to float
        Imbalance of each operator with several instances that is stateful, or counts parts of keys
        for one that is, as measured (Ms eq. 10).
    rate_per_s : float
        Source tuples a second that come.
    change : float
        Of the rate since the last evaluation that is `OVER_BATCHES` old, as a part of it.
    level_rounds : int
        Evaluations since the rate last moved.
    swing : float or None
        Coefficient of variation of the rate, from the last window that did not mix two levels.
    taken : mapping of str to float
        Part of each node's CPU that others take, where it is worth noticing.
    slow : frozenset of str
        Nodes of which others take so much that a plan had better leave them.
    lost, idle : tuple of str
        Nodes that the plan uses and that are gone, or have fewer processes than it uses; nodes that
        are there and that it does not keep.
    past : tuple
        Batch and rate of the latest evaluations, this one included.
    """

    observation: Observation
    demand: Measurements | None
    cluster: Cluster
    cost: Cost | None = None
    lit: Mapping[str, float] = field(default_factory=dict)
    rate_per_s: float = 0.0
    change: float = 0.0
    level_rounds: int = MIXED
    swing: float | None = None
    taken: Mapping[str, float] = field(default_factory=dict)
    slow: frozenset[str] = frozenset()
    lost: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    past: tuple[tuple[int, float], ...] = ()

    @property
    def moving(self) -> bool:
        """Whether the rate is on its way from one level to another."""
        return abs(self.change) > MOVED

    def figures(self) -> dict[str, float]:
        """Give what was measured as numbers, for an event."""
        seen = self.observation
        found: dict[str, float] = {
            "arriving_per_s": seen.arriving_per_s,
            "throughput_per_s": seen.throughput_per_s,
            "queue_length": float(seen.queue_length),
            "batch_ms": seen.batch_ms,
            "nodes": float(len(seen.cluster)),
            "rate_change": self.change,
        }
        if self.cost is not None:
            found |= {"max_node_load": self.cost.max_node_load, "lin": self.cost.lin}
            found["nodes_used"] = float(self.cost.nodes_used)
        if seen.remote_share is not None:
            found["remote_share"] = seen.remote_share
        found |= {f"latency_{name}_ms": value for name, value in seen.latency_ms.items()}
        found |= {f"lit_{name}": value for name, value in self.lit.items()}
        found |= {f"taken_{name}": value for name, value in self.taken.items()}
        return found


def evaluate(
    observation: Observation,
    topology: Topology,
    plan: Plan,
    before: Assessment | None = None,
) -> Assessment:
    """Judge an observation, with the assessment before it for what only shows over time.

    Parameters
    ----------
    topology : Topology
        With the parallelism of the running plan.
    """
    measured = observation.measurements
    rate = observation.arriving_per_s or _source_rate(measured)
    past = before.past if before else ()
    change = _change(past, observation.batch, rate)
    level = before.level_rounds + 1 if before else MIXED
    level = 0 if abs(change) > MOVED else level
    swing = before.swing if before and (level < MIXED or measured is None) else None
    if measured is not None and level >= MIXED:
        swing = measured.rate_cv
    demand = None if measured is None else replace(at_rate(measured, rate), rate_cv=swing)
    taken = _taken(observation, topology, plan, before)
    slow = _slow(taken, before)
    live = observation.cluster
    used = {plan.nodes[i] for i in np.unique(plan.node_of).tolist()}
    lost = _lost(plan, live)
    cluster = left_over(live, taken)
    cost = None
    if demand is not None and not lost:
        node_of = plan.node_of_in(cluster)
        if (plan.process_of < cluster.processes[node_of]).all():
            cost = cost_of(expand(topology, demand), cluster, node_of, plan.process_of)
    return Assessment(
        observation,
        demand,
        cluster,
        cost,
        _imbalances(topology, measured),
        rate,
        change,
        level,
        swing,
        taken,
        slow,
        lost,
        tuple(name for name in live.names if name not in plan.active and name not in used),
        (*past, (observation.batch, rate))[-OVER_BATCHES - 1 :],
    )


def at_rate(measured: Measurements, rate_per_s: float) -> Measurements:
    """Bring a window to the rate of now: what is processed is not what comes while nodes are full.

    Nothing is touched while the two differ by no more than noise does.

    Examples
    --------
    >>> seen = Measurements(source_rates={"lines": 100.0})
    >>> at_rate(seen, 300.0).source_rates["lines"]
    300.0
    """
    processed = _source_rate(measured)
    factor = rate_per_s / processed if processed > 0 and rate_per_s > 0 else 1.0
    if abs(factor - 1.0) <= MOVED:
        return measured
    return replace(
        measured,
        source_rates={name: rate * factor for name, rate in measured.source_rates.items()},
        rates={key: rates * factor for key, rates in measured.rates.items()},
        tuples_per_s={name: rates * factor for name, rates in measured.tuples_per_s.items()},
        cpu_cores={name: cores * factor for name, cores in measured.cpu_cores.items()},
        sent_mb_s={name: sent * factor for name, sent in measured.sent_mb_s.items()},
        received_mb_s={name: got * factor for name, got in measured.received_mb_s.items()},
        io_mb_s={name: disk * factor for name, disk in measured.io_mb_s.items()},
        partition_rates={n: rates * factor for n, rates in measured.partition_rates.items()},
        hot_keys={
            name: {key: rate * factor for key, rate in keys.items()}
            for name, keys in measured.hot_keys.items()
        },
    )


def left_over(cluster: Cluster, taken: Mapping[str, float]) -> Cluster:
    """Return the cluster without the CPU that others take."""
    return Cluster(
        tuple(
            replace(node, cpu_cores=node.cpu_cores * (1.0 - taken[node.name]))
            if node.name in taken
            else node
            for node in cluster.nodes
        )
    )


def _lost(plan: Plan, live: Cluster) -> tuple[str, ...]:
    """Nodes that are gone, or have lost processes that the plan uses."""
    needed: dict[str, int] = {}
    for node, process in zip(plan.node_of.tolist(), plan.process_of.tolist(), strict=True):
        needed[plan.nodes[node]] = max(needed.get(plan.nodes[node], 0), process + 1)
    there = dict(zip(live.names, live.processes.tolist(), strict=True))
    return tuple(name for name in plan.nodes if needed.get(name, 0) > there.get(name, 0))


def _change(past: tuple[tuple[int, float], ...], batch: int, rate: float) -> float:
    """Compare with the rate some batches ago, or the oldest known: the rate itself is a mean."""
    old = [then for at, then in past if at <= batch - OVER_BATCHES] or [t for _, t in past[:1]]
    return rate / old[-1] - 1.0 if old and old[-1] > 0 else 0.0


def _source_rate(measured: Measurements | None) -> float:
    return sum(measured.source_rates.values()) if measured is not None else 0.0


def _imbalances(topology: Topology, measured: Measurements | None) -> dict[str, float]:
    seen = measured.tuples_per_s if measured is not None else {}
    return {
        o.name: lit(seen[o.name])
        for o in topology.operators
        if (o.kind is Kind.STATEFUL or o.splittable)
        and o.parallelism > 1
        and o.name in seen
        and len(seen[o.name]) == o.parallelism
    }


def _taken(
    observation: Observation, topology: Topology, plan: Plan, before: Assessment | None
) -> dict[str, float]:
    """Part of each node that others take: its measured use without that of its instances.

    A node that nobody measured is believed to be as it was last seen.
    """
    measured, cluster = observation.measurements, observation.cluster
    known = before.taken if before is not None else {}
    own: dict[str, float] = {}
    if measured is not None and dict(topology.parallelism) == dict(plan.parallelism):
        node_of = plan.node_of_in(cluster)
        there = node_of >= 0
        cores = expand(topology, measured).cpu_cores[there]
        use = group_sums(node_of[there], cores, len(cluster))
        own = dict(zip(cluster.names, use.tolist(), strict=True))
    taken: dict[str, float] = {}
    for node in cluster.nodes:
        seen = measured.nodes.get(node.name) if measured is not None else None
        if seen is None or seen.cpu is None or node.cpu_cores <= 0:
            if node.name in known:
                taken[node.name] = known[node.name]
            continue
        part = seen.cpu - own.get(node.name, 0.0) / node.cpu_cores
        if part >= NOTICED:
            taken[node.name] = min(round(part / STEP) * STEP, 0.95)
    return taken


def _slow(taken: Mapping[str, float], before: Assessment | None) -> frozenset[str]:
    was = before.slow if before is not None else frozenset()
    return frozenset(
        name for name, part in taken.items() if part >= SLOW or (name in was and part > SOUND)
    )
