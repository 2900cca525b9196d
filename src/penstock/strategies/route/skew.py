"""Skew answered in two tiers: partitions moved between instances, and the hottest keys split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from penstock.common.arrays import FloatArray, group_sums
from penstock.model import Grouping, Measurements, Plan, Reason, RoutingTable, Topology
from penstock.model.load import lit
from penstock.strategies.route.fill import filled
from penstock.strategies.route.rebalance import rebalance
from penstock.strategies.route.two_tier import TwoTier, resize

#: Part of a stream that split keys should have: what each batch can be levelled with.
FILLING = 0.2


def routed(
    topology: Topology,
    measurements: Measurements | None,
    running: Plan | None,
    *,
    chi: float,
    partitions: int,
) -> tuple[Mapping[str, RoutingTable], tuple[Reason, ...]]:
    """Give every operator whose keys belong to instances its routing table.

    A first table gives its partitions to the instances in turn; a change of parallelism moves the
    fewest of them.
    Where the rates of the partitions were measured and show an imbalance above `chi`, the hottest
    keys are split over all instances if the operator is splittable, and if that does not do, the
    smallest sufficient set of partitions moves (Ms eq. 29).

    Parameters
    ----------
    topology : Topology
    measurements : Measurements or None
    running : Plan or None
    chi : float
        Largest LIT that is left alone.
    partitions : int
        Partitions for each instance of a first table.

    Returns
    -------
    tuple
        Tables by operator, and why they are no longer what they were; no reason if they are.
    """
    by_key = {e.target for e in topology.edges if e.grouping is Grouping.FIELDS}
    tables: dict[str, RoutingTable] = {}
    reasons: list[Reason] = []
    for operator in topology.operators:
        if not operator.routed or operator.name not in by_key:
            continue
        name, count = operator.name, operator.parallelism
        before = running.routing.get(name) if running is not None else None
        table = before or TwoTier(partitions).table(count)
        if running is not None and running.parallelism.get(name) != count:
            table = resize(table, count)
        if table.split and not operator.splittable:
            table = replace(table, split={})
        rates = measurements.partition_rates.get(name) if measurements is not None else None
        if measurements is not None and rates is not None and len(rates) == len(table.partitions):
            hot = measurements.hot_keys.get(name, {}) if operator.splittable else {}
            table, note = _balanced(name, table, rates, hot, count, chi)
            reasons += note
        tables[name] = table
    return tables, tuple(reasons)


def _balanced(
    name: str,
    table: RoutingTable,
    rates: FloatArray,
    hot: Mapping[int, float],
    count: int,
    chi: float,
) -> tuple[RoutingTable, list[Reason]]:
    own, shared = loads_of(table, rates, hot, count)
    owner_of = np.asarray(table.partitions, dtype=np.int64)
    before = lit(shared + group_sums(owner_of, own, count))
    if before <= chi or count == 1:
        return table, []
    reasons = []
    split = _hottest(table, hot, float(rates.sum()), count)
    if split != dict(table.split):
        part = sum(hot[key] for key in split) / float(rates.sum())
        text = f"{name}: the {len(split)} hottest keys, {part:.0%} of the stream, are split"
        reasons.append(Reason(text, {"split": len(split), "part": part, "lit": before}))
        table = replace(table, split=split)
        own, shared = loads_of(table, rates, hot, count)
    # As if split keys went evenly: what they can level is kept for what comes by chance.
    even = np.full(count, shared.mean())
    done = rebalance(table, own, count, chi, operator=name, other_loads=even)
    if done.moves:
        reasons += [Reason(f"{name}: {r.text}", r.figures) for r in done.reasons]
    return done.table, reasons


def _hottest(
    table: RoutingTable, hot: Mapping[int, float], whole: float, count: int
) -> dict[int, tuple[int, ...]]:
    """Choose the keys to split: those hotter than an instance, and the next until they suffice."""
    split: dict[int, tuple[int, ...]] = {}
    part = 0.0
    for key in sorted(hot, key=lambda k: (-hot[k], k)):
        if key in table.split or hot[key] > whole / count or part < FILLING * whole:
            split[key] = tuple(range(count))
            part += hot[key]
    return split


def loads_of(
    table: RoutingTable, rates: FloatArray, hot: Mapping[int, float], count: int
) -> tuple[FloatArray, FloatArray]:
    """Return what each partition carries without split keys, and what those add to each instance.

    Parameters
    ----------
    table : RoutingTable
    rates : array
        Of each partition, with all of its keys.
    hot : mapping of int to float
        Rates of the hottest keys.
    count : int
        Instances.
    """
    own = np.array(rates, dtype=np.float64)
    parts: dict[int, float] = {}
    for key in table.split:
        parts[key] = min(hot.get(key, 0.0), float(own[key % len(own)]))
        own[key % len(own)] -= parts[key]
    instance_loads = group_sums(np.asarray(table.partitions, dtype=np.int64), own, count)
    shared = np.zeros(count)
    for key in sorted(parts, key=lambda key: -parts[key]):
        ways = list(table.split[key])
        shared[ways] += filled((instance_loads + shared)[ways], parts[key])
    return own, shared
