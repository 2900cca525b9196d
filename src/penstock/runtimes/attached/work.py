"""How the work of state partitions varies from batch to batch. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from penstock.common.arrays import FloatArray
from penstock.store.records import InstanceRecord

#: Batches that are looked back on: those of the window that strategies see.
KEPT = 20


class WorkTimes:
    """Time of every state partition in the last batches.

    Examples
    --------
    >>> times = WorkTimes({"save": 2})
    >>> for first in (10.0, 30.0):
    ...     times.add([InstanceRecord("r", 0, "save", n, "a", run_ms=first) for n in range(2)])
    >>> [half.tolist() for half in times.halves("save")]
    [[0.5, 0.5], [1.5, 1.5]]

    Parameters
    ----------
    partitions : mapping of str to int
        How many each stage has.
    """

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = dict(partitions)
        self._batches: deque[dict[str, FloatArray]] = deque(maxlen=KEPT)

    def add(self, instances: Sequence[InstanceRecord]) -> None:
        """Take note of a batch."""
        times = {name: np.zeros(count) for name, count in self._partitions.items()}
        for one in instances:
            if one.operator in times:
                times[one.operator][one.index] += one.run_ms or 0.0
        self._batches.append(times)

    def changed(self) -> None:
        """Begin anew: elsewhere the same work may take another time."""
        self._batches.clear()

    def halves(self, stage: str) -> tuple[FloatArray, FloatArray]:
        """Mean time of each partition in every second batch and in the others, over that in all."""
        seen = [times[stage] for times in self._batches]
        if len(seen) < 2:
            same = np.ones(self._partitions[stage])
            return same, same
        mean = np.mean(seen, axis=0)
        below = np.where(mean > 0, mean, 1.0)
        first, second = (
            np.where(mean > 0, np.mean(seen[at::2], axis=0) / below, 1.0) for at in (0, 1)
        )
        return first, second
