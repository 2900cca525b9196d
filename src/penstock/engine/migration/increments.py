"""How many router partitions one batch boundary deals anew. Pure.

The stream stands still while state is dealt. A change that deals much of it is made in portions,
one between two batches each, so that no pause is long however large the state is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from penstock.common.arrays import group_counts
from penstock.model import Plan, RoutingTable

#: State that is dealt between two batches, or else one router partition.
PORTION_BYTES = 16_000_000


def portion(
    target: Plan,
    running: Plan,
    tables: Mapping[str, tuple[RoutingTable, RoutingTable]],
    sizes: Mapping[str, Sequence[int]],
) -> Plan:
    """Return the target, or else a plan that deals a part of what it does.

    As long as instances are to go, only their partitions do, and all else waits for the last
    portion; in any other case all that is not a partition comes with the first.

    Parameters
    ----------
    target, running : Plan
    tables : mapping of str to pair of RoutingTable
        Of each operator with state: the one in force and the next.
    sizes : mapping of str to sequence of int
        Bytes of its instances.
    """
    shrinks = any(target.parallelism[n] < running.parallelism[n] for n in tables)
    base = running if shrinks else target
    room, repartitioned, whole = float(PORTION_BYTES), 0, True
    routing = dict(base.routing)
    for name, (before, after) in tables.items():
        homes = list(before.partitions)
        held = group_counts(np.asarray(homes, dtype=np.int64), len(sizes[name]))
        for number, (origin, home) in enumerate(zip(homes, after.partitions, strict=True)):
            if origin == home:
                continue
            size = sizes[name][origin] / held[origin]
            if (repartitioned and size > room) or home >= base.parallelism[name]:
                whole = False
                continue
            homes[number] = home
            room -= size
            repartitioned += 1
        routing[name] = replace(before if shrinks else after, partitions=tuple(homes))
    return target if whole or not repartitioned else replace(base, routing=routing)
