"""Backup of state in the background, while batches run.

To store fragments with a batch takes one more stage, which often lasts longer than what it stores
is worth. Asynchronous backup takes that stage out of most batches:

1. Instances send the segments that they saved to the driver, with the results of the batch. The
   driver has them in memory: it does not fail together with any node.
2. Every few batches, or when these are many bytes, the driver codes them and has backup nodes
   store the fragments, in a job that runs in a thread of its own.
3. When the job is done, the driver enters the fragments in the `StateRegistry` and drops its copy.
4. If the job fails, the driver keeps its copy and tries again. After `MAX_FAILURES` failures in a
   row, or with more than `MAX_PENDING_BYTES`, batches store fragments themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.engine.backend import Backend, BackgroundJob, Stage
from penstock.engine.batch import BatchSpec
from penstock.engine.messages import SavedVersion, pack
from penstock.engine.state.backup import StoreFragments, fragment_messages
from penstock.engine.state.registry import StateRegistry
from penstock.state.backup.catalog import FragmentedSegment
from penstock.state.versions import Segment

#: Bytes that the driver has in memory at most, before batches store fragments themselves again.
MAX_PENDING_BYTES = 16_000_000

#: Failed jobs in a row after which batches store fragments themselves.
MAX_FAILURES = 2

#: Seconds that a running job is given to end when its result is waited for.
GRACE_S = 5.0

#: Name of the thread.
THREAD = "penstock-async-backup"


class AsyncBackup:
    """The segments of one pipeline that the driver has yet to back up; used by one thread.

    Parameters
    ----------
    registry : StateRegistry
    backend : Backend

    Attributes
    ----------
    pending : dict of FragmentedSegment to bytes
        Segments that no backup node has.
    failure : str
        Why the last job failed; empty if it did not.
    """

    def __init__(self, registry: StateRegistry, backend: Backend) -> None:
        self._registry, self._backend = registry, backend
        self.pending: dict[FragmentedSegment, bytes] = {}
        self.failure = ""
        self._batches = self._failures = 0
        self._too_much = False
        self._job: _BackupJob | None = None

    @property
    def overdue(self) -> bool:
        """Whether the next batch has to store its fragments itself."""
        behind = self._bytes > MAX_PENDING_BYTES or self._failures >= MAX_FAILURES
        return self._registry.state_config.every == 1 or self._too_much or behind

    @property
    def running(self) -> bool:
        """Whether a job is running."""
        return self._job is not None and self._job.is_alive()

    @property
    def _bytes(self) -> int:
        return sum(map(len, self.pending.values()))

    def add(self, segment: FragmentedSegment, content: bytes) -> None:
        """Take a segment that an instance sent."""
        self.pending[segment] = content

    def batch_saved(self, saved: Iterable[SavedVersion]) -> None:
        """Note what all instances of a batch saved: whether the next batch can send as much."""
        versions = list(saved)
        size = sum(version.size_bytes for version in versions)
        self._too_much = size > MAX_PENDING_BYTES or any(v.postponed for v in versions)
        self._batches += 1

    def due(self) -> bool:
        """Whether a job should start now."""
        if self.running:
            return False
        self._collect()
        if not self.pending:
            return False
        known = set(self._registry.catalog)
        self.pending = {segment: data for segment, data in self.pending.items() if segment in known}
        every = self._registry.state_config.every
        enough = self._batches >= every or self._bytes > MAX_PENDING_BYTES / 2
        return bool(self.pending) and enough

    def begin(self, spec: BatchSpec) -> None:
        """Start a job that has the backup nodes of a batch store all pending segments."""
        if not spec.backup_nodes:
            return
        placed = {s: self._registry.placed(spec, s.operator, s.instance) for s in self.pending}
        coded = {
            segment: replace(segment, r=to.r, c=to.c, backup_nodes=to.backup_nodes)
            for segment, to in placed.items()
            if to.backup_nodes
        }
        self._job = _BackupJob(self._backend, spec, dict(self.pending), coded)
        self._job.start()
        self._batches = 0

    def end(self) -> None:
        """Wait a bounded time for the job that is running, if one is."""
        if self._job is not None:
            self._job.stop(GRACE_S)
            self._collect()

    def _collect(self) -> None:
        """Enter what a finished job stored in the registry; what it did not store stays pending."""
        job, self._job = self._job, None
        if job is None:
            return
        self.failure = job.failure
        self._failures = self._failures + 1 if job.failure else 0
        if job.failure:
            return
        known = set(self._registry.catalog)
        for segment, coded in job.coded.items():
            if segment in known:
                self._registry.catalog.add(coded)
            self.pending.pop(segment, None)


class _BackupJob(BackgroundJob):
    """Codes segments, and has backup nodes store the fragments."""

    def __init__(
        self,
        backend: Backend,
        spec: BatchSpec,
        contents: Mapping[FragmentedSegment, bytes],
        coded: Mapping[FragmentedSegment, FragmentedSegment],
    ) -> None:
        super().__init__(backend, THREAD, unfinished="it was not done in time")
        self._spec, self._contents = spec, contents
        self.coded = coded

    def work(self) -> None:
        """Run the one stage of the job."""
        spec = self._spec
        inputs: list[list[bytes]] = [[] for _ in spec.backup_nodes]
        for one in self.coded:
            segment = Segment(one.first, one.last)
            for to, message in fragment_messages(
                spec, one.operator, one.instance, segment, self._contents[one]
            ):
                inputs[to.partition].append(pack(message, to))
        executors = tuple(self.backend.executor_at(location) for location in spec.backup_nodes)
        stage = Stage(executors, StoreFragments(spec), tuple(map(tuple, inputs)))
        self.backend.job("back up state", [stage], background=True)
