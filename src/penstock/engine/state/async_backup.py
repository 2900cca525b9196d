"""Changes of state that the driver holds for some batches, and then gives to peers beside others.

Storing fragments is a stage of its own at the end of a batch, which takes longer than most of what
it stores. So the driver takes the changes with the results, as one more keeper that does not go
with any node, and every few batches has them coded and stored in a job that no batch waits for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from penstock.engine.backend import Backend, Stage
from penstock.engine.batch import BatchSpec
from penstock.engine.migration.tasks import StoreFragments
from penstock.engine.state.backup import fragments
from penstock.engine.state.registry import StateRegistry
from penstock.state.backup.catalog import FragmentedSegment
from penstock.state.versions import Segment

#: Bytes that the driver holds at most, before batches store fragments themselves again.
HOLD_BYTES = 16_000_000

#: Times in a row that peers may fail to take them before batches do.
MOST_FAILURES = 2

#: Seconds that a job is let go on when its end is waited for, and that it has to end then.
GRACE_S, STOP_S = 5.0, 10.0


class AsyncBackup:
    """What the driver holds for one pipeline; to be used by one thread.

    Parameters
    ----------
    registry : StateRegistry
    backend : Backend
    """

    def __init__(self, registry: StateRegistry, backend: Backend) -> None:
        self._ledger, self._backend = registry, backend
        self.pending: dict[FragmentedSegment, bytes] = {}
        self.failure = ""
        self._batches = self._failures = 0
        self._pressed = False
        self._giver: _BackupThread | None = None

    @property
    def overdue(self) -> bool:
        """Whether the next batch is to store its fragments itself."""
        too_much = self._bytes > HOLD_BYTES or self._failures >= MOST_FAILURES
        return self._ledger.state_config.every == 1 or self._pressed or too_much

    @property
    def running(self) -> bool:
        """Whether peers are just being given something."""
        return self._giver is not None and self._giver.is_alive()

    @property
    def _bytes(self) -> int:
        return sum(map(len, self.pending.values()))

    def hold(self, block: FragmentedSegment, content: bytes) -> None:
        """Take what an instance saved."""
        self.pending[block] = content

    def note(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """Take note of all that a batch saved: of more than a little, or of what was put off."""
        known = list(saved)
        size = sum(int(values["bytes"]) for values in known)
        self._pressed = size > HOLD_BYTES or any(values.get("postponed") for values in known)
        self._batches += 1

    def due(self) -> bool:
        """Whether peers should get what is held now."""
        if self.running:
            return False
        self._gather()
        known = set(self._ledger.catalog)
        self.pending = {block: content for block, content in self.pending.items() if block in known}
        enough = self._batches >= self._ledger.state_config.every or self._bytes > HOLD_BYTES / 2
        return bool(self.pending) and enough

    def begin(self, spec: BatchSpec) -> None:
        """Give all that is held to the keepers of a wave, in a thread of its own."""
        if spec.backup_nodes:
            placed = {b: self._ledger.placed(spec, b.operator, b.instance) for b in self.pending}
            coded = {
                block: replace(block, r=to.r, c=to.c, backup_nodes=to.backup_nodes)
                for block, to in placed.items()
                if to.backup_nodes
            }
            self._giver = _BackupThread(self._backend, spec, dict(self.pending), coded)
            self._giver.start()
            self._batches = 0

    def end(self) -> None:
        """Wait a bounded time until peers have what they are being given."""
        if self._giver is not None:
            self._giver.stop()
            self._gather()

    def _gather(self) -> None:
        """Enter what peers have by now; what they do not have is held on."""
        giver, self._giver = self._giver, None
        if giver is None:
            return
        self.failure = giver.failure
        self._failures = self._failures + 1 if giver.failure else 0
        if giver.failure:
            return
        known = set(self._ledger.catalog)
        for block, coded in giver.coded.items():
            if block in known:
                self._ledger.catalog.add(coded)
            self.pending.pop(block, None)


class _BackupThread(threading.Thread):
    """Codes what the driver holds, and has keepers store it."""

    def __init__(
        self,
        backend: Backend,
        spec: BatchSpec,
        held: Mapping[FragmentedSegment, bytes],
        coded: Mapping[FragmentedSegment, FragmentedSegment],
    ) -> None:
        super().__init__(name="penstock-handover", daemon=True)
        self._backend, self._wave, self._held = backend, spec, held
        self.coded = coded
        self.failure = "it was not done in time"

    def run(self) -> None:
        """Run the job."""
        try:
            self._give()
        except Exception as error:  # noqa: BLE001 - told with the next batch; the driver holds on
            self.failure = f"{type(error).__name__}: {error}"
        else:
            self.failure = ""

    def stop(self) -> None:
        """Wait for its end, and bring it about if it takes long."""
        self.join(GRACE_S)
        deadline = time.monotonic() + STOP_S
        while self.is_alive() and time.monotonic() < deadline:
            self._backend.cancel_background()
            self.join(0.2)

    def _give(self) -> None:
        spec = self._wave
        given: list[list[bytes]] = [[] for _ in spec.backup_nodes]
        for block in self.coded:
            key, run = (block.operator, block.instance), Segment(block.first, block.last)
            for frame in fragments(spec, *key, run, self._held[block]):
                given[frame.partition].append(frame.pack())
        places = tuple(self._backend.executor_at(home) for home in spec.backup_nodes)
        stage = Stage(places, StoreFragments(spec), tuple(map(tuple, given)))
        self._backend.job("give state to peers", [stage], background=True)
