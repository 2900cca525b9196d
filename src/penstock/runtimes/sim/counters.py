"""Tuples of each operator since the start, over all plans that ran."""

from __future__ import annotations

import numpy as np

from penstock.common.arrays import FloatArray
from penstock.runtimes.sim.fluid import Fluid

#: What is counted.
COUNTERS = ("arrived", "processed", "dropped")


class Counters:
    """Keeps the counts of plans that ended, and adds those of the plan that runs."""

    def __init__(self, operators: int) -> None:
        self._closed = {name: np.zeros(operators) for name in COUNTERS}

    def close(self, fluid: Fluid) -> None:
        """Add the counts of a plan that ends to those of its operators."""
        for name in COUNTERS:
            self._closed[name] += np.add.reduceat(getattr(fluid, name), fluid.wiring.first[:-1])

    def totals(self, fluid: Fluid) -> dict[str, FloatArray]:
        """Tuples of each operator since the start: arrived, processed, dropped, and queued now."""
        first = fluid.wiring.first[:-1]
        found = {
            name: self._closed[name] + np.add.reduceat(getattr(fluid, name), first)
            for name in COUNTERS
        }
        return {**found, "queued": np.add.reduceat(fluid.queue, first)}
