"""A cluster: nodes with their capacities, processes and slots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.common.arrays import FloatArray, IntArray, frozen_floats, frozen_ints
from penstock.common.errors import InvalidValue


@dataclass(frozen=True)
class Node:
    """One machine.

    Parameters
    ----------
    name : str
        Unique within the cluster.
    cpu_cores : float
        Cores that instances may use.
    mem_mb : float
        Memory that instances may use, in MB.
    io_mb_s : float
        Disk traffic that it sustains, in MB/s.
    bandwidth_mb_s : float
        Network traffic that it sustains, in MB/s.
    rack : str
        Nodes of one rack are near each other, and may fail together.
    processes : int
        Worker processes (Spark executors) on the node.
    slots : int
        Instances that one process holds.
    own_cores : bool
        Whether each process has its part of the cores to itself, as a Spark executor has, so that
        instances are to be spread over them; one of Storm may use all cores.
    """

    name: str
    cpu_cores: float = 4.0
    mem_mb: float = 8192.0
    io_mb_s: float = 500.0
    bandwidth_mb_s: float = 125.0
    rack: str = "rack-0"
    processes: int = 1
    slots: int = 64
    own_cores: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidValue("name", "a node", "a non-empty string", self.name)
        owner = f"node {self.name!r}"
        for parameter in ("cpu_cores", "mem_mb", "io_mb_s", "bandwidth_mb_s"):
            value = getattr(self, parameter)
            if (
                not isinstance(value, (int, float))
                or isinstance(value, bool)
                or not math.isfinite(value)
                or value < 0
            ):
                raise InvalidValue(parameter, owner, "a finite number of at least 0", value)
        for parameter in ("processes", "slots"):
            value = getattr(self, parameter)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InvalidValue(parameter, owner, "a whole number of at least 1", value)
        if not isinstance(self.own_cores, bool):
            raise InvalidValue("own_cores", owner, "true or false", self.own_cores)


@dataclass(frozen=True)
class Cluster:
    """The nodes that a topology may use; they need not be alike.

    Examples
    --------
    >>> Cluster.of(3, cpu_cores=2).cpu_cores.sum()
    np.float64(6.0)
    """

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InvalidValue("nodes", "a cluster", "at least one node", ())
        seen: set[str] = set()
        for node in self.nodes:
            if node.name in seen:
                raise InvalidValue("nodes", "a cluster", "uniquely named", node.name)
            seen.add(node.name)

    @classmethod
    def of(
        cls,
        count: int,
        *,
        cpu_cores: float = 4.0,
        mem_mb: float = 8192.0,
        processes: int = 1,
        slots: int = 64,
    ) -> Cluster:
        """Make `count` equal nodes named ``node-0``, ``node-1``, ... ."""
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise InvalidValue("nodes", "a cluster", "a whole number of at least 1", count)
        width = len(str(count - 1))
        return cls(
            tuple(
                Node(
                    f"node-{i:0{width}d}",
                    cpu_cores=cpu_cores,
                    mem_mb=mem_mb,
                    processes=processes,
                    slots=slots,
                )
                for i in range(count)
            )
        )

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, in order."""
        return tuple(node.name for node in self.nodes)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Position of each node in `nodes`."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @cached_property
    def cpu_cores(self) -> FloatArray:
        """Cores of each node."""
        return frozen_floats([node.cpu_cores for node in self.nodes])

    @cached_property
    def mem_mb(self) -> FloatArray:
        """Memory of each node, in MB."""
        return frozen_floats([node.mem_mb for node in self.nodes])

    @cached_property
    def io_mb_s(self) -> FloatArray:
        """Disk traffic that each node sustains, in MB/s."""
        return frozen_floats([node.io_mb_s for node in self.nodes])

    @cached_property
    def bandwidth_mb_s(self) -> FloatArray:
        """Network traffic that each node sustains, in MB/s."""
        return frozen_floats([node.bandwidth_mb_s for node in self.nodes])

    @cached_property
    def processes(self) -> IntArray:
        """Processes of each node."""
        return frozen_ints([node.processes for node in self.nodes])

    @cached_property
    def slots(self) -> IntArray:
        """Instances that one process of each node holds."""
        return frozen_ints([node.slots for node in self.nodes])

    @cached_property
    def rack(self) -> IntArray:
        """Number of each node's rack."""
        numbers: dict[str, int] = {}
        return frozen_ints([numbers.setdefault(n.rack, len(numbers)) for n in self.nodes])

    @cached_property
    def first_process(self) -> IntArray:
        """Number of each node's first process when all processes are counted through."""
        return frozen_ints(np.concatenate(([0], np.cumsum(self.processes)[:-1])))
