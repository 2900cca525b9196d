"""How many router partitions are repartitioned between two batches. Pure.

No batch runs while state is repartitioned between batches. A change that repartitions much state
is made in increments, one between two batches each, so that no pause is long however large the
state is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from penstock.common.arrays import group_counts
from penstock.model import Plan, RoutingTable

#: State that is repartitioned between two batches, or else one router partition.
INCREMENT_BYTES = 16_000_000


def increment(
    target: Plan,
    running: Plan,
    tables: Mapping[str, tuple[RoutingTable, RoutingTable]],
    sizes: Mapping[str, Sequence[int]],
) -> Plan:
    """Return the target plan, or a plan that moves only some of the router partitions it moves.

    As long as the number of instances is to shrink, an increment moves partitions and nothing
    else, and all other changes come with the last one. Otherwise all that is not a partition comes
    with the first increment.

    Parameters
    ----------
    target, running : Plan
    tables : mapping of str to pair of RoutingTable
        By stateful operator: the table in force, and that of the target.
    sizes : mapping of str to sequence of int
        By stateful operator and instance: bytes of state.
    """
    shrinks = any(target.parallelism[n] < running.parallelism[n] for n in tables)
    base = running if shrinks else target
    room, repartitioned, complete = float(INCREMENT_BYTES), 0, True
    routing = dict(base.routing)
    for name, (before, after) in tables.items():
        owners = list(before.partitions)
        counts = group_counts(np.asarray(owners, dtype=np.int64), len(sizes[name]))
        for number, (old, new) in enumerate(zip(owners, after.partitions, strict=True)):
            if old == new:
                continue
            size = sizes[name][old] / counts[old]
            if (repartitioned and size > room) or new >= base.parallelism[name]:
                complete = False
                continue
            owners[number] = new
            room -= size
            repartitioned += 1
        routing[name] = replace(before if shrinks else after, partitions=tuple(owners))
    return target if complete or not repartitioned else replace(base, routing=routing)
