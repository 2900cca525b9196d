"""Rows of a batch dealt to the instances of the next step, one way for each grouping."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.key_hashing import HashArray, key_hashes
from penstock.model import Grouping, InvalidValue, RoutingTable
from penstock.pipeline.steps import Link
from penstock.strategies.route import Destination
from penstock.strategies.route.hot_key import HotKey
from penstock.strategies.route.partial_key import PartialKey
from penstock.strategies.route.two_tier import TwoTier


def deal(
    table: pa.Table,
    link: Link,
    instances: int,
    *,
    table_of: RoutingTable | None,
    turn: int,
    near: tuple[int, ...] = (),
    hashes: HashArray | None = None,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each target instance that gets any.

    Parameters
    ----------
    table : pyarrow.Table
    link : Link
    instances : int
        Instances of the target.
    table_of : RoutingTable or None
        The target's routing table.
    turn : int
        Where an even spread begins, so that short batches do not all go to the first instances.
    near : tuple of int
        Targets in the sender's own place, for local grouping.
    hashes : array, optional
        Hashes of the keys, where they are known already.
    """
    grouping = link.grouping
    if grouping is Grouping.ALL:
        yield from ((target, table) for target in range(instances))
    elif grouping is Grouping.GLOBAL or instances == 1:
        yield 0, table
    elif grouping is Grouping.LOCAL_OR_SHUFFLE and near:
        yield from ((near[i], part) for i, part in _spread(table, len(near), turn))
    elif grouping in (Grouping.SHUFFLE, Grouping.NONE, Grouping.LOCAL_OR_SHUFFLE):
        yield from _spread(table, instances, turn)
    else:
        targets = _targets(table, link, instances, table_of, turn, hashes)
        yield from _by_target(table, targets, instances)


def _targets(
    table: pa.Table,
    link: Link,
    instances: int,
    table_of: RoutingTable | None,
    turn: int,
    hashes: HashArray | None,
) -> npt.NDArray[np.int64]:
    if link.by_key:
        keys = key_hashes(table, link.by) if hashes is None else hashes
        if link.grouping is Grouping.FIELDS:
            to = Destination(instances, table_of, position=turn)
            return TwoTier().route_hashes(keys, to)
        if link.grouping is Grouping.PARTIAL_KEY:
            return PartialKey().route_hashes(keys, Destination(instances))
        # What is hot is decided for each sender's batch by itself: nothing to keep, and a batch
        # that is repeated goes the same way.
        router = HotKey()
        to = Destination(instances, hot=router.hot(keys, instances), position=turn)
        return router.route_hashes(keys, to)
    if link.grouping is Grouping.DIRECT:
        chosen = np.asarray(table.column(link.by[0]))
    else:
        assert link.choose is not None
        chosen = np.asarray(link.choose(table.combine_chunks().to_batches()[0], instances))
    targets = chosen.astype(np.int64)
    if len(targets) != table.num_rows:
        raise InvalidValue("targets", f"grouping {link.grouping.value}", "one a row", len(targets))
    if len(targets) and (targets.min() < 0 or targets.max() >= instances):
        worst = int(targets.min() if targets.min() < 0 else targets.max())
        allowed = f"from 0 to {instances - 1}"
        raise InvalidValue("targets", f"grouping {link.grouping.value}", allowed, worst)
    return targets


def _spread(table: pa.Table, instances: int, turn: int) -> Iterator[tuple[int, pa.Table]]:
    """Cut into equal parts without looking at the rows."""
    bounds = np.linspace(0, table.num_rows, instances + 1).astype(np.int64)
    for i in range(instances):
        start, stop = int(bounds[i]), int(bounds[i + 1])
        if stop > start:
            yield (i + turn) % instances, table.slice(start, stop - start)


def _by_target(
    table: pa.Table, targets: npt.NDArray[np.int64], instances: int
) -> Iterator[tuple[int, pa.Table]]:
    """Sort by target once, and cut."""
    order = np.argsort(targets, kind="stable")
    bounds = np.searchsorted(targets[order], np.arange(instances + 1))
    ordered = table.take(pa.array(order))
    for target in range(instances):
        start, stop = int(bounds[target]), int(bounds[target + 1])
        if stop > start:
            yield target, ordered.slice(start, stop - start)
