"""In-band migration: state migrates with a batch, so that no batch has to wait for it.

1. The driver starts an attempt at the next batch under the new plan. The executors that have the
   state run one more task each, together with the layer before that of the instance: it sends the
   state, or the rows that leave it, the way that tuples go.
2. The new executor of an instance receives all state before the instance starts from it. No other
   instance waits for that.
3. The driver commits the batch. Only then is the new plan in force; until then the old executors
   have all that they had.
4. If state was not received, the attempt fails without a trace. The driver then migrates the state
   between batches, and runs the batch again; if that fails, too, the plan before stays in force.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.backend import Stage, StateSenders
from penstock.engine.batch import BatchSpec
from penstock.engine.migration.precopy import PreCopied
from penstock.engine.migration.transfer import StateMove, Transfer, send_rows_stage, send_stage
from penstock.engine.repartition import Participant
from penstock.engine.results import BatchResult, MigrationResult
from penstock.engine.state.registry import StateRegistry
from penstock.model import Plan, RoutingTable
from penstock.state.versions import Copied


@dataclass(frozen=True, eq=False)
class Repartitioning:
    """The instances that give rows of their state, and those that save a new version of it."""

    senders: tuple[Participant, ...] = ()
    receivers: tuple[Participant, ...] = ()


@dataclass(frozen=True, eq=False)
class InbandMigration:
    """A change of plan whose state migrates with the next batch.

    Parameters
    ----------
    before : Plan
        In force until that batch is committed.
    tables : mapping of str to RoutingTable or None
        Of every stateful vertex, from then on.
    moves : tuple of StateMove
        Instances that change their executor.
    repartitioning : Repartitioning
        Instances that change their keys.
    precopied : PreCopied
    """

    before: Plan
    tables: Mapping[str, RoutingTable | None]
    moves: tuple[StateMove, ...]
    repartitioning: Repartitioning
    precopied: PreCopied

    @property
    def incoming(self) -> dict[tuple[str, int], Copied]:
        """Instances that change their executor, and their segments that were pre-copied."""
        return {move.key: self.precopied.of(move) for move in self.moves}

    @property
    def row_senders(self) -> dict[tuple[str, int], Participant]:
        """Instances that give rows of their state."""
        return {one.key: one for one in self.repartitioning.senders}

    def senders(self, spec: BatchSpec) -> StateSenders:
        """Return the stages that send the state, by the layer that they run together with."""
        found: dict[int, list[Stage]] = {}
        transfers: dict[int, dict[str, list[Transfer]]] = {}
        for move in self.moves:
            to = spec.address(*move.key)
            there = self.precopied.of(move)
            transfer = Transfer(*move.key, move.state.version, to, precopied=there)
            by_executor = transfers.setdefault(to.layer, {})
            by_executor.setdefault(move.state.executor, []).append(transfer)
        for layer, by_executor in transfers.items():
            found.setdefault(layer - 1, []).append(send_stage(by_executor))
        senders: dict[int, list[Participant]] = {}
        for one in self.repartitioning.senders:
            senders.setdefault(spec.first[one.vertex].layer, []).append(one)
        for layer, participants in senders.items():
            to_instances = {
                (one.vertex, index): spec.address(one.vertex, index)
                for one in participants
                for index in range(spec.parallelism[one.vertex])
            }
            stage = send_rows_stage(spec, participants, to_instances)
            found.setdefault(layer - 1, []).append(stage)
        return found

    def estimate(self, registry: StateRegistry) -> MigrationResult:
        """Say what is going to migrate, by the size of the backups."""
        precopied = sum(size for segments in self.incoming.values() for _, size in segments)
        moved = sum(registry.size_bytes(*move.key) for move in self.moves)
        return MigrationResult(
            moved=len(self.moves),
            repartitioned=len(self.repartitioning.receivers),
            precopied_bytes=min(precopied, moved),
            inband_bytes=max(0, moved - precopied) + self._repartitioned_bytes(registry),
            not_precopied=self.precopied.failure,
        )

    def _repartitioned_bytes(self, registry: StateRegistry) -> int:
        size = 0.0
        for one in self.repartitioning.senders:
            before = registry.handles[one.vertex].table
            if before is None or one.table is None:
                continue
            own = [i for i, owner in enumerate(before.partitions) if owner == one.instance]
            leaving = sum(one.table.partitions[i] != one.instance for i in own)
            size += registry.size_bytes(*one.key) * leaving / len(own)
        return int(size)

    def result(self, batch: BatchResult) -> MigrationResult:
        """Say what migrated with a batch."""
        migrated = [one.migrated for one in batch.stats if one.migrated is not None]
        return MigrationResult(
            moved=len(self.moves),
            repartitioned=len(self.repartitioning.receivers),
            precopied_bytes=sum(one.precopied for one in migrated),
            inband_bytes=sum(one.received for one in migrated),
        )

    def finish(self) -> None:
        """Note that the new executors have the state."""
        for move in self.moves:
            move.state.executor = move.executor
