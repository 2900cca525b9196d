"""One micro-batch as its tasks see it: number, instances, routing, ranges, state versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.engine.messages import DRIVER, Address
from penstock.engine.repartition import Participant
from penstock.model import RoutingTable
from penstock.pipeline.steps import Attempt
from penstock.state.backup.placement import FragmentPlacement
from penstock.state.config import StateConfig
from penstock.state.versions import Copied, Segment

#: Watermark before any row was seen, as in Spark: windows that end before 1970 are closed.
FIRST_WATERMARK = 0

#: What happens to rows that a function fails on: the run stops, or they are left out and counted.
ON_ERROR = ("stop", "skip")


@dataclass(frozen=True, eq=False)
class BatchSpec:
    """What a task needs to know of its batch besides the job graph.

    A *location* is a process of a node as a plan names it, such as ``node-1/0``.

    Parameters
    ----------
    batch_id : int
    version : int
        Number of this attempt at the batch. State that the batch changes is saved as this version;
        no other attempt ever has the same number.
    layers : tuple of tuple of str
        Vertices by layer.
    parallelism : mapping of str to int
    routing : mapping of str to RoutingTable
    ranges : mapping of str to tuple of (int, int)
        Positions of each source step that belong to this batch.
    locations : mapping of str to tuple of str
        Location of each instance of a vertex.
    state_config : StateConfig
    bases : mapping of str to tuple of int
        By stateful vertex and instance: the committed state version that it starts from; -1 before
        its first.
    backed_up : mapping of str to tuple of int
        By stateful vertex and instance: the version of which there is a backup; -1 if there is
        none.
    backup_segments : mapping of str to tuple of tuple of Segment
        By stateful vertex and instance: the segments that its backup consists of.
    backup_nodes : tuple of str
        Locations that store fragments. Each is a partition of one more layer after the last; where
        there are none, there is no such layer.
    async_backup : bool
        Whether instances send what they changed to the driver, which backs it up later.
    fragment_placements : mapping of str to tuple of FragmentPlacement
        By stateful vertex and instance: the erasure code, and the locations of its fragments.
    snapshots : frozenset of (str, int)
        Instances that save all of their state, whatever they changed.
    precopying : frozenset of (str, int)
        Instances whose state is being pre-copied; these copies must not be removed.
    incoming : mapping of (str, int) to tuple of (Segment, int)
        Instances whose state migrates with this batch, and their segments that were pre-copied.
    row_senders : mapping of (str, int) to Participant
        Instances that give rows of their state to others with this batch.
    shares : mapping of str to bytes
        By step: what instances made of split keys in the batch before, for the owners of the keys.
    watermarks, previous_watermarks : mapping of str to int
        By step that follows event time, and by stream of one that reads two: event time in
        microseconds up to which all rows are expected to be there, in this batch and in the batch
        before.
    clock_us, previous_clock_us : int
        When this batch, and the batch before, was begun for the first time, in microseconds since
        1970.
    clean_up : bool
        Whether backup nodes remove files that are no longer needed from their node.
    on_error : str
        One of `ON_ERROR`.
    epoch : int
        Number of the driver's turn at the checkpoint.
    token : str
        Identifies the driver. A worker process does not use state that it has in memory from
        another driver.
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
    backed_up: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    backup_segments: Mapping[str, tuple[tuple[Segment, ...], ...]] = field(default_factory=dict)
    backup_nodes: tuple[str, ...] = ()
    async_backup: bool = False
    fragment_placements: Mapping[str, tuple[FragmentPlacement, ...]] = field(default_factory=dict)
    snapshots: frozenset[tuple[str, int]] = frozenset()
    precopying: frozenset[tuple[str, int]] = frozenset()
    incoming: Mapping[tuple[str, int], Copied] = field(default_factory=dict)
    row_senders: Mapping[tuple[str, int], Participant] = field(default_factory=dict)
    shares: Mapping[str, bytes] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    previous_watermarks: Mapping[str, int] = field(default_factory=dict)
    clock_us: int = 0
    previous_clock_us: int = 0
    clean_up: bool = True
    on_error: str = "stop"
    epoch: int = 0
    token: str = ""

    def watermark(self, step: str) -> int:
        """Event time, in microseconds, up to which windows close in this batch."""
        return self.watermarks.get(step, FIRST_WATERMARK)

    def late_before(self, step: str) -> int:
        """Event time up to which windows are closed, so that rows for them come too late.

        It is the watermark of the batch before, as in Spark: windows that close in this batch still
        take its rows.
        """
        return self.previous_watermarks.get(step, FIRST_WATERMARK)

    @property
    def attempt(self) -> Attempt:
        """The attempt at the batch, as sinks know it."""
        return Attempt(self.batch_id, self.version, self.epoch)

    @cached_property
    def first(self) -> Mapping[str, Address]:
        """Layer of each vertex, and the partition of its first instance there."""
        found: dict[str, Address] = {}
        for depth, layer in enumerate(self.layers):
            start = 0
            for vertex in layer:
                found[vertex] = Address(depth, start)
                start += self.parallelism[vertex]
        return found

    @cached_property
    def state_numbers(self) -> Mapping[str, int]:
        """Numbers of the stateful vertices, which messages with state have in their header."""
        return {vertex: number for number, vertex in enumerate(self.bases)}

    @property
    def depth(self) -> int:
        """Layers, that of the backup nodes included."""
        return len(self.layers) + bool(self.backup_nodes)

    def width(self, layer: int) -> int:
        """Partitions of a layer."""
        return len(self.layer_locations[layer])

    def address(self, vertex: str, instance: int) -> Address:
        """Layer and partition of an instance."""
        depth, start = self.first[vertex]
        return Address(depth, start + instance)

    def instance_at(self, layer: int, partition: int) -> tuple[str, int]:
        """Vertex and instance of a partition."""
        for vertex in self.layers[layer]:
            if partition < self.parallelism[vertex]:
                return vertex, partition
            partition -= self.parallelism[vertex]
        raise IndexError(f"layer {layer} has no such partition")

    @cached_property
    def layer_locations(self) -> tuple[tuple[str, ...], ...]:
        """Location of every partition of every layer."""
        layers = tuple(
            tuple(
                location
                for vertex in layer
                for location in self.locations.get(vertex, ("",) * self.parallelism[vertex])
            )
            for layer in self.layers
        )
        return (*layers, self.backup_nodes) if self.backup_nodes else layers

    def next_hop(self, here: Address, to: Address) -> int:
        """Return the partition of the next layer through which a message travels to a later one.

        Parameters
        ----------
        here : Address
            The task that sends the message, or passes it on.
        to : Address
        """
        following = here.layer + 1
        if to.layer == following:
            return to.partition
        if following >= self.depth:
            return DRIVER.partition
        # A relay at the same location keeps a long edge off the network until its last hop.
        location = self.layer_locations[here.layer][here.partition]
        for partition, other in enumerate(self.layer_locations[following]):
            if other == location:
                return partition
        return to.partition % len(self.layer_locations[following])
