"""The driver's book of state: what is where, who keeps fragments of it, what that survives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.engine.backend import Backend
from penstock.engine.batch import BatchSpec
from penstock.engine.state.handles import StateHandle
from penstock.model import InvalidValue, Plan
from penstock.state.backup.catalog import DRIVER, Catalog, FragmentedSegment
from penstock.state.backup.placement import (
    FragmentPlacement,
    Tolerance,
    place_fragments,
    state_key,
    tolerance,
    under_replicated,
    worst,
)
from penstock.state.config import StateConfig
from penstock.state.versions import Segment, chain


@dataclass(frozen=True)
class BackupAssignment:
    """How a wave's state is kept by peers.

    Parameters
    ----------
    backup_nodes : tuple of str
        Homes of those that keep fragments; none: nothing is sent to them.
    hold : bool
        Whether the driver holds what changes, and gives it to them later.
    fragment_placements : mapping of str to tuple of FragmentPlacement
        Code and keepers, as homes, of each instance.
    whole : frozenset of (str, int)
        Instances that save everything.
    """

    backup_nodes: tuple[str, ...] = ()
    hold: bool = False
    fragment_placements: Mapping[str, tuple[FragmentPlacement, ...]] = field(default_factory=dict)
    whole: frozenset[tuple[str, int]] = frozenset()


@dataclass(eq=False)
class StateRegistry:
    """State of one pipeline, as committed.

    Parameters
    ----------
    topology : str
    backend : Backend
    state_config : StateConfig
    handles : mapping of str to StateHandle
        By stateful vertex.
    retiring : set of str
        Nodes that are to keep nothing any more.
    """

    topology: str
    backend: Backend
    state_config: StateConfig
    handles: dict[str, StateHandle]
    catalog: Catalog = field(default_factory=Catalog)
    retiring: set[str] = field(default_factory=set)

    def losses(self) -> int:
        """Count the nodes that may be lost, if there are enough of them; 0 if none keeps state."""
        return self.state_config.parity if self.handles and self.state_config.mode == "peers" else 0

    def survives(self, plan: Plan) -> Tolerance | None:
        """Say what losses of nodes the state survives now; None without any by peers."""
        if not self.state_config.by_peers:
            return None
        homes = self.backup_locations()
        found = [
            tolerance(
                _own_keeper(plan, name, index, homes),
                self._kept(plan, name, index, homes),
                homes,
                asked=self.state_config.parity,
            )
            for name, held in self.handles.items()
            for index, instance in enumerate(held.instances)
            if instance.version >= 0
        ]
        return worst(found) if found else None

    def _kept(
        self, plan: Plan, name: str, index: int, homes: Mapping[str, str]
    ) -> list[FragmentedSegment | FragmentPlacement]:
        """Find what is kept of an instance; what the driver holds, as peers will have it."""
        blocks = self.blocks(name, index)
        wanted = (
            self._spread(plan, name, index, homes) if any(b.on_driver for b in blocks) else None
        )
        return [wanted if wanted is not None and block.on_driver else block for block in blocks]

    def promise(self, plan: Plan) -> str:
        """Say in words what the state survives now; empty before there is any."""
        if all(held.empty for held in self.handles.values()):
            return ""
        state_config = self.state_config_under(plan)
        said = []
        if state_config.by_peers:
            found = self.survives(plan)
            said.append("survives nothing: peers have none of it" if found is None else str(found))
            if state_config.every > 1:
                said.append("the driver holds what changed of late")
        if state_config.in_checkpoint:
            said.append(f"all of it is in the checkpoint at {state_config.shared}")
        return "; ".join(said)

    def kept(self, plan: Plan, *, backup: bool) -> BackupAssignment:
        """Choose who keeps what of a wave; `backup`: peers get what changed with it."""
        if not (self.state_config_under(plan).by_peers and self.handles):
            return BackupAssignment()
        backup_nodes = self.backup_locations()
        if len(backup_nodes) < 2:
            # There is nobody else.
            backup_nodes = {}
        fragment_placements: dict[str, tuple[FragmentPlacement, ...]] = {}
        whole: set[tuple[str, int]] = set()
        for name, held in self.handles.items():
            instances = held.instances[: plan.parallelism[name]]
            wanted = [self._spread(plan, name, i, backup_nodes) for i in range(len(instances))]
            fragment_placements[name] = tuple(
                replace(one, backup_nodes=tuple(backup_nodes[place] for place in one.backup_nodes))
                for one in wanted
            )
            whole |= {
                (name, i)
                for i, instance in enumerate(instances)
                if instance.version >= 0
                and (
                    instance.worn
                    # What it starts from is not kept elsewhere: there was nobody for some batches.
                    or (instance.backed < instance.version and wanted[i].backup_nodes)
                    or self._thin(plan, name, i, wanted[i], backup_nodes)
                )
            }
        if backup or whole:
            return BackupAssignment(
                tuple(backup_nodes.values()),
                fragment_placements=fragment_placements,
                whole=frozenset(whole),
            )
        return BackupAssignment(hold=bool(backup_nodes))

    def needed(self, name: str, index: int) -> tuple[Segment, ...]:
        """Return the runs that what peers and the driver have of an instance is made of."""
        return tuple(Segment(block.first, block.last) for block in self.blocks(name, index))

    def state_config_under(self, plan: Plan) -> StateConfig:
        """Return how state is kept under the plan: without pins, only a checkpoint is of use."""
        state_config = self.state_config
        if state_config.by_peers and not plan.pinned:
            if not state_config.in_checkpoint:
                raise InvalidValue(
                    "state", "a run", "checkpoint or both: the plan pins nothing", state_config.mode
                )
            state_config = replace(state_config, mode="checkpoint")
        return state_config

    def backup_locations(self) -> dict[str, str]:
        """Return the homes of those that may keep fragments, by place."""
        return {
            self.backend.executor_at(home): home
            for node, home in self.backend.backup_nodes().items()
            if node not in self.retiring
        }

    def _spread(
        self, plan: Plan, name: str, index: int, homes: Mapping[str, str]
    ) -> FragmentPlacement:
        key = state_key(self.topology, name, index)
        own = _own_keeper(plan, name, index, homes)
        return place_fragments(
            own, key, homes, r=self.state_config.data, c=self.state_config.parity
        )

    def _thin(
        self, plan: Plan, name: str, index: int, wanted: FragmentPlacement, homes: Mapping[str, str]
    ) -> bool:
        """Whether an instance's fragments survive less than they could."""
        kept = self._with_peers(name, index)
        if not kept and self.blocks(name, index):
            # The driver has all of it, and will give it to peers.
            return False
        return under_replicated(_own_keeper(plan, name, index, homes), kept, wanted, homes)

    def record_saved(
        self,
        spec: BatchSpec,
        name: str,
        index: int,
        saved: Mapping[str, Any],
        place: str | None = None,
    ) -> FragmentedSegment | None:
        """Take note of a version that an instance saved, and of who keeps it.

        Returns
        -------
        FragmentedSegment or None
            What somebody keeps besides the instance, be it the driver.
        """
        if place is None:
            peers = spec.state_config.by_peers
            place = self.backend.executor_at(spec.locations[name][index]) if peers else ""
        instance = self.handles[name].instances[index]
        instance.version, instance.executor = int(saved["version"]), place
        if spec.hold:
            first, last = saved["run"]
            kept = FragmentPlacement(1, 0, (DRIVER,))
        elif "backed" in saved and spec.fragment_placements[name][index].backup_nodes:
            first, last = saved["backed"]
            kept = self.placed(spec, name, index)
        else:
            return None
        size, topology = int(saved["bytes"]), self.topology
        block = FragmentedSegment(
            topology, name, index, first, last, kept.r, kept.c, kept.backup_nodes, size
        )
        self.catalog.add(block)
        instance.backed = last
        instance.worn = instance.worn and first > 0
        self.catalog.retain(topology, name, index, [last])
        return block

    def placed(self, spec: BatchSpec, name: str, index: int) -> FragmentPlacement:
        """Return the spread of an instance in a wave, with places in the place of homes."""
        one = spec.fragment_placements[name][index]
        return replace(
            one, backup_nodes=tuple(self.backend.executor_at(home) for home in one.backup_nodes)
        )

    def blocks(self, name: str, index: int) -> tuple[FragmentedSegment, ...]:
        """Find what peers and the driver have of an instance, the newest run first."""
        backed = self.handles[name].instances[index].backed
        return chain(self.catalog.find(self.topology, name, index), backed)

    def size_bytes(self, name: str, index: int) -> int:
        """Size of an instance's state, by what peers and the driver have of it."""
        return sum(block.size_bytes for block in self.blocks(name, index))

    def _with_peers(self, name: str, index: int) -> tuple[FragmentedSegment, ...]:
        """Find what can be lost with nodes: the driver does not go with them."""
        return tuple(block for block in self.blocks(name, index) if not block.on_driver)


def _own_keeper(plan: Plan, name: str, index: int, homes: Mapping[str, str]) -> str:
    """Return the place that keeps fragments on the node of an instance."""
    node = plan.placement[name][index].node
    # The homes are spots, such as node-1/0: asking the backend again would cost a call each.
    return next((p for p, home in homes.items() if home.rpartition("/")[0] == node), "")
