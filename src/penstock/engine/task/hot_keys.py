"""Split keys without a layer that merges: what others made of a key goes through the driver.

A key has one home, the instance that owns its router partition, and its state is there. Other
instances do a share of the work on a split key and send what came of it to the driver. The home
sends its row of the key there, too, so that the driver can merge both and give the result to the
sinks with the batch. With the next batch the home gets the shares, and puts them into its state;
until then the driver's journal keeps them. So a split key divides no state, moves none, and takes
no stage of its own. Split keys are few, whatever the number of keys.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from penstock.common.arrays import BoolArray, IntArray
from penstock.common.key_hashing import HashArray, key_hashes
from penstock.engine.messages import decode
from penstock.engine.task.working_state import WorkingState
from penstock.model import InvalidValue, RoutingTable
from penstock.pipeline.keyed.reduce import Mergeable, WorkThenReduce, merge_into
from penstock.pipeline.keyed.update import outcome
from penstock.pipeline.keyed.windowed import Windowed
from penstock.pipeline.steps import Keyed
from penstock.strategies.route import modulo

#: Column that says what a row for the driver is: the share of an instance, or the home's row, which
#: is as it was or has changed.
ROLE = "__role"
SHARE, AS_IT_WAS, CHANGED = 0, 1, 2


def reduction(keyed: Keyed | None) -> Mergeable:
    """Return what merges the rows of a step that shares keys.

    Raises
    ------
    InvalidValue
        When the step can merge none.
    """
    inner = keyed.reduce if isinstance(keyed, WorkThenReduce) else keyed
    if isinstance(inner, Windowed) or not isinstance(inner, Mergeable):
        allowed = "of a step that still reduces: some of its results are yet to be merged"
        raise InvalidValue("checkpoint", "a run", allowed, type(inner).__name__)
    return inner


class SplitKeys:
    """Split keys of one instance in one batch.

    Parameters
    ----------
    held : WorkingState
        Its state, of a reduction or one behind work.
    table : RoutingTable
    instance : int
    """

    def __init__(self, held: WorkingState, table: RoutingTable, instance: int) -> None:
        self.held, self.instance = held, instance
        self.reduce = reduction(held.keyed)
        self._homes = np.asarray(table.partitions, dtype=np.int64)
        self._split = np.array(sorted(table.split), dtype=np.uint64)
        self._shares: list[pa.Table] = []
        self._changed: list[HashArray] = []

    def _own(self, hashes: HashArray) -> BoolArray:
        return np.asarray(self._homes[modulo(hashes, len(self._homes))] == self.instance)

    def _hashes(self, rows: pa.Table) -> HashArray:
        return key_hashes(rows, self.reduce.by)

    def settle(self, body: bytes) -> None:
        """Put shares of the batch before into the state, of the keys whose home this is."""
        shares = decode(body)
        own = shares.filter(pa.array(self._own(self._hashes(shares))))
        if own.num_rows:
            self.held.put(self._merged(own))

    def update(self, batch: pa.Table) -> pa.Table | None:
        """Work on tuples, and return what is emitted of the keys that are not split."""
        keyed = self.held.keyed
        own = keyed.parts(batch) if isinstance(keyed, WorkThenReduce) else batch
        if own is None:
            return None
        shares = rows = emitted = None
        if len(self._split):
            mine = self._own(self._hashes(own))
            own, shares = own.filter(pa.array(mine)), own.filter(pa.array(~mine))
        if own.num_rows:
            rows = self._merged(own)
            split = np.isin(self._hashes(rows), self._split)
            emitted = self.reduce.finished(rows.filter(pa.array(~split)) if split.any() else rows)
            self._changed.append(self._hashes(rows)[split])
        # Nothing above changes the state: a batch that fails there is cut in two and tried again.
        self.held.put(rows)
        if shares is not None and shares.num_rows:
            self._shares.append(shares)
        return emitted

    def _merged(self, parts: pa.Table) -> pa.Table:
        """Merge parts into the state of their keys, which stays as it is."""
        rows = merge_into(self.reduce, parts, self.held.known(parts))
        changed = outcome(self.held.keyed, (None, rows)).changed
        return rows if changed is None else changed

    def for_driver(self) -> pa.Table | None:
        """Return shares, and the rows of split keys whose home this is; None if there are none."""
        parts = [_marked(rows, np.full(rows.num_rows, SHARE)) for rows in self._shares]
        keys = self._split[self._own(self._split)]
        rows = self.held.state.at(keys)
        if rows.num_rows:
            changed = np.concatenate([keys[:0], *self._changed])
            new = np.isin(self._hashes(rows), changed)
            parts.append(_marked(rows, np.where(new, CHANGED, AS_IT_WAS)))
        return pa.concat_tables(parts, promote_options="permissive") if parts else None


def _marked(rows: pa.Table, roles: IntArray) -> pa.Table:
    return rows.append_column(ROLE, pa.array(roles, pa.int8()))


def merged_shares(
    keyed: Keyed | None, tables: Iterable[pa.Table]
) -> tuple[pa.Table | None, pa.Table | None]:
    """Merge what all instances sent of split keys.

    Returns
    -------
    tuple
        What is emitted, of keys that any of them changed; and the shares that their homes do not
        have yet.
    """
    reduce = reduction(keyed)
    rows = pa.concat_tables(list(tables), promote_options="permissive")
    roles = np.asarray(rows.column(ROLE))
    rows = rows.drop_columns([ROLE])
    hashes = key_hashes(rows, reduce.by)
    touched = np.isin(hashes, hashes[roles != AS_IT_WAS])
    if not touched.any():
        return None, None
    out = reduce.finished(reduce.merged(rows.filter(pa.array(touched))))
    shares = rows.filter(pa.array(roles == SHARE))
    return out, reduce.merged(shares) if shares.num_rows else None
