"""What a keyed function returned, checked: rows to emit, rows that changed, keys that are gone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.common.arrow_keys import normal_keys
from penstock.common.key_hashing import key_hashes
from penstock.model import NotAllowed
from penstock.pipeline.keyed.protocols import Keyed, Process


class KeyedResult(NamedTuple):
    """What a batch does to a keyed step; None is nothing."""

    emit: pa.Table | None
    changed: pa.Table | None
    removed: pa.Table | None


def outcome(keyed: Keyed | Process, returned: Any) -> KeyedResult:
    """Check what `Keyed.update` returned.

    Examples
    --------
    >>> from penstock.pipeline.keyed.reduce import CustomUpdate
    >>> visits = CustomUpdate(("user",), pa.schema([("n", pa.int64())]), lambda rows, state: None)
    >>> left = pa.table({"user": ["ann"]})
    >>> outcome(visits, (None, None, left)).removed.to_pylist()
    [{'user': 'ann'}]

    Parameters
    ----------
    keyed : Keyed or Process
    returned : tuple
        ``(emit, changed)`` or ``(emit, changed, removed)``; each a table, a batch or None.

    Raises
    ------
    NotAllowed
        When it is anything else, when columns of key or state are missing or strange, and when a
        key is both changed and removed.
    """
    if not isinstance(returned, tuple) or len(returned) not in (2, 3):
        got = f"a value of type {type(returned).__name__}"
        if isinstance(returned, tuple):
            got = f"a tuple of {len(returned)}"
        raise NotAllowed(
            f"'update' must return (emit, changed) or (emit, changed, removed); it returned {got}"
        )
    emit, changed, removed = (*returned, None)[:3]
    emit = _table("emit", emit)
    changed = _with_columns("changed", changed, keyed.by, keyed.state)
    removed = _with_columns("removed", removed, keyed.by, pa.schema([]))
    if changed is not None and removed is not None:
        both = np.isin(key_hashes(removed, keyed.by), key_hashes(changed, keyed.by))
        if both.any():
            key = removed.filter(pa.array(both)).slice(0, 1).to_pylist()[0]
            raise NotAllowed(
                f"'update' returned the key {key} both as changed and as removed; return it once"
            )
    return KeyedResult(emit, changed, removed)


def _table(name: str, rows: Any) -> pa.Table | None:
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if rows is None or isinstance(rows, pa.Table):
        return rows
    raise NotAllowed(
        f"what 'update' returns as {name} must be a table, a batch or None; it is a value of type "
        f"{type(rows).__name__}"
    )


def _with_columns(name: str, rows: Any, by: tuple[str, ...], state: pa.Schema) -> pa.Table | None:
    """Rows with the columns of the key and of the state, in that order and of its types."""
    table = _table(name, rows)
    if table is None or not table.num_rows:
        return None
    wanted = [*by, *state.names]
    missing = [column for column in wanted if column not in table.column_names]
    strange = [] if not state.names else sorted(set(table.column_names) - set(wanted))
    if missing or strange:
        raise NotAllowed(
            f"what 'update' returns as {name} must have the columns {', '.join(wanted)}; it has "
            f"{', '.join(table.column_names)}"
        )
    table = normal_keys(table.select(wanted), by)
    keys = [table.schema.field(column) for column in by]
    # A column whose type follows the rows has none in the schema of the state.
    kept = [table.schema.field(f.name) if pa.types.is_null(f.type) else f for f in state]
    return table.cast(pa.schema([*keys, *kept]))
