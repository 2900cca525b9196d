"""Micro-batches: how long one takes, and how much may be in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.common.arrays import FloatArray, group_counts, group_sums
from penstock.engine.source_queue import QUEUE
from penstock.model import Cluster
from penstock.runtimes.sim.costs import CostProfile
from penstock.runtimes.sim.wiring import Wiring

#: Tuples that a batch takes at the most, as `penstock.engine.source_queue.SourceQueue` lets it.
MOST = float(QUEUE)


@dataclass(frozen=True)
class BatchTimes:
    """Length of a batch: its layers one after the other, each as slow as its slowest node.

    Parameters
    ----------
    interval_s : float
    fixed_s : float
        Time of an empty batch: its own, and that of its tasks.
    per_tuple_s : float
        Time that each source tuple of the batch adds.
    """

    interval_s: float
    fixed_s: float
    per_tuple_s: float

    @classmethod
    def of(cls, wiring: Wiring, cluster: Cluster, costs: CostProfile) -> BatchTimes:
        """Work it out for a plan."""
        fixed, per_tuple = costs.batch_ms * 1e-3, 0.0
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

    def duration_s(self, tuples: float) -> float:
        """Time that a batch of so many source tuples is worked on; there are no empty ones."""
        return self.fixed_s + tuples * self.per_tuple_s if tuples > 0 else 0.0


@dataclass(frozen=True)
class MicroBatch:
    """One batch.

    Parameters
    ----------
    tuples : float
        Source tuples in it.
    gathered_s : float
        Time in which they came: that of the batch before.
    duration_s : float
        Time that it is worked on.
    length_s : float
        Time until the next one starts.
    """

    tuples: float
    gathered_s: float
    duration_s: float
    length_s: float


class BatchClock:
    """Batches one after the other: each takes all that came while the one before it ran.

    One that takes longer than the interval makes the next one larger. When tuples come faster than
    they can be worked on, batches grow until they hold `MOST`; what a fixed time costs each of them
    weighs less and less meanwhile.

    Parameters
    ----------
    times : BatchTimes
    before : BatchClock, optional
        The one that it goes on from, under another plan.
    """

    def __init__(self, times: BatchTimes, before: BatchClock | None = None) -> None:
        self.times = times
        self.batch: MicroBatch = MicroBatch(0.0, 0.0, 0.0, times.interval_s)
        self._left_s: float = times.interval_s
        self._seen: list[MicroBatch] = []
        if before is not None:
            self.batch, self._left_s, self._seen = before.batch, before._left_s, before._seen

    def advance(self, seconds: float, waiting: float, arriving: float) -> float:
        """Let time pass; return the source tuples that are worked on in it.

        Parameters
        ----------
        seconds : float
        waiting, arriving : float
            Source tuples that are there and not yet worked on, and that come in this time.
        """
        taken = at_s = 0.0
        while at_s < seconds - 1e-12:
            if self._left_s <= 1e-12:
                there = waiting + arriving * at_s / seconds - taken
                self._start(min(max(there, 0.0), MOST))
            part_s = min(self._left_s, seconds - at_s)
            taken += self.batch.tuples * part_s / self.batch.length_s
            self._left_s -= part_s
            at_s += part_s
        return taken

    def sample_ms(self, rng: np.random.Generator, count: int, behind_s: float) -> FloatArray:
        """Draw latencies of the batches since it was last asked: the wait for one, and its work.

        Parameters
        ----------
        rng : numpy.random.Generator
        count : int
        behind_s : float
            Time that tuples wait besides, because more came than a batch holds.
        """
        found = [one for one in self._seen if one.tuples > 0] or [self.batch]
        self._seen = []
        weights = np.cumsum([max(one.tuples, 1e-9) for one in found])
        at = np.searchsorted(weights, rng.random(count) * weights[-1], side="right")
        gathered = np.array([one.gathered_s for one in found])[at]
        work = np.array([one.duration_s for one in found])[at]
        return np.asarray((rng.random(count) * gathered + work + behind_s) * 1e3, dtype=np.float64)

    def _start(self, tuples: float) -> None:
        took_s = self.times.duration_s(tuples)
        length_s = max(self.times.interval_s, took_s)
        self.batch = MicroBatch(tuples, self.batch.length_s, took_s, length_s)
        self._left_s = length_s
        self._seen.append(self.batch)
