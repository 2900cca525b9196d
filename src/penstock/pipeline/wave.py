"""One micro-batch as its tasks see it: number, instances, routing, ranges, state version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from penstock.model import RoutingTable
from penstock.state.log import Epoch

#: What happens to rows that a function fails on: the run stops, or they are left out and counted.
ON_ERROR = ("stop", "skip")


@dataclass(frozen=True, eq=False)
class Wave:
    """What a task needs to know of its batch besides the layout.

    Parameters
    ----------
    batch_id : int
    version : int
        The committed state version that the batch starts from; -1 before the first.
    layers : tuple of tuple of str
        Vertices by layer.
    parallelism : mapping of str to int
    routing : mapping of str to RoutingTable
    epochs : mapping of str to tuple of Epoch
        For stateful vertices.
    ranges : mapping of str to tuple of (int, int)
        Positions of each source step that belong to this batch.
    homes : mapping of str to tuple of str
        Where each instance of a vertex runs, for local grouping and for relaying; any equal strings
        mean the same place.
    state_root : str
    on_error : str
    token : str
        Of the driver that sent it: what a worker remembers for one driver is nothing to the next.
    """

    batch_id: int
    version: int
    layers: tuple[tuple[str, ...], ...]
    parallelism: Mapping[str, int]
    routing: Mapping[str, RoutingTable] = field(default_factory=dict)
    epochs: Mapping[str, tuple[Epoch, ...]] = field(default_factory=dict)
    ranges: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    homes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    state_root: str = ""
    on_error: str = "stop"
    token: str = ""

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

    def width(self, layer: int) -> int:
        """Partitions of a layer."""
        return sum(self.parallelism[vertex] for vertex in self.layers[layer])

    def address(self, vertex: str, instance: int) -> tuple[int, int]:
        """Layer and partition of an instance."""
        depth, start = self.first[vertex]
        return depth, start + instance

    def tenant(self, layer: int, partition: int) -> tuple[str, int]:
        """Vertex and instance of a partition."""
        for vertex in self.layers[layer]:
            if partition < self.parallelism[vertex]:
                return vertex, partition
            partition -= self.parallelism[vertex]
        raise IndexError(f"layer {layer} has no such partition")

    @cached_property
    def places(self) -> tuple[tuple[str, ...], ...]:
        """Home of every partition of every layer."""
        return tuple(
            tuple(
                home
                for vertex in layer
                for home in self.homes.get(vertex, ("",) * self.parallelism[vertex])
            )
            for layer in self.layers
        )
