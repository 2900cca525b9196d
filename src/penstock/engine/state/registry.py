"""The driver's book of state: what is where, who keeps fragments of it, what that survives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.engine.backend import Backend
from penstock.engine.batch import Wave
from penstock.engine.state.handles import Held
from penstock.model import InvalidValue, Plan
from penstock.state.backup.catalog import DRIVER, Block, Catalog, chain
from penstock.state.backup.placement import (
    Spread,
    Tolerance,
    spread,
    state_key,
    thin,
    tolerance,
    worst,
)
from penstock.state.store import Keeping
from penstock.state.versions import Span


@dataclass(frozen=True)
class Kept:
    """How a wave's state is kept by peers.

    Parameters
    ----------
    keepers : tuple of str
        Homes of those that keep fragments; none: nothing is sent to them.
    hold : bool
        Whether the driver holds what changes, and gives it to them later.
    spreads : mapping of str to tuple of Spread
        Code and keepers, as homes, of each instance.
    whole : frozenset of (str, int)
        Instances that save everything.
    """

    keepers: tuple[str, ...] = ()
    hold: bool = False
    spreads: Mapping[str, tuple[Spread, ...]] = field(default_factory=dict)
    whole: frozenset[tuple[str, int]] = frozenset()


@dataclass(eq=False)
class Ledger:
    """State of one pipeline, as committed.

    Parameters
    ----------
    topology : str
    backend : Backend
    keeping : Keeping
    held : mapping of str to Held
        By stateful vertex.
    retiring : set of str
        Nodes that are to keep nothing any more.
    """

    topology: str
    backend: Backend
    keeping: Keeping
    held: dict[str, Held]
    catalog: Catalog = field(default_factory=Catalog)
    retiring: set[str] = field(default_factory=set)

    def losses(self) -> int:
        """Count the nodes that may be lost, if there are enough of them; 0 if none keeps state."""
        return self.keeping.check if self.held and self.keeping.mode == "peers" else 0

    def survives(self, plan: Plan) -> Tolerance | None:
        """Say what losses of nodes the state survives now; None without any by peers."""
        if not self.keeping.by_peers:
            return None
        homes = self.keeper_homes()
        found = [
            tolerance(
                _own_keeper(plan, name, index, homes),
                self._kept(plan, name, index, homes),
                homes,
                asked=self.keeping.check,
            )
            for name, held in self.held.items()
            for index, instance in enumerate(held.instances)
            if instance.version >= 0
        ]
        return worst(found) if found else None

    def _kept(
        self, plan: Plan, name: str, index: int, homes: Mapping[str, str]
    ) -> list[Block | Spread]:
        """Find what is kept of an instance; what the driver holds, as peers will have it."""
        blocks = self.blocks(name, index)
        wanted = self._spread(plan, name, index, homes) if any(b.held for b in blocks) else None
        return [wanted if wanted is not None and block.held else block for block in blocks]

    def promise(self, plan: Plan) -> str:
        """Say in words what the state survives now; empty before there is any."""
        if all(held.empty for held in self.held.values()):
            return ""
        keeping = self.keeping_under(plan)
        said = []
        if keeping.by_peers:
            found = self.survives(plan)
            said.append("survives nothing: peers have none of it" if found is None else str(found))
            if keeping.every > 1:
                said.append("the driver holds what changed of late")
        if keeping.in_checkpoint:
            said.append(f"all of it is in the checkpoint at {keeping.shared}")
        return "; ".join(said)

    def kept(self, plan: Plan, *, backup: bool) -> Kept:
        """Choose who keeps what of a wave; `backup`: peers get what changed with it."""
        if not (self.keeping_under(plan).by_peers and self.held):
            return Kept()
        keepers = self.keeper_homes()
        if len(keepers) < 2:
            # There is nobody else.
            keepers = {}
        spreads: dict[str, tuple[Spread, ...]] = {}
        whole: set[tuple[str, int]] = set()
        for name, held in self.held.items():
            instances = held.instances[: plan.parallelism[name]]
            wanted = [self._spread(plan, name, i, keepers) for i in range(len(instances))]
            spreads[name] = tuple(
                replace(one, keepers=tuple(keepers[place] for place in one.keepers))
                for one in wanted
            )
            whole |= {
                (name, i)
                for i, instance in enumerate(instances)
                if instance.version >= 0
                and (
                    instance.worn
                    # What it starts from is not kept elsewhere: there was nobody for some batches.
                    or (instance.backed < instance.version and wanted[i].keepers)
                    or self._thin(plan, name, i, wanted[i], keepers)
                )
            }
        if backup or whole:
            return Kept(tuple(keepers.values()), spreads=spreads, whole=frozenset(whole))
        return Kept(hold=bool(keepers))

    def needed(self, name: str, index: int) -> tuple[Span, ...]:
        """Return the runs that what peers and the driver have of an instance is made of."""
        return tuple(Span(block.first, block.last) for block in self.blocks(name, index))

    def keeping_under(self, plan: Plan) -> Keeping:
        """Return how state is kept under the plan: without pins, only a checkpoint is of use."""
        keeping = self.keeping
        if keeping.by_peers and not plan.pinned:
            if not keeping.in_checkpoint:
                raise InvalidValue(
                    "state", "a run", "checkpoint or both: the plan pins nothing", keeping.mode
                )
            keeping = replace(keeping, mode="checkpoint")
        return keeping

    def keeper_homes(self) -> dict[str, str]:
        """Return the homes of those that may keep fragments, by place."""
        return {
            self.backend.place(home): home
            for node, home in self.backend.keepers().items()
            if node not in self.retiring
        }

    def _spread(self, plan: Plan, name: str, index: int, homes: Mapping[str, str]) -> Spread:
        key = state_key(self.topology, name, index)
        own = _own_keeper(plan, name, index, homes)
        return spread(own, key, homes, r=self.keeping.raw, c=self.keeping.check)

    def _thin(
        self, plan: Plan, name: str, index: int, wanted: Spread, homes: Mapping[str, str]
    ) -> bool:
        """Whether an instance's fragments survive less than they could."""
        kept = self._with_peers(name, index)
        if not kept and self.blocks(name, index):
            # The driver has all of it, and will give it to peers.
            return False
        return thin(_own_keeper(plan, name, index, homes), kept, wanted, homes)

    def note_saved(
        self, wave: Wave, name: str, index: int, saved: Mapping[str, Any], place: str | None = None
    ) -> Block | None:
        """Take note of a version that an instance saved, and of who keeps it.

        Returns
        -------
        Block or None
            What somebody keeps besides the instance, be it the driver.
        """
        if place is None:
            peers = wave.keeping.by_peers
            place = self.backend.place(wave.homes[name][index]) if peers else ""
        instance = self.held[name].instances[index]
        instance.version, instance.place = int(saved["version"]), place
        if wave.hold:
            first, last = saved["run"]
            kept = Spread(1, 0, (DRIVER,))
        elif "backed" in saved and wave.spreads[name][index].keepers:
            first, last = saved["backed"]
            kept = self.placed(wave, name, index)
        else:
            return None
        size, topology = int(saved["bytes"]), self.topology
        block = Block(topology, name, index, first, last, kept.r, kept.c, kept.keepers, size)
        self.catalog.add(block)
        instance.backed = last
        instance.worn = instance.worn and first > 0
        self.catalog.retain(topology, name, index, [last])
        return block

    def placed(self, wave: Wave, name: str, index: int) -> Spread:
        """Return the spread of an instance in a wave, with places in the place of homes."""
        one = wave.spreads[name][index]
        return replace(one, keepers=tuple(self.backend.place(home) for home in one.keepers))

    def blocks(self, name: str, index: int) -> tuple[Block, ...]:
        """Find what peers and the driver have of an instance, the newest run first."""
        backed = self.held[name].instances[index].backed
        return chain(self.catalog.find(self.topology, name, index), backed)

    def size_bytes(self, name: str, index: int) -> int:
        """Size of an instance's state, by what peers and the driver have of it."""
        return sum(block.size_bytes for block in self.blocks(name, index))

    def _with_peers(self, name: str, index: int) -> tuple[Block, ...]:
        """Find what can be lost with nodes: the driver does not go with them."""
        return tuple(block for block in self.blocks(name, index) if not block.held)


def _own_keeper(plan: Plan, name: str, index: int, homes: Mapping[str, str]) -> str:
    """Return the place that keeps fragments on the node of an instance."""
    node = plan.placement[name][index].node
    # The homes are spots, such as node-1/0: asking the backend again would cost a call each.
    return next((p for p, home in homes.items() if home.rpartition("/")[0] == node), "")
