"""What comes in: rates, keys, and how much they vary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.model import InvalidValue, Topology
from penstock.pipeline.sources.rates import Profile
from penstock.runtimes.sim.keys import KeySpace


@dataclass(frozen=True)
class Workload:
    """A stream.

    Parameters
    ----------
    rates : mapping of str to Profile
        Of each source.
    keys : KeySpace
        Of all keyed edges.
    noise : float
        Coefficient of variation of the number of tuples in a second.
    routers : mapping of str to str
        Routers of operators that are reached by key, where the plan has no table.
    """

    rates: Mapping[str, Profile]
    keys: KeySpace = field(default_factory=KeySpace)
    noise: float = 0.0
    routers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.noise <= 2:
            raise InvalidValue("noise", "a workload", "from 0 to 2", self.noise)

    @classmethod
    def even(cls, topology: Topology, rate: Profile | str | float, keys: KeySpace) -> Workload:
        """Make a workload whose sources share one profile in equal parts."""
        part = scaled(Profile.of(rate), 1.0 / len(topology.sources))
        return cls({o.name: part for o in topology.sources}, keys)

    def parts(self, now_s: float) -> Mapping[str, float]:
        """Part of all tuples that each source reads at a moment; equal parts in a pause."""
        now = {name: profile.rate(now_s) for name, profile in self.rates.items()}
        total = sum(now.values())
        return {n: (r / total if total > 0 else 1.0 / len(now)) for n, r in now.items()}


def scaled(profile: Profile, factor: float) -> Profile:
    """Make a profile with all rates multiplied."""
    if factor == 1.0:
        return profile
    rates = tuple(rate * factor for rate in profile.rates_per_s)
    return replace(profile, rates_per_s=rates, text=f"{profile} x {factor:g}")
