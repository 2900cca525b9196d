"""PStream's router: hot keys shuffled over all instances, cold keys hashed to one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.common.arrays import IntArray
from penstock.common.key_hashing import HashArray, modulo
from penstock.common.parameters import param
from penstock.strategies.route import Destination, KeyRouter, among, register
from penstock.strategies.route.heavy import heaviest

#: Hot keys of a batch at the most.
HOTTEST = 1024


@register
@dataclass(frozen=True)
class HotKey(KeyRouter):
    """Send the tuples of hot keys to all instances in turn, hash the others (PStream).

    H. Chen, F. Zhang, H. Jin: PStream, a popularity-aware differentiated distributed stream
    processing system, IEEE Trans. Comput. 2021. A hot key is everywhere, and a merge must follow; a
    cold one is in one place. Which keys are hot is counted exactly in each sender's batch.

    Examples
    --------
    >>> from penstock.common.key_hashing import hash_keys, modulo
    >>> router, keys = HotKey(), ["cat"] * 97 + ["dog", "cow", "pig"]
    >>> hot = router.hot(hash_keys(keys), instances=4)
    >>> np.bincount(router.route(keys, Destination(4, hot=hot))[:97]).tolist()
    [25, 24, 24, 24]
    """

    name: ClassVar[str] = "hot-key"
    summary: ClassVar[str] = "hot keys shuffled over all instances, cold keys hashed"
    origin: ClassVar[str] = "PStream, Chen et al., IEEE TC 2021"
    choices: ClassVar[int | None] = 1

    threshold: float = param(
        0.2,
        "A key is hot above this many even shares of the stream, one share being 1/instances.",
        least=0,
        unit="shares",
    )

    def hot(self, hashes: HashArray, instances: int) -> frozenset[int]:
        """Hashes of the keys that are hot in a batch, at most `HOTTEST`."""
        keys, _ = heaviest(hashes, self.threshold / instances, most=HOTTEST)
        return frozenset(keys.tolist())

    def route_hashes(self, hashes: HashArray, to: Destination) -> IntArray:
        """Give every hash an instance; see `Router.route_hashes`."""
        instance = modulo(hashes, to.instances)
        if to.hot:
            hot = np.array(sorted(to.hot), dtype=np.uint64)
            rows = np.flatnonzero(among(hashes, hot) >= 0)
            turns = np.arange(to.position, to.position + len(rows), dtype=np.uint64)
            instance[rows] = modulo(turns, to.instances)
        return instance
