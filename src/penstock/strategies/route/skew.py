"""Skew answered in two tiers: partitions moved between instances, and the hottest keys split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from penstock.model import Grouping, Measurements, Plan, Reason, RoutingTable, Topology
from penstock.model.arrays import FloatArray, group_sums
from penstock.strategies.route.rebalance import rebalance
from penstock.strategies.route.two_tier import TwoTier, resize

#: A key that is split before stays split while it is above this part of an instance's fair share.
STILL_HOT = 0.7


def routed(
    topology: Topology,
    measurements: Measurements | None,
    running: Plan | None,
    *,
    chi: float,
    partitions: int,
) -> tuple[Mapping[str, RoutingTable], tuple[Reason, ...]]:
    """Give every operator whose keys belong to instances its routing table.

    A first table deals its partitions in turn; a change of parallelism moves the fewest of them.
    Where the rates of the partitions were measured, keys that alone exceed an instance's fair share
    are split over as many instances as they fill, if the operator is splittable, and above an
    imbalance of `chi` the smallest sufficient set of partitions moves (Ms eq. 29).

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
    fair = float(rates.sum()) / count
    home = np.asarray(table.partitions, dtype=np.int64)
    loads = np.asarray(rates, dtype=np.float64).copy()
    other = np.zeros(count)
    split: dict[int, tuple[int, ...]] = {}
    for key in sorted(hot, key=lambda k: -hot[k]):
        threshold = STILL_HOT * fair if key in table.split else fair
        if count == 1 or hot[key] <= threshold:
            continue
        ways = min(count, math.ceil(hot[key] / fair) + 1)
        partition = int(key % len(home))
        loads[partition] = max(0.0, loads[partition] - hot[key])
        kept = table.split.get(key, ())
        if len(kept) != ways:
            # The home of the key first, then those with the least to do.
            carried = other + group_sums(home, loads, count)
            lightest = [int(i) for i in np.argsort(carried, kind="stable") if i != home[partition]]
            kept = (int(home[partition]), *lightest[: ways - 1])
        split[key] = kept
        other[list(kept)] += hot[key] / len(kept)
    reasons = []
    if split != dict(table.split):
        text = f"{name}: {len(split)} keys are hotter than an instance and are split"
        reasons.append(Reason(text, {"split": len(split), "fair_share": fair}))
    done = rebalance(
        replace(table, split=split), loads, count, chi, operator=name, other_loads=other
    )
    if done.moves:
        reasons += [Reason(f"{name}: {r.text}", r.figures) for r in done.reasons]
    return done.table, reasons
