"""Micro-batches: how long one takes, and how much may be in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.model import Cluster
from penstock.model.arrays import group_counts, group_sums
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.wiring import Wiring

#: A batch grows to at most so many intervals before sources read less than comes.
LONGEST = 10.0


@dataclass(frozen=True)
class BatchTimes:
    """Length of a batch: its layers one after the other, each as slow as its slowest node.

    Parameters
    ----------
    interval_s : float
    fixed_s : float
        Time of the tasks of an empty batch.
    per_tuple_s : float
        Time that each source tuple of the batch adds.
    """

    interval_s: float
    fixed_s: float
    per_tuple_s: float

    @classmethod
    def of(cls, wiring: Wiring, cluster: Cluster, costs: CostProfile) -> BatchTimes:
        """Work it out for a plan."""
        fixed = per_tuple = 0.0
        count, cores = len(cluster), np.maximum(cluster.cpu_cores, 1e-9)
        rate = wiring.flow[wiring.operator_of] * wiring.weight
        for layer in wiring.layers:
            at = layer.instances[wiring.node_of[layer.instances] >= 0]
            node = wiring.node_of[at]
            tasks = group_counts(node, count)
            # Tasks run in rounds of as many as the node has cores.
            rounds = np.ceil(tasks / np.maximum(np.floor(cores), 1.0))
            fixed += float(rounds.max(initial=0.0)) * costs.task_ms * 1e-3
            work = rate[at] * wiring.service_s[at]
            spread = group_sums(node, work, count) / cores
            # One task has one core.
            per_tuple += max(float(spread.max(initial=0.0)), float(work.max(initial=0.0)))
        return cls(costs.batch_s, fixed, per_tuple)

    def length_s(self, per_s: float) -> float:
        """Time from one batch to the next at so many source tuples a second."""
        busy = per_s * self.per_tuple_s
        longest = self.interval_s * LONGEST
        if busy >= 1.0:
            return longest
        return min(max(self.interval_s, self.fixed_s / (1.0 - busy)), longest)

    def duration_s(self, per_s: float) -> float:
        """Time that a batch is worked on."""
        return self.fixed_s + per_s * self.per_tuple_s * self.length_s(per_s)

    def admitted(self, per_s: float) -> float:
        """Part of a rate that batches of the greatest length can take."""
        most = max(1.0 - self.fixed_s / (self.interval_s * LONGEST), 0.0)
        busy = per_s * self.per_tuple_s
        return min(1.0, most / busy) if busy > 0 else 1.0
