"""Split keys: several instances work on the tuples of one hot key, and the driver merges.

A key has one owner, the instance of its router partition, which has its state. The tuples of a
split key go to several instances:

1. An instance that does not own the key reduces its tuples to a row, its *share*, and sends the
   share to the driver.
2. The owner works on its own tuples as ever, and sends its row of the key to the driver, too.
3. The driver merges the rows of a key, gives the result to the sinks with the batch, and writes
   the shares in the commit log.
4. With the next batch the owner gets the shares from the driver, and merges them into its state.

So a split key divides no state, moves none, and needs no stage of its own. Split keys are few,
whatever the number of keys.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from penstock.common.arrays import BoolArray, IntArray
from penstock.common.key_hashing import HashArray, key_hashes, modulo
from penstock.engine.messages import decode
from penstock.engine.state.task_state import WorkingState
from penstock.model import NotAllowed, RoutingTable
from penstock.pipeline.keyed.protocols import Keyed, Process
from penstock.pipeline.keyed.reduce import Mergeable, WorkThenReduce, merge_into
from penstock.pipeline.keyed.windowed import Windowed

#: Column that says what a row for the driver is: the share of an instance, or the row of the owner,
#: which this batch did not change or did.
ROLE = "__role"
SHARE, UNCHANGED, CHANGED = 0, 1, 2


def reduction(keyed: Keyed | Process | None) -> Mergeable:
    """Return what merges the rows of a step with split keys.

    Raises
    ------
    NotAllowed
        When the step can merge none.
    """
    inner = keyed.reduce if isinstance(keyed, WorkThenReduce) else keyed
    if isinstance(inner, Windowed) or not isinstance(inner, Mergeable):
        raise NotAllowed(
            "the checkpoint has shares of split keys that are yet to be merged, and their step "
            "does not aggregate any more; start with another checkpoint, or go on with the "
            "pipeline that wrote this one"
        )
    return inner


class SplitKeys:
    """The split keys of one instance in one batch.

    Parameters
    ----------
    working : WorkingState
        The state of the instance.
    routing : RoutingTable
    instance : int
    """

    def __init__(self, working: WorkingState, routing: RoutingTable, instance: int) -> None:
        self.working, self.instance = working, instance
        self.reduce = reduction(working.keyed)
        self._owners = np.asarray(routing.partitions, dtype=np.int64)
        self._split = np.array(sorted(routing.split), dtype=np.uint64)
        self._shares: list[pa.Table] = []
        self._changed: list[HashArray] = []

    def _owned(self, hashes: HashArray) -> BoolArray:
        return np.asarray(self._owners[modulo(hashes, len(self._owners))] == self.instance)

    def _hashes(self, rows: pa.Table) -> HashArray:
        return key_hashes(rows, self.reduce.by)

    def merge_shares(self, body: bytes) -> None:
        """Merge the shares of the batch before into the state, of keys that this instance owns."""
        shares = decode(body)
        owned = shares.filter(pa.array(self._owned(self._hashes(shares))))
        if owned.num_rows:
            self.working.put(self._merged(owned))

    def update(self, batch: pa.Table) -> pa.Table | None:
        """Work on tuples, and return the rows that are emitted for keys that are not split."""
        keyed = self.working.keyed
        owned = keyed.parts(batch) if isinstance(keyed, WorkThenReduce) else batch
        if owned is None:
            return None
        shares = rows = emitted = None
        if len(self._split):
            mine = self._owned(self._hashes(owned))
            owned, shares = owned.filter(pa.array(mine)), owned.filter(pa.array(~mine))
        if owned.num_rows:
            rows = self._merged(owned)
            split = np.isin(self._hashes(rows), self._split)
            emitted = self.reduce.finished(rows.filter(pa.array(~split)) if split.any() else rows)
            self._changed.append(self._hashes(rows)[split])
        # Nothing above changes the state: a batch that fails there is cut in two and tried again.
        self.working.put(rows)
        if shares is not None and shares.num_rows:
            self._shares.append(shares)
        return emitted

    def _merged(self, parts: pa.Table) -> pa.Table:
        """Return the new rows of the keys that have parts; the state stays as it is."""
        return merge_into(self.reduce, parts, self.working.known(parts))

    def for_driver(self) -> pa.Table | None:
        """Return the shares, and the rows of split keys that this instance owns; None if none."""
        parts = [_with_role(rows, np.full(rows.num_rows, SHARE)) for rows in self._shares]
        keys = self._split[self._owned(self._split)]
        rows = self.working.state.at(keys)
        if rows.num_rows:
            changed = np.isin(self._hashes(rows), np.concatenate([keys[:0], *self._changed]))
            parts.append(_with_role(rows, np.where(changed, CHANGED, UNCHANGED)))
        return pa.concat_tables(parts, promote_options="permissive") if parts else None


def _with_role(rows: pa.Table, roles: IntArray) -> pa.Table:
    return rows.append_column(ROLE, pa.array(roles, pa.int8()))


def merge_split_keys(
    keyed: Keyed | Process | None, tables: Iterable[pa.Table]
) -> tuple[pa.Table | None, pa.Table | None]:
    """Merge what all instances sent of split keys, in the driver.

    Returns
    -------
    tuple
        The rows that are emitted, of keys that any instance changed; and the shares that the
        owners of the keys do not have yet.
    """
    reduce = reduction(keyed)
    rows = pa.concat_tables(list(tables), promote_options="permissive")
    roles = np.asarray(rows.column(ROLE))
    rows = rows.drop_columns([ROLE])
    hashes = key_hashes(rows, reduce.by)
    changed = np.isin(hashes, hashes[roles != UNCHANGED])
    if not changed.any():
        return None, None
    emitted = reduce.finished(reduce.merged(rows.filter(pa.array(changed))))
    shares = rows.filter(pa.array(roles == SHARE))
    return emitted, reduce.merged(shares) if shares.num_rows else None
