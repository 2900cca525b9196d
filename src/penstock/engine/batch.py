"""One micro-batch as its tasks see it: number, instances, routing, ranges, state version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.engine.repartition import Participant
from penstock.model import RoutingTable
from penstock.pipeline.steps import Attempt
from penstock.state.backup.placement import FragmentPlacement
from penstock.state.config import StateConfig
from penstock.state.versions import Copied, Segment

#: What happens to rows that a function fails on: the run stops, or they are left out and counted.
ON_ERROR = ("stop", "skip")


@dataclass(frozen=True, eq=False)
class BatchSpec:
    """What a task needs to know of its batch besides the layout.

    Parameters
    ----------
    batch_id : int
    version : int
        Number of this attempt, which state that it changes is saved under; never used twice.
    layers : tuple of tuple of str
        Vertices by layer.
    parallelism : mapping of str to int
    routing : mapping of str to RoutingTable
    ranges : mapping of str to tuple of (int, int)
        Positions of each source step that belong to this batch.
    locations : mapping of str to tuple of str
        Where each instance of a vertex runs, for local grouping and for relaying; any equal strings
        mean the same place.
    state_config : StateConfig
    bases : mapping of str to tuple of int
        The committed state version that each instance of a stateful vertex starts from; -1 before
        its first.
    needed : mapping of str to tuple of tuple of Segment
        The runs that what peers have of each of those states is made of.
    backed : mapping of str to tuple of int
        The version that peers have of each; -1 if none.
    backup_nodes : tuple of str
        Homes of the nodes that keep fragments, one partition each in a layer after the last; none:
        there is no such layer.
    hold : bool
        Whether what changes goes to the driver, which gives it to them later.
    fragment_placements : mapping of str to tuple of FragmentPlacement
        Code and keepers of each instance's fragments.
    whole : frozenset of (str, int)
        Instances that save all their state, whatever they changed.
    coming : frozenset of (str, int)
        Instances whose state is being copied ahead of a move.
    incoming : mapping of (str, int) to tuple of (Segment, int)
        Instances whose state comes to a new home with this batch, and the runs that are there.
    givers : mapping of (str, int) to Participant
        Instances that give rows of their state to others with this batch.
    shares : mapping of str to bytes
        By step: what instances made of split keys in the batch before, for the homes of these.
    watermarks, passed : mapping of str to int or None
        Event time, in microseconds, that each windowed step has passed, now and a batch ago.
    tidy : bool
        Whether keepers remove what is no longer needed where they are.
    on_error : str
    epoch : int
        Number of the driver's turn at the checkpoint.
    token : str
        Of the driver that sent it: what a worker remembers for one driver is nothing to the next.
    """

    batch_id: int
    version: int
    layers: tuple[tuple[str, ...], ...]
    parallelism: Mapping[str, int]
    routing: Mapping[str, RoutingTable] = field(default_factory=dict)
    ranges: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    locations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    state_config: StateConfig = field(default_factory=StateConfig)
    bases: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    needed: Mapping[str, tuple[tuple[Segment, ...], ...]] = field(default_factory=dict)
    backed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    backup_nodes: tuple[str, ...] = ()
    hold: bool = False
    fragment_placements: Mapping[str, tuple[FragmentPlacement, ...]] = field(default_factory=dict)
    whole: frozenset[tuple[str, int]] = frozenset()
    coming: frozenset[tuple[str, int]] = frozenset()
    incoming: Mapping[tuple[str, int], Copied] = field(default_factory=dict)
    givers: Mapping[tuple[str, int], Participant] = field(default_factory=dict)
    shares: Mapping[str, bytes] = field(default_factory=dict)
    watermarks: Mapping[str, int | None] = field(default_factory=dict)
    passed: Mapping[str, int | None] = field(default_factory=dict)
    tidy: bool = True
    on_error: str = "stop"
    epoch: int = 0
    token: str = ""

    @property
    def attempt(self) -> Attempt:
        """The attempt at the batch, as sinks know it."""
        return Attempt(self.batch_id, self.version, self.epoch)

    @cached_property
    def first(self) -> Mapping[str, tuple[int, int]]:
        """Layer of each vertex, and the partition of its first instance there."""
        found: dict[str, tuple[int, int]] = {}
        for depth, layer in enumerate(self.layers):
            start = 0
            for vertex in layer:
                found[vertex] = (depth, start)
                start += self.parallelism[vertex]
        return found

    @property
    def depth(self) -> int:
        """Layers, that of the keepers included."""
        return len(self.layers) + bool(self.backup_nodes)

    def width(self, layer: int) -> int:
        """Partitions of a layer."""
        return len(self.layer_locations[layer])

    def address(self, vertex: str, instance: int) -> tuple[int, int]:
        """Layer and partition of an instance."""
        depth, start = self.first[vertex]
        return depth, start + instance

    def instance_at(self, layer: int, partition: int) -> tuple[str, int]:
        """Vertex and instance of a partition."""
        for vertex in self.layers[layer]:
            if partition < self.parallelism[vertex]:
                return vertex, partition
            partition -= self.parallelism[vertex]
        raise IndexError(f"layer {layer} has no such partition")

    @cached_property
    def layer_locations(self) -> tuple[tuple[str, ...], ...]:
        """Home of every partition of every layer."""
        layers = tuple(
            tuple(
                home
                for vertex in layer
                for home in self.locations.get(vertex, ("",) * self.parallelism[vertex])
            )
            for layer in self.layers
        )
        return (*layers, self.backup_nodes) if self.backup_nodes else layers

    def hop(self, here: str, from_layer: int, layer: int, partition: int) -> int:
        """Partition of the next layer through which something travels to a later one.

        Parameters
        ----------
        here : str
            Home that it starts from.
        from_layer : int
        layer, partition : int
            Where it goes.
        """
        following = from_layer + 1
        if layer == following:
            return partition
        if following >= self.depth:
            return 0
        # A relay in the same place keeps a long edge off the network until its last hop.
        for i, place in enumerate(self.layer_locations[following]):
            if place == here:
                return i
        return partition % len(self.layer_locations[following])
