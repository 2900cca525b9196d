"""State that moves with a batch, so that the stream does not stand still for it.

What sends it runs beside the tasks of the layer before, and it goes to its new home the way that
tuples go there. The new home takes it in before it starts from it: nobody else waits for it. Until
that batch is committed the old home is in charge, and has all that it had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.backend import Stage, StateSenders
from penstock.engine.batch import BatchSpec
from penstock.engine.migration.precopy import Moved, PreCopied
from penstock.engine.migration.tasks import SendRows, SendState, Transfer
from penstock.engine.repartition import Participant
from penstock.engine.results import BatchResult, MigrationResult
from penstock.engine.state.registry import StateRegistry
from penstock.model import Plan, RoutingTable
from penstock.state.versions import Copied


@dataclass(frozen=True, eq=False)
class Repartitioning:
    """Instances that give rows, and those that save a new version; each with its place."""

    givers: tuple[tuple[Participant, str], ...] = ()
    takers: tuple[tuple[Participant, str], ...] = ()


@dataclass(frozen=True, eq=False)
class InbandMigration:
    """A change of plan whose state comes with the next batch.

    Parameters
    ----------
    before : Plan
        In charge until that batch is committed.
    tables : mapping of str to RoutingTable or None
        Of every vertex with state, from then on.
    moved : tuple of Moved
        Instances that get a new home.
    repartitioned : Repartitioning
        Instances whose rows are dealt anew.
    precopied : PreCopied
        What was copied ahead.
    """

    before: Plan
    tables: Mapping[str, RoutingTable | None]
    moved: tuple[Moved, ...]
    repartitioned: Repartitioning
    precopied: PreCopied

    @property
    def incoming(self) -> dict[tuple[str, int], Copied]:
        """Instances that get a new home, and their runs that are there."""
        return {(w[0], w[1]): self.precopied.runs.get((w[0], w[1], w[3]), ()) for w in self.moved}

    @property
    def givers(self) -> dict[tuple[str, int], Participant]:
        """Instances that give rows up."""
        return {
            (participant.vertex, participant.instance): participant
            for participant, _ in self.repartitioned.givers
        }

    def senders(self, spec: BatchSpec) -> StateSenders:
        """Return what sends the state, by the layer that it runs beside."""
        found: dict[int, list[Stage]] = {}
        there = self.incoming
        transfers: dict[int, dict[str, list[Transfer]]] = {}
        for name, index, known, _ in self.moved:
            layer, to = spec.address(name, index)
            transfer = Transfer(name, index, known.version, to, there=there[name, index])
            transfers.setdefault(layer, {}).setdefault(known.executor, []).append(transfer)
        for layer, by_place in transfers.items():
            send = SendState(tuple(map(tuple, by_place.values())), layer)
            found.setdefault(layer - 1, []).append(Stage(tuple(by_place), send))
        givers: dict[int, list[tuple[Participant, str]]] = {}
        for participant, place in self.repartitioned.givers:
            givers.setdefault(spec.first[participant.vertex][0], []).append((participant, place))
        for layer, participants in givers.items():
            targets = {
                (participant.vertex, index): spec.address(participant.vertex, index)[1]
                for participant, _ in participants
                for index in range(spec.parallelism[participant.vertex])
            }
            deal = SendRows(
                spec, tuple(participant for participant, _ in participants), targets, layer
            )
            found.setdefault(layer - 1, []).append(
                Stage(tuple(place for _, place in participants), deal)
            )
        return found

    def told(self, registry: StateRegistry) -> MigrationResult:
        """Say what is to come, by what peers keep of it."""
        ahead = sum(size for runs in self.incoming.values() for _, size in runs)
        moved = sum(registry.size_bytes(name, index) for name, index, _, _ in self.moved)
        return MigrationResult(
            moved=len(self.moved),
            repartitioned=len(self.repartitioned.takers),
            precopied_bytes=min(ahead, moved),
            inband_bytes=max(0, moved - ahead) + self._dealt_bytes(registry),
            not_precopied=self.precopied.failure,
        )

    def _dealt_bytes(self, registry: StateRegistry) -> int:
        size = 0.0
        for participant, _ in self.repartitioned.givers:
            before = registry.handles[participant.vertex].table
            assert before is not None
            assert participant.table is not None
            mine = [i for i, home in enumerate(before.partitions) if home == participant.instance]
            left = sum(participant.table.partitions[i] != participant.instance for i in mine)
            size += registry.size_bytes(participant.vertex, participant.instance) * left / len(mine)
        return int(size)

    def came(self, result: BatchResult) -> MigrationResult:
        """Say what came with a batch."""
        arrived = [one.arrived for one in result.stats if one.arrived is not None]
        return MigrationResult(
            moved=len(self.moved),
            repartitioned=len(self.repartitioned.takers),
            precopied_bytes=sum(one["ahead"] for one in arrived),
            inband_bytes=sum(one["bytes"] for one in arrived),
        )

    def land(self) -> None:
        """Put the new homes in charge."""
        for _, _, instance, target in self.moved:
            instance.executor = target
