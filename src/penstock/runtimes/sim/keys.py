"""Skewed keys, sent through the routers that the engine uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.common.arrays import FloatArray, group_sums
from penstock.common.key_hashing import HashArray
from penstock.model import RoutingTable
from penstock.pipeline.sources.zipf import Zipf
from penstock.strategies.route import Destination, hash_keys, routers
from penstock.strategies.route.fill import filled
from penstock.strategies.route.hot_key import HotKey
from penstock.strategies.route.two_tier import TwoTier

#: Tuples that are routed to find the shares of routers that look at more than the key.
SAMPLE = 1 << 16

#: A key is reported as hot above this part of an instance's fair share.
REPORTED = 0.02
#: Keys that are reported at the most.
KEPT = 32


@dataclass(frozen=True)
class KeySpace:
    """The keys of a stream and how often each comes.

    Examples
    --------
    >>> KeySpace(keys=1000, zipf=0.0).shares("hash", 4).round(2).tolist()
    [0.26, 0.25, 0.24, 0.25]

    Parameters
    ----------
    keys : int
        Different keys.
    zipf : float
        Skew; 0 makes all alike.
    seed : int
        Of the order in which keys come, for routers that depend on it.
    """

    keys: int = 10_000
    zipf: float = 0.0
    seed: int = 0

    @cached_property
    def probabilities(self) -> FloatArray:
        """Part of the stream that each key has."""
        return Zipf(self.keys, self.zipf).probabilities

    @cached_property
    def hashes(self) -> HashArray:
        """Hash of each key."""
        return hash_keys(np.arange(self.keys))

    def shares(self, router: str, instances: int, table: RoutingTable | None = None) -> FloatArray:
        """Part of the stream that each instance gets.

        Where a key goes to one instance whatever else is sent, the keys are routed and their parts
        added up. Other routers are given a sample of the stream in random order.
        """
        made = routers.make(router)
        if made.choices == 1 and not isinstance(made, HotKey):
            whole = table if isinstance(made, TwoTier) else None
            plain = RoutingTable(whole.partitions) if whole is not None else None
            owner = made.route_hashes(self.hashes, Destination(instances, plain))
            shares = group_sums(owner, self.probabilities, instances)
            return shares if whole is None else self._split(shares, owner, whole)
        sample = self._sample
        hot = made.hot(sample, instances) if _hot(made) else frozenset()
        routed = made.route_hashes(sample, Destination(instances, hot=hot))
        return np.bincount(routed, minlength=instances) / len(sample)

    def partition_shares(self, partitions: int) -> FloatArray:
        """Part of the stream that each router partition gets."""
        owner = (self.hashes % np.uint64(partitions)).astype(np.int64)
        return group_sums(owner, self.probabilities, partitions)

    def hot(self, instances: int) -> Mapping[int, float]:
        """Hashes of the hottest keys, with their parts of the stream."""
        found = np.flatnonzero(self.probabilities[:KEPT] > REPORTED / instances)
        return {int(self.hashes[k]): float(self.probabilities[k]) for k in found}

    def _split(self, shares: FloatArray, owner: np.ndarray, table: RoutingTable) -> FloatArray:
        """Pour the keys that a table splits to where there is least."""
        if not table.split:
            return shares
        number = {int(h): k for k, h in enumerate(self.hashes)}
        loose: list[tuple[float, list[int]]] = []
        for key, ways in table.split.items():
            if (k := number.get(key)) is None:
                continue
            shares[owner[k]] = max(0.0, shares[owner[k]] - self.probabilities[k])
            loose.append((float(self.probabilities[k]), list(ways)))
        for part, at in sorted(loose, reverse=True):
            shares[at] += filled(shares[at], part)
        return shares

    @cached_property
    def _sample(self) -> HashArray:
        rng = np.random.default_rng(self.seed)
        # Evenly spaced quantiles in random order: the frequencies are exact, only the order varies.
        at = rng.permutation((np.arange(SAMPLE) + 0.5) / SAMPLE)
        return self.hashes[Zipf(self.keys, self.zipf).ranks(at)]


def _hot(router: object) -> bool:
    return isinstance(router, HotKey)
