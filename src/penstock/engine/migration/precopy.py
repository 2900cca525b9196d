"""Copies state to its new homes while batches go on, so that little is left to carry between two.

Runs are never changed once they are written, and the large ones stay for many batches: what was
copied ahead is right whenever it is used, and only newer runs are missing then. It lies in a folder
of its own, in charge of nothing, until
`penstock.engine.migration.tasks.ReceiveState` takes it over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.engine.backend import Backend, Stage
from penstock.engine.messages import STATS, Message, decode_json
from penstock.engine.migration.incoming import Expected
from penstock.engine.migration.tasks import ReceiveState, SendState, Transfer
from penstock.engine.results import raise_error
from penstock.engine.state.handles import InstanceState
from penstock.engine.state.registry import StateRegistry
from penstock.state.config import PRECOPIED
from penstock.state.versions import Copied, Segment

#: An instance whose state moves: vertex, number, what is known of it, the new place.
Moved = tuple[str, int, InstanceState, str]

#: Vertex and number of an instance.
Key = tuple[str, int]

#: Bytes that are left to carry at which nothing is copied ahead: a job more would take longer.
SMALL_BYTES = 4_000_000

#: Bytes that one job copies, or else one instance: batches wait for the slots that it holds.
JOB_BYTES = 32_000_000

#: Times that the state of one change is looked through: some of it may be written anew meanwhile.
PASSES = 3

#: Seconds that a job is let go on when it is not wanted any more, and that its end is waited for.
GRACE_S, STOP_S = 1.0, 10.0


@dataclass(frozen=True, eq=False)
class PreCopied:
    """What was copied ahead.

    Parameters
    ----------
    runs : mapping
        Runs and their bytes, by vertex, instance and place.
    failure : str
        Why some of it was not; empty when nothing failed.
    """

    runs: Mapping[tuple[str, int, str], Copied] = field(default_factory=dict)
    failure: str = ""


class PreCopy:
    """Copies the state of one change of plan at a time; to be used by one thread.

    Whatever fails is only told: what is not copied ahead is carried later.
    """

    def __init__(self, registry: StateRegistry, backend: Backend) -> None:
        self._ledger, self._backend = registry, backend
        self._change = _Change()

    @property
    def coming(self) -> frozenset[Key]:
        """Instances whose copies must be left where they are."""
        return frozenset((name, index) for name, index, _, _ in self._change.moves)

    def bring(self, moves: Sequence[Moved]) -> bool:
        """Copy on, in a thread of its own, and say whether that is done; other moves end these."""
        wanted = frozenset((name, i, known.executor, target) for name, i, known, target in moves)
        if wanted != self._change.moves:
            self.end()
            self._change = _Change(wanted)
        change = self._change
        if change.copier is not None and change.copier.is_alive():
            return False
        change.gather()
        left = {(name, i): self._left_bytes(name, i) for name, i, _, _ in moves}
        if change.failure or change.passes == PASSES or sum(left.values()) < SMALL_BYTES:
            return True
        change.passes += 1
        jobs = _jobs([move for move in moves if left[move[0], move[1]]], left)
        change.copier = _PreCopyThread(self._backend, jobs, change.copied)
        change.copier.start()
        return False

    def end(self) -> PreCopied:
        """Copy no more, and return what is there."""
        change, self._change = self._change, _Change()
        if change.copier is not None:
            change.copier.stop()
            change.gather()
        places = {(name, i): target for name, i, _, target in change.moves}
        runs = {
            (*key, places[key]): tuple(sorted(found.items()))
            for key, found in change.copied.items()
        }
        return PreCopied(runs, change.failure)

    def _left_bytes(self, name: str, index: int) -> int:
        """Bytes of the state that are not there yet, by what peers keep of it."""
        there = self._change.copied.get((name, index), {})
        return sum(
            block.size_bytes
            for block in self._ledger.blocks(name, index)
            if Segment(block.first, block.last) not in there
        )


@dataclass(eq=False)
class _Change:
    """How far the copies of one change of plan are.

    Parameters
    ----------
    moves : frozenset
        Vertex, instance, old and new place.
    copied : dict
        Runs that are there, and their bytes.
    copier : Thread or None
    passes : int
        Those that were begun.
    failure : str
    """

    moves: frozenset[tuple[str, int, str, str]] = frozenset()
    copied: dict[Key, dict[Segment, int]] = field(default_factory=dict)
    copier: _PreCopyThread | None = None
    passes: int = 0
    failure: str = ""

    def gather(self) -> None:
        """Take note of what the thread has done, which is not asked again."""
        if self.copier is not None:
            for key, runs in self.copier.copied.copy().items():
                self.copied.setdefault(key, {}).update(runs)
            self.failure = self.copier.failure
            self.copier = None


class _PreCopyThread(threading.Thread):
    """One pass over the instances that move, some of them with each job."""

    def __init__(
        self,
        backend: Backend,
        jobs: Sequence[Sequence[Moved]],
        there: Mapping[Key, Mapping[Segment, int]],
    ) -> None:
        super().__init__(name="penstock-ahead", daemon=True)
        self._backend, self._jobs = backend, jobs
        self._there = {key: tuple(sorted(runs.items())) for key, runs in there.items()}
        self._halt = threading.Event()
        self.copied: dict[Key, dict[Segment, int]] = {}
        self.failure = ""

    def run(self) -> None:
        """Copy, until all is there or something fails."""
        try:
            for moves in self._jobs:
                if self._halt.is_set():
                    return
                self._copy(moves)
        except Exception as error:  # noqa: BLE001 - told with the move, which then carries more
            if not self._halt.is_set():
                self.failure = f"{type(error).__name__}: {error}"

    def stop(self) -> None:
        """End it within a bounded time; what it has copied so far counts."""
        self._halt.set()
        self.join(GRACE_S)
        deadline = time.monotonic() + STOP_S
        while self.is_alive() and time.monotonic() < deadline:
            self._backend.cancel_background()
            self.join(0.2)

    def _copy(self, moves: Sequence[Moved]) -> None:
        transfers: dict[str, list[Transfer]] = {}
        for to, (name, index, known, _) in enumerate(moves):
            # The latest version there is: the runs of an older one may be gone by now.
            there = self._there.get((name, index), ())
            transfer = Transfer(name, index, known.version, to, there=there)
            transfers.setdefault(known.executor, []).append(transfer)
        arrivals = tuple(Expected(name, index) for name, index, _, _ in moves)
        stages = (
            Stage(tuple(transfers), SendState(tuple(tuple(p) for p in transfers.values()))),
            Stage(tuple(target for *_, target in moves), ReceiveState(arrivals, PRECOPIED)),
        )
        sent = self._backend.job("copy state ahead", stages, background=True)
        frames = [Message.unpack(bytes(data)) for data in sent]
        raise_error(frames)
        for answer in (decode_json(frame.body) for frame in frames if frame.kind == STATS):
            runs = {Segment(first, last): size for first, last, size in answer["runs"]}
            self.copied[answer["vertex"], answer["instance"]] = runs


def _jobs(moves: Iterable[Moved], sizes: Mapping[Key, int]) -> list[list[Moved]]:
    """Deal instances to jobs of about the same size."""
    jobs: list[list[Moved]] = []
    size = JOB_BYTES
    for move in moves:
        more = sizes[move[0], move[1]]
        if size + more > JOB_BYTES:
            jobs.append([])
            size = 0
        jobs[-1].append(move)
        size += more
    return jobs
