"""Several topologies as one, so that one planner sees them all; and one plan as several. Pure.

Operators are called ``name/operator`` in what is joined, by the name that the caller gives each
topology (Sra section 5: several applications share the nodes).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from penstock.common.arrays import frozen_ints
from penstock.control.evaluate import at_rate
from penstock.control.runtime import Observation
from penstock.model import (
    Cluster,
    Cost,
    InvalidValue,
    Measurements,
    Plan,
    Reason,
    Topology,
    Utilisation,
)
from penstock.model.load import lin
from penstock.model.measurements import BY_INSTANCE, RESOURCES

SEPARATOR = "/"

#: Measurements by operator of which each topology has its own.
SIDE_BY_SIDE = (*BY_INSTANCE, "source_rates", "busy", "tuple_bytes", "partition_rates", "hot_keys")

V = TypeVar("V")


def join_topologies(parts: Mapping[str, Topology]) -> Topology:
    """Put topologies side by side.

    Examples
    --------
    >>> from penstock.model import Kind, Operator
    >>> one = Topology("one", (Operator("in", Kind.SOURCE),))
    >>> joined = join_topologies({"a": one, "b": one})
    >>> joined.name, list(joined.parallelism)
    ('a+b', ['a/in', 'b/in'])
    """
    _check_names(parts)
    operators = tuple(
        replace(o, name=_joined(name, o.name)) for name, t in parts.items() for o in t.operators
    )
    edges = tuple(
        replace(e, source=_joined(name, e.source), target=_joined(name, e.target))
        for name, t in parts.items()
        for e in t.edges
    )
    relaxed = any(t.relaxed for t in parts.values())
    return Topology(_title(parts), operators, edges, relaxed)


def join_plans(parts: Mapping[str, Plan]) -> Plan:
    """Make one plan of the plans that run side by side."""
    _check_names(parts)
    nodes = tuple(dict.fromkeys(n for plan in parts.values() for n in plan.nodes))
    position = {name: i for i, name in enumerate(nodes)}
    node_of = [position[plan.nodes[i]] for plan in parts.values() for i in plan.node_of.tolist()]
    process_of = [p for plan in parts.values() for p in plan.process_of.tolist()]
    awake = {name for plan in parts.values() for name in plan.active}
    return Plan(
        strategy=next(iter(parts.values())).strategy,
        topology=_title(parts),
        parallelism=_by_operator({n: p.parallelism for n, p in parts.items()}),
        nodes=nodes,
        node_of=frozen_ints(node_of),
        process_of=frozen_ints(process_of),
        after=_join_costs({n: p.after for n, p in parts.items()}),
        reasons=(Reason(f"the plans of {', '.join(parts)} together"),),
        active=tuple(n for n in nodes if n in awake),
        routing=_by_operator({n: p.routing for n, p in parts.items()}),
        pinned=all(plan.pinned for plan in parts.values()),
    )


def split_plan(plan: Plan, parts: Mapping[str, Topology]) -> dict[str, Plan]:
    """Give each topology its part of a joined plan; what is of none of them is left out.

    The cost of a part is still that of the whole plan: a part alone has none.
    """
    found: dict[str, Plan] = {}
    counts = list(plan.parallelism.values())
    operators = np.repeat(np.arange(len(counts)), counts)
    owner = [name.partition(SEPARATOR)[0] for name in plan.parallelism]
    for name, topology in parts.items():
        mine = np.array([i for i, own in enumerate(owner) if own == name], dtype=np.int64)
        if not len(mine):
            continue
        chosen = np.flatnonzero(np.isin(operators, mine))
        found[name] = replace(
            plan,
            topology=topology.name,
            parallelism=_own(name, plan.parallelism),
            node_of=plan.node_of[chosen],
            process_of=plan.process_of[chosen],
            routing=_own(name, plan.routing),
            active=(),
            before=None,
        )
    return found


def join_observations(parts: Mapping[str, Observation]) -> Observation:
    """Make one observation of those of several topologies on the same nodes.

    Each one's measurements are brought to the rate at which its own tuples come. Nothing counts as
    measured until every topology was.
    """
    seen = list(parts.values())
    # One that not all know of yet cannot be used by all; one that somebody misses is lost.
    shared = set.intersection(*(set(o.cluster.names) for o in seen))
    nodes = {n.name: n for o in seen for n in o.cluster.nodes if n.name in shared}
    measured = {name: o.measurements for name, o in parts.items()}
    known = {
        name: at_rate(m, parts[name].arriving_per_s)
        for name, m in measured.items()
        if m is not None
    }
    shares = [o.remote_share for o in seen if o.remote_share is not None]
    percentiles = dict.fromkeys(key for o in seen for key in o.latency_ms)
    return Observation(
        max(o.now_s for o in seen),
        max(o.batch for o in seen),
        Cluster(tuple(nodes.values())),
        join_measurements(known) if len(known) == len(parts) else None,
        batch_ms=max(o.batch_ms for o in seen),
        throughput_per_s=sum(o.throughput_per_s for o in seen),
        arriving_per_s=sum(o.arriving_per_s for o in seen),
        queue_length=sum(o.queue_length for o in seen),
        latency_ms={
            key: max(o.latency_ms[key] for o in seen if key in o.latency_ms) for key in percentiles
        },
        remote_share=sum(shares) / len(shares) if shares else None,
    )


def join_measurements(parts: Mapping[str, Measurements]) -> Measurements:
    """Put measurements side by side; of a node that several measured, the largest use counts."""
    swings = [m.rate_cv for m in parts.values() if m.rate_cv is not None]
    latencies = [m.latency_ms for m in parts.values() if m.latency_ms is not None]
    return Measurements(
        rates={
            (_joined(name, source), _joined(name, target)): rates
            for name, m in parts.items()
            for (source, target), rates in m.rates.items()
        },
        **{
            field: _by_operator({n: getattr(m, field) for n, m in parts.items()})
            for field in SIDE_BY_SIDE
        },
        nodes=_join_nodes([m.nodes for m in parts.values()]),
        latency_ms=max(latencies, default=None),
        rate_cv=max(swings, default=None),
    )


def _join_nodes(parts: list[Mapping[str, Utilisation]]) -> dict[str, Utilisation]:
    def most(name: str, resource: str) -> float | None:
        values = [getattr(part[name], resource) for part in parts if name in part]
        return max((v for v in values if v is not None), default=None)

    names = dict.fromkeys(name for part in parts for name in part)
    return {n: Utilisation(*(most(n, resource) for resource in RESOURCES)) for n in names}


def _join_costs(parts: Mapping[str, Cost]) -> Cost:
    """Add costs up; the load of a node is at most the sum of its busiest resources."""
    nodes = _added(cost.node_load for cost in parts.values())
    latencies = [c.latency_ms for c in parts.values() if c.latency_ms is not None]
    return Cost(
        in_process_per_s=sum(c.in_process_per_s for c in parts.values()),
        in_node_per_s=sum(c.in_node_per_s for c in parts.values()),
        across_per_s=sum(c.across_per_s for c in parts.values()),
        communication_us_per_s=sum(c.communication_us_per_s for c in parts.values()),
        node_load=nodes,
        process_load=_added(cost.process_load for cost in parts.values()),
        lin=lin(np.array(list(nodes.values()))),
        lit=_by_operator({name: c.lit for name, c in parts.items()}),
        latency_ms=max(latencies, default=None),
    )


def _added(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total


def _by_operator(parts: Mapping[str, Mapping[str, V]]) -> dict[str, V]:
    return {
        _joined(name, operator): value
        for name, values in parts.items()
        for operator, value in values.items()
    }


def _own(name: str, values: Mapping[str, V]) -> dict[str, V]:
    start = f"{name}{SEPARATOR}"
    return {key[len(start) :]: value for key, value in values.items() if key.startswith(start)}


def _joined(name: str, operator: str) -> str:
    return f"{name}{SEPARATOR}{operator}"


def _title(parts: Iterable[str]) -> str:
    return "+".join(parts)


def _check_names(parts: Mapping[str, object]) -> None:
    if not parts:
        raise InvalidValue("parts", "what is joined", "at least one", ())
    for name in parts:
        if not name or SEPARATOR in name:
            raise InvalidValue("name", "a topology", f"a name without {SEPARATOR!r}", name)
