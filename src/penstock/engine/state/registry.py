"""Which state exists: its versions, the executors that have it, its backups, what these survive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.engine.backend import Backend
from penstock.engine.batch import BatchSpec
from penstock.engine.messages import SavedVersion
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
    """How the state that a batch changes is backed up.

    Parameters
    ----------
    backup_nodes : tuple of str
        Locations that store fragments with the batch; none if no fragments are sent with it.
    async_backup : bool
        Whether the driver takes what changes, and backs it up later.
    fragment_placements : mapping of str to tuple of FragmentPlacement
        By vertex and instance: the erasure code, and the locations of the fragments.
    snapshots : frozenset of (str, int)
        Instances that save all of their state.
    """

    backup_nodes: tuple[str, ...] = ()
    async_backup: bool = False
    fragment_placements: Mapping[str, tuple[FragmentPlacement, ...]] = field(default_factory=dict)
    snapshots: frozenset[tuple[str, int]] = frozenset()


@dataclass(eq=False)
class StateRegistry:
    """The committed state of one pipeline.

    Parameters
    ----------
    topology : str
    backend : Backend
    state_config : StateConfig
    handles : dict of str to StateHandle
        By stateful vertex.
    catalog : Catalog
        Which backup node, or the driver, has which fragments.
    retiring : set of str
        Nodes that must not store fragments any more.
    """

    topology: str
    backend: Backend
    state_config: StateConfig
    handles: dict[str, StateHandle]
    catalog: Catalog = field(default_factory=Catalog)
    retiring: set[str] = field(default_factory=set)

    # ---- what it survives

    def losses(self) -> int:
        """Count the nodes that may be lost, if there are enough nodes; 0 if none stores state."""
        return self.state_config.parity if self.handles and self.state_config.mode == "peers" else 0

    def survives(self, plan: Plan) -> Tolerance | None:
        """Say which losses of nodes the state survives now; None if no node has a backup."""
        if not self.state_config.by_peers:
            return None
        locations = self.backup_locations()
        found = [
            tolerance(
                _own_backup_executor(plan, name, index, locations),
                self._backup(plan, name, index, locations),
                locations,
                asked=self.state_config.parity,
            )
            for name, handle in self.handles.items()
            for index, instance in enumerate(handle.instances)
            if instance.version >= 0
        ]
        return worst(found) if found else None

    def _backup(
        self, plan: Plan, name: str, index: int, locations: Mapping[str, str]
    ) -> list[FragmentedSegment | FragmentPlacement]:
        """Return the backup of an instance, with pending segments as they will be stored."""
        segments = self.segments(name, index)
        if not any(segment.on_driver for segment in segments):
            return list(segments)
        placement = self._placement(plan, name, index, locations)
        return [placement if segment.on_driver else segment for segment in segments]

    def promise(self, plan: Plan) -> str:
        """Say in words what the state survives now; empty before there is any."""
        if all(handle.empty for handle in self.handles.values()):
            return ""
        state_config = self.state_config_under(plan)
        said = []
        if state_config.by_peers:
            found = self.survives(plan)
            said.append("survives nothing: it has no backup" if found is None else str(found))
            if state_config.every > 1:
                said.append("the driver holds what changed of late")
        if state_config.in_checkpoint:
            said.append(f"all of it is in the checkpoint at {state_config.shared}")
        return "; ".join(said)

    # ---- what the next batch does

    def assign_backup(self, plan: Plan, *, synchronous: bool) -> BackupAssignment:
        """Choose how a batch backs up its changes; synchronous: with fragments in any case."""
        if not (self.state_config_under(plan).by_peers and self.handles):
            return BackupAssignment()
        locations = self.backup_locations()
        if len(locations) < 2:
            # There is no other node.
            locations = {}
        placements: dict[str, tuple[FragmentPlacement, ...]] = {}
        snapshots: set[tuple[str, int]] = set()
        for name, handle in self.handles.items():
            instances = handle.instances[: plan.parallelism[name]]
            wanted = [self._placement(plan, name, i, locations) for i in range(len(instances))]
            placements[name] = tuple(
                replace(one, backup_nodes=tuple(locations[e] for e in one.backup_nodes))
                for one in wanted
            )
            snapshots |= {
                (name, i)
                for i, instance in enumerate(instances)
                if instance.version >= 0
                and (
                    instance.damaged
                    # There was no backup node for some batches: the backup is of an older version.
                    or (instance.backed_up < instance.version and wanted[i].backup_nodes)
                    or self._under_replicated(plan, name, i, wanted[i], locations)
                )
            }
        if synchronous or snapshots:
            return BackupAssignment(
                tuple(locations.values()),
                fragment_placements=placements,
                snapshots=frozenset(snapshots),
            )
        return BackupAssignment(async_backup=bool(locations))

    def _under_replicated(
        self,
        plan: Plan,
        name: str,
        index: int,
        wanted: FragmentPlacement,
        locations: Mapping[str, str],
    ) -> bool:
        """Whether the fragments of an instance survive less than they could."""
        segments = self.segments(name, index)
        stored = tuple(segment for segment in segments if not segment.on_driver)
        if not stored and segments:
            # The driver has all of it, and will back it up.
            return False
        return under_replicated(
            _own_backup_executor(plan, name, index, locations), stored, wanted, locations
        )

    def _placement(
        self, plan: Plan, name: str, index: int, locations: Mapping[str, str]
    ) -> FragmentPlacement:
        """Choose the executors that store the fragments of an instance."""
        key = state_key(self.topology, name, index)
        own = _own_backup_executor(plan, name, index, locations)
        return place_fragments(
            own, key, locations, r=self.state_config.data, c=self.state_config.parity
        )

    def state_config_under(self, plan: Plan) -> StateConfig:
        """Return how state is kept under a plan: one that pins nothing needs a checkpoint."""
        state_config = self.state_config
        if state_config.by_peers and not plan.pinned:
            if not state_config.in_checkpoint:
                raise InvalidValue(
                    "state", "a run", "checkpoint or both: the plan pins nothing", state_config.mode
                )
            state_config = replace(state_config, mode="checkpoint")
        return state_config

    def backup_locations(self) -> dict[str, str]:
        """Return the locations that may store fragments, by executor."""
        return {
            self.backend.executor_at(location): location
            for node, location in self.backend.backup_nodes().items()
            if node not in self.retiring
        }

    # ---- what instances saved

    def record_saved(
        self,
        spec: BatchSpec,
        name: str,
        index: int,
        saved: SavedVersion,
        executor: str | None = None,
    ) -> FragmentedSegment | None:
        """Enter a version that an instance saved, and its backup.

        Returns
        -------
        FragmentedSegment or None
            The backup, which backup nodes or the driver have; None if there is none.
        """
        if executor is None:
            on_nodes = spec.state_config.by_peers
            executor = self.backend.executor_at(spec.locations[name][index]) if on_nodes else ""
        instance = self.handles[name].instances[index]
        instance.version, instance.executor = saved.version, executor
        if spec.async_backup:
            placement = FragmentPlacement(1, 0, (DRIVER,))
        elif spec.backup_nodes and spec.fragment_placements[name][index].backup_nodes:
            placement = self.placed(spec, name, index)
        else:
            return None
        first, last = saved.segment.first, saved.segment.last
        segment = FragmentedSegment(
            self.topology,
            name,
            index,
            first,
            last,
            placement.r,
            placement.c,
            placement.backup_nodes,
            saved.size_bytes,
        )
        self.catalog.add(segment)
        instance.backed_up = last
        instance.damaged = instance.damaged and first > 0
        self.catalog.retain(self.topology, name, index, [last])
        return segment

    def placed(self, spec: BatchSpec, name: str, index: int) -> FragmentPlacement:
        """Return the fragment placement of an instance in a batch, with executors as nodes."""
        one = spec.fragment_placements[name][index]
        executors = tuple(self.backend.executor_at(location) for location in one.backup_nodes)
        return replace(one, backup_nodes=executors)

    def segments(self, name: str, index: int) -> tuple[FragmentedSegment, ...]:
        """Return the segments of an instance's backup, the newest first."""
        backed_up = self.handles[name].instances[index].backed_up
        return chain(self.catalog.find(self.topology, name, index), backed_up)

    def backup_segments(self, name: str, index: int) -> tuple[Segment, ...]:
        """Return the versions that each segment of an instance's backup covers."""
        return tuple(Segment(s.first, s.last) for s in self.segments(name, index))

    def size_bytes(self, name: str, index: int) -> int:
        """Size of an instance's state, by its backup."""
        return sum(segment.size_bytes for segment in self.segments(name, index))


def _own_backup_executor(plan: Plan, name: str, index: int, locations: Mapping[str, str]) -> str:
    """Return the executor that stores fragments on the node of an instance itself."""
    node = plan.placement[name][index].node
    # Locations are such as node-1/0: to ask the backend again would cost a call for each.
    return next((e for e, location in locations.items() if location.rpartition("/")[0] == node), "")
