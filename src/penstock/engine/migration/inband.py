"""State that moves with a batch, so that the stream does not stand still for it.

What sends it runs beside the tasks of the layer before, and it goes to its new home the way that
tuples go there. The new home takes it in before it starts from it: nobody else waits for it. Until
that batch is committed the old home is in charge, and has all that it had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.backend import Riders, Stage
from penstock.engine.batch import Wave
from penstock.engine.migration.precopy import Brought, Moved
from penstock.engine.migration.tasks import Deal, Parcel, Send
from penstock.engine.repartition import Party
from penstock.engine.results import BatchResult, Carried
from penstock.engine.state.registry import Ledger
from penstock.model import Plan, RoutingTable
from penstock.state.versions import Copied


@dataclass(frozen=True, eq=False)
class Dealt:
    """Instances that give rows, and those that save a new version; each with its place."""

    givers: tuple[tuple[Party, str], ...] = ()
    takers: tuple[tuple[Party, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Ride:
    """A change of plan whose state comes with the next batch.

    Parameters
    ----------
    before : Plan
        In charge until that batch is committed.
    tables : mapping of str to RoutingTable or None
        Of every vertex with state, from then on.
    moved : tuple of Moved
        Instances that get a new home.
    dealt : Dealt
        Instances whose rows are dealt anew.
    brought : Brought
        What was copied ahead.
    """

    before: Plan
    tables: Mapping[str, RoutingTable | None]
    moved: tuple[Moved, ...]
    dealt: Dealt
    brought: Brought

    @property
    def arriving(self) -> dict[tuple[str, int], Copied]:
        """Instances that get a new home, and their runs that are there."""
        return {(w[0], w[1]): self.brought.runs.get((w[0], w[1], w[3]), ()) for w in self.moved}

    @property
    def givers(self) -> dict[tuple[str, int], Party]:
        """Instances that give rows up."""
        return {(party.vertex, party.instance): party for party, _ in self.dealt.givers}

    def riders(self, wave: Wave) -> Riders:
        """Return what sends the state, by the layer that it runs beside."""
        found: dict[int, list[Stage]] = {}
        there = self.arriving
        parcels: dict[int, dict[str, list[Parcel]]] = {}
        for name, index, known, _ in self.moved:
            layer, to = wave.address(name, index)
            parcel = Parcel(name, index, known.version, to, there=there[name, index])
            parcels.setdefault(layer, {}).setdefault(known.place, []).append(parcel)
        for layer, by_place in parcels.items():
            send = Send(tuple(map(tuple, by_place.values())), layer)
            found.setdefault(layer - 1, []).append(Stage(tuple(by_place), send))
        givers: dict[int, list[tuple[Party, str]]] = {}
        for party, place in self.dealt.givers:
            givers.setdefault(wave.first[party.vertex][0], []).append((party, place))
        for layer, parties in givers.items():
            targets = {
                (party.vertex, index): wave.address(party.vertex, index)[1]
                for party, _ in parties
                for index in range(wave.parallelism[party.vertex])
            }
            deal = Deal(wave, tuple(party for party, _ in parties), targets, layer)
            found.setdefault(layer - 1, []).append(
                Stage(tuple(place for _, place in parties), deal)
            )
        return found

    def told(self, ledger: Ledger) -> Carried:
        """Say what is to come, by what peers keep of it."""
        ahead = sum(size for runs in self.arriving.values() for _, size in runs)
        moved = sum(ledger.size_bytes(name, index) for name, index, _, _ in self.moved)
        return Carried(
            moved=len(self.moved),
            dealt=len(self.dealt.takers),
            ahead_bytes=min(ahead, moved),
            riding_bytes=max(0, moved - ahead) + self._dealt_bytes(ledger),
            not_ahead=self.brought.failure,
        )

    def _dealt_bytes(self, ledger: Ledger) -> int:
        size = 0.0
        for party, _ in self.dealt.givers:
            before = ledger.held[party.vertex].table
            assert before is not None
            assert party.table is not None
            mine = [i for i, home in enumerate(before.partitions) if home == party.instance]
            left = sum(party.table.partitions[i] != party.instance for i in mine)
            size += ledger.size_bytes(party.vertex, party.instance) * left / len(mine)
        return int(size)

    def came(self, result: BatchResult) -> Carried:
        """Say what came with a batch."""
        arrived = [one.arrived for one in result.stats if one.arrived is not None]
        return Carried(
            moved=len(self.moved),
            dealt=len(self.dealt.takers),
            ahead_bytes=sum(one["ahead"] for one in arrived),
            riding_bytes=sum(one["bytes"] for one in arrived),
        )

    def land(self) -> None:
        """Put the new homes in charge."""
        for _, _, instance, target in self.moved:
            instance.place = target
