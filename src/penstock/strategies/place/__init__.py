"""Placers: groups of instances onto nodes, and instances of a node into its processes.

A placer is a frozen dataclass with `place`; one algorithm a file, registered with ``@register``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from penstock.common.arrays import IntArray
from penstock.common.registry import registry
from penstock.model import Cluster, InstanceGraph, Plan, Reason


@dataclass(frozen=True, eq=False)
class Placed:
    """Where a placer put the instances, and why.

    Every instance is somewhere, even if that breaks a limit: whoever makes the plan reports it.
    """

    node_of: IntArray
    process_of: IntArray
    reasons: tuple[Reason, ...]


@runtime_checkable
class Placer(Protocol):
    """Something that puts groups of instances on nodes."""

    name: ClassVar[str]
    summary: ClassVar[str]
    origin: ClassVar[str]

    def place(
        self,
        graph: InstanceGraph,
        groups: IntArray,
        count: int,
        cluster: Cluster,
        running: Plan | None,
        rng: np.random.Generator,
    ) -> Placed:
        """Put each of `count` groups on a node.

        Parameters
        ----------
        graph : InstanceGraph
        groups : array of int
            Group of each instance, from 0 to ``count - 1``; groups may be empty, and there may be
            more groups than nodes or fewer.
        count : int
        cluster : Cluster
        running : Plan or None
            The plan that runs now, for placers that prefer nodes that are awake.
        rng : numpy.random.Generator
        """
        ...


placers, register = registry("placer", "penstock.strategies.place", "penstock.placers")
