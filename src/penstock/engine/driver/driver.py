"""The driver of a pipeline: runs and commits batches in order, on any backend."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.engine.backend import Backend
from penstock.engine.batch import ON_ERROR, BatchSpec
from penstock.engine.driver.fingerprint import Fingerprint
from penstock.engine.driver.output import checked_key_types, commit_sinks, merge_shared_rows
from penstock.engine.driver.progress import Progress
from penstock.engine.driver.transition import PlanTransition
from penstock.engine.job_graph import JobGraph
from penstock.engine.messages import SegmentMessage, TaskStats, raise_error, unpack
from penstock.engine.results import BatchResult, MigrationResult, Ranges
from penstock.engine.state.handles import StateHandle, committed_handles
from penstock.engine.state.registry import StateRegistry
from penstock.engine.task.hot_keys import reduction
from penstock.model import InvalidValue, Plan
from penstock.pipeline.keyed.protocols import EventTimed
from penstock.pipeline.keyed.timed import advanced_watermarks
from penstock.state.backup.placement import Tolerance
from penstock.state.config import StateConfig
from penstock.state.versions import StateLost

__all__ = ["Backend", "BatchResult", "Driver", "MigrationResult", "Ranges"]


class Driver:
    """Runs and commits the batches of one pipeline in order.

    A batch goes as follows.

    1. The driver writes the ranges that the batch reads in the commit log, under a number that no
       other attempt has.
    2. The backend runs the tasks. They stage rows of sinks, save new versions of their state under
       that number, and send the rest to the driver. Nothing of it is visible yet.
    3. If a task failed, the attempt left nothing that is read again: the batch can be run again
       with the same ranges, under another number.
    4. The driver makes sure that no other driver has taken over the checkpoint, merges split keys,
       and commits the batch to every sink. A sink that gets a batch a second time keeps one.
    5. The driver enters the new state versions in the registry, and writes them with the positions
       of the sources in the commit log. From then on the batch is never run again.
    6. A driver that starts again reads the last commit, has sinks forget what is newer, and first
       runs a batch that was begun and not committed.

    Parameters
    ----------
    job_graph : JobGraph
    backend : Backend
    root : Path or str
        Folder, or address, of the checkpoint.
    plan : Plan
        The plan of the first batch; `adopt` changes it.
    on_error : str
        ``stop`` or ``skip``; see `penstock.engine.batch.ON_ERROR`.
    state_config : StateConfig, optional
        How state is kept; by default in a shared folder under `root`.
    rename, forget
        What became of steps of the pipeline that wrote the checkpoint; see
        `penstock.engine.driver.fingerprint.adopt`.

    Attributes
    ----------
    progress : Progress
        The last committed batch, and what the next starts from.
    registry : StateRegistry
        The committed state.
    transition : PlanTransition
        The plan of the next batch, and how it changes.
    """

    def __init__(
        self,
        job_graph: JobGraph,
        backend: Backend,
        root: Path | str,
        plan: Plan,
        on_error: str = "stop",
        state_config: StateConfig | None = None,
        rename: Mapping[str, str] | None = None,
        forget: Collection[str] = (),
    ) -> None:
        if on_error not in ON_ERROR:
            raise InvalidValue("on_error", "a run", "one of " + ", ".join(ON_ERROR), on_error)
        state_config = state_config or StateConfig()
        if state_config.in_checkpoint and not state_config.shared:
            state_config = replace(state_config, shared=f"{root}/state")
        self.job_graph, self.backend = job_graph, backend
        self.progress = Progress(root, state_config, Fingerprint.of(job_graph), rename, forget)
        steps = {step.name: step.keyed for step in job_graph.pipeline.steps}
        for name in self.progress.shares:
            # The step that they belong to must still be able to merge them.
            reduction(steps.get(name))
        handles = committed_handles(job_graph, self.progress.state)
        if any(not handle.empty for handle in handles.values()) and not state_config.in_checkpoint:
            raise StateLost(
                f"{root} is of a run whose state was kept by its executors alone, and they are "
                "gone; start again in another folder, or keep state in a checkpoint, too"
            )
        self.registry = StateRegistry(job_graph.pipeline.name, backend, state_config, handles)
        self.transition = PlanTransition(
            job_graph, backend, self.registry, self.progress, plan, on_error
        )
        self._event_timed = [s for s in job_graph.pipeline.steps if isinstance(s.keyed, EventTimed)]
        #: The last batch that was begun.
        self._attempted = -1
        for _, sink in job_graph.sinks:
            sink.start(self.progress.commit_log.identity())
            sink.recover(self.batch)
        self.adopt(plan)

    # ---- what there is

    @property
    def plan(self) -> Plan:
        """The plan of the next batch."""
        return self.transition.plan

    @property
    def batch(self) -> int:
        """The last committed batch; -1 before the first."""
        return self.progress.batch

    @property
    def next_batch(self) -> int:
        """Number of the next batch."""
        return self.progress.next_batch

    @property
    def handles(self) -> Mapping[str, StateHandle]:
        """The committed state of the stateful vertices."""
        return self.registry.handles

    def pending(self) -> Ranges | None:
        """Return the ranges of a batch that was begun and not committed; it must be run first."""
        return self.progress.pending()

    @property
    def watermark_moved(self) -> bool:
        """Whether the last batch moved a watermark: a batch without data closes windows then."""
        return self.progress.watermark_moved

    @property
    def timer_due(self) -> bool:
        """Whether a key is due by the clock: a batch without data calls its timer then."""
        return self.progress.timer_due

    def positions(self) -> dict[str, tuple[int, ...]]:
        """Return what every source has reached in committed batches, in each of its partitions."""
        return self.progress.positions()

    def survives(self) -> Tolerance | None:
        """Say which losses of nodes the state survives now; None if no node has a backup."""
        return self.registry.survives(self.transition.plan_in_force)

    def promise(self) -> str:
        """Say in words what the state survives now; empty before there is any."""
        return self.registry.promise(self.transition.plan_in_force)

    def pop_backup_failure(self) -> str:
        """Say, once, why an asynchronous backup failed; empty if none did."""
        async_backup = self.transition.migrator.async_backup
        why, async_backup.failure = async_backup.failure, ""
        return why

    # ---- plans

    def precopy(self, plan: Plan) -> bool:
        """Pre-copy the state that a plan moves; see `PlanTransition.precopy`."""
        return self.transition.precopy(plan)

    def next_increment(self, plan: Plan) -> Plan:
        """Return the next plan on the way to a plan; see `PlanTransition.next_increment`."""
        return self.transition.next_increment(plan)

    def adopt(self, plan: Plan, *, inband: bool = False) -> MigrationResult:
        """Use another plan from the next batch on; see `PlanTransition.adopt`."""
        return self.transition.adopt(plan, inband=inband)

    def retire(self, nodes: Iterable[str]) -> MigrationResult:
        """Let nodes store no fragments any more; see `PlanTransition.retire`."""
        return self.transition.retire(nodes)

    def close(self) -> None:
        """End the jobs that run in the background."""
        self.transition.migrator.precopy.end()
        self.transition.migrator.async_backup.end()

    # ---- batches

    def run_batch(self, ranges: Ranges, extra: Mapping[str, Any] | None = None) -> BatchResult:
        """Run and commit the next batch.

        Parameters
        ----------
        ranges : mapping
            Positions of each source that belong to it.
        extra : mapping, optional
            More to write in the commit log with it.

        Raises
        ------
        StepFailed
            When a function failed and `on_error` is ``stop``. Nothing of the batch is visible.
        Fenced
            When another driver has taken over the checkpoint.
        """
        try:
            return self._run_batch(ranges, extra or {})
        except Exception:
            # What fails because another driver has taken over is told as that.
            self.progress.commit_log.check_epoch()
            raise

    def _run_batch(self, ranges: Ranges, extra: Mapping[str, Any]) -> BatchResult:
        spec, messages, migrated = self._run_tasks(ranges)
        stats = tuple(message for message in messages if isinstance(message, TaskStats))
        key_types = checked_key_types(self.progress.key_types, stats)
        emitted, shares = merge_shared_rows(self.job_graph, spec.batch_id, messages)
        self.progress.commit_log.check_epoch()
        written = commit_sinks(self.job_graph, spec.attempt, messages, stats, emitted)
        result = BatchResult(spec.batch_id, spec, ranges, stats, written)
        self._record_saved(spec, messages, stats)
        inband = self.transition.finish_inband(result) or migrated
        watermarks: dict[str, int] = {}
        if self._event_timed:
            times = [one.event_times for one in stats]
            watermarks = advanced_watermarks(self._event_timed, self.progress.watermarks, times)
        due = [one.next_timer_us for one in stats if one.next_timer_us is not None]
        self.progress.commit_batch(
            spec.version,
            ranges,
            self.handles,
            shares,
            watermarks,
            key_types,
            extra,
            min(due, default=None),
        )
        self.transition.committed()
        if self.registry.state_config.by_peers:
            self._start_backup()
        return replace(result, inband=inband)

    def _run_tasks(self, ranges: Ranges) -> tuple[BatchSpec, list[object], MigrationResult | None]:
        """Run the tasks of a batch, and return their messages.

        If state was not received that should have migrated with the batch, it is migrated before,
        and the batch is run again. The last value says how that went; None if it was not needed.
        State that is missing or damaged on an executor which is alive is restored from its backup.
        """
        migrated: MigrationResult | None = None
        restored: set[tuple[str, int]] = set()
        by_peers = self.registry.state_config.by_peers
        while True:
            self._recover_sinks()
            spec = self.transition.spec(ranges, self.progress.begin_batch(ranges))
            senders = self.transition.senders(spec)
            sent = self.backend.run(self.job_graph, spec, senders)
            messages = [unpack(bytes(data)) for data in sent]
            try:
                raise_error(messages)
            except StateLost as error:
                if self.transition.inband is not None:
                    migrated = self.transition.migrate_instead(str(error))
                elif error.owner is None or error.owner in restored or not by_peers:
                    raise
                else:
                    restored.add(error.owner)
                    self.transition.migrator.restore_local(*error.owner)
            else:
                return spec, messages, migrated

    def _recover_sinks(self) -> None:
        """Remove what another attempt at the batch staged: it may be of other instances."""
        if self._attempted == self.next_batch:
            for _, sink in self.job_graph.sinks:
                sink.recover(self.batch)
        self._attempted = self.next_batch

    def _record_saved(
        self, spec: BatchSpec, messages: Iterable[object], stats: Iterable[TaskStats]
    ) -> None:
        """Enter the versions that instances saved, and take the segments that they sent."""
        vertices = list(spec.bases)
        segments = {
            (vertices[message.vertex], message.instance): message.piece.content
            for message in messages
            if isinstance(message, SegmentMessage)
        }
        saved = {(one.vertex, one.instance): one.saved for one in stats if one.saved is not None}
        backups = {
            key: self.registry.record_saved(spec, *key, version) for key, version in saved.items()
        }
        if self.registry.state_config.by_peers:
            async_backup = self.transition.migrator.async_backup
            for key, segment in backups.items():
                if segment is not None and segment.on_driver:
                    async_backup.add(segment, bytes(segments[key]))
            async_backup.batch_saved(saved.values())

    def _start_backup(self) -> None:
        """Start an asynchronous backup when one is due and no state is being pre-copied."""
        migrator = self.transition.migrator
        if migrator.async_backup.due() and not migrator.precopy.instances:
            spec = self.transition.spec({}, self.progress.number, synchronous=True)
            migrator.async_backup.begin(spec)
