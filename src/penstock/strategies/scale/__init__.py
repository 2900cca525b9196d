"""Scalers: how many groups, and how many instances, the load of now needs.

A scaler is a frozen dataclass with `scale`; one algorithm a file, registered with ``@register``.
Some change the groups (fewer, fuller ones are fewer nodes), some the parallelism of operators,
which gives another instance graph. Both take and return the same three things, so that one may
follow the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from penstock.common.arrays import IntArray
from penstock.common.registry import registry
from penstock.model import InstanceGraph, Reason
from penstock.strategies.api import Request


@dataclass(frozen=True, eq=False)
class Scaled:
    """What a scaler made of a graph and its groups, and why.

    Parameters
    ----------
    graph : InstanceGraph
        The graph it was given, or another one of the same operators when the parallelism changed.
    groups : array of int
        Group of each instance of `graph`, from 0 to ``count - 1``.
    count : int
        Number of groups.
    reasons : tuple of Reason
        Never empty: also what could not be done is said.
    """

    graph: InstanceGraph
    groups: IntArray
    count: int
    reasons: tuple[Reason, ...]


@runtime_checkable
class Scaler(Protocol):
    """Something that adapts groups or parallelism to the load."""

    name: ClassVar[str]
    summary: ClassVar[str]
    origin: ClassVar[str]

    def scale(self, request: Request, graph: InstanceGraph, groups: IntArray, count: int) -> Scaled:
        """Adapt the groups or the graph.

        Parameters
        ----------
        request : Request
            For the cluster, the running plan and its random generator.
        graph : InstanceGraph
        groups : array of int
            Group of each instance, from 0 to ``count - 1``. A scaler that works before placement
            takes each group for one average node; one that works on a placement, which says so,
            takes group `i` for node `i` of the cluster.
        count : int
        """
        ...


scalers, register = registry("scaler", "penstock.strategies.scale", "penstock.scalers")

__all__ = ["Scaled", "Scaler", "register", "scalers"]
