"""Carries state between batches: to new homes, out of fragments, from instance to instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.engine.backend import Backend, Stage
from penstock.engine.batch import BatchSpec
from penstock.engine.messages import RUN, STATS, Message, decode_json
from penstock.engine.migration.inband import Repartitioning
from penstock.engine.migration.incoming import Expected
from penstock.engine.migration.precopy import Moved, PreCopied, PreCopy
from penstock.engine.migration.tasks import (
    ReceiveState,
    SaveRows,
    SendRows,
    SendState,
    StoreFragments,
    Transfer,
)
from penstock.engine.repartition import Participant
from penstock.engine.results import MigrationResult, raise_error
from penstock.engine.state.async_backup import AsyncBackup
from penstock.engine.state.handles import InstanceState
from penstock.engine.state.registry import StateRegistry
from penstock.model import Plan, RoutingTable
from penstock.state.backup.catalog import DRIVER
from penstock.state.backup.fragments import Piece
from penstock.state.backup.recovery import Pull, Unrecoverable, plan_recovery
from penstock.state.versions import Copied, Segment, StateLost


@dataclass(eq=False)
class Migrator:
    """Runs the jobs that carry state, and enters what they did into the ledger.

    Nothing that fails here changes what is in charge.
    """

    registry: StateRegistry
    backend: Backend

    def __post_init__(self) -> None:
        self.ahead = PreCopy(self.registry, self.backend)
        self.async_backup = AsyncBackup(self.registry, self.backend)

    def prepare(self, plan: Plan) -> bool:
        """Copy state ahead of a plan; see `PreCopy.bring`."""
        alive = self.backend.alive()
        return self.ahead.bring([w for w in self.wanted(plan)[0] if w[3] in alive])

    def carry(self, plan: Plan, precopied: PreCopied) -> MigrationResult:
        """Bring the state of instances whose home changes to the new one.

        Parameters
        ----------
        plan : Plan
        precopied : PreCopied
            What is there already.
        """
        moved, lost = self.wanted(plan)
        took = self._copy(moved, precopied) if moved else MigrationResult()
        back = self.bring_back(lost)
        for _, _, instance, target in moved:
            instance.executor = target
        size = took.state_bytes + back.state_bytes
        return replace(took, state_bytes=size, restored=back.restored)

    def bring_back(self, lost: list[Moved]) -> MigrationResult:
        """Put state together that was lost with its place."""
        size = self._rebuild(lost, self.backend.alive()) if lost else 0
        for _, _, instance, target in lost:
            instance.executor = target
        return MigrationResult(state_bytes=size, restored=len(lost))

    def wanted(self, plan: Plan) -> tuple[list[Moved], list[Moved]]:
        """Find the instances whose state is not where a plan has them: it is elsewhere, or lost."""
        alive = self.backend.alive()
        wanted: list[Moved] = []
        for name, held in self.registry.handles.items():
            spots = plan.placement[name]
            for index, instance in enumerate(held.instances):
                if instance.version < 0 or not instance.executor:
                    continue
                if index >= len(spots) and instance.executor in alive:
                    # It is dealt to the others from where it is.
                    continue
                target = self.backend.executor_at(str(spots[min(index, len(spots) - 1)]))
                if target != instance.executor:
                    wanted.append((name, index, instance, target))
        lost = [w for w in wanted if w[2].executor not in alive]
        return [w for w in wanted if w[2].executor in alive], lost

    def _copy(self, wanted: list[Moved], precopied: PreCopied) -> MigrationResult:
        """Copy state from places that are there; all of an instance if the copies ahead are gone.

        What cannot be copied, the task finds in the checkpoint, or else nothing moves.
        """
        missing: dict[tuple[str, int], str] = {}
        runs = {(w[0], w[1]): precopied.runs.get((w[0], w[1], w[3]), ()) for w in wanted}
        size, ahead = self._send(wanted, {}, missing, runs)
        again = [w for w in wanted if (w[0], w[1]) in missing and runs[w[0], w[1]]]
        for name, index, _, _ in again:
            del missing[name, index]
        size += self._send(again, {}, missing)[0]
        if missing and not self.registry.state_config.in_checkpoint:
            told = "; ".join(f"{name}[{index}]: {why}" for (name, index), why in missing.items())
            raise StateLost(f"state could not be copied: {told}")
        why = [precopied.failure] if precopied.failure else []
        if again:
            why.append(f"the copies of {', '.join(f'{n}[{i}]' for n, i, _, _ in again)} are gone")
        return MigrationResult(
            0.0, size, len(wanted), precopied_bytes=ahead, not_precopied="; ".join(why)
        )

    def _rebuild(self, wanted: list[Moved], alive: frozenset[str]) -> int:
        """Put state together from fragments, first from as few as needed, then from all.

        What the driver still holds of it comes from there.
        """
        size, left = 0, wanted
        why: dict[tuple[str, int], str] = {}
        for everything in (False, True):
            pieces: dict[tuple[str, int], tuple[Pull, ...]] = {}
            for name, index, instance, target in left:
                if instance.backed < instance.version:
                    # Changes were made when there were no peers: going back would lose them.
                    why[name, index] = f"peers have version {instance.backed} at the most"
                    continue
                try:
                    blocks = self.registry.blocks(name, index)
                    plan = plan_recovery(blocks, alive | {DRIVER}, target)
                except Unrecoverable as error:
                    why[name, index] = str(error)
                else:
                    pieces[name, index] = plan.pulls + (plan.spares if everything else ())
            tried = [w for w in left if pieces.get((w[0], w[1]))]
            missing: dict[tuple[str, int], str] = {}
            size += self._send(tried, pieces, missing)[0]
            why.update(missing)
            for name, index, instance, _ in tried:
                # Some of its fragments are not what they should be: it is to be coded anew.
                instance.worn = instance.worn or (name, index) in missing
            done = {(w[0], w[1]) for w in tried} - set(missing)
            left = [w for w in left if (w[0], w[1]) not in done]
        if left and not self.registry.state_config.in_checkpoint:
            told = "; ".join(f"{n}[{i}]: {why.get((n, i), 'no copies')}" for n, i, _, _ in left)
            raise StateLost(f"state cannot be put together from what peers have: {told}")
        for name, index, instance, _ in left:
            instance.backed = -1
            self.registry.catalog.forget(self.registry.topology, name, index)
        return size

    def _send(
        self,
        wanted: list[Moved],
        pieces: Mapping[tuple[str, int], tuple[Pull, ...]],
        missing: dict[tuple[str, int], str],
        there: Mapping[tuple[str, int], Copied] | None = None,
    ) -> tuple[int, int]:
        """Run the job that carries, and note what is missing.

        Returns
        -------
        tuple of int
            Bytes that came, and bytes that were there and taken over.
        """
        if not wanted:
            return 0, 0
        there = there or {}
        transfers: dict[str, list[Transfer]] = {}
        given: dict[str, list[bytes]] = {}
        for to, (name, index, instance, target) in enumerate(wanted):
            if (name, index) in pieces:
                for pull in pieces[name, index]:
                    run = Segment(pull.segment.first, pull.segment.last)
                    if pull.segment.on_driver:
                        body = Piece(run, 0, self.async_backup.pending[pull.segment]).pack()
                        frame = Message(RUN, 1, to, 0, 0, body)
                        given.setdefault(target, []).append(frame.pack())
                        transfers.setdefault(target, [])
                        continue
                    transfer = Transfer(name, index, instance.backed, to, ((run, pull.index),))
                    transfers.setdefault(pull.backup_node, []).append(transfer)
            else:
                runs = there.get((name, index), ())
                transfer = Transfer(name, index, instance.version, to, there=runs)
                transfers.setdefault(instance.executor, []).append(transfer)
        arrivals = [
            Expected(name, index, tuple({Segment(p.segment.first, p.segment.last) for p in pulls}))
            if (pulls := pieces.get((name, index)))
            else Expected(name, index, version=instance.version, there=there.get((name, index), ()))
            for name, index, instance, _ in wanted
        ]
        stages = (
            Stage(
                tuple(transfers),
                SendState(tuple(tuple(p) for p in transfers.values())),
                tuple(tuple(given.get(place, ())) for place in transfers),
            ),
            Stage(tuple(target for *_, target in wanted), ReceiveState(tuple(arrivals))),
        )
        answers = self._answers("carry state", stages if transfers else stages[1:])
        for answer in answers:
            gone = dict(answer["missing"])
            if gone:
                why = "; ".join(f"versions {run}: {why}" for run, why in gone.items())
                missing[answer["vertex"], answer["instance"]] = why
        return sum(int(a["bytes"]) for a in answers), sum(int(a["ahead"]) for a in answers)

    def participants(self, plan: Plan, tables: Mapping[str, RoutingTable]) -> Repartitioning:
        """Say who gives and who takes when router partitions are dealt by new tables."""
        givers: list[tuple[Participant, str]] = []
        takers: list[tuple[Participant, str]] = []
        for name, table in tables.items():
            held, count = self.registry.handles[name], plan.parallelism[name]
            if held.empty or held.table is None:
                continue
            pairs = zip(held.table.partitions, table.partitions, strict=True)
            moved = [(a, b) for a, b in pairs if a != b]
            spots = plan.placement[name]
            for index in range(max(len(held.instances), count)):
                known = held.instances[index] if index < len(held.instances) else InstanceState()
                participant = Participant(name, index, known.version, held.by, held.route, table)
                spot = spots[min(index, len(spots) - 1)]
                place = known.executor or (
                    self.backend.executor_at(str(spot)) if plan.pinned else ""
                )
                if known.version >= 0 and any(a == index for a, _ in moved):
                    givers.append((participant, place))
                if index < count and any(index in pair for pair in moved):
                    takers.append((participant, place))
        return Repartitioning(tuple(givers), tuple(takers))

    def deal(self, spec: BatchSpec, repartitioned: Repartitioning) -> int:
        """Move router partitions between instances, as a new version of those that change."""
        to = {(p.vertex, p.instance): i for i, (p, _) in enumerate(repartitioned.takers)}
        stages = [
            Stage(
                tuple(place for _, place in repartitioned.givers),
                SendRows(spec, tuple(participant for participant, _ in repartitioned.givers), to),
            ),
            self._settle(spec, repartitioned.takers),
        ]
        answers = self._answers("deal partitions anew", [*stages, *self._keep(spec)])
        where = {
            (participant.vertex, participant.instance): place
            for participant, place in repartitioned.takers
        }
        for answer in answers:
            if answer["saved"] is not None:
                key = (answer["vertex"], answer["instance"])
                self.registry.record_saved(spec, *key, answer["saved"], where[key])
        return sum(int(answer["bytes"]) for answer in answers)

    def spread_anew(self, spec: BatchSpec) -> int:
        """Have the instances of a wave that must save everything do so."""
        participants = []
        for name, index in sorted(spec.whole):
            held = self.registry.handles[name]
            known = held.instances[index]
            participant = Participant(
                name, index, known.version, held.by, held.route, None, whole=True
            )
            participants.append((participant, known.executor))
        stages = [self._settle(spec, tuple(participants)), *self._keep(spec)]
        answers = self._answers("spread fragments anew", stages)
        for answer in answers:
            self.registry.record_saved(spec, answer["vertex"], answer["instance"], answer["saved"])
        return sum(int(answer["saved"]["bytes"]) for answer in answers)

    def _settle(self, spec: BatchSpec, participants: tuple[tuple[Participant, str], ...]) -> Stage:
        places = tuple(place for _, place in participants)
        return Stage(places, SaveRows(spec, tuple(participant for participant, _ in participants)))

    def _keep(self, spec: BatchSpec) -> list[Stage]:
        if not spec.backup_nodes:
            return []
        return [
            Stage(
                tuple(self.backend.executor_at(home) for home in spec.backup_nodes),
                StoreFragments(spec),
            )
        ]

    def _answers(self, name: str, stages: Sequence[Stage]) -> list[dict[str, Any]]:
        frames = [Message.unpack(bytes(data)) for data in self.backend.job(name, stages)]
        raise_error(frames)
        return [decode_json(frame.body) for frame in frames if frame.kind == STATS]
