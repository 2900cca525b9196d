"""Migrates state between two batches: to other executors, and from instance to instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.engine.backend import Backend, Stage
from penstock.engine.batch import BatchSpec
from penstock.engine.messages import Address, StateSaved
from penstock.engine.migration.inband import Repartitioning
from penstock.engine.migration.precopy import PreCopied, PreCopy
from penstock.engine.migration.restore import missing_of, restore
from penstock.engine.migration.transfer import (
    SaveRows,
    StateMove,
    copy_segments,
    run_job,
    send_rows_stage,
)
from penstock.engine.repartition import Participant
from penstock.engine.results import MigrationResult
from penstock.engine.state.async_backup import AsyncBackup
from penstock.engine.state.backup import StoreFragments
from penstock.engine.state.handles import InstanceState
from penstock.engine.state.registry import StateRegistry
from penstock.model import Plan, RoutingTable


@dataclass(eq=False)
class Migrator:
    """Runs the jobs that migrate state, and enters what they did in the registry.

    If one of them fails, the state that was in force is still in force.

    Parameters
    ----------
    registry : StateRegistry
    backend : Backend
    """

    registry: StateRegistry
    backend: Backend

    def __post_init__(self) -> None:
        self.precopy = PreCopy(self.registry, self.backend)
        self.async_backup = AsyncBackup(self.registry, self.backend)

    # ---- to other executors

    def moves(self, plan: Plan) -> tuple[list[StateMove], list[StateMove]]:
        """Find the instances whose state is not where a plan has them.

        Returns
        -------
        tuple of list of StateMove
            Those whose executor is alive, and those whose executor was lost.
        """
        alive = self.backend.alive()
        found: list[StateMove] = []
        for name, handle in self.registry.handles.items():
            spots = plan.placement[name]
            for index, instance in enumerate(handle.instances):
                if instance.version < 0 or not instance.executor:
                    continue
                if index >= len(spots) and instance.executor in alive:
                    # Other instances get its rows from where it is.
                    continue
                executor = self.backend.executor_at(str(spots[min(index, len(spots) - 1)]))
                if executor != instance.executor:
                    found.append(StateMove(name, index, instance, executor))
        lost = [move for move in found if move.state.executor not in alive]
        return [move for move in found if move.state.executor in alive], lost

    def advance_precopy(self, plan: Plan) -> bool:
        """Pre-copy the state that a plan moves, and say whether that is done."""
        alive = self.backend.alive()
        return self.precopy.advance([m for m in self.moves(plan)[0] if m.executor in alive])

    def migrate(self, plan: Plan, precopied: PreCopied) -> MigrationResult:
        """Copy or restore the state of all instances whose executor changes."""
        moves, lost = self.moves(plan)
        copied = self._copy(moves, precopied) if moves else MigrationResult()
        restored = self.restore(lost)
        for move in moves:
            move.state.executor = move.executor
        size = copied.state_bytes + restored.state_bytes
        return replace(copied, state_bytes=size, restored=restored.restored)

    def restore(self, lost: Sequence[StateMove]) -> MigrationResult:
        """Restore state that was lost with its executor."""
        return restore(self.registry, self.backend, self.async_backup.pending, lost)

    def restore_local(self, vertex: str, instance: int) -> MigrationResult:
        """Restore state that is missing or damaged on an executor which is alive.

        Raises
        ------
        StateLost
            When there is no backup, or too little of it.
        """
        known = self.registry.handles[vertex].instances[instance]
        return self.restore([StateMove(vertex, instance, known, known.executor)])

    def _copy(self, moves: Sequence[StateMove], precopied: PreCopied) -> MigrationResult:
        """Copy state from executors that are alive.

        Where pre-copied segments are gone, all of the instance is sent in a second job. What cannot
        be copied the next task reads from the checkpoint; without one, it is restored from its
        backup, or nothing moves.
        """
        there = {move.key: precopied.of(move) for move in moves}
        name = "migrate state"
        found = copy_segments(self.backend, name, moves, there)
        missing = missing_of(found)
        again = [move for move in moves if move.key in missing and there[move.key]]
        if again:
            found += copy_segments(self.backend, name, again, {})
            missing = {key: why for key, why in missing.items() if not there[key]}
            missing |= missing_of(found[len(moves) :])
        if missing and not self.registry.state_config.in_checkpoint:
            # What is missing or damaged where it should be is restored from its backup.
            self.restore([move for move in moves if move.key in missing])
        why = [precopied.failure] if precopied.failure else []
        if again:
            gone = ", ".join(f"{move.vertex}[{move.instance}]" for move in again)
            why.append(f"the pre-copied segments of {gone} are gone")
        return MigrationResult(
            state_bytes=sum(one.size_bytes for one in found),
            moved=len(moves),
            precopied_bytes=sum(one.precopied_bytes for one in found),
            not_precopied="; ".join(why),
        )

    # ---- from instance to instance

    def participants(self, plan: Plan, tables: Mapping[str, RoutingTable]) -> Repartitioning:
        """Find the instances that give and take rows under new routing tables."""
        senders: list[Participant] = []
        receivers: list[Participant] = []
        for name, table in tables.items():
            handle, count = self.registry.handles[name], plan.parallelism[name]
            if handle.empty or handle.table is None:
                continue
            pairs = zip(handle.table.partitions, table.partitions, strict=True)
            moved = [(old, new) for old, new in pairs if old != new]
            spots = plan.placement[name]
            for index in range(max(len(handle.instances), count)):
                known = (
                    handle.instances[index] if index < len(handle.instances) else InstanceState()
                )
                spot = str(spots[min(index, len(spots) - 1)])
                executor = known.executor or (self.backend.executor_at(spot) if plan.pinned else "")
                one = Participant(
                    name, index, known.version, handle.by, handle.route, table, executor
                )
                if known.version >= 0 and any(old == index for old, _ in moved):
                    senders.append(one)
                if index < count and any(index in pair for pair in moved):
                    receivers.append(one)
        return Repartitioning(tuple(senders), tuple(receivers))

    def repartition(self, spec: BatchSpec, repartitioning: Repartitioning) -> int:
        """Send rows from instance to instance, and save a new version of those that changed.

        Returns
        -------
        int
            Bytes that were sent.
        """
        senders, receivers = repartitioning.senders, repartitioning.receivers
        spec = replace(spec, row_senders={one.key: one for one in senders})
        to = {one.key: Address(1, partition) for partition, one in enumerate(receivers)}
        first = send_rows_stage(spec, senders, to)
        saved = self._save("repartition state", spec, receivers, [first])
        return sum(one.received_bytes for one in saved)

    def back_up_again(self, spec: BatchSpec) -> int:
        """Have all instances that are to save a snapshot do so, and back it up.

        Returns
        -------
        int
            Bytes that were saved.
        """
        participants = []
        for name, index in sorted(spec.snapshots):
            handle = self.registry.handles[name]
            known = handle.instances[index]
            participants.append(
                Participant(
                    name, index, known.version, handle.by, handle.route, None, known.executor
                )
            )
        saved = self._save("back up state again", spec, participants, [])
        return sum(one.saved.size_bytes for one in saved if one.saved is not None)

    def _save(
        self,
        name: str,
        spec: BatchSpec,
        participants: Sequence[Participant],
        stages: Sequence[Stage],
    ) -> list[StateSaved]:
        """Have instances save and back up a version between two batches, and enter it.

        Parameters
        ----------
        name : str
            Of the job.
        spec : BatchSpec
        participants : sequence of Participant
        stages : sequence of Stage
            Stages of the job before that in which instances save.
        """
        executors = tuple(one.executor for one in participants)
        stages = [*stages, Stage(executors, SaveRows(spec, tuple(participants)))]
        if spec.backup_nodes:
            nodes = tuple(self.backend.executor_at(location) for location in spec.backup_nodes)
            stages.append(Stage(nodes, StoreFragments(spec)))
        executor_of = {one.key: one.executor for one in participants}
        found = [m for m in run_job(self.backend, name, stages) if isinstance(m, StateSaved)]
        for one in found:
            if one.saved is not None:
                key = (one.vertex, one.instance)
                self.registry.record_saved(spec, *key, one.saved, executor_of[key])
        return found
