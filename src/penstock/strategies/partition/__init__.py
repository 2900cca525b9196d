"""Partitioners: instances into groups that talk little to each other.

A partitioner is a frozen dataclass with `partition`; one algorithm a file, registered with
``@register``. Capacities are the business of placers and of `refine`; a partitioner balances one
weight.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.common.registry import registry
from penstock.model import InstanceGraph


@runtime_checkable
class Partitioner(Protocol):
    """Something that splits an instance graph."""

    name: ClassVar[str]
    summary: ClassVar[str]
    origin: ClassVar[str]

    def partition(
        self,
        graph: InstanceGraph,
        weights: FloatArray,
        shares: FloatArray,
        rng: np.random.Generator,
    ) -> IntArray:
        """Give every instance a group.

        Parameters
        ----------
        graph : InstanceGraph
        weights : array
            Load of each instance, not negative, in any unit.
        shares : array
            Part of the total weight that each group should get; positive, sums to 1. Its length is
            the number of groups.
        rng : numpy.random.Generator

        Returns
        -------
        array of int
            Group of each instance, from 0 to ``len(shares) - 1``. Groups may stay empty only when
            there are fewer instances than groups.
        """
        ...


partitioners, register = registry(
    "partitioner", "penstock.strategies.partition", "penstock.partitioners"
)
