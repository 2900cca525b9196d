"""The state of one instance in one batch: taken in where it comes, loaded, changed, saved."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.engine.batch import BatchSpec
from penstock.engine.messages import DRIVER, MOVED, RUN, Message, decode
from penstock.engine.migration.incoming import Expected, IncomingState
from penstock.engine.state.backup import fragments
from penstock.state.backup.fragments import Piece
from penstock.state.store import StateStore
from penstock.state.table import KeyedTable, changes
from penstock.state.versions import StateLost


class TaskState:
    """The state of one instance where it runs.

    Parameters
    ----------
    spec : BatchSpec
    vertex, instance
    place : Path
        Folder of the node that this runs on.

    Attributes
    ----------
    saved : dict or None
        What was saved, for the driver.
    arrived : dict or None
        Bytes that came with the batch, and that were there ahead of it.
    """

    def __init__(self, spec: BatchSpec, vertex: str, instance: int, place: Path) -> None:
        self.spec, self.vertex, self.instance = spec, vertex, instance
        self.saved: dict[str, Any] | None = None
        self.arrived: dict[str, int] | None = None
        self._base = spec.bases[vertex][instance]
        self._home = StateStore(spec.state_config, place, spec.token)
        #: Rows of other instances' state that belong to this one from now on.
        self._moved: list[pa.Table] = []
        self._arriving: IncomingState | None = None
        there = spec.incoming.get((vertex, instance))
        if there is not None:
            wanted = Expected(vertex, instance, version=self._base, there=there)
            self._arriving = IncomingState(wanted, place)

    def close(self) -> None:
        """Remove what came and was of no use."""
        if self._arriving is not None:
            self._arriving.close()

    def take(self, frame: Message) -> None:
        """Take state that comes with the batch."""
        if frame.kind == MOVED:
            self._moved.append(decode(frame.body))
        else:
            assert self._arriving is not None, "state came to an instance that does not move"
            self._arriving.take(frame)

    def load(self, by: tuple[str, ...]) -> tuple[KeyedTable, list[pa.Table]]:
        """Return the state, and how it differs from what was saved: by what was dealt anew.

        Raises
        ------
        StateLost
            When it did not come, or is not here: an instance never starts with less than it had.
        """
        self._settle()
        state = self._home.load(self.vertex, self.instance, by, self._base)
        participant = self.spec.givers.get((self.vertex, self.instance))
        changed = [*(participant.removed(state) if participant is not None else ()), *self._moved]
        for part in changed:
            state = state.put(part)
        return state, changed

    def _settle(self) -> None:
        """Write down the state that came with the batch, before anything starts from it."""
        if self._arriving is None and not self._moved:
            return
        size, ahead = sum(rows.nbytes for rows in self._moved), 0
        if self._arriving is not None:
            came = self._arriving.settle()
            # What is not here may be in the checkpoint.
            if came.missing and not self.spec.state_config.in_checkpoint:
                told = "; ".join(f"versions {run}: {why}" for run, why in came.missing.items())
                raise StateLost(f"{self.vertex}[{self.instance}] did not come: {told}")
            size, ahead = size + came.size_bytes, came.precopied_bytes
        self.arrived = {"bytes": size, "ahead": ahead}

    def save(self, changed: list[pa.Table], state: KeyedTable) -> Iterable[Message]:
        """Save a new version if there is one.

        Returns
        -------
        iterable of Frame
            What goes to the driver, or to those that keep fragments; coded part by part, as it
            is asked for.
        """
        spec, key = self.spec, (self.vertex, self.instance)
        rows, whole = changes(changed), key in spec.whole
        if not rows.num_rows and not whole:
            return ()
        saved = self._home.save(
            *key, self._base, spec.version, rows, state, whole=whole, short=spec.hold
        )
        run = saved.segment
        self.saved = {"version": spec.version, "run": [run.first, run.last]}
        self.saved["bytes"] = saved.content.size
        if spec.hold:
            self.saved["postponed"] = saved.postponed
            number = list(spec.bases).index(self.vertex)
            body = Piece(run, 0, memoryview(saved.content)).pack()
            return (Message(RUN, DRIVER, 0, number, self.instance, body),)
        if not spec.backup_nodes:
            return ()
        self.saved["backed"] = [run.first, run.last]
        return fragments(spec, *key, run, saved.content)
