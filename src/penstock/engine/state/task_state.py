"""The state of one instance in one task: received where it migrates, loaded, changed, saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.common.arrays import BoolArray, IntArray
from penstock.common.key_hashing import HashArray
from penstock.engine.batch import BatchSpec
from penstock.engine.messages import (
    Address,
    FragmentMessage,
    MigratedBytes,
    MovedRows,
    SavedVersion,
    SegmentMessage,
    decode,
)
from penstock.engine.state.backup import backup_messages
from penstock.engine.state.incoming import Expected, IncomingState
from penstock.pipeline.keyed.protocols import Keyed, Process
from penstock.state.store import StateStore
from penstock.state.table import KeyedTable, changes, removal
from penstock.state.versions import StateLost


class TaskState:
    """The state of one instance on its executor, in a batch or in a repartitioning between two.

    1. `receive` takes state that migrates to the instance with this task.
    2. `load` completes that, loads the committed version, removes the rows that other instances
       own from now on, and adds the rows that others sent.
    3. `save` writes what changed, and returns the messages that back it up.

    Parameters
    ----------
    spec : BatchSpec
    vertex : str
    instance : int
    folder : Path
        Folder of the executor.

    Attributes
    ----------
    saved : SavedVersion or None
        The version that was saved, for the driver.
    migrated : MigratedBytes or None
        What was received, for the driver.
    """

    def __init__(self, spec: BatchSpec, vertex: str, instance: int, folder: Path) -> None:
        self.spec, self.key = spec, (vertex, instance)
        self.saved: SavedVersion | None = None
        self.migrated: MigratedBytes | None = None
        self._base = spec.bases[vertex][instance]
        self._store = StateStore(spec.state_config, folder, spec.token)
        #: Rows of other instances' state that this one owns from now on.
        self._moved: list[pa.Table] = []
        self._incoming: IncomingState | None = None
        precopied = spec.incoming.get(self.key)
        if precopied is not None:
            expected = Expected(vertex, instance, version=self._base, precopied=precopied)
            self._incoming = IncomingState(expected, folder)

    def close(self) -> None:
        """Remove what was received and not used."""
        if self._incoming is not None:
            self._incoming.close()

    def receive(self, message: object) -> None:
        """Take a message with state."""
        if isinstance(message, MovedRows):
            self._moved.append(decode(message.body))
        elif self._incoming is not None and isinstance(message, FragmentMessage | SegmentMessage):
            self._incoming.add(message)
        else:
            vertex, instance = self.key
            what = type(message).__name__
            raise TypeError(f"{vertex}[{instance}] expects no {what}: its state does not migrate")

    def load(self, by: tuple[str, ...]) -> tuple[KeyedTable, list[pa.Table]]:
        """Return the state, and the changes that repartitioning made to the committed version.

        Raises
        ------
        StateLost
            When state was not received, or is not on the executor: an instance never starts with
            less state than it had.
        """
        self._finish_incoming()
        state = self._store.load(*self.key, by, self._base)
        participant = self.spec.row_senders.get(self.key)
        removed = [] if participant is None else participant.removals(state)
        changed = [*removed, *self._moved]
        for part in changed:
            state = state.put(part)
        return state, changed

    def _finish_incoming(self) -> None:
        """Write the state that was received, before anything starts from it."""
        if self._incoming is None and not self._moved:
            return
        size, precopied = sum(rows.nbytes for rows in self._moved), 0
        if self._incoming is not None:
            received = self._incoming.finish()
            # What was not received may be in the checkpoint.
            if received.missing and not self.spec.state_config.in_checkpoint:
                vertex, instance = self.key
                missing = "; ".join(f"versions {s}: {why}" for s, why in received.missing.items())
                raise StateLost(f"{vertex}[{instance}] was not received: {missing}")
            size, precopied = size + received.size_bytes, received.precopied_bytes
        self.migrated = MigratedBytes(size, precopied)

    def save(self, changed: list[pa.Table], state: KeyedTable) -> Iterable[tuple[Address, object]]:
        """Save a new version if anything changed.

        Returns
        -------
        iterable of (Address, message)
            Messages that back it up; each fragment is coded only when it is asked for.
        """
        spec, rows = self.spec, changes(changed)
        snapshot = self.key in spec.snapshots
        if not rows.num_rows and not snapshot:
            return ()
        saved = self._store.save(
            *self.key,
            self._base,
            spec.version,
            rows,
            state,
            whole=snapshot,
            short=spec.async_backup,
        )
        self.saved = SavedVersion.of(spec.version, saved)
        if not (spec.async_backup or spec.backup_nodes):
            return ()
        return backup_messages(spec, *self.key, saved)


@dataclass(eq=False)
class WorkingState:
    """The state of a keyed step while a batch changes it.

    Parameters
    ----------
    keyed : Keyed or Process
    state : KeyedTable
        With all changes.
    changed : list of Table
        The changes to the committed version, in order.
    """

    keyed: Keyed | Process
    state: KeyedTable
    changed: list[pa.Table]

    def known(self, keys: pa.Table) -> pa.Table:
        """Return the rows of the state that have one of these keys."""
        known = self.state.get(keys)
        if known is None:
            columns = [keys.schema.field(name) for name in self.keyed.by]
            known = pa.schema([*columns, *self.keyed.state]).empty_table()
        return known

    def lookup(self, hashes: HashArray) -> tuple[pa.Table, IntArray]:
        """Return the rows with the given hashes of keys, ascending, and which hash each has."""
        return self.state.lookup(hashes)

    def where(
        self, wanted: Callable[[pa.Table], BoolArray], columns: Sequence[str]
    ) -> pa.Table | None:
        """Return the rows that a predicate over some columns picks; None for none."""
        return self.state.where(wanted, columns)

    def put(self, rows: pa.Table | None) -> None:
        """Insert or replace rows; None is none."""
        if rows is not None and rows.num_rows:
            self.state = self.state.put(rows)
            self.changed.append(rows)

    def remove(self, keys: pa.Table | None) -> None:
        """Remove keys; None is none."""
        self.put(None if keys is None else removal(keys, self.keyed.by))

    def update(self, keyed: Keyed, batch: pa.Table) -> pa.Table | None:
        """Update the state with tuples, and return the rows that the step emits.

        Nothing changes if the user's function fails, so that parts of the batch can be tried again.
        """
        made, rows, *removed = keyed.update(batch, self.known(batch))
        # In this order: a key may be removed by one part of a batch and come with the next.
        self.put(rows)
        self.remove(removed[0] if removed else None)
        return made
