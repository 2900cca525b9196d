"""Routers: which of the next operator's instances a tuple goes to, by its key.

A router is a frozen dataclass with `route` and `route_hashes`; one algorithm a file, registered
with ``@register``. It is a pure value: what changes from batch to batch (the table, the loads, the
hot keys, how many tuples went before) comes in as a `Destination`, so that the same batch routed
twice goes the same way.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from penstock.common.arrays import FloatArray, IntArray
from penstock.common.key_hashing import BLOCK, HashArray, combine, hash_keys
from penstock.common.parameters import Checked
from penstock.common.registry import registry
from penstock.model import InvalidValue, RoutingTable

__all__ = [
    "Destination",
    "KeyRouter",
    "Router",
    "combine",
    "hash_keys",
    "register",
    "routers",
]


#: Lowest bits of a hash that a table of a few hot keys may be made of: it must stay in the cache.
_SLOT_BITS = 14


@dataclass(frozen=True, eq=False)
class Destination:
    """What a router may know of the operator that it sends to.

    Parameters
    ----------
    instances : int
        How many there are; answers are from 0 to one less.
    table : RoutingTable or None
        For routers by table. Without one, partitions go to the instances in turn.
    loads : array or None
        Tuples that each instance has been sent so far. None: none yet.
    hot : frozenset of int
        Hashes of the keys that are hot now.
    position : int
        Tuples that were sent before this batch; where tuples go in turn, it goes on here.
    """

    instances: int
    table: RoutingTable | None = None
    loads: FloatArray | None = None
    hot: frozenset[int] = field(default_factory=frozenset)
    position: int = 0

    def __post_init__(self) -> None:
        owner = "a router's destination"
        if self.instances < 1:
            raise InvalidValue("instances", owner, "a whole number of at least 1", self.instances)
        if self.position < 0:
            raise InvalidValue("position", owner, "a whole number of at least 0", self.position)
        if self.loads is not None and len(self.loads) != self.instances:
            raise InvalidValue("loads", owner, f"{self.instances} numbers", len(self.loads))
        if self.table is not None:
            named = [*self.table.partitions, *(i for to in self.table.split.values() for i in to)]
            if min(named) < 0 or max(named) >= self.instances:
                worst = min(named) if min(named) < 0 else max(named)
                allowed = f"of instances from 0 to {self.instances - 1}"
                raise InvalidValue("table", owner, allowed, worst)


@runtime_checkable
class Router(Protocol):
    """Something that sends keys to instances.

    Attributes
    ----------
    choices : int or None
        Most instances that one key reaches while it is neither hot nor split; None: any number.
        Where it is 1 a key's state is in one place, and otherwise a merge must follow.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    origin: ClassVar[str]
    choices: ClassVar[int | None]

    def route(self, keys: Any, to: Destination) -> IntArray:
        """Give every key an instance.

        Parameters
        ----------
        keys : array
            As `hash_keys` takes them.
        to : Destination

        Returns
        -------
        array of int
            Instance of each key, from 0 to ``to.instances - 1``.
        """
        ...

    def route_hashes(self, hashes: HashArray, to: Destination) -> IntArray:
        """Do the same for keys that are hashed already."""
        ...


class KeyRouter(Checked):
    """Base of routers that look at nothing of a key but its hash."""

    def route(self, keys: Any, to: Destination) -> IntArray:
        """Give every key an instance; see `Router.route`."""
        return self.route_hashes(hash_keys(keys), to)

    @abstractmethod
    def route_hashes(self, hashes: HashArray, to: Destination) -> IntArray:
        """Give every hash an instance; see `Router.route_hashes`."""


def among(hashes: HashArray, sorted_hashes: HashArray) -> IntArray:
    """Position of each hash in a short sorted array; -1 where it is not in it."""
    if not len(sorted_hashes):
        return np.full(len(hashes), -1, dtype=np.int64)
    places = np.empty(len(hashes), dtype=np.int64)
    find = _finder(sorted_hashes)
    for start in range(0, len(hashes), BLOCK):
        block = hashes[start : start + BLOCK]
        at = find(block)
        places[start : start + BLOCK] = np.where(sorted_hashes.take(at) == block, at, -1)
    return places


def _finder(sorted_hashes: HashArray) -> Callable[[HashArray], IntArray]:
    """Return what says where each hash stands, should it be one of those at all."""
    for bits in range(_SLOT_BITS):
        # The lowest bits, where they tell all of them apart: one look where a search takes many.
        low = np.uint64((1 << bits) - 1)
        slots = sorted_hashes & low
        if len(np.unique(slots)) == len(slots):
            place = np.zeros(1 << bits, dtype=np.int64)
            place[slots] = np.arange(len(slots))
            return lambda hashes: place.take((hashes & low).view(np.int64))
    return lambda hashes: np.minimum(np.searchsorted(sorted_hashes, hashes), len(sorted_hashes) - 1)


routers, register = registry("router", "penstock.strategies.route", "penstock.routers")
