"""The tuples that the sources offer, step by step."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import FloatArray
from penstock.model import Topology
from penstock.model.operator import Kind
from penstock.runtimes.sim.workload import Workload


class Arrivals:
    """Follows the rate profiles of a workload, with its noise.

    Parameters
    ----------
    workload : Workload
    random : numpy.random.Generator
        Of the noise.
    """

    def __init__(self, workload: Workload, random: np.random.Generator) -> None:
        self._workload = workload
        self._random = random
        self._made: dict[str, int] = {}

    def offered(self, topology: Topology, now_s: float, seconds: float) -> FloatArray:
        """Return the tuples that come to each operator within a step; 0 where it is no source."""
        offered = np.zeros(len(topology.operators))
        for i, operator in enumerate(topology.operators):
            if operator.kind is Kind.SOURCE:
                made = self._workload.rates[operator.name].position(now_s + seconds)
                offered[i] = made - self._made.get(operator.name, 0)
                self._made[operator.name] = made
        if self._workload.noise:
            # The tuples of a second vary so much; those of a part of it vary more.
            spread = self._workload.noise / np.sqrt(seconds)
            shape = 1.0 / spread**2
            offered *= self._random.gamma(shape, 1.0 / shape, len(offered))
        return offered
