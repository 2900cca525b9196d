"""Fields grouping as Storm and Spark do it: the hash of the key modulo the instances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.common.arrays import IntArray
from penstock.common.key_hashing import HashArray, modulo
from penstock.strategies.route import Destination, KeyRouter, register


@register
@dataclass(frozen=True)
class Hash(KeyRouter):
    """Send a key to its hash modulo the number of instances.

    A key is always in one place and nothing has to be kept. It cannot react to skew, and a change
    of parallelism moves nearly every key with its state.

    Examples
    --------
    >>> Hash().route(["to", "be", "or", "not", "to", "be"], Destination(6)).tolist()
    [5, 3, 5, 2, 5, 3]
    """

    name: ClassVar[str] = "hash"
    summary: ClassVar[str] = "hash modulo instances: a key in one place, blind to skew"
    origin: ClassVar[str] = "Apache Storm, fields grouping"
    choices: ClassVar[int | None] = 1

    def route_hashes(self, hashes: HashArray, to: Destination) -> IntArray:
        """Give every hash an instance; see `Router.route_hashes`."""
        return modulo(hashes, to.instances)
