"""Ms-Stream's two-tier router: key to partition by hash, partition to instance by a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import IntArray, group_counts
from penstock.common.errors import InvalidValue
from penstock.common.key_hashing import HashArray, modulo
from penstock.common.parameters import param
from penstock.model import RoutingTable
from penstock.strategies.route import Destination, KeyRouter, among, register
from penstock.strategies.route.fill import level_counts
from penstock.strategies.route.rebalance import Rebalanced, rebalance

__all__ = ["Rebalanced", "TwoTier", "in_turn", "rebalance", "resize"]


@register
@dataclass(frozen=True)
class TwoTier(KeyRouter):
    """Send a key to its partition (eq. 28) and the partition to its instance (eq. 27).

    The table is short, whatever the number of keys, and a partition is moved, with the state of its
    keys, by changing one entry of it. The hottest keys can be split: their tuples go to those of
    the instances that share the key which get least of the batch; their results need a merge.

    Examples
    --------
    >>> router = TwoTier(partitions_per_instance=2)
    >>> table = router.table(2)
    >>> table.partitions
    (0, 1, 0, 1)
    >>> router.route([10, 11, 12, 13], Destination(2, table)).tolist()
    [0, 0, 1, 0]
    """

    name: ClassVar[str] = "two-tier"
    summary: ClassVar[str] = "key to partition by hash, partition to instance by a table"
    origin: ClassVar[str] = "Ms-Stream, eq. 27-28"
    choices: ClassVar[int | None] = 1

    partitions_per_instance: int = param(
        64,
        "Partitions made for each instance of the first plan; the paper asks for more than 1.",
        least=1,
        most=65_536,
        unit="partitions",
    )

    def table(self, instances: int) -> RoutingTable:
        """Make the table of the first plan: partitions given to the instances in turn.

        Their number is a multiple of the instances', so that this table sends every key where
        `hash` would.
        """
        return RoutingTable(in_turn(instances * self.partitions_per_instance, instances))

    def route_hashes(self, hashes: HashArray, to: Destination) -> IntArray:
        """Give every hash an instance; see `Router.route_hashes`."""
        table = to.table or self.table(to.instances)
        return route_by_table(hashes, table, to.instances, to.position)


def route_by_table(
    hashes: HashArray, table: RoutingTable, instances: int, position: int = 0
) -> IntArray:
    """Give every hash an instance by a table that is known to name these instances only.

    Parameters
    ----------
    hashes : array
    table : RoutingTable
    instances, position : int
        As in `Destination`.
    """
    owner = np.asarray(table.partitions, dtype=np.int64)
    instance = owner[modulo(hashes, len(owner))]
    if table.split:
        _route_split(instance, hashes, table, instances, position)
    return instance


def in_turn(partitions: int, instances: int) -> tuple[int, ...]:
    """Give partitions to instances in turn."""
    return tuple((np.arange(partitions) % instances).tolist())


def resize(table: RoutingTable, instances: int) -> RoutingTable:
    """Change the number of instances by moving the fewest partitions.

    The partitions stay as they are, only owners change: a new instance is given what the fullest
    have too much, and the partitions of an instance that goes are given to the emptiest. If the
    numbers of partitions differed by at most one before, they do so afterwards, and no partition
    moves that need not. Split keys lose the instances that are gone; one that has a single instance
    left is split no more.

    Examples
    --------
    >>> resize(RoutingTable((0, 1, 0, 1, 0, 1)), 3).partitions
    (0, 1, 0, 1, 2, 2)
    >>> resize(RoutingTable((0, 1, 2, 0, 1, 2)), 2).partitions
    (0, 1, 0, 0, 1, 1)
    """
    if instances < 1:
        raise InvalidValue("instances", "a routing table", "at least 1", instances)
    owner = np.array(table.partitions, dtype=np.int64)
    present = max(int(owner.max()) + 1, instances)
    held = group_counts(owner, present)
    gone = np.flatnonzero(owner >= instances)
    for partition in gone.tolist():
        target = int(np.argmin(held[:instances]))
        owner[partition] = target
        held[target] += 1
    held = held[:instances]
    # The fullest give to those that had no partition, until these have their even share.
    fresh, share = np.flatnonzero(held == 0), -(-len(owner) // instances)
    while len(fresh) and held[fresh].min() < min(share, held.max() - 1):
        donor, target = int(np.argmax(held)), int(fresh[np.argmin(held[fresh])])
        owner[np.flatnonzero(owner == donor)[-1]] = target
        held[donor] -= 1
        held[target] += 1
    split = {
        key: kept
        for key, to in table.split.items()
        if len(kept := tuple(i for i in to if i < instances)) > 1
    }
    return RoutingTable(tuple(owner.tolist()), split)


def _route_split(
    instance: IntArray, hashes: HashArray, table: RoutingTable, instances: int, position: int
) -> None:
    """Send the tuples of split keys to where least of this batch goes, in place.

    All other tuples have their place, so split keys level the batch, whatever came by chance.
    """
    keys = np.array(sorted(table.split), dtype=np.uint64)
    number = among(hashes, keys)
    rows = np.flatnonzero(number >= 0)
    if not len(rows):
        return
    loads = group_counts(instance, instances) - group_counts(instance[rows], instances)
    sizes = group_counts(number[rows], len(keys))
    ends = np.cumsum(sizes)
    by_key = rows[np.argsort(number[rows], kind="stable")]
    # The lightest last: they even out what is left.
    for key in np.argsort(-sizes, kind="stable")[: int((sizes > 0).sum())].tolist():
        ways = np.array(table.split[int(keys[key])], dtype=np.int64)
        counts = level_counts(loads[ways], int(sizes[key]), position)
        loads[ways] += counts
        instance[by_key[ends[key] - sizes[key] : ends[key]]] = np.repeat(ways, counts)
