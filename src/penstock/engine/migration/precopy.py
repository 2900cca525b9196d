"""Pre-copy: state is copied to its new executor while batches run, before the plan changes.

A segment is never changed once it is written, and the large ones stay for many batches. So a
pre-copied segment is right whenever it is used, and only newer ones are missing then:

1. `PreCopy.advance` starts a pass: a background job copies the segments of the instances that move
   to a folder of their new executors that nothing reads.
2. Batches go on, and write newer segments. `advance` is called after each of them; it starts
   another pass if much is left to copy, `PASSES` at the most.
3. When `advance` says that it is done, the plan changes. The tasks that receive the state take the
   pre-copied segments, and only newer ones are sent.
4. Whatever fails is told and no more: state that was not pre-copied is migrated in step 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.engine.backend import Backend, BackgroundJob
from penstock.engine.migration.transfer import StateMove, copy_segments
from penstock.engine.state.registry import StateRegistry
from penstock.state.config import PRECOPIED
from penstock.state.versions import Copied, Segment

#: Vertex and number of an instance.
Key = tuple[str, int]

#: With fewer bytes left to copy, no job is started: it would take longer than to send them.
SMALL_BYTES = 4_000_000

#: Bytes that one job copies, or else one instance: batches wait for the slots that a job has.
JOB_BYTES = 32_000_000

#: Passes over the state of one change of plan: some of it may be written again meanwhile.
PASSES = 3

#: Seconds that a running job is given to end when it is not wanted any more.
GRACE_S = 1.0

#: Name of the thread.
THREAD = "penstock-precopy"


@dataclass(frozen=True, eq=False)
class PreCopied:
    """What was pre-copied.

    Parameters
    ----------
    segments : mapping of (str, int, str) to tuple of (Segment, int)
        By vertex, instance and executor: segments and their bytes.
    failure : str
        Why some of it was not; empty if nothing failed.
    """

    segments: Mapping[tuple[str, int, str], Copied] = field(default_factory=dict)
    failure: str = ""

    def of(self, move: StateMove) -> Copied:
        """Return the segments of an instance that its new executor has."""
        return self.segments.get((*move.key, move.executor), ())


class PreCopy:
    """Pre-copies the state of one change of plan at a time; used by one thread.

    Parameters
    ----------
    registry : StateRegistry
    backend : Backend

    Attributes
    ----------
    instances : frozenset of (str, int)
        Vertex and number of the instances whose copies must not be removed.
    """

    def __init__(self, registry: StateRegistry, backend: Backend) -> None:
        self._registry, self._backend = registry, backend
        self._change = _Change()
        self.instances: frozenset[Key] = frozenset()

    def advance(self, moves: Sequence[StateMove]) -> bool:
        """Go on copying in the background, and say whether that is done; other moves end these."""
        wanted = frozenset((*move.key, move.state.executor, move.executor) for move in moves)
        if wanted != self._change.moves:
            self.end()
            self._change = _Change(wanted)
            self.instances = frozenset(move.key for move in moves)
        change = self._change
        if change.job is not None and change.job.is_alive():
            return False
        change.collect()
        left = {move.key: self._bytes_left(move.key) for move in moves}
        if change.failure or change.passes == PASSES or sum(left.values()) < SMALL_BYTES:
            return True
        change.passes += 1
        jobs = _jobs([move for move in moves if left[move.key]], left)
        change.job = _PreCopyJob(self._backend, jobs, change.copied)
        change.job.start()
        return False

    def end(self) -> PreCopied:
        """Stop copying, and return what was copied."""
        change, self._change = self._change, _Change()
        self.instances = frozenset()
        if change.job is not None:
            change.job.stop(GRACE_S)
            change.collect()
        executors = {(name, index): executor for name, index, _, executor in change.moves}
        segments = {
            (*key, executors[key]): tuple(sorted(found.items()))
            for key, found in change.copied.items()
        }
        return PreCopied(segments, change.failure)

    def _bytes_left(self, key: Key) -> int:
        """Bytes of an instance's state that are not copied yet, by its backup."""
        copied = self._change.copied.get(key, {})
        return sum(
            one.size_bytes
            for one in self._registry.segments(*key)
            if Segment(one.first, one.last) not in copied
        )


@dataclass(eq=False)
class _Change:
    """How far the copies of one change of plan are.

    Parameters
    ----------
    moves : frozenset
        Vertex, instance, old and new executor.
    copied : dict
        Segments that were copied, and their bytes.
    job : _PreCopyJob or None
    passes : int
        Passes that were started.
    failure : str
    """

    moves: frozenset[tuple[str, int, str, str]] = frozenset()
    copied: dict[Key, dict[Segment, int]] = field(default_factory=dict)
    job: _PreCopyJob | None = None
    passes: int = 0
    failure: str = ""

    def collect(self) -> None:
        """Note what the job has copied, and forget the job."""
        if self.job is not None:
            for key, segments in self.job.copied.copy().items():
                self.copied.setdefault(key, {}).update(segments)
            self.failure = self.job.failure
            self.job = None


class _PreCopyJob(BackgroundJob):
    """One pass over the instances that move, some of them with each job."""

    def __init__(
        self,
        backend: Backend,
        jobs: Sequence[Sequence[StateMove]],
        copied: Mapping[Key, Mapping[Segment, int]],
    ) -> None:
        super().__init__(backend, THREAD)
        self._jobs = jobs
        self._before = {key: tuple(sorted(segments.items())) for key, segments in copied.items()}
        self.copied: dict[Key, dict[Segment, int]] = {}

    def work(self) -> None:
        """Copy, until all is copied or something fails."""
        for moves in self._jobs:
            if self.stopping.is_set():
                return
            try:
                found = copy_segments(
                    self.backend,
                    "pre-copy state",
                    moves,
                    self._before,
                    to_folder=PRECOPIED,
                    background=True,
                )
            except Exception:
                if self.stopping.is_set():
                    # It was cancelled.
                    return
                raise
            for one in found:
                self.copied[one.vertex, one.instance] = dict(one.segments)


def _jobs(moves: Iterable[StateMove], sizes: Mapping[Key, int]) -> list[list[StateMove]]:
    """Divide instances into jobs of about the same size."""
    jobs: list[list[StateMove]] = []
    size = JOB_BYTES
    for move in moves:
        more = sizes[move.key]
        if size + more > JOB_BYTES:
            jobs.append([])
            size = 0
        jobs[-1].append(move)
        size += more
    return jobs
